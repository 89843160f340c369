"""Class names from the folders of the data to the exported files."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from qat.cli import compare, train
from qat.cli.export import main as export

NAMES = ["2", "10", "caf\u00e9", 'quote"s <b>']
QUICK = [
    *("--trainer.limit_train_batches", "1", "--trainer.accelerator", "cpu", "--trainer.max_epochs", "1"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
    *("--model.options.width", "4", "--data.name", "folder", "--data.batch_size", "4"),
]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such names of folders")


def write_images(root: Path, names: list[str]) -> str:
    for part in ("train", "test"):
        for n, name in enumerate(names):
            (root / part / name).mkdir(parents=True)
            for i in range(2):
                Image.new("L", (12, 12), 40 * n + i).save(root / part / name / f"{i}.png")
    return str(root)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one step on four classes; its data lie in `data` beside it."""
    root = tmp_path_factory.mktemp("run")
    data = write_images(root / "data", NAMES)
    deployable = ["--model.quantization.deployable", "true", "--trainer.default_root_dir", str(root)]
    train.main(["fit", *QUICK, *deployable, "--data.data_root", data])
    return root / "version_0"


def test_a_run_and_its_files_hold_them(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("best", "last"):
        ckpt = torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert ckpt["class_names"] == NAMES
    for kind in ("onnx", "npz", "c"):
        export([str(run), "--format", kind])
    metadata = {p.key: p.value for p in onnx.load("model.onnx").metadata_props}
    assert json.loads(metadata["class_names"]) == NAMES
    with np.load("model.npz") as file:
        assert file["class_names"].tolist() == NAMES
    text = Path("model.c").read_text(encoding="ascii")
    assert '"2",\n  "10",\n  "caf\\303\\251",\n  "quote\\042s \\074b\\076",' in text


@pytest.mark.parametrize("verb", ["test", "validate", "fit", "teacher", "export"])
def test_data_with_other_classes_are_refused(
    verb: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = write_images(tmp_path / "data", ["1", *NAMES[1:]])
    ckpt = str(run / "checkpoints" / "last.ckpt")
    options = [*QUICK, "--data.data_root", data, "--trainer.default_root_dir", str(tmp_path / "runs")]
    options += ["--model.quantization.deployable", "true", "--trainer.max_epochs", "2"]
    options += ["--model.teacher" if verb == "teacher" else "--ckpt_path", ckpt]
    main, args = train.main, ["fit" if verb == "teacher" else verb, *options]
    if verb == "export":
        main, args = export, [str(run), "--data_root", data]
    with pytest.raises(SystemExit) as stop:
        main(args)
    error = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    assert error[-1].startswith(
        "error: class names must be equal in the data and in each .ckpt file: class 0 "
    )
    assert not (tmp_path / "runs").exists()


def test_a_comparison_holds_them(run: Path, tmp_path: Path) -> None:
    config = tmp_path / "compare.yaml"
    config.write_text(
        json.dumps(
            {
                "model": {"options": {"width": 4}},
                "data": {"name": "folder", "data_root": str(run.parent / "data"), "batch_size": 4},
                "trainer": {"max_epochs": 1, "accelerator": "cpu", "limit_train_batches": 1},
                "setups": {"ste": {"meaning": "one"}},
            }
        )
    )
    compare.main(["--config", str(config), "--out", str(tmp_path / "out"), "--jobs", "1"])
    results = list((tmp_path / "out").glob("*/result.json"))
    assert [json.loads(path.read_text())["class_names"] for path in results] == [NAMES]
    assert "2, 10, caf\u00e9, quote&quot;s &lt;b&gt;" in (tmp_path / "out" / "report.html").read_text(
        encoding="utf-8"
    )
