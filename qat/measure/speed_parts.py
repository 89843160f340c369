"""The parts of the benchmark: options in, a `PartResult` out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from qat.measure import ops, peer_brevitas, peer_torch_ao, startup
from qat.measure.modes import FLOAT, FLOAT_COMPILED, MODES, QAT, QAT_LEARNED
from qat.measure.rounds import Candidate, TimedCall, Timing, measure
from qat.measure.shares import profile_step
from qat.measure.speed_tables import scaling_table, shares_table, startup_table, timing_table
from qat.measure.step import TrainStep
from qat.measure.tables import ResultTable
from qat.measure.workload import Workload, check_device
from qat.names import match_names, unknown_name
from qat.progress import announced

IMAGES = {"small_cnn": (1, 28, 28), "resnet8": (3, 32, 32), "resnet20": (3, 32, 32)}
"""The networks, and their images: those of MNIST, and of CIFAR-10."""
STEP_REFERENCES = {FLOAT: "float", FLOAT_COMPILED: "compiled", QAT: "qat"}
PEERS: dict[str, tuple[Callable[[nn.Module, Tensor], nn.Module], str | None]] = {
    "torch.ao FX": (peer_torch_ao.fx_network, None),
    "torchao PT2E, 8 bits": (peer_torch_ao.pt2e_network, "torchao"),
    "Brevitas": (partial(peer_brevitas.network, peer_brevitas.LEARNS), "brevitas"),
    "Brevitas, first 300": (partial(peer_brevitas.network, peer_brevitas.COLLECTS), "brevitas"),
}


@dataclass(frozen=True)
class SpeedOptions:
    """What the benchmark measures.

    Args:
        size: Shape of the tensor in the part ops: N C H W.
        sizes: Numbers of elements of the tensors in the part scaling.
        models: Any of small_cnn, resnet8, resnet20; the parts profile and startup use only the last one.
        batch_size: Images in a step.
        rounds: Rounds, each of which runs every candidate once.
        only: Glob patterns of the candidates to time in the parts ops and steps.
        device: Device on which everything runs.
        threads: Number of CPU threads; by default torch decides.

    Raises:
        ValueError: an argument is out of its range.
    """

    size: tuple[int, ...] = (64, 64, 32, 32)
    sizes: tuple[int, ...] = tuple(10**power for power in range(4, 9))
    models: tuple[str, ...] = tuple(IMAGES)
    batch_size: int = 128
    rounds: int = 20
    only: tuple[str, ...] = ("*",)
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int | None = None

    def __post_init__(self) -> None:
        for name, least in {"batch_size": 2, "rounds": 1, "threads": 1}.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if len(self.size) != 4 or min(self.size) < 1:
            raise ValueError(f"size must be four numbers of at least 1, N C H W; got {list(self.size)}")
        for size in self.sizes:
            if size < 1 or size % ops.UNIT:
                raise ValueError(f"sizes must be multiples of {ops.UNIT}, got {size}")
        for model in self.models:
            if model not in IMAGES:
                raise unknown_name("model", model, IMAGES)
        check_device(self.device)
        self.names()

    def names(self) -> set[str]:
        """The candidates of the parts ops and steps that take part.

        Raises:
            ValueError: a glob matches none.
        """
        known = [*(c.name for c in ops.op_candidates((1, 1), "cpu")), *MODES, *PEERS]
        return {name for glob in self.only for name in match_names(glob, known, "only pattern")}

    def workload(self, model: str) -> Workload:
        """The training of one of the networks."""
        return Workload(model, IMAGES[model], self.batch_size, ops.BITS, device=self.device)


class PartResult(NamedTuple):
    """What a part found: tables, plain values for JSON, and whether a candidate failed."""

    tables: list[ResultTable]
    results: Any
    failed: bool = False


def run_ops(options: SpeedOptions) -> PartResult:
    """One fake-quantizer, forward and backward."""
    shape = " x ".join(map(str, options.size))
    title = f"Fake-quantize forward and backward, {shape} floats, {ops.BITS} bits"
    candidates = ops.op_candidates(options.size, options.device)
    part = _time_groups({"ops": candidates}, title, ops.OP_REFERENCES, options)
    return part._replace(results=part.results["ops"])


def run_scaling(options: SpeedOptions) -> PartResult:
    """Time of a fake-quantizer against the size of the tensor."""
    timings: dict[int, list[Timing]] = {}
    for size in sorted(options.sizes):
        missing = ops.too_large(size, options.device)
        timings[size] = [Timing(name, missing=missing) for name in ops.SCALING]
        if not missing:
            candidates = ops.scaling_candidates(size, options.device)
            timings[size] = measure(f"{size:,} elements", candidates, options.rounds, options.device)
    return PartResult([scaling_table(timings, ops.FLOOR)], *_plain(timings, [ops.FLOOR]))


def run_steps(options: SpeedOptions) -> PartResult:
    """One training step of each network."""
    title = f"One training step of {{}}, W4A4, batch {options.batch_size}, SGD"
    candidates = {model: step_candidates(options.workload(model)) for model in options.models}
    return _time_groups(candidates, title, STEP_REFERENCES, options)


def run_profile(options: SpeedOptions) -> PartResult:
    """Profile of a training step."""
    model, shares = options.models[-1], {}
    modes = (FLOAT, QAT, QAT_LEARNED)
    with announced("profile", len(modes)) as announce:
        for name in modes:
            announce(name)
            step = options.workload(model).timed_step(name)
            shares[name] = profile_step(step.call, options.rounds, options.device)
    title = f"Where the time of a step of {model} goes, W4A4, batch {options.batch_size}"
    results = [{"name": name, "seconds": seconds} for name, seconds in shares.items()]
    return PartResult([shares_table(title, shares)], results)


def run_startup(options: SpeedOptions) -> PartResult:
    """Time of the first use in a process, including compilation."""
    model, batch = options.models[-1], options.batch_size
    with announced("startup", len(startup.STARTUP_MODES) * len(startup.CACHES)) as announce:
        rows = startup.measure_startup(options.workload(model), announce)
    title = f"First use in a process, s: kernels, and steps over later ones; {model}, batch {batch}"
    return PartResult([startup_table(title, rows)], rows, any(row["error"] for row in rows))


PARTS: dict[str, Callable[[SpeedOptions], PartResult]] = {
    "ops": run_ops,
    "scaling": run_scaling,
    "steps": run_steps,
    "profile": run_profile,
    "startup": run_startup,
}
DEFAULT_PARTS = ("ops", "scaling", "steps")


def step_candidates(workload: Workload) -> list[Candidate]:
    """The step of one network in all modes and by all peers, from the same initial weights."""

    def of_peer(convert: Callable[[nn.Module, Tensor], nn.Module]) -> TimedCall:
        images, labels = workload.random_batch()
        step = TrainStep(convert(workload.build(MODES[FLOAT]), images), MODES[FLOAT])
        return TimedCall(partial(step, images, labels))

    own = [Candidate(name, partial(workload.timed_step, name)) for name in MODES]
    peers = PEERS.items()
    return own + [Candidate(name, partial(of_peer, convert), package) for name, (convert, package) in peers]


def _time_groups(
    groups: Mapping[str, Sequence[Candidate]],
    title: str,
    references: Mapping[str, str],
    options: SpeedOptions,
) -> PartResult:
    """Time the chosen candidates of each group, and show each group in a table."""
    names, timings = options.names(), {}
    for group, candidates in groups.items():
        chosen = [candidate for candidate in candidates if candidate.name in names]
        timings[group] = measure(group, chosen, options.rounds, options.device)
    tables = [timing_table(title.format(group), rows, references) for group, rows in timings.items()]
    return PartResult(tables, *_plain(timings, references))


def _plain(timings: Mapping[Any, Sequence[Timing]], references: Iterable[str]) -> tuple[Any, bool]:
    """Rows for JSON, with median, spread and ratios to the references; and whether a candidate failed."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for group, rows in timings.items():
        known = {timing.name: timing for timing in rows if timing.seconds}
        groups[str(group)] = [asdict(timing) for timing in rows]
        for row in groups[str(group)]:
            if timing := known.get(row["name"]):
                ratios = {name: timing.ratio(known[name]) for name in references if name in known}
                row |= {"median": timing.median, "spread": timing.spread, "ratios": ratios}
    return groups, any(timing.error for rows in timings.values() for timing in rows)
