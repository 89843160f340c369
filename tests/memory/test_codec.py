import pytest
import torch

from qat.memory import codec as codec_module
from qat.memory.codec import GridCodec, bits_stored, pack_bits, unpack_bits
from qat.quantizers import AsymmetricScale, IntGrid, ObservedScale, Quantizer


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 64, 65])
def test_integers_are_packed_and_come_back(bits: int, count: int) -> None:
    torch.manual_seed(0)
    index = torch.randint(0, 2**bits, (count,), dtype=torch.uint8)
    packed = pack_bits(index, bits)
    assert packed.dtype == torch.uint8
    assert len(packed) == -(-count * bits // 8)
    assert torch.equal(unpack_bits(packed, bits, count), index)


def test_three_bits_take_four_and_five_to_seven_take_eight() -> None:
    assert [bits_stored(bits) for bits in (1, 2, 3, 4, 5, 6, 7, 8, 16)] == [1, 2, 4, 4, 8, 8, 8, 8, 16]


def quantizer(bits: int, kind: str) -> Quantizer:
    if kind == "asymmetric":
        grid = IntGrid(bits, signed=False)
        return Quantizer(grid, AsymmetricScale(grid.high))
    grid = IntGrid(bits, signed=kind != "unsigned")
    if kind == "per channel":
        return Quantizer(grid, ObservedScale(grid.high, "max", (1, 6, 1, 1), axis=1))
    return Quantizer(grid, ObservedScale(grid.high, "ema"))


@pytest.mark.parametrize("kind", ["signed", "unsigned", "per channel", "asymmetric"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6, 7, 8, 16])
def test_values_come_back_to_the_last_bit(bits: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec_module, "CHUNK", 1000)
    chosen = quantizer(bits, kind)
    # The second is larger than one chunk.
    for dtype, shape in [
        (torch.float32, (3, 6, 5, 7)),
        (torch.float32, (2, 6, 16, 16)),
        (None, (3, 6, 5, 7)),
    ]:
        for low_precision in [torch.bfloat16, torch.float16, torch.float64] if dtype is None else [dtype]:
            if bits == 16 and low_precision.itemsize == 2:
                continue  # as large as its codes: not packed
            torch.manual_seed(bits)
            x = torch.randn(shape).to(low_precision).contiguous(memory_format=torch.channels_last)
            y = chosen(x.abs() if kind == "unsigned" else x)
            scale = chosen.scale(x)
            codec = GridCodec(chosen.grid, scale, chosen.scale.zero_point(scale))
            packed = codec.encode(y)
            assert packed.untyped_storage().nbytes() == -(-y.numel() * bits_stored(bits) // 8)
            again = codec.decode(packed, y.shape, y.stride(), y.dtype)
            assert torch.equal(again, y)
            assert torch.equal(again.signbit(), y.signbit())
            assert again.stride() == y.stride()
            assert again.dtype == y.dtype


def test_infinite_values_of_float16_come_back() -> None:
    grid = IntGrid(4, signed=False)
    codec = GridCodec(grid, torch.tensor(1e4), None)
    y = (torch.tensor([0.0, 1.0, 15.0]) * 1e4).half()
    assert y.tolist() == [0, 1e4, float("inf")]
    assert torch.equal(codec.decode(codec.encode(y), y.shape, y.stride(), y.dtype), y)
