"""The parts of a quantizer: what is wrong with a grid, scale or rounding is said before it is used."""

import torch
from torch import Tensor

from qat.gradients import CLAMPS, ROUNDINGS
from qat.names import unknown_name
from qat.quantizers.grid import IntGrid
from qat.quantizers.scale import Scale, shown

State = dict[str, tuple[Tensor, torch.Size, torch.dtype]]


def check_parts(grid: object, scale: object, rounding: object, outside: object) -> None:
    """Refuse parts that do not follow their contract, or do not go together: a ValueError."""
    if not isinstance(grid, IntGrid):
        raise ValueError(f"grid must be an IntGrid, got {shown(grid)}; write IntGrid(4), for example")
    if not isinstance(scale, Scale):
        remedy = f'construct one, such as ObservedScale({grid.high}, "ema") or LearnedScale({grid.high})'
        raise ValueError(f"scale must be a Scale, got {shown(scale)}; {remedy}")
    if isinstance(rounding, str) or not callable(rounding) or isinstance(rounding, type):
        raise ValueError(f"rounding must be a function, got {shown(rounding)}; {_remedy(rounding)}")
    if outside not in CLAMPS:
        raise unknown_name("outside", outside, CLAMPS)
    check_scale_state(scale)
    if scale.high != grid.high:
        rule = f"scale must have the grid's largest code as its high, {grid.high}, got {scale.high}"
        raise ValueError(f"{rule}; write {type(scale).__name__}({grid.high}, ...)")
    if scale.is_unsigned and grid.low < 0:
        rule = f"grid must start at 0 with {type(scale).__name__}, got {grid.low}..{grid.high}"
        raise ValueError(f"{rule}; write IntGrid({grid.bits}, signed=False)")


def _remedy(rounding: object) -> str:
    if isinstance(rounding, type):
        if issubclass(rounding, torch.autograd.Function):
            return f"give {rounding.__name__}.apply"
        return f"give an instance, {rounding.__name__}(), or a function"
    if rounding in ROUNDINGS:
        return f"give qat.gradients.{ROUNDINGS[str(rounding)].__name__}"
    return "give one of qat.gradients, such as round_ste, or a user-defined function Tensor -> Tensor"


def check_scale_state(scale: Scale) -> None:
    """Refuse a scale whose state is missing, not registered, not float32 or not positive: a ValueError."""
    name = type(scale).__name__
    if "_buffers" not in vars(scale) or "frozen" not in vars(scale):
        raise ValueError(f"{name}.__init__ must call super().__init__(high, axis) first; it does not")
    if type(scale).measure is Scale.measure:
        rule = f"{name} must define measure(x), the statistic of one tensor, but has none"
        raise ValueError(f"{rule}; see the example in `Scale`")
    for inner in scale.children():
        if isinstance(inner, Scale):
            check_scale_state(inner)
    own = dict(scale.named_parameters(recurse=False)) | dict(scale.named_buffers(recurse=False))
    if scale.statistic not in own and type(scale).initialize is Scale.initialize:
        rule = f"{name}.statistic must name a buffer or parameter, got {scale.statistic!r}"
        raise ValueError(f"{rule}; call self.register_buffer({scale.statistic!r}, torch.ones(shape))")
    for key, tensor in own.items():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            rule = f"{name}.{key} must be torch.float32, got {tensor.dtype}"
            raise ValueError(f"{rule}; create it with dtype=torch.float32")
        if tensor.numel() == 0:
            rule = f"{name}.{key} must have its final shape from construction, got {tuple(tensor.shape)}"
            raise ValueError(f"{rule}; give its shape to the constructor")
    try:
        value = scale.value
    except AttributeError:
        value = None
    if not isinstance(value, Tensor):
        rule = f"{name}.value must be the stored scale, a tensor, but there is none"
        raise ValueError(f"{rule}; register a buffer `value`, or define a property")
    # A parameter may have any sign, and a tensor on the meta device, or of a fake mode, has no numbers.
    if type(value) is Tensor and not value.is_meta and not (value > 0).all():
        rule = f"{name}.value must be > 0 from construction, got {value.min().item()}"
        raise ValueError(f"{rule}; start it at 1, or clamp it by torch.finfo(torch.float32).tiny")


def check_input(scale: Scale, x: object) -> None:
    """Refuse what is no floating-point tensor, and one against which the scale does not broadcast."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x must be a floating-point tensor, got {got}; write x.float()")
    shape = scale.value.shape if isinstance(scale.value, Tensor) else ()
    pairs = zip(reversed(shape), reversed(x.shape), strict=False)
    if len(shape) > x.dim() or any(n not in (1, size) for n, size in pairs):
        rule = f"the scale must broadcast against x, got the shapes {tuple(shape)} and {tuple(x.shape)}"
        raise ValueError(f"{rule}; construct the scale with the shape and axis of the channels of x")


def check_output(rounding: object, x: Tensor, value: Tensor) -> None:
    """Refuse values of another shape than x: a ValueError that names the rounding."""
    if value.shape != x.shape:
        name = getattr(rounding, "__name__", repr(rounding))
        rule = f"rounding must keep the shape of its argument, {tuple(x.shape)}, got {tuple(value.shape)}"
        raise ValueError(f"{rule} by {name}; check it with qat.testing.check_rounding")


def state_of(scale: Scale) -> State:
    """The buffers of a scale and of those inside it, which must stay the same tensors."""
    return {
        f"{type(part).__name__}.{name}": (t, t.shape, t.dtype)
        for part in scale.modules()
        for name, t in part.named_buffers(recurse=False)
    }


def check_unreplaced(scale: Scale, before: State) -> None:
    """Refuse buffers that were replaced, reshaped, or record a graph since `before`: a ValueError."""
    after = state_of(scale)
    for name, (tensor, *_) in after.items():
        if tensor.requires_grad:
            rule = f"{name} must record no graph, but was changed outside of `observe` with gradients on"
            raise ValueError(f"{rule}; change it in `observe`, or under torch.no_grad()")
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if old is None or new is None or old[0] is not new[0] or old[1:] != new[1:]:
            rule = f"{name} must stay the same tensor, of its first shape and dtype, but was replaced"
            in_place = f"self.{name.rpartition('.')[2]}.copy_(new)"
            raise ValueError(f"{rule}; change it in place: {in_place}")
