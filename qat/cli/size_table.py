"""A table of the bytes that a network takes in several formats."""

from collections.abc import Mapping

from rich.table import Table

from qat.export import Sizes


def size_table(columns: Mapping[str, Sizes]) -> Table:
    """Bytes of each weight, of all weights with their share of the first column's, and of the file."""
    table = Table(title="bytes", title_justify="left")
    table.add_column("weights of")
    for name in columns:
        table.add_column(name, justify="right")
    first, *_ = sizes = list(columns.values())
    for layer in first.layers:
        table.add_row(layer, *(f"{size.layers[layer]:,}" for size in sizes))
    table.add_row("all", *(f"{size.weights:,}" for size in sizes), style="bold")
    table.add_row("of float's", *(f"{size.weights / first.weights:.3f}" for size in sizes))
    table.add_section()
    table.add_row("file (C: constants)", *(f"{size.total:,}" for size in sizes), style="bold")
    return table
