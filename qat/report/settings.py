"""What the runs were told and what they ran on: what is the same for all and what differs."""

from typing import Any

from qat.experiment.results import Result, Width, by_setup, width
from qat.report.spread import listing, numbered

ABSENT = "-"


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, values as text."""
    found: dict[str, str] = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = _text(value)
    return found


def same_and_different(results: list[Result], field: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The entries of `settings` or `versions` that all runs share, and for the others each setup's value.

    Where the seeds of a setup disagree its value lists all of theirs.
    """
    runs = [(run["setup"], flat(run[field])) for run in results]
    same: dict[str, str] = {}
    different: dict[str, dict[str, str]] = {}
    names = dict.fromkeys(name for _, entries in runs for name in entries)
    for name in names:
        if any(other.startswith(f"{name}.") for other in names):
            continue  # a section that one setup lacks: its entries say so already
        values = list(dict.fromkeys(entries.get(name, ABSENT) for _, entries in runs))
        if len(values) == 1:
            same[name] = values[0]
            continue
        different[name] = {
            setup: " / ".join(dict.fromkeys(entries.get(name, ABSENT) for of, entries in runs if of == setup))
            for setup in by_setup(results)
        }
    return same, different


def mixed_setups(results: list[Result]) -> list[str]:
    """The setups whose seeds were not trained with the same settings: their mean compares unlike runs."""
    first: dict[tuple[str, Width | None], dict[str, str]] = {}
    unlike = [
        run["setup"]
        for run in results
        if flat(run["settings"]) != first.setdefault((run["setup"], width(run)), flat(run["settings"]))
    ]
    return list(dict.fromkeys(unlike))


def settings_reading(results: list[Result]) -> str:
    """In what the setups differ, whether they had the same seeds, and whether the versions are the same."""
    setups = by_setup(results)
    _, different = same_and_different(results, "settings")
    # What all setups were given in the same several widths sets none of them apart.
    different = {name: values for name, values in different.items() if len(set(values.values())) > 1}
    parts = []
    if len(setups) > 1:
        # Many entries of one section are named by the section: float lacks all of `quantization`.
        names = (
            list(different)
            if len(different) <= 3
            else list(dict.fromkeys(n.split(".")[0] for n in different))
        )
        parts.append(
            f"the setups differ in {listing(names)} alone" if names else "all setups have the same settings"
        )
    mixed = mixed_setups(results)
    if mixed:
        parts.append(f"WARNING: the seeds of {listing(mixed)} were trained with different settings")
    seeds = {name: sorted({run["seed"] for run in runs}) for name, runs in setups.items()}
    if len({tuple(numbers) for numbers in seeds.values()}) == 1:
        numbers = next(iter(seeds.values()))
        each = " each" if len(setups) > 1 else ""
        parts.append(numbered("seed", numbers) + each)
    else:
        parts.append(f"the setups had unlike seeds ({_seed_list(seeds)})")
    _, versions = same_and_different(results, "versions")
    parts.append(
        f"versions differ between runs: {listing(versions)}"
        if versions
        else "one set of versions for all runs"
    )
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def _text(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _seed_list(seeds: dict[str, list[int]]) -> str:
    return "; ".join(f"`{name}` {numbered('seed', numbers)}" for name, numbers in seeds.items())
