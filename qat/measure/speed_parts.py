"""The parts of the benchmark: each measures, and returns tables, plain values for JSON, and errors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn

from qat.measure import ops, peer_brevitas, peer_torch_ao, startup
from qat.measure.modes import FLOAT, FLOAT_COMPILED, MODES, QAT, QAT_LEARNED, Mode
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


@dataclass
class PartResult:
    """What a part found."""

    tables: list[ResultTable] = field(default_factory=list)
    results: Any = None
    errors: list[str] = field(default_factory=list)


def run_ops(options: SpeedOptions) -> PartResult:
    """One fake-quantizer, forward and backward."""
    shape = " x ".join(map(str, options.size))
    title = f"Fake-quantize forward and backward, {shape} floats, {ops.BITS} bits"
    candidates = ops.op_candidates(options.size, options.device)
    return _time_chosen("ops", title, candidates, ops.OP_REFERENCES, options)


def run_scaling(options: SpeedOptions) -> PartResult:
    """Time of a fake-quantizer against the size of the tensor."""
    timings: dict[int, list[Timing]] = {}
    for size in sorted(options.sizes):
        missing = ops.too_large(size, options.device)
        timings[size] = [Timing(name, missing=missing) for name in ops.SCALING]
        if not missing:
            candidates = ops.scaling_candidates(size, options.device)
            timings[size] = measure(f"{size:,} elements", candidates, options.rounds, options.device)
    results = {str(size): _plain(row, [ops.FLOOR]) for size, row in timings.items()}
    errors = [timing.absence for row in timings.values() for timing in row if timing.error]
    return PartResult([scaling_table(timings, ops.FLOOR)], results, errors)


def run_steps(options: SpeedOptions) -> PartResult:
    """One training step of each network."""
    found = PartResult(results={})
    for model in options.models:
        title = f"One training step of {model}, W4A4, batch {options.batch_size}, SGD"
        candidates = step_candidates(options.workload(model))
        part = _time_chosen(model, title, candidates, STEP_REFERENCES, options)
        found.tables += part.tables
        found.results[model] = part.results
        found.errors += part.errors
    return found


def run_profile(options: SpeedOptions) -> PartResult:
    """Profile of a training step."""
    model = options.models[-1]
    modes = (FLOAT, QAT, QAT_LEARNED)
    shares = []
    with announced("profile", len(modes)) as announce:
        for name in modes:
            announce(name)
            step = _in_mode(options.workload(model), MODES[name])
            shares.append(profile_step(name, step.call, options.rounds, options.device))
    title = f"Where the time of a step of {model} goes, W4A4, batch {options.batch_size}"
    return PartResult([shares_table(title, shares)], [asdict(row) for row in shares])


def run_startup(options: SpeedOptions) -> PartResult:
    """Time of the first use in a process, including compilation."""
    model, batch = options.models[-1], options.batch_size
    with announced("startup", len(startup.STARTUP_MODES) * len(startup.CACHES)) as announce:
        rows = startup.measure_startup(options.workload(model), announce)
    title = f"First use in a process, s: kernels, and steps over later ones; {model}, batch {batch}"
    errors = [f"{row.name}: {row.error}" for row in rows if row.error]
    return PartResult([startup_table(title, rows)], [asdict(row) for row in rows], errors)


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

    own = [Candidate(name, partial(_in_mode, workload, mode)) for name, mode in MODES.items()]
    peers = [
        Candidate(name, partial(of_peer, convert), package) for name, (convert, package) in PEERS.items()
    ]
    return own + peers


def _in_mode(workload: Workload, mode: Mode) -> TimedCall:
    return TrainStep(workload.build(mode), mode).on(*workload.random_batch())


def _time_chosen(
    name: str,
    title: str,
    candidates: Sequence[Candidate],
    references: Mapping[str, str],
    options: SpeedOptions,
) -> PartResult:
    names = options.names()
    chosen = [candidate for candidate in candidates if candidate.name in names]
    timings = measure(name, chosen, options.rounds, options.device)
    errors = [timing.absence for timing in timings if timing.error]
    return PartResult([timing_table(title, timings, references)], _plain(timings, references), errors)


def _plain(timings: Sequence[Timing], references: Iterable[str]) -> list[dict[str, Any]]:
    known = {timing.name: timing for timing in timings if timing.seconds}
    rows = [asdict(timing) for timing in timings]
    for row, timing in zip(rows, timings, strict=True):
        if timing.seconds:
            ratios = {name: timing.ratio(known[name]) for name in references if name in known}
            row |= {"median": timing.median, "spread": timing.spread, "ratios": ratios}
    return rows
