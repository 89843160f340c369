"""Wrong input gives one line on stderr that names the error, exit code 2, and no file."""

from pathlib import Path

import pytest
import torch

from qat.cli.train import main

BITS = "--model.quantization.weight_bits"

CASES = {
    "bits_zero": ([BITS, "0"], ["weight_bits", "got 0", "one of the integers 1, 2"]),
    "bits_nine": ([BITS, "9"], ["weight_bits", "got 9"]),
    "bits_fraction": ([BITS, "1.5"], ["model.quantization.weight_bits", "an integer", "got 1.5", "1 to 8"]),
    "bits_word": (
        ["--model.quantization.activation_bits", "four"],
        ["activation_bits", "integer", "got four", "same values"],
    ),
    "model": (["--model.name", "smal_cnn"], ["unknown model", "'smal_cnn'", "small_cnn"]),
    "user_model": (
        ["--model.name", "no_module.Net"],
        ["model 'no_module.Net'", "there is no module no_module"],
    ),
    "user_attribute": (["--model.name", "torch.nn.Nett"], ["unknown name in torch.nn 'Nett'"]),
    "not_a_model": (["--model.name", "torch.pi"], ["model torch.pi must be a class or function", "3.14"]),
    "other_arguments": (
        ["--model.name", "torch.nn.Linear"],
        ["torch.nn.Linear must take input_shape and classes"],
    ),
    "model_option": (["--model.options.widht", "4"], ["option of small_cnn", "'widht'", "width"]),
    "model_option_value": (["--model.options.width", "wide"], ["option width of small_cnn", "int", "'wide'"]),
    "loss": (["--model.loss", "hubert"], ["model.loss", "'hubert'", "huber"]),
    "optimizer": (["--model.optimizer", "adam"], ["model.optimizer", "'adam'", "adamw"]),
    "rounding": (["--model.quantization.rounding", "stee"], ["rounding", "'stee'", "ste"]),
    "rate": (["--model.learning_rate", "-1"], ["learning_rate", "> 0", "-1"]),
    "decay": (["--model.weight_decay", "-1"], ["weight_decay", ">= 0", "-1"]),
    "layer_pattern": (["--model.quantization.layers.fcc.weight_bits", "8"], ["'fcc'", "fc"]),
    "layer_key": (["--model.quantization.layers.fc.weight_bit", "8"], ["'weight_bit'", "weight_bits"]),
    "checkpoint": (["--model.checkpoint", "[block.*]"], ["'block.*'", "blocks"]),
    "checkpoint_text": (["--model.checkpoint", "blocks.0"], ["model.checkpoint", "a list", "blocks.0"]),
    "abbreviation": (["--model.quantization.weight_bit", "2"], ["weight_bit'", "quantization.weight_bits"]),
    "trainer_option": (["--trainer.max_epoch", "2"], ["'trainer.max_epoch'", "trainer.max_epochs"]),
    "no_epochs": (["--trainer.max_epochs", "0"], ["max_epochs", "at least 1", "got 0"]),
    "negative_epochs": (["--trainer.max_epochs", "-2"], ["max_epochs", "got -2"]),
    "word_epochs": (["--trainer.max_epochs", "two"], ["trainer.max_epochs", "integer", "two"]),
    "no_batches": (
        ["--trainer.limit_train_batches", "0"],
        ["trainer.limit_train_batches", "above 0", "got 0"],
    ),
    "no_steps": (["--trainer.max_steps", "0"], ["trainer.max_steps", "above 0", "got 0"]),
    "no_folder": (["--trainer.default_root_dir", ""], ["trainer.default_root_dir", "must name a folder"]),
    "gpu": (["--trainer.accelerator", "tpu"], ["trainer: ", "trainer.accelerator cpu works"]),
    "phases_and_devices": (
        [
            *("--trainer.devices", "2", "--model.float_epochs", "1"),
            *("--model.quantization.weight_scale", "learned"),
        ],
        ["float_epochs", "learned scales on several devices", "ddp_find_unused_parameters_true"],
    ),
    "no_width": (["--model.options.width", "0"], ["width must be at least 1", "got 0"]),
    "no_teacher": (["--model.teacher", "no.ckpt"], ["teacher must be a .ckpt file", "no.ckpt"]),
    "no_start": (["--model.start", "no.ckpt"], ["start must be a .ckpt file", "no.ckpt"]),
    "scale_rate": (["--model.scale_learning_rate", "-1"], ["scale_learning_rate", ">= 0", "-1"]),
    "float_epochs": (["--model.float_epochs", "-1"], ["float_epochs", ">= 0", "-1"]),
    "all_float": (
        ["--model.float_epochs", "2", "--trainer.max_epochs", "2"],
        ["model.float_epochs", "below trainer.max_epochs (2)", "got 2"],
    ),
    "freeze": (["--model.freeze_epoch", "0"], ["freeze_epoch must be above float_epochs (0), got 0"]),
    "freeze_word": (["--model.freeze_epoch", "late"], ["model.freeze_epoch", "an integer", "late"]),
    "seed": (["--seed_everything", "-3"], ["seed_everything", "got -3"]),
    "linked": (["--model.seed", "3"], ["model.seed", "seed_everything"]),
    "data": (["--data.name", "mnits"], ["data.name", "'mnits'", "mnist"]),
    "no_data": (["--data.name", "folder", "--data.data_root", "no/such"], ["data_root", "no/such"]),
    "batch": (["--data.batch_size", "0"], ["batch_size", "got 0"]),
    "accelerator": (["--trainer.accelerator", "tpux"], ["accelerator", "tpux", "cuda"]),
    "spawned": (
        ["--trainer.strategy", "ddp_spawn", "--trainer.devices", "2"],
        ["trainer.strategy must not copy this process", "got ddp_spawn; give ddp"],
    ),
    "forked": (["--trainer.strategy", "ddp_fork", "--trainer.devices", "2"], ["got ddp_fork; give ddp"]),
    "nodes": (
        ["--trainer.num_nodes", "2", "--trainer.strategy", "ddp"],
        ["trainer.num_nodes 2 needs a cluster", "torchrun", "MASTER_ADDR, MASTER_PORT, NODE_RANK"],
    ),
    "half": (["--trainer.precision", "16-true"], ["trainer.precision must not be 16-true", "16-mixed"]),
    "half_mixed": (
        ["--trainer.precision", "16-mixed", "--trainer.accelerator", "cpu"],
        ["trainer.precision 16-mixed needs a GPU", "bf16-mixed"],
    ),
    "devices": (["--trainer.devices", "0"], ["devices", "0"]),
    "value": (["--trainer.max_epochs"], ["trainer.max_epochs", "needs a value"]),
    "no_config": (["--config", "no.yaml"], ["config", "no.yaml"]),
    "no_ckpt": (["--ckpt_path", "no.ckpt"], ["ckpt_path", "no.ckpt"]),
}

