"""PyTorch's own fake-quantization: its operators, torch.ao's modules and FX mode, and torchao's PT2E mode."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from warnings import catch_warnings

import torch
from torch import Tensor, nn
from torch.ao import quantization as ao

# torch.ao has no public module whose scale is learned.
from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize
from torch.ao.quantization.quantize_fx import prepare_qat_fx

PER_TENSOR = "torch, per tensor"  # torch.fake_quantize_per_tensor_affine


@contextmanager
def _deprecated() -> Iterator[None]:
    """Ignore that all of torch.ao.quantization is deprecated."""
    with catch_warnings(action="ignore", category=DeprecationWarning):
        yield


def quantizers(x: Tensor, bits: int) -> dict[str, Callable[[], Callable[[Tensor], Tensor]]]:
    """The operators, with a fixed scale, and the modules, whose scale is observed or learned."""
    high = 2 ** (bits - 1) - 1
    scale, scales = x.abs().amax() / high, x.abs().flatten(1).amax(1) / high
    zero, zeros = (torch.zeros_like(s, dtype=torch.int32) for s in (scale, scales))
    per_tensor, per_channel = torch.fake_quantize_per_tensor_affine, torch.fake_quantize_per_channel_affine
    return {
        PER_TENSOR: lambda: lambda x: per_tensor(x, scale, zero, -high, high),
        "torch, per channel": lambda: lambda x: per_channel(x, scales, zeros, 0, -high, high),
        "torch.ao, observed": lambda: _observed(x, high),
        "torch.ao, learned": lambda: _learned(x, high),
    }


def _symmetric(high: int) -> dict[str, Any]:
    scheme = torch.per_tensor_symmetric
    return {"quant_min": -high, "quant_max": high, "dtype": torch.qint8, "qscheme": scheme}


@_deprecated()
def _observed(x: Tensor, high: int) -> nn.Module:
    observer = ao.MovingAverageMinMaxObserver
    return ao.FusedMovingAvgObsFakeQuantize(observer, **_symmetric(high)).to(x.device)


@_deprecated()
def _learned(x: Tensor, high: int) -> nn.Module:
    observer = ao.MovingAverageMinMaxObserver
    module = _LearnableFakeQuantize(observer, **_symmetric(high), use_grad_scaling=True).to(x.device)
    module.enable_static_estimate()
    module(x)  # the first batch sets the scale
    module.enable_param_learning()
    return module


@_deprecated()
def fx_network(model: nn.Module, images: Tensor) -> nn.Module:
    """The network as torch.ao's FX mode trains it: fused blocks, weights quantized per channel."""
    fake = ao.FusedMovingAvgObsFakeQuantize
    activation = fake.with_args(
        observer=ao.MovingAverageMinMaxObserver, quant_min=0, quant_max=15, dtype=torch.quint8
    )
    observer, scheme = ao.MovingAveragePerChannelMinMaxObserver, torch.per_channel_symmetric
    weight = fake.with_args(observer=observer, **_symmetric(7) | {"qscheme": scheme})
    config = ao.QConfigMapping().set_global(ao.QConfig(activation, weight))
    return prepare_qat_fx(model.train(), config, (images,))


def pt2e_network(model: nn.Module, images: Tensor) -> nn.Module:
    """The network as torchao's PT2E mode trains it: exported, with the configuration for x86, 8 bits."""
    from torchao.quantization.pt2e import move_exported_model_to_train
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    with catch_warnings(action="ignore"):
        config = x86.get_default_x86_inductor_quantization_config(is_qat=True)
        exported = torch.export.export(model.train(), (images,)).module()
        prepared = prepare_qat_pt2e(exported, x86.X86InductorQuantizer().set_global(config))
        return move_exported_model_to_train(prepared)
