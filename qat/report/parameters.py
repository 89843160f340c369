"""What each parameter of the network did: its gradients and how far it went."""

from qat.experiment.results import Result, Runs, by_setup
from qat.report.spread import Spread, listing


def parameter_names(results: list[Result]) -> list[str]:
    """Every parameter that some run has, in the order of the network."""
    return list(
        dict.fromkeys(name for run in results for name in (*run["gradient_norm"], *run["displacement"]))
    )


def gradient(runs: Runs, name: str) -> tuple[Spread, Spread] | None:
    """Norm of the parameter's gradient in the first and the last epoch; None where no run has it."""
    pairs = [run["gradient_norm"][name] for run in runs if name in run["gradient_norm"]]
    if not pairs:
        return None
    return Spread.of(first for first, _ in pairs), Spread.of(last for _, last in pairs)


def moved(runs: Runs, name: str) -> Spread | None:
    """L2 distance between the parameter's first and last value; None where no run has it."""
    distances = [run["displacement"][name] for run in runs if name in run["displacement"]]
    return Spread.of(distances) if distances else None


def is_zero(spread: Spread | None) -> bool:
    """Whether every value was exactly 0."""
    return spread is not None and spread.count > 0 and spread.low == spread.high == 0 and not spread.lost


def without_gradient(runs: Runs) -> list[str]:
    """The parameters whose gradient was exactly 0 in the first and in the last epoch, for every seed."""
    names = []
    for name in parameter_names(runs):
        norms = gradient(runs, name)
        if norms is not None and is_zero(norms[0]) and is_zero(norms[1]):
            names.append(name)
    return names


def layers_reading(results: list[Result]) -> str:
    """Which setups leave parameters without a gradient, whether those moved, and which are left to learn."""
    complete, parts = [], []
    for setup, runs in by_setup(results).items():
        names = parameter_names(runs)
        still = without_gradient(runs)
        if still:
            parts.append(f"under `{setup}` {_still(runs, names, still)}")
        elif names:
            complete.append(setup)
    if complete:
        parts.append(f"under {listing(complete)} every parameter got a gradient")
    broken = [
        setup
        for setup, runs in by_setup(results).items()
        if any(norm.lost for name in parameter_names(runs) for norm in gradient(runs, name) or ())
    ]
    if broken:
        parts.append(f"some gradients of {listing(broken)} were not finite")
    text = "; ".join(parts) or "no run recorded a parameter"
    return text[0].upper() + text[1:] + "."


def _still(runs: Runs, names: list[str], still: list[str]) -> str:
    text = (
        f"{len(still)} of {len(names)} parameters got a gradient of exactly 0 in the first and the last epoch"
    )
    went = {name: moved(runs, name) for name in still}
    drifted = [name for name, distance in went.items() if distance is not None and not is_zero(distance)]
    if drifted:
        shown = f" ({listing(drifted)})" if len(drifted) <= 3 else ""
        text += f" and {len(drifted)} of those moved all the same{shown}"
    else:
        text += " and never moved" if all(went.values()) else ""
    rest = [name for name in names if name not in still]
    if not rest:
        return f"{text}, so that nothing learned" if not drifted else text
    return f"{text}, which leaves {listing(rest) if len(rest) <= 3 else f'{len(rest)} others'} to learn"
