"""Time goes to the kind of work that it is."""

from types import SimpleNamespace

from qat.measure.modes import FLOAT, QAT, QAT_LEARNED
from qat.measure.shares import BACKWARD, KINDS, QUANTIZER, STEP, by_kind, profile_step
from qat.measure.workload import Workload


def test_a_step_of_a_network() -> None:
    workload = Workload("small_cnn", (1, 28, 28), 4)
    for name, quantized in ((FLOAT, False), (QAT, True), (QAT_LEARNED, True)):
        seconds = profile_step(workload.timed_step(name).call, 2, "cpu")
        assert tuple(seconds) == KINDS
        assert (seconds["quantizers"] > 0) == quantized
        assert min(seconds[kind] for kind in ("convolution", "BatchNorm", "rest")) > 0


def event(
    name: str, start: int, time: float, number: int = -1, inside: SimpleNamespace | None = None
) -> SimpleNamespace:
    return SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start),
        time=time,
        sequence_nr=number,
        cpu_parent=inside,
    )


def sums(*events: SimpleNamespace) -> dict[str, float]:
    """Whatever the order of the events: that of the profiler is not promised to be that of time."""
    found = by_kind(events, "time")
    return {kind: time for kind, time in found.items() if time}


def test_a_backward_belongs_to_the_kind_of_its_forward() -> None:
    step = event(STEP, 0, 1.0)
    scope = event(QUANTIZER, 1, 2.0, inside=step)
    quantize = event("FakeQuantize", 2, 4.0, 7, scope)
    add = event("aten::add", 4, 8.0, 8, step)
    back_add = event(BACKWARD + "AddBackward0", 5, 16.0, 8)
    back = event(BACKWARD + "FakeQuantizeBackward", 6, 32.0, 7)
    select = event("aten::where", 7, 64.0, inside=back)
    found = sums(
        select, step, scope, quantize, add, back_add, back
    )  # the profiler's order is not that of time
    assert found == {"quantizers": 2.0 + 4.0 + 32.0 + 64.0, "rest": 1.0 + 8.0 + 16.0}


def test_what_follows_a_quantizer_is_not_part_of_it() -> None:
    # An operator without a gradient carries the number that the next node will get.
    scope = event(QUANTIZER, 1, 1.0)
    detach = event("aten::detach", 2, 2.0, 7, scope)
    relu = event("aten::relu", 3, 4.0, 7)
    back = event(BACKWARD + "ReluBackward0", 4, 8.0, 7)
    assert sums(relu, back, scope, detach) == {"quantizers": 1.0 + 2.0, "rest": 4.0 + 8.0}


def test_convolution_and_batchnorm_go_by_their_names() -> None:
    conv = event("aten::conv2d", 1, 1.0, 7)
    inner = event("aten::mkldnn_convolution", 2, 2.0, inside=conv)
    norm = event("aten::native_batch_norm", 3, 4.0, 8)
    back_norm = event(BACKWARD + "NativeBatchNormBackward0", 4, 8.0, 8)
    back_conv = event(BACKWARD + "ConvolutionBackward0", 5, 16.0, 7)
    resize = event("aten::resize_", 6, 32.0, inside=back_conv)
    found = sums(conv, inner, norm, back_norm, back_conv, resize)
    assert found == {"convolution": 1.0 + 2.0 + 16.0 + 32.0, "BatchNorm": 4.0 + 8.0}
