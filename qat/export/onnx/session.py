"""Runs an ONNX file in onnxruntime, batch by batch."""

from collections.abc import Sequence

import numpy as np
import onnxruntime  # type: ignore[import-untyped] # it has no stubs
import torch
from numpy.typing import NDArray
from torch import Tensor

from qat.export.trained_model import BATCH
from qat.progress import tracked


def run_onnx(
    content: bytes, args: Sequence[Tensor], optimized: bool, description: str
) -> list[NDArray[np.float32]]:
    """All outputs for all samples, each `(N, ...)`, on the CPU, with all graph optimizations or with none."""
    options = onnxruntime.SessionOptions()
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only; its warnings are about its own optimizations
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_inputs()]
    parts = []
    for start in tracked(range(0, len(args[0]), BATCH), description):
        batch = [x[start : start + BATCH].cpu().float().numpy() for x in args]
        parts.append(session.run(None, dict(zip(names, batch, strict=True))))
    return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]
