"""An ONNX file run in onnxruntime, batch by batch."""

from collections.abc import Sequence

import numpy as np
import onnxruntime  # type: ignore[import-untyped] # it has no stubs
import torch
from numpy.typing import NDArray
from torch import Tensor

from qat.export.trained import BATCH
from qat.progress import tracked

Array = NDArray[np.float32]


def open_session(content: bytes, optimised: bool) -> onnxruntime.InferenceSession:
    """A session on the CPU, with all graph optimisations or with none."""
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; its warnings are about its own optimisations
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def run_session(
    session: onnxruntime.InferenceSession, args: Sequence[Tensor], description: str
) -> list[Array]:
    """All outputs for all samples, each `(N, ...)`; progress is shown where it takes long."""
    names = [x.name for x in session.get_inputs()]
    parts = []
    for start in tracked(range(0, len(args[0]), BATCH), description):
        batch = [x[start : start + BATCH].cpu().float().numpy() for x in args]
        parts.append(session.run(None, dict(zip(names, batch, strict=True))))
    return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]
