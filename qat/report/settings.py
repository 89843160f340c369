"""The settings and versions of the runs: what all share, and in what the setups differ."""

from typing import Any

from qat.report.groups import Group, Groups

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


def same_and_different(groups: Groups, field: str) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The entries of `settings` or `versions` that all runs share, and for the others each setup's value.

    Where the runs of a setup disagree its value lists all of theirs.
    """
    runs = {
        setup: [flat(getattr(run, field)) for one in found for run in one.runs]
        for setup, found in groups.by_setup.items()
    }
    every = dict.fromkeys(name for found in runs.values() for entries in found for name in entries)
    same: dict[str, str] = {}
    different: dict[str, dict[str, str]] = {}
    for name in every:
        if any(other.startswith(f"{name}.") for other in every):
            continue  # a section that one setup lacks: its entries say so already
        values = {
            setup: " / ".join(dict.fromkeys(entries.get(name, ABSENT) for entries in found))
            for setup, found in runs.items()
        }
        shared = set(values.values())
        if len(shared) == 1 and " / " not in (value := shared.pop()):
            same[name] = value
        else:
            different[name] = values
    return same, different


def is_mixed(one: Group) -> bool:
    """Whether the seeds of a group were trained with different settings."""
    return any(run.settings != one.runs[0].settings for run in one.runs)


def _text(value: Any) -> str:
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
