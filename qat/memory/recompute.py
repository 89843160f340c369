"""Checkpointing written by hand: one Function that saves its inputs and runs its block again."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from qat.gradients import refuse_second_derivative
from qat.module_state import call_on, copy_buffers


class Recompute(torch.autograd.Function):
    """A block that saves only its inputs; `recompute` calls it.

    Forward: `block(*inputs)`, without a graph. Gradient: the block's, from a second pass in the backward.

    The parameters are inputs of the Function, so that they get gradients too. Grad mode is off in a
    Function's forward and backward, so the second pass must switch it on. That pass uses the random state,
    the autocast state and copies of the buffers of the first pass: it computes the same to the last bit, and
    no buffer changes twice. A second derivative is refused.

    Source: Chen et al. 2016, "Training deep nets with sublinear memory cost", section 3.
    """

    @staticmethod
    def forward(ctx: Any, block: nn.Module, names: Sequence[str], *tensors: Tensor) -> Tensor:
        inputs = tensors[: len(tensors) - len(names)]
        device = inputs[0].device.type
        ctx.block, ctx.names, ctx.device = block, names, device
        ctx.autocast = (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        buffers = copy_buffers(block)
        ctx.buffers = list(buffers)
        random_states = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else [])]
        ctx.save_for_backward(*tensors, *buffers.values(), *random_states)
        return block(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        saved = list(ctx.saved_tensors)
        count = len(ctx.needs_input_grad) - 2
        tensors, buffers = saved[:count], saved[count : count + len(ctx.buffers)]
        needed = ctx.needs_input_grad[2:]
        leaves = [x.detach().requires_grad_(flag) for x, flag in zip(tensors, needed, strict=True)]
        inputs, parameters = leaves[: count - len(ctx.names)], leaves[count - len(ctx.names) :]
        # Copy them again: with retain_graph this backward may run once more.
        state = dict(zip(ctx.buffers, (buffer.clone() for buffer in buffers), strict=True))
        state |= dict(zip(ctx.names, parameters, strict=True))
        enabled, dtype = ctx.autocast
        devices = [g.device.index] if ctx.device == "cuda" else []
        autocast = torch.autocast(ctx.device, dtype, enabled)
        with torch.random.fork_rng(devices), torch.enable_grad(), autocast:
            random_states = saved[count + len(ctx.buffers) :]
            torch.set_rng_state(random_states[0])
            if devices:
                torch.cuda.set_rng_state(random_states[1])
            output = call_on(ctx.block, state, inputs)
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad(output, wanted, g, allow_unused=True))
        gradients = [next(found) if leaf.requires_grad else None for leaf in leaves]
        refuse = partial(refuse_second_derivative, name="Recompute")
        return None, None, *(None if x is None else refuse(x, g, *tensors) for x in gradients)


def recompute(block: nn.Module, *inputs: Tensor) -> Tensor:
    """`block(*inputs)`, whose activations are recomputed in the backward.

    This is what `Checkpointed` does with `torch.utils.checkpoint`, in one Function that is easy to read; use
    `Checkpointed` in networks. Here the block takes one or more tensors by position and returns one tensor,
    there is no second derivative, and `torch.compile` cannot trace it, because it reads the random state. The
    state of the block must be in its parameters and buffers. Shape: the block's.

    Raises:
        RuntimeError: in the backward, if a second derivative is requested.
    """
    names, parameters = zip(*block.named_parameters(), strict=True) if list(block.parameters()) else ((), ())
    return Recompute.apply(block, names, *inputs, *parameters)
