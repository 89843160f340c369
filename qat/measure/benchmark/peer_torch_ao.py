"""PyTorch's own fake-quantizing: its operators, torch.ao's modules and FX networks, and torchao's PT2E."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from qat.measure.benchmark.both_ways import Function, peer
from qat.measure.benchmark.candidate import Candidate

PER_TENSOR = "torch, per tensor"  # torch.fake_quantize_per_tensor_affine


def quantizers(x: Tensor, g: Tensor, bits: int) -> list[Candidate]:
    """The operators, with a fixed scale, and the modules, whose scale is observed or learned."""
    high = 2 ** (bits - 1) - 1
    scale, scales = x.abs().amax() / high, x.abs().flatten(1).amax(1) / high
    zero, zeros = (torch.zeros_like(s, dtype=torch.int32) for s in (scale, scales))
    makers: dict[str, Callable[[], Function]] = {
        PER_TENSOR: lambda: lambda x: torch.fake_quantize_per_tensor_affine(x, scale, zero, -high, high),
        "torch, per channel": lambda: (
            lambda x: torch.fake_quantize_per_channel_affine(x, scales, zeros, 0, -high, high)
        ),
        "torch.ao, observed": lambda: _observed(high).to(x.device),
        "torch.ao, learned": lambda: _learned(x, high),
    }
    return [peer(name, make, x, g) for name, make in makers.items()]


def _observed(high: int) -> nn.Module:
    with _deprecated():
        from torch.ao.quantization import FusedMovingAvgObsFakeQuantize, MovingAverageMinMaxObserver

        return FusedMovingAvgObsFakeQuantize(
            MovingAverageMinMaxObserver,
            quant_min=-high,
            quant_max=high,
            dtype=torch.qint8,
            qscheme=torch.per_tensor_symmetric,
        )


def _learned(x: Tensor, high: int) -> nn.Module:
    with _deprecated():
        from torch.ao.quantization import MovingAverageMinMaxObserver
        from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize

        module = _LearnableFakeQuantize(
            MovingAverageMinMaxObserver,
            quant_min=-high,
            quant_max=high,
            dtype=torch.qint8,
            qscheme=torch.per_tensor_symmetric,
            use_grad_scaling=True,
        ).to(x.device)
    module.enable_static_estimate()
    module(x)  # its first scale is that of a batch
    module.enable_param_learning()
    return module


def fx(model: nn.Module, images: Tensor) -> nn.Module:
    """The network as torch.ao's FX mode trains it; blocks fused, weights by channel."""
    with _deprecated():
        from torch.ao import quantization as ao
        from torch.ao.quantization.quantize_fx import prepare_qat_fx

        activation = ao.FusedMovingAvgObsFakeQuantize.with_args(
            observer=ao.MovingAverageMinMaxObserver, quant_min=0, quant_max=15, dtype=torch.quint8
        )
        weight = ao.FusedMovingAvgObsFakeQuantize.with_args(
            observer=ao.MovingAveragePerChannelMinMaxObserver,
            quant_min=-7,
            quant_max=7,
            dtype=torch.qint8,
            qscheme=torch.per_channel_symmetric,
        )
        config = ao.QConfigMapping().set_global(ao.QConfig(activation, weight))
        return prepare_qat_fx(model.train(), config, (images,))


def pt2e(model: nn.Module, images: Tensor) -> nn.Module:
    """The network as torchao's PT2E mode trains it, exported, with the configuration for x86: 8 bits."""
    from torchao.quantization.pt2e import move_exported_model_to_train
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = x86.get_default_x86_inductor_quantization_config(is_qat=True)
        exported = torch.export.export(model.train(), (images,)).module()
        prepared = prepare_qat_pt2e(exported, x86.X86InductorQuantizer().set_global(config))
        return move_exported_model_to_train(prepared)


@contextmanager
def _deprecated() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # all of torch.ao.quantization is
        yield
