"""A loss that is not finite ends a run with one line on stderr and exit code 2."""

import re
from typing import Any

import pytest

from qat.cli.train import main


def test_the_command_line_says_it_in_one_line(
    short: list[str], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--trainer.default_root_dir", str(tmp_path), "--trainer.enable_checkpointing", "false"]
    # On a float network: a quantizer would limit what an absurd step makes.
    bits = [x for b in ("weight", "activation", "first_last", "input") for x in (f"{b}_bits", "32")]
    options = [f"--model.quantization.{x}" if x != "32" else x for x in bits]
    with pytest.raises(SystemExit) as stop:
        main(["fit", *short, *root, *options, "--model.optimizer", "sgd", "--model.learning_rate", "1e38"])
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: the loss is ")
    # Which of the two overflows first depends on the order in which a convolution adds.
    assert re.search(
        r"first seen in the output of blocks\.0\.(conv \(Conv2d|bn \(BatchNorm2d)\)$", err.strip()
    )
