from pathlib import Path

import pytest
import torch
from PIL import Image

from qat.data.decoding import channels_of, decode, decode_all

GRADIENT = torch.arange(30, dtype=torch.uint8).view(1, 5, 6) * 8


def save(path: Path, mode: str) -> Path:
    Image.fromarray(GRADIENT[0].numpy()).convert(mode).save(path)
    return path


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "pgm"])
def test_grayscale_is_one_channel(tmp_path: Path, suffix: str) -> None:
    file = save(tmp_path / f"x.{suffix}", "L")
    assert channels_of(file) == 1
    assert torch.equal(decode(file, 1), GRADIENT)
    assert torch.equal(decode(file, 3), GRADIENT.repeat(3, 1, 1))


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "ppm"])
def test_colour_is_three_channels(tmp_path: Path, suffix: str) -> None:
    file = save(tmp_path / f"x.{suffix}", "RGB")
    assert channels_of(file) == 3
    assert torch.equal(decode(file, 3), GRADIENT.repeat(3, 1, 1))


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("LA", 1), ("P", 3), ("RGBA", 3)])
def test_other_8_bit_modes(tmp_path: Path, mode: str, channels: int) -> None:
    file = save(tmp_path / "x.png", mode)
    assert channels_of(file) == channels
    assert decode(file, channels).shape == (channels, 5, 6)


def test_channels_stay_apart(tmp_path: Path) -> None:
    image = torch.arange(90, dtype=torch.uint8).view(3, 5, 6)
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "x.png")
    assert torch.equal(decode(tmp_path / "x.png", 3), image)


def test_the_first_image_decides(tmp_path: Path) -> None:
    gray, colour = save(tmp_path / "gray.png", "L"), save(tmp_path / "colour.png", "RGB")
    data = decode_all([(gray, 0)], [(colour, 0)], ("a",))
    assert torch.equal(data.test_images, GRADIENT[None])
    data = decode_all([(colour, 0)], [(gray, 0)], ("a",))
    assert torch.equal(data.test_images, GRADIENT.repeat(3, 1, 1)[None])


@pytest.mark.parametrize("content", [b"", b"not an image", "half"])
def test_a_damaged_image_is_named(tmp_path: Path, content) -> None:
    good, bad = save(tmp_path / "good.png", "L"), save(tmp_path / "bad.png", "L")
    whole = bad.read_bytes()
    bad.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    for train, test in (([good], [bad]), ([bad], [good])):
        with pytest.raises(
            ValueError, match=r"^data_root: cannot read the image [^\n]*bad\.png [^\n]*remove it$"
        ):
            decode_all([(file, 0) for file in train], [(file, 0) for file in test], ("a",))


def test_16_bits_are_refused(tmp_path: Path) -> None:
    file = save(tmp_path / "deep.png", "I;16")
    with pytest.raises(ValueError, match=r"deep\.png \(8 bits a channel expected, got mode I;16\)"):
        decode(file, 1)


def test_another_size_is_named(tmp_path: Path) -> None:
    first, wide = save(tmp_path / "first.png", "L"), tmp_path / "wide.png"
    Image.new("L", (7, 5)).save(wide)
    with pytest.raises(
        ValueError, match=r"^data_root: [^\n]* 6x5 as first\.png, [^\n]*wide\.png has 7x5; [^\n]*$"
    ):
        decode_all([(first, 0)], [(wide, 0)], ("a",))
