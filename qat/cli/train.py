"""`train`: fit, validate or test one network, with a YAML file and any option of Lightning's trainer."""

import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from lightning import Trainer
from lightning.pytorch.trainer.states import TrainerStatus
from torch.distributed import destroy_process_group

from qat.cli import VERBS
from qat.cli.exits import errors_in_one_line, leave
from qat.cli.lightning_cli import SUBCOMMANDS, TrainCLI
from qat.cli.logs import logs_shown
from qat.cli.parser import command, program
from qat.names import one_line, unknown_name
from qat.quiet import quiet
from qat.training.ranks import is_shared
from qat.training.saving import Last


def main(argv: Sequence[str]) -> None:
    """Run a subcommand; exit with 0 after `--help`, 2 for bad input, 130 when stopped with Ctrl-C."""
    quiet()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    threading.excepthook = _thread_failed
    # The log tells of the weights that the run starts from.
    with errors_in_one_line(stopped="stopped before the run began"), logs_shown():
        cli = _build(argv)
    trainer = cli.trainer
    try:
        with logs_shown():
            cli.run()
    except (OSError, FloatingPointError) as error:  # any other is a bug, and shows its traceback
        _leave(trainer, f"error: {one_line(error)}", 2)
    except (KeyboardInterrupt, SystemExit):
        if trainer.state.status != TrainerStatus.INTERRUPTED:
            raise
        _leave(trainer, _how_to_go_on(cli), 130)
    folder = trainer.log_dir  # on each process: they agree on it by talking to each other
    if cli.name == "fit" and not cli.config.trainer.fast_dev_run and trainer.is_global_zero and folder:
        print(f"written to {folder}")
    _end_talk()


def _thread_failed(error: threading.ExceptHookArgs) -> None:
    """Hide the traceback of a thread that cannot write: its next use, or the next file, is the error."""
    if not issubclass(error.exc_type, OSError):
        threading.__excepthook__(error)


def _leave(trainer: Trainer, message: str, code: int) -> NoReturn:
    _end_talk()
    if trainer.is_global_zero:
        leave(message, code)
    sys.exit(0)  # the first process speaks for all, and Lightning kills it when another one fails


def _end_talk() -> None:
    if is_shared():
        destroy_process_group()  # its threads may abort a process that ends with them


def _build(argv: Sequence[str]) -> TrainCLI:
    if not argv:
        raise ValueError(f"a subcommand is missing; choose from: {', '.join(SUBCOMMANDS)}")
    name, *options = argv
    if name in ("-h", "--help"):
        print(f"usage: {program()} SUBCOMMAND [--config FILE] [OPTIONS]\n\n{VERBS['train']}\n")
        print(f"subcommands (details: {program()} SUBCOMMAND --help):")
        print("\n".join(f"  {name:<10}{meaning}" for name, meaning in SUBCOMMANDS.items()))
        raise SystemExit(0)
    if name not in SUBCOMMANDS:
        raise unknown_name("subcommand", name, SUBCOMMANDS)
    return TrainCLI(name, options)


def _how_to_go_on(cli: TrainCLI) -> str:
    if cli.name != "fit":
        return "stopped"
    last = [c.best_model_path for c in cli.trainer.checkpoint_callbacks if isinstance(c, Last)]
    if not any(last):
        return "stopped; no epoch was finished, so there is nothing to go on from"
    options = ["fit", "--config", f"{cli.trainer.log_dir}/config.yaml", "--ckpt_path", last[0]]
    return f"stopped; to go on: {shlex.join([*command('train'), *options])}"
