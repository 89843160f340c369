"""Runs an ONNX file in onnxruntime, batch by batch."""

from collections.abc import Sequence

import numpy as np
import onnxruntime  # type: ignore[import-untyped] # it has no stubs
import torch
from numpy.typing import NDArray
from torch import Tensor

from qat.export.trained_model import BATCH
from qat.progress import tracked

# onnxruntime's levels of graph optimization; the last one is its default.
LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_ALL")
OFF, ON = LEVELS[0], LEVELS[-1]


def run_onnx(
    content: bytes, args: Sequence[Tensor], level: str, description: str
) -> list[NDArray[np.float32]]:
    """All outputs for all samples, each `(N, ...)`, on the CPU, with a level of graph optimizations.

    Raises:
        ValueError: onnxruntime does not run the file.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors only; its warnings are about its own optimizations
    parts = []
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        names = [x.name for x in session.get_inputs()]
        for start in tracked(range(0, len(args[0]), BATCH), description):
            batch = [x[start : start + BATCH].detach().cpu().float().numpy() for x in args]
            parts.append(session.run(None, dict(zip(names, batch, strict=True))))
    except Exception as error:  # it raises many types
        why = " ".join(str(error).split())[:300]
        raise ValueError(
            f"onnxruntime {onnxruntime.__version__} does not run the file ({level}): {why}"
        ) from error
    return [np.concatenate(outputs) for outputs in zip(*parts, strict=True)]
