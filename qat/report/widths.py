"""Results of several bit-widths: which there are, and those of one of them."""

from collections.abc import Iterable

from qat.experiment.results import Result, Runs, Width, by_setup, width


def widths(results: list[Result]) -> list[Width]:
    """The widths that there are, the widest first; float has none."""
    return sorted({bits for run in results if (bits := width(run)) is not None}, reverse=True)


def at_width(results: list[Result], bits: Width) -> list[Result]:
    """The runs of one width, and those that have none."""
    return [run for run in results if width(run) in (bits, None)]


def detail_width(results: list[Result]) -> Width:
    """The width that is shown in detail: the narrowest of those with the most setups."""
    return min(widths(results), key=lambda bits: (-len(by_setup(at_width(results, bits))), bits))


def by_width(runs: Runs) -> dict[Width, Runs]:
    """The runs of one setup under their widths, the widest first."""
    return {bits: [run for run in runs if width(run) == bits] for bits in widths(runs)}


def short_bits(bits: Width) -> str:
    """A width as a column's title: `4`, or `w3a2` where weights and activations differ."""
    return f"{bits[0]}" if bits[0] == bits[1] else f"w{bits[0]}a{bits[1]}"


def bits_text(several: Iterable[Width]) -> str:
    """Widths in a sentence: 1 bit; 2 bits; 8, 4 and w3a2 bits."""
    texts = [short_bits(bits) for bits in several]
    joined = " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
    return f"{joined} bit" if joined == "1" else f"{joined} bits"
