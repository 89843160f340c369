"""`train`: fit, validate or test one network, with a YAML file and any option of Lightning's trainer."""

import shlex
from collections.abc import Sequence

from lightning.pytorch.trainer.states import TrainerStatus

from qat.cli import VERBS
from qat.cli.exits import errors_in_one_line, leave
from qat.cli.lightning_cli import SUBCOMMANDS, TrainCLI
from qat.cli.parser import command, program
from qat.cli.quiet import logs_shown, quiet
from qat.names import unknown_name
from qat.training.saving import Last


def main(argv: Sequence[str]) -> None:
    """Run a subcommand; exit with 0 after `--help`, 2 for bad input, 130 when stopped with Ctrl-C."""
    quiet()
    with errors_in_one_line(stopped="stopped before the run began"):
        try:
            with logs_shown():  # the weights that the run starts from
                cli = _build(argv)
        except UnicodeDecodeError as error:
            rule = "config must be a YAML file in UTF-8"
            raise ValueError(f"{rule}, got {error.object[:20]!r}...") from None
    with errors_in_one_line((OSError, FloatingPointError)):  # any other is a bug, and shows its traceback
        try:
            with logs_shown():
                cli.run()
        except (KeyboardInterrupt, SystemExit):
            if cli.trainer.state.status != TrainerStatus.INTERRUPTED:
                raise
            leave(_how_to_go_on(cli), 130)
    folder = cli.trainer.log_dir  # on each process: they agree on it by talking to each other
    writes = cli.name == "fit" and not cli.config.trainer.fast_dev_run
    if writes and folder and cli.trainer.is_global_zero:
        print(f"written to {folder}")


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
