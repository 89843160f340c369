"""Differences between a model and its file, traced to the layer in which they begin."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

from qat.export import CodeDifference, Verification, verify
from qat.export.agreement import agree
from qat.export.onnx.verify import refuse_differences


def test_agreement_counts() -> None:
    trained = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [0.5, 0.5]], np.float32)
    other = np.array([[0.0, 1.0], [1.0, 5e-5], [2.0, 2.5], [0.5, 0.5]], np.float32)
    done = agree(trained, other)
    assert (done.images, done.same_class, done.within, done.equal, done.largest) == (4, 3, 3, 2, 1.5)


@pytest.mark.parametrize(("from_tie", "is_tie"), [(0.0, True), (1e-3, True), (2e-3, False)])
def test_a_tie_explains_a_difference(from_tie: float, is_tie: bool) -> None:
    difference = CodeDifference(0, "fc", 1, from_tie)
    assert difference.is_tie == is_tie
    nothing = agree(np.zeros((1, 2)), np.zeros((1, 2)))
    assert len(Verification(nothing, nothing, [difference]).unexplained) == (not is_tie)


def test_a_file_with_another_scale_is_found_out(trained: Any, file: Path) -> None:
    model, _ = trained("small_cnn", deployable=True)
    proto = onnx.load(file)
    scales = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        if node.name.startswith("blocks.2.act.quantizer/") and not node.name.endswith("kept"):
            proto.graph.initializer.append(
                numpy_helper.from_array(scales[node.input[1]] * np.float32(1.1), f"{node.name}/wrong")
            )
            node.input[1] = f"{node.name}/wrong"
    wrong = proto.SerializeToString()
    images = torch.rand(130, 1, 28, 28)  # more than one batch
    done = verify(model, wrong, images)
    assert len(done.differences) == 130 - done.off.within
    assert [difference.image for difference in done.differences] == sorted(d.image for d in done.differences)
    assert max(difference.image for difference in done.differences) > 100
    assert {difference.layer for difference in done.unexplained} == {"blocks.2.act"}
    with pytest.raises(ValueError, match=r"on a second random batch it differs, first in blocks.2.act;"):
        refuse_differences(model, wrong, (images,))


def test_verifying_changes_no_state(trained: Any, file: Path) -> None:
    model, images = trained("small_cnn", deployable=True)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    verify(model, file, images[:3])
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
