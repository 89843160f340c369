"""The command line of one run: `fit`, `validate`, `test`, with a YAML file and any option of Lightning."""

import pickle
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.trainer.states import TrainerStatus

from qat.cli.lightning_cli import TrainCLI
from qat.cli.quiet import logs_shown, quiet
from qat.names import one_line
from qat.training.output import Last

BAD_INPUT = (ValueError, OSError, pickle.UnpicklingError, MisconfigurationException)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` without the program's name, by default the process's own.

    Raises:
        SystemExit: 2 on bad input, 130 when stopped with Ctrl-C.
    """
    quiet()
    try:
        cli = TrainCLI(argv)
    except UnicodeDecodeError as error:
        leave(f"error: config must be a YAML file in UTF-8, got {error.object[:20]!r}...", 2)
    except BAD_INPUT as error:
        leave(f"error: {one_line(error)}", 2)
    except KeyboardInterrupt:
        leave("stopped before the run began", 130)
    try:
        with logs_shown():
            cli.run()  # out of reach of the net above: a bug in a run shows its traceback
    except (OSError, FloatingPointError) as error:
        leave(f"error: {one_line(error)}", 2)
    except (KeyboardInterrupt, SystemExit):
        if cli.trainer.state.status != TrainerStatus.INTERRUPTED:
            raise
        leave(_how_to_go_on(cli), 130)
    folder = cli.trainer.log_dir  # asked for by every process: they agree on it by talking to each other
    if cli.subcommand == "fit" and cli.trainer.is_global_zero and folder:
        print(f"written to {folder}")


def _how_to_go_on(cli: TrainCLI) -> str:
    if cli.subcommand != "fit":
        return "stopped"
    last = [c.best_model_path for c in cli.trainer.checkpoint_callbacks if isinstance(c, Last)]
    if not any(last):
        return "stopped; no epoch was finished, so there is nothing to go on from"
    config = f"{cli.trainer.log_dir}/config.yaml"
    command = ["fit", "--config", config, "--ckpt_path", last[0]]
    return f"stopped; to go on: {shlex.join(['python', sys.argv[0], *command])}"


def leave(message: str, code: int) -> NoReturn:
    """Say one line on stderr and exit."""
    print(message, file=sys.stderr)
    sys.exit(code)
