"""Class names in ONNX and npz files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from qat.export import IntegerModel, export_onnx, write_npz
from qat.export.integers import reader

NAMES = ['quote"s', "back\\slash", "new\nline", "caf\u00e9 \u732b", "*/", "??/", "<b>", "|", "", " "]


def test_onnx_and_npz_hold_them(trained: Any, tmp_path: Path) -> None:
    model, images = trained("small_cnn", deployable=True)
    path = export_onnx(model, images[:2], tmp_path / "model.onnx", class_names=NAMES)
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert json.loads({p.key: p.value for p in proto.metadata_props}["class_names"]) == NAMES
    integers = IntegerModel(model, (1, 28, 28))
    path = write_npz(integers, tmp_path / "model.npz", NAMES)
    with np.load(path) as file:  # no pickle
        assert file["class_names"].tolist() == NAMES
    codes = integers.codes(images)
    assert np.array_equal(reader.run(*reader.load(str(path)), codes)[-1][:, :, 0, 0], integers(codes))


@pytest.mark.parametrize("names", [NAMES[:9], "ten chars!"])
def test_names_that_do_not_fit(trained: Any, tmp_path: Path, names: Any) -> None:
    model, images = trained("small_cnn", deployable=True)
    rule = r"^class_names must be a list of 10 texts, [^\n]*; [^\n]*$"
    with pytest.raises(ValueError, match=rule):
        export_onnx(model, images[:2], tmp_path / "model.onnx", class_names=names)
    with pytest.raises(ValueError, match=rule):
        write_npz(IntegerModel(model, (1, 28, 28)), tmp_path / "model.npz", names)
    assert list(tmp_path.iterdir()) == []
