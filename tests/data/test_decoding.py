import logging
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from qat.data.decoding import decode, decode_all, is_colour

GRADIENT = torch.arange(30, dtype=torch.uint8).view(1, 5, 6) * 8
WIDE = np.arange(30, dtype=np.uint16).reshape(5, 6) * 2000


def save(path: Path, mode: str) -> Path:
    Image.fromarray(GRADIENT[0].numpy()).convert(mode).save(path)
    return path


def save_png(path: Path, colour_type: int, samples: np.ndarray, channels: int) -> Path:
    """A PNG file of 16 bits a channel, which Pillow cannot write in colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = samples.shape
    rows = np.repeat(samples.astype(">u2")[..., None], channels, -1)
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )
    return path


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "pgm"])
def test_grayscale_is_one_channel(tmp_path: Path, suffix: str) -> None:
    file = save(tmp_path / f"x.{suffix}", "L")
    assert not is_colour(file)
    image, transparent = decode(file)
    assert torch.equal(image, GRADIENT)
    assert not transparent


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "ppm"])
def test_colour_is_three_channels(tmp_path: Path, suffix: str) -> None:
    file = save(tmp_path / f"x.{suffix}", "RGB")
    assert is_colour(file)
    assert torch.equal(decode(file)[0], GRADIENT.repeat(3, 1, 1))


@pytest.mark.parametrize(
    ("mode", "suffix", "channels"),
    [("1", "png", 1), ("LA", "png", 1), ("P", "png", 3), ("RGBA", "png", 3), ("CMYK", "tif", 3)],
)
def test_other_8_bit_modes(tmp_path: Path, mode: str, suffix: str, channels: int) -> None:
    file = save(tmp_path / f"x.{suffix}", mode)
    expected = GRADIENT if mode != "1" else 255 * (GRADIENT > 127)
    found = decode(file)[0]
    assert found.shape == (channels, 5, 6)
    if mode != "1":  # Pillow dithers when it makes one
        assert torch.equal(found, expected.repeat(channels, 1, 1))
    else:
        assert set(found.flatten().tolist()) == {0, 255}


def test_channels_stay_apart(tmp_path: Path) -> None:
    image = torch.arange(90, dtype=torch.uint8).view(3, 5, 6)
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "x.png")
    assert torch.equal(decode(tmp_path / "x.png")[0], image)


STROKE = np.zeros((5, 6), np.uint8)
STROKE[2] = 255


@pytest.mark.parametrize("mode", ["LA", "RGBA", "webp", "P", "L", "RGB", "1"])
def test_what_is_transparent_lies_on_white(tmp_path: Path, mode: str) -> None:
    """A black stroke that is in the alpha channel alone, in each way in which a file can hold it."""
    black, alpha = Image.new("L", (6, 5)), Image.fromarray(STROKE)
    if mode in ("LA", "RGBA"):
        image = black.convert(mode)
        image.putalpha(alpha)
        image.save(tmp_path / "x.png")
    elif mode == "webp":
        layers = Image.merge("RGBA", [black, black, black, alpha])
        layers.save(tmp_path / "x.webp", lossless=True, exact=True)
        (tmp_path / "x.webp").rename(tmp_path / "x.png")  # the content decides, not the suffix
    elif mode == "P":
        image = Image.fromarray(STROKE // 255).convert("P")
        image.putpalette([0, 0, 0] * 256)
        image.save(tmp_path / "x.png", transparency=0)
    else:
        image = Image.fromarray(255 - STROKE).convert(mode)
        image.save(tmp_path / "x.png", transparency=(255, 255, 255) if mode == "RGB" else 255)
    found, transparent = decode(tmp_path / "x.png")
    assert transparent
    assert torch.equal(found, torch.from_numpy(255 - STROKE).expand_as(found))


def test_half_transparent_is_half_white(tmp_path: Path) -> None:
    Image.new("RGBA", (3, 3), (100, 0, 255, 128)).save(tmp_path / "x.png")
    assert decode(tmp_path / "x.png")[0][:, 0, 0].tolist() == [177, 127, 255]


def test_opaque_alpha_changes_nothing(tmp_path: Path) -> None:
    file = save(tmp_path / "x.png", "RGBA")
    assert not decode(file)[1]


def test_white_on_transparent_is_refused(tmp_path: Path) -> None:
    image = Image.new("LA", (6, 5), 255)
    image.putalpha(Image.fromarray(STROKE))
    image.save(tmp_path / "x.png")
    with pytest.raises(ValueError, match=r"^data_root: [^\n]*x\.png' \(all that it shows is white[^\n]*$"):
        decode(tmp_path / "x.png")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["png", "webp", "tif"])
def test_images_are_turned_upright(tmp_path: Path, orientation: int, suffix: str) -> None:
    upright = np.arange(90, dtype=np.uint8).reshape(5, 6, 3)
    # How a camera in each position stores the picture (EXIF 2.3, orientation).
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"tif": {"tiffinfo": {0x0112: orientation}}}.get(suffix, {"exif": exif, "lossless": True})
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / f"x.{suffix}", **options)
    assert torch.equal(decode(tmp_path / f"x.{suffix}")[0].permute(1, 2, 0), torch.from_numpy(upright))


@pytest.mark.parametrize("gray_first", [True, False])
def test_one_image_in_colour_makes_all_so(tmp_path: Path, gray_first: bool, caplog) -> None:
    files = [save(tmp_path / "gray.png", "L"), save(tmp_path / "colour.png", "RGB")]
    red = Image.new("RGB", (6, 5), "red")
    red.save(files[1])
    pairs = [(file, 0) for file in (files if gray_first else files[::-1])]
    with caplog.at_level(logging.INFO, "qat"):
        data = decode_all(pairs, pairs, ("a",))
    gray, colour = data.train_images[[0, 1] if gray_first else [1, 0]]
    assert torch.equal(gray, GRADIENT.repeat(3, 1, 1))
    assert colour[:, 0, 0].tolist() == [255, 0, 0]
    assert torch.equal(data.train_images, data.test_images)
    assert [record.getMessage() for record in caplog.records] == [
        "data_root: 2 of 4 images are in colour, so all are read in colour"
    ]


def test_transparency_is_said_once(tmp_path: Path, caplog) -> None:
    Image.new("RGBA", (6, 5), (9, 9, 9, 128)).save(tmp_path / "x.png")
    with caplog.at_level(logging.INFO, "qat"):
        decode_all([(tmp_path / "x.png", 0)] * 3, [(tmp_path / "x.png", 0)], ("a",))
    assert [record.getMessage() for record in caplog.records] == [
        "data_root: 4 of 4 images are transparent somewhere, so they are laid on white"
    ]


@pytest.mark.parametrize("content", [b"", b"not an image", "half", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"GIF89a"])
def test_a_damaged_image_is_named(tmp_path: Path, content) -> None:
    good, bad = save(tmp_path / "good.png", "L"), save(tmp_path / "bad.png", "L")
    whole = bad.read_bytes()
    bad.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    for train, test in (([good], [bad]), ([bad], [good])):
        with pytest.raises(
            ValueError, match=r"^data_root: cannot read the image [^\n]*bad\.png' [^\n]*remove it$"
        ):
            decode_all([(file, 0) for file in train], [(file, 0) for file in test], ("a",))


def deep(path: Path, kind: str) -> Path:
    file = path / f"deep.{kind[-3:]}"
    if kind in ("gray png", "gray tif"):
        Image.fromarray(WIDE).save(file)
    elif kind == "int32 tif":
        Image.fromarray(WIDE.astype(np.int32)).save(file)
    elif kind == "float tif":
        Image.fromarray(WIDE.astype(np.float32)).save(file)
    elif kind.endswith("png"):
        colour_type, channels = {"colour png": (2, 3), "gray alpha png": (4, 2), "alpha png": (6, 4)}[kind]
        save_png(file, colour_type, WIDE, channels)
    else:
        colour = (
            np.repeat(WIDE.astype(">u2")[..., None], 3, -1) if kind == "colour ppm" else WIDE.astype(">u2")
        )
        file.write_bytes(f"P{6 if kind == 'colour ppm' else 5} 6 5 65535\n".encode() + colour.tobytes())
    return file


@pytest.mark.parametrize(
    "kind",
    [
        *("gray png", "gray tif", "int32 tif", "float tif", "gray pgm"),
        *("colour png", "gray alpha png", "alpha png", "colour ppm"),
    ],
)
def test_more_than_8_bits_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(
        ValueError, match=r"deep\.\w+' \(8 bits a channel expected, got more: mode [^\n]*; replace, convert"
    ):
        decode(deep(tmp_path, kind))


@pytest.mark.parametrize("suffix", ["png", "gif", "tif", "webp"])
def test_several_pictures_are_refused(tmp_path: Path, suffix: str) -> None:
    first, *others = (Image.new("L", (4, 4), 50 * n) for n in range(3))
    first.save(tmp_path / f"x.{suffix}", save_all=True, append_images=others)
    with pytest.raises(ValueError, match=r"x\.\w+' \(one picture expected, got 3\); [^\n]*$"):
        decode(tmp_path / f"x.{suffix}")


def test_the_views_that_a_camera_adds_are_ignored(tmp_path: Path) -> None:
    first, *others = (Image.new("L", (4, 4), 50 * n) for n in range(3))
    first.save(tmp_path / "x.mpo", save_all=True, append_images=others)
    (tmp_path / "x.mpo").rename(tmp_path / "x.jpg")
    assert decode(tmp_path / "x.jpg")[0].tolist() == torch.zeros(1, 4, 4).tolist()


def test_a_decompression_bomb_is_refused(tmp_path: Path) -> None:
    file = save(tmp_path / "x.png", "L")
    content = bytearray(file.read_bytes())
    content[16:24] = struct.pack(">II", 10_000, 10_000)  # Pillow warns, and reads it all the same
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.png' \(Image size \(100000000 pixels\) exceeds[^\n]*; [^\n]*$"):
        decode(file)


def test_more_than_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save(tmp_path / "x.png", "L")
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"total": 100}))
    with pytest.raises(ValueError, match=r"^data_root: [^\n]*must fit in memory[^\n]*; resize them$"):
        decode_all([(file, 0)] * 3, [(file, 0)], ("a",))


def test_another_size_is_named(tmp_path: Path) -> None:
    first, wide = save(tmp_path / "first.png", "L"), tmp_path / "wide.png"
    Image.new("L", (7, 5)).save(wide)
    with pytest.raises(
        ValueError, match=r"^data_root: [^\n]* 6x5 as 'first\.png', [^\n]*wide\.png' has 7x5; [^\n]*$"
    ):
        decode_all([(first, 0)], [(wide, 0)], ("a",))
