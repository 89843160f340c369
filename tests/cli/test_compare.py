"""The command line of a comparison: what it prints, and one line for whatever is wrong."""

from importlib import import_module
from pathlib import Path

import pytest

from qat.cli.compare import main


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line on stderr of a refused command."""
    with pytest.raises(SystemExit) as leaving:
        main(list(argv))
    assert leaving.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: ")
    return err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--bits", "0"], "error: bits must be one of the integers 1, 2, 3, 4, 5, 6, 7, 8, 16, 32; got 0"),
        (["--bits", "9"], "error: bits must be one of the"),
        (["--bits", "4", "4"], "error: bits must differ; got 4 twice"),
        (
            ["--bits", "4", "0"],
            "error: bits must be one of the integers 1, 2, 3, 4, 5, 6, 7, 8, 16, 32; got 0",
        ),
        (["--bits", "4", "x"], "error: bits must be an integer, got x"),
        (["--setups", "stochastc"], "unknown setup 'stochastc'; nearest: stochastic"),
        (
            ["--bits", "4", "2", "--weight_bits", "3"],
            "error: weight_bits must be left out with bits, which are those of weights and activations; got "
            "weight_bits 3 and bits 4 2",
        ),
        (["--bits", "4", "2", "--activation_bits", "4"], "error: activation_bits must be left out"),
        (["--bits", "2", "--weight_bits", "3"], "error: weight_bits must be left out with bits"),
        (["--config", ""], "config must be a YAML file; .: it is no file"),
        (["--activation_bits", "9"], "activation_bits must be one of"),
        (["--bits", "1.5"], "bits must be an integer, got 1.5"),
        (["--bits", "four"], "bits must be an integer, got four"),
        (["--setups", "ste", "flaot"], "unknown setup 'flaot'; nearest: float"),
        (["--model", "resnet9"], "unknown model 'resnet9'; nearest: resnet8"),
        (["--loss", "hubr"], "loss: unknown name 'hubr'; nearest: huber"),
        (["--data", "mnist5"], "data: unknown name 'mnist5'; nearest: mnist"),
        (["--epochs", "0"], "trainer.max_epochs must be at least 1, got 0"),
        (["--epochs", "many"], "epochs must be an integer, got many"),
        (["--seeds", "a"], "error: seeds must be an integer, got a"),
        (["--bits", ""], "error: bits must be an integer, got nothing"),
        (["--seeds", "-1"], "seeds must be 0 to 2^32 - 1, got -1"),
        (["--learning_rate", "0"], "learning_rate must be > 0"),
        (["--epoch", "3"], "unknown option 'epoch'; nearest: epochs"),
        (["--bit", "3"], "unknown option 'bit'; nearest: "),
    ],
)
def test_bad_input_is_one_line(
    argv: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, *argv, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_an_output_folder_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    line = refused(capsys, "--out", str(tmp_path / "file" / "out"))
    assert line.startswith("error: out must be a writable folder, got ")


def test_missing_data_names_the_path_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(
        capsys, "--data", "folder", "--data_root", str(tmp_path / "none"), "--out", str(tmp_path / "out")
    )
    assert str(tmp_path / "none") in line
    assert "set data_root or QAT_DATA to the folder that holds train/ and test/" in line
    assert not (tmp_path / "out").exists()


SMALL = ("--data", "folder", "--epochs", "1", "--batch_size", "8", "--seeds", "0", "--setups", "ste", "zero")


def test_it_prints_the_table_and_where_the_report_is(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        [
            *(*SMALL, "--data_root", str(images), "--weight_bits", "3", "--activation_bits", "2"),
            *("--out", str(tmp_path)),
        ]
    )
    out = capsys.readouterr().out
    assert "ste, seed 0: test accuracy " in out
    assert "zero" in out
    assert f"report: {tmp_path / 'report.html'}" in out
    assert (tmp_path / "report.html").is_file()
    (result,) = tmp_path.glob("ste-seed0-*/result.json")
    assert '"weight_bits": 3' in result.read_text()
    assert '"activation_bits": 2' in result.read_text()


def test_several_widths(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    several = ["--bits", "4", "1", "--setups", "ste", "float", "--data_root", str(images)]
    main(["--jobs", "1", *SMALL[:-3], *several, "--out", str(tmp_path)])
    out = capsys.readouterr().out
    runs = [line for line in out.splitlines() if "test accuracy " in line and "seed" in line]
    assert [line.partition(": ")[0] for line in runs] == [
        "ste, 4 bits, seed 0",
        "float, seed 0",
        "ste, 1 bit, seed 0",
    ]
    assert [p.name[:-9] for p in sorted(tmp_path.glob("*-seed0-*"))] == [
        "float-seed0",
        "ste-seed0",
        "ste-seed0",
    ]
    assert (tmp_path / "report_figures" / "sweep.svg").is_file()
    assert "## Accuracy over bits" in (tmp_path / "report.md").read_text()
    assert "## What the layers cost at bits 1" in (tmp_path / "report.md").read_text()


def test_a_run_that_diverges_is_said_in_one_line(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(
            [
                "--jobs",
                "1",
                *SMALL,
                "--data_root",
                str(images),
                "--learning_rate",
                "1e30",
                "--out",
                str(tmp_path),
            ]
        )
    err = capsys.readouterr().err
    assert leaving.value.code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not list(tmp_path.glob("ste-*/result.json"))


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = import_module("qat.experiment.jobs")
    train = module.train

    def stopped(run, folder, advance) -> float:
        if run.setup == "zero":
            raise KeyboardInterrupt
        return train(run, folder, advance)

    monkeypatch.setattr(module, "train", stopped)
    with pytest.raises(SystemExit) as leaving:
        main(["--jobs", "1", *SMALL, "--data_root", str(images), "--out", str(tmp_path)])
    assert leaving.value.code == 130
    assert "stopped; 1 of 2 runs are finished and kept" in capsys.readouterr().err
    assert len(list(tmp_path.glob("ste-seed0-*/result.json"))) == 1


def test_a_yaml_file_with_options_laid_over_it(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        f"data: {{name: folder, data_root: {images}, batch_size: 8}}\n"
        "setups: {adam: {}, sgd: {model.optimizer: sgd}}\nsweep: {model.learning_rate: [0.1, 0.01]}\n"
    )
    options = ["--config", str(config), "--epochs", "1", "--out", str(tmp_path / "out")]
    main(["--jobs", "1", *options, "--learning_rate", "0.02", "--setups", "sgd", "ewgs"])
    out = capsys.readouterr().out
    assert [
        line.partition(": ")[0] for line in out.splitlines() if "test accuracy " in line and "seed" in line
    ] == [
        "sgd, seed 0",
        "ewgs, seed 0",
    ]
    main([*options, "--setups", "sgd", "--jobs", "2"])
    out = capsys.readouterr().out
    assert "sgd, learning_rate 0.1, seed 0: test accuracy " in out
    assert "sgd, learning_rate 0.01, seed 0: test accuracy " in out
    assert "report: " in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("setups: {a: {model.los: huber}}", "setup a: unknown option 'model.los'; nearest: model.loss"),
        ("setups: {a: {}, a: {}}", "line 1: 'a' is there twice"),
        ("setups: [", "mine.yaml: "),
    ],
)
def test_a_bad_yaml_file_is_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    line = refused(capsys, "--config", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out"))
    assert message in line
    assert not (tmp_path / "out").exists()


def test_a_yaml_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "none.yaml" in refused(
        capsys, "--config", str(tmp_path / "none.yaml"), "--out", str(tmp_path / "out")
    )


def test_each_run_that_fails_is_a_line_and_the_others_are_kept(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(
        f"data: {{name: folder, data_root: {images}, batch_size: 8}}\nseeds: [0, 1]\n"
        "setups: {ste: {}, bad: {model.learning_rate: 1e30}}\ntrainer: {max_epochs: 1}\n"
    )
    with pytest.raises(SystemExit) as leaving:
        main(["--jobs", "1", "--config", str(config), "--out", str(tmp_path / "out")])
    assert leaving.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [["error", "bad, seed 0"], ["error", "bad, seed 1"]]
    assert len(list((tmp_path / "out").glob("ste-*/result.json"))) == 2