YAMLS = {
    "unknown": ("modle: {name: lenet}", ["'modle", "model"]),
    "unknown_nested": (
        "model: {quantization: {weight_bit: 3}}",
        ["weight_bit'", "model.quantization.weight_bits"],
    ),
    "unknown_trainer": ("trainer: {max_epoch: 3}", ["'trainer.max_epoch'", "trainer.max_epochs"]),
    "unknown_group": ("model: {quantizatio: {weight_bits: 3}}", ["model.quantizatio", "model.quantization"]),
    "kind": ("model: {quantization: {weight_bits: four}}", ["model.quantization.weight_bits", "got four"]),
    "number_for_group": ("model: {quantization: 4}", ["model.quantization must be a group", "got 4"]),
    "syntax": ("model: [\n  a: 1\n b", ["config", "line 3"]),
    "list": ("[1, 2]", ["config"]),
}

CKPTS = {
    "text": b"not a .ckpt file\n",
    "bytes": bytes(range(256)) * 8,
    "empty": b"",
}


def refusal(capsys: pytest.CaptureFixture[str], command: list[str]) -> str:
    """The line that a refused command prints."""
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert list(Path.cwd().rglob("version_*")) == []
    assert not Path("runs").exists()
    return err


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", CASES)
def test_bad_option(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    options, parts = CASES[case]
    message = refusal(capsys, ["fit", *options])
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize("case", YAMLS)
def test_bad_yaml(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    text, parts = YAMLS[case]
    Path("bad.yaml").write_text(text)
    message = refusal(capsys, ["fit", "--config", "bad.yaml"])
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize("case", CKPTS)
def test_foreign_ckpt(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.ckpt").write_bytes(CKPTS[case])
    assert "x.ckpt is not one" in refusal(capsys, ["fit", "--ckpt_path", "x.ckpt"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"state_dict": {}}, "x.ckpt was not written by fit"),
        ({"a": torch.zeros(1)}, "x.ckpt is not one"),
        (torch.zeros(3), "x.ckpt is not one"),
    ],
)
def test_torch_file_that_is_no_ckpt(content: object, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(content, "x.ckpt")
    assert why in refusal(capsys, ["test", "--ckpt_path", "x.ckpt"])


def test_evaluation_needs_a_ckpt(capsys: pytest.CaptureFixture[str]) -> None:
    assert "test needs --ckpt_path" in refusal(capsys, ["test"])


def test_folder_below_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    message = refusal(capsys, ["fit", "--trainer.default_root_dir", "file/below"])
    assert "trainer.default_root_dir" in message
    assert "is a file" in message


def test_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    assert "'ft'" in refusal(capsys, ["ft"])
    assert "fit" in refusal(capsys, [])
