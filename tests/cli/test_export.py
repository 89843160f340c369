"""The verb `export`, on a run that `train` wrote."""

import pkgutil
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from qat.cli import train
from qat.cli.export import main
from qat.export import find_compiler
from qat.export.integers import reader
from qat.training.classifier import Classifier
from qat.training.trained_run import load_run

QUICK = [
    *("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "3", "--trainer.accelerator", "cpu"),
    *("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"),
    *("--model.options.width", "4", "--trainer.limit_val_batches", "1"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a deployable run of three steps."""
    root = tmp_path_factory.mktemp("runs")
    deployable = ["--model.quantization.deployable", "true", "--trainer.default_root_dir", str(root)]
    train.main(["fit", *QUICK, *deployable])
    return root / "version_0"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_onnx(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(run)])
    out = capsys.readouterr().out.splitlines()
    equal = "same class 1000 of 1000, within 1e-4 1000, equal 1000, largest difference 0"
    assert out[0].startswith("written to model.onnx: ")
    best = run / "checkpoints" / "best.ckpt"
    assert out[1].startswith(f"weights of {best}, after 1 epochs, with a validation accuracy of ")
    assert out[1].endswith(" % (--ckpt last takes checkpoints/last.ckpt)")
    assert out[2] == f"onnxruntime, optimizations off: {equal}"
    assert out[4] == "no image differs"
    said = {p.key: p.value for p in onnx.load("model.onnx").metadata_props}
    assert said["run"] == str(best)


def test_npz_and_c(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, out in (("npz", "a.npz"), ("c", "a.c")):
        main([str(run / "checkpoints" / "best.ckpt"), "--format", name, "--out", out])
        text = capsys.readouterr().out
        assert f"written to {out}" in text
        assert "same class 1000 of 1000, within 1e-4 1000, equal 1000, largest difference 0" in text
        assert "no code differs" in text
        assert ("read back" if name == "npz" else "compiled") in text
        assert "equal to the integers on " in text or shutil.which("cc") is None
    assert "flash" in text
    assert "RAM" in text
    steps, arrays = reader.load("a.npz")
    model = load_run(str(run), None, None, None)
    images, _ = model.test_set()
    codes = np.clip(np.rint(images.numpy() / np.float32(steps[0]["scale"])), 0, 255).astype(np.int64)
    with torch.no_grad():
        expected = model.network(images[:50]).numpy()
    found = reader.run(steps, arrays, codes[:50])[-1].reshape(50, 10) * steps[-1]["scale"]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        ("npz", "qat.export.integers.program.pack", "the file does not compute the integers: "),
        ("c", "qat.export.integers.program.pack", "the file does not compute the integers: "),
        ("npz", "qat.export.integers.reader.conv", "the integers must equal what was trained, but "),
    ],
)
def test_a_wrong_file_is_not_kept(
    kind: str,
    wrong: str,
    message: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "c" and find_compiler() is None:
        pytest.skip("there is no C compiler on this machine")
    right = pkgutil.resolve_name(wrong)
    spoilt = (lambda *a: right(*a) + 1) if wrong.endswith("conv") else (lambda *a: right(*a)[::-1])
    monkeypatch.setattr(wrong, spoilt)
    (tmp_path / "model").write_bytes(b"of before")
    with pytest.raises(SystemExit) as stop:
        main([str(run), "--format", kind, "--out", "model"])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model").read_bytes() == b"of before"


def test_without_a_compiler_it_says_so(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    main([str(run), "--format", "c"])
    assert "not compiled and not run: this machine has none of cc, gcc, clang" in capsys.readouterr().out


def test_sizes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(run), "--sizes", "true"])
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines()]
    conv = next(row for row in rows if len(row) > 1 and row[1] == "blocks.3.conv")
    assert [int(cell.replace(",", "")) for cell in conv[2:-1]] == [
        *(16 * 16 * 9 * 4,),
        *(2304, 2304, 2305),
        *(1152, 1152, 1153),
        *(576, 576, 577),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "run must be a .ckpt file, but there is none at nowhere"),
        (["."], "run must be a .ckpt file or a folder that holds one of"),
        (["RUN", "--format", "tflite"], "format: unknown name 'tflite'; choose from: onnx, npz, c"),
        (["RUN", "--opset", "20"], "opset must be one of 21, 22, 23, 24, 25; got 20"),
        (["RUN", "--out", "no/where.onnx"], "path must lie in a folder that exists, got no/where.onnx"),
        (
            ["RUN", "--ckpt", "other.ckpt"],
            "model.quantization.weight_bits must be 2, that of ckpt other.ckpt",
        ),
        (["other.ckpt"], "data must be named with --data"),
        (["RUN", "--opsett", "21"], "unknown option 'opsett'; nearest: opset"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(
    arguments: list[str],
    message: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ckpt = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    settings = ckpt["hyper_parameters"]
    settings["quantization"]["weight_bits"] = 2
    ckpt["state_dict"] = Classifier(**settings).state_dict()
    torch.save(ckpt, "other.ckpt")
    with pytest.raises(SystemExit) as stop:
        main([str(run) if word == "RUN" else word for word in arguments])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == ["other.ckpt"]


def test_a_run_of_a_comparison(run: Path, tmp_path: Path) -> None:
    shutil.copy(run / "checkpoints" / "last.ckpt", tmp_path / "final.ckpt")
    (tmp_path / "result.json").write_text('{"settings": {"data": {"name": "mnist5k"}}}')
    found = load_run(str(tmp_path), None, None, None)
    assert (found.data, found.ckpt) == ("mnist5k", tmp_path / "final.ckpt")


def test_the_best_weights_or_the_last_or_those_of_a_file(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ckpt, name in (("best", "best"), ("last", "last"), (str(run / "checkpoints" / "last.ckpt"), "last")):
        assert load_run(str(run), ckpt).ckpt == run / "checkpoints" / f"{name}.ckpt"
    assert load_run(str(run)).ckpt.name == "best.ckpt"
    (other := Path("run") / "checkpoints").mkdir(parents=True)
    shutil.copy(run / "config.yaml", "run")
    shutil.copy(run / "checkpoints" / "last.ckpt", other)
    assert load_run("run").ckpt.name == "last.ckpt"
    for arguments, message in (
        (["run", "--ckpt", "best"], "best.ckpt; got run; --ckpt last takes checkpoints/last.ckpt"),
        ([str(other / "last.ckpt"), "--ckpt", "best"], "ckpt must be left out where run is a file"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err


FOREIGN = """
import torch
from torch import nn
from qat import Quantization, quantize
from qat.models import LeNet

def build():
    return quantize(LeNet(), Quantization(), torch.zeros(2, 1, 28, 28))

def plain():
    return LeNet()

def images():
    return torch.rand(20, 1, 28, 28), torch.arange(20) % 10

def unlabelled():
    return torch.rand(20, 1, 28, 28)

def needs(argument):
    return build()
"""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of a user, and the .ckpt file of a LightningModule whose network is `net`."""
    Path("foreign_net.py").write_text(FOREIGN)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("foreign_net", None)
    import foreign_net

    torch.manual_seed(0)
    network = foreign_net.build()
    network(torch.rand(8, 1, 28, 28))
    state = {f"net.{key}": x for key, x in network.state_dict().items()} | {"metric": torch.zeros(1)}
    progress = {"epoch_progress": {"current": {"completed": 2}}}
    ckpt = {"state_dict": state, "epoch": 1, "loops": {"fit_loop": progress}}
    torch.save(ckpt, "foreign.ckpt")
    written = Path("foreign.ckpt").read_bytes()
    Path("damaged.ckpt").write_bytes(written[:9000] + bytes([written[9000] ^ 1]) + written[9001:])
    torch.save({"state_dict": {key.replace("head.0.", "first."): x for key, x in state.items()}}, "less.ckpt")
    torch.save(ckpt | {"hyper_parameters": {"activation": torch.nn.ReLU()}}, "unsafe.ckpt")
    torch.save(network.state_dict(), "plain.pt")
    torch.save({"state_dict": state | {key.replace("net", "ema"): x for key, x in state.items()}}, "two.ckpt")
    return "foreign_net.build"


@pytest.mark.parametrize("file", ["foreign.ckpt", "plain.pt"])
def test_the_network_of_another_lightning_module(
    file: str, foreign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([file, "--model", foreign, "--data", "mnist5k"])
    out = capsys.readouterr().out
    assert f"weights of {file}{', after 2 epochs' if file == 'foreign.ckpt' else ''}\n" in out
    assert "same class 1000 of 1000" in out


def test_the_data_of_a_user(foreign: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["foreign.ckpt", "--model", foreign, "--data", "foreign_net.images", "--format", "npz"])
    assert "same class 20 of 20" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["foreign.ckpt", "--data", "mnist5k"], "give --model"),
        (
            ["foreign.ckpt", "--model", "foreign_net.build", "--data", "foreign_net.unlabelled"],
            "data foreign_net.unlabelled must be a function without arguments that returns images",
        ),
        (["foreign.ckpt", "--model", "foreign_net.build"], "data must be named with --data"),
        (
            ["two.ckpt", "--model", "foreign_net.build", "--data", "mnist5k"],
            "2 times (net., ema.); let the function return",
        ),
        (["damaged.ckpt", "--model", "foreign_net.build", "--data", "mnist5k"], "is damaged"),
        (["unsafe.ckpt", "--model", "foreign_net.build", "--data", "mnist5k"], "must be plain values"),
        (["less.ckpt", "--model", "foreign_net.build", "--data", "mnist5k"], "nearest: net."),
        (["foreign.ckpt", "--model", "foreign_net.plain", "--data", "mnist5k"], "without quantizers"),
        (["foreign.ckpt", "--model", "foreign_net.needs", "--data", "mnist5k"], "without arguments"),
        (["foreign.ckpt", "--model", "foreign_net.bild", "--data", "mnist5k"], "nearest: build"),
        (["no.ckpt", "--model", "foreign_net.build", "--data", "mnist5k"], "there is none at no.ckpt"),
    ],
)
def test_wrong_files_of_other_modules(
    arguments: list[str], message: str, foreign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
