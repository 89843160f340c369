"""Lightning's command line, with this package's options, checks and callbacks."""

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from lightning import Trainer
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.callbacks import ModelCheckpoint, ProgressBar
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.plugins import CheckpointIO

from qat.cli.config_file import ConfigFile, check_classes
from qat.cli.parser import OneLineParser, program
from qat.cli.run_folder import SaveConfig, ShowSummary, check_writable, new_version
from qat.data import ImageData, data_shape
from qat.options import GROUPS, check_seed
from qat.training.ckpt import check_resumable, check_same_batches, load_state, read_ckpt
from qat.training.classifier import Classifier
from qat.training.epoch_bar import EpochBar
from qat.training.health import Health
from qat.training.lightning_private import copies_process
from qat.training.limits import check_batches, check_trainer, refusals_of_trainer, trainer_defaults
from qat.training.named_parts import PART_OPTIONS, stored_option
from qat.training.network import has_quantizers
from qat.training.ranks import StopTogether
from qat.training.saving import Best, Last, WholeCkpts

SUBCOMMANDS = {
    "fit": "Train a network, or continue a run that was stopped.",
    "validate": "Evaluate a .ckpt file on the validation images.",
    "test": "Evaluate a .ckpt file on the test images.",
}
OPTIONS = "[--config FILE] [--model.OPTION VALUE]\n  [--data.OPTION VALUE] [--trainer.OPTION VALUE] ..."
ADDRESS = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK"}  # of a cluster, as environment variables


class TrainCLI(LightningCLI):
    """Parses the options `args` of a subcommand, builds the run and checks it; `run` then does the work."""

    def __init__(self, name: str, args: Sequence[str]) -> None:
        self.name = name
        prog = f"{program()} {name}"
        super().__init__(
            Classifier,
            ImageData,
            save_config_callback=SaveConfig,
            seed_everything_default=0,
            parser_kwargs={"prog": prog, "usage": f"{prog} {OPTIONS}", "description": SUBCOMMANDS[name]},
            args=list(args),
            run=False,  # the subcommands are methods of the trainer; here they share one set of options
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,  # Classifier keeps plain hyper-parameters itself
        )

    def run(self) -> None:
        """Fit, validate or test."""
        if self.name != "fit":  # the model holds the state of the .ckpt file already
            getattr(self.trainer, self.name)(self.model, self.datamodule)
            return
        root, claims = self.config.trainer.default_root_dir or ".", self.trainer.is_global_zero
        with new_version(root, claims) if self._logs else nullcontext(self.trainer.loggers) as loggers:
            self.trainer.loggers = loggers
            ckpt_path = self.config.ckpt_path
            self.trainer.fit(self.model, self.datamodule, ckpt_path=ckpt_path, weights_only=True)

    def init_parser(self, **kwargs: Any) -> LightningArgumentParser:
        parser = OneLineParser(**kwargs)
        text = "YAML file of options; a second one adds to the first, and wins over it."
        parser.add_argument("-c", "--config", action=ConfigFile, help=text)
        return parser

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        seed = "Random seed of the run, 0 to 2^32 - 1."
        parser.add_argument("--seed_everything", type=int, default=0, help=seed)
        ckpt = "The .ckpt file of the run to " + ("continue." if self.name == "fit" else "evaluate.")
        parser.add_argument("--ckpt_path", type=str | None, default=None, help=ckpt)

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        # What this package is about first, Lightning's many options last.
        # Not Lightning's own method, with which options may be files that `read_yaml` does not read.
        parser.add_class_arguments(Classifier, "model", fail_untyped=False)
        parser.add_class_arguments(ImageData, "data", fail_untyped=False)
        parser.add_class_arguments(Trainer, "trainer", fail_untyped=False, instantiate=False)
        # "auto" devices would let the machine decide the batches.
        here = {"trainer.devices": 1, "trainer.default_root_dir": "runs"}
        parser.set_defaults(trainer_defaults() | here)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.link_arguments("seed_everything", "model.seed")
        parser.link_arguments("seed_everything", "data.seed")
        data = ("data.name", "data.data_root")
        parser.link_arguments(data, "model.input_shape", compute_fn=lambda *names: data_shape(*names)[0])
        parser.link_arguments(data, "model.classes", compute_fn=lambda *names: data_shape(*names)[1])

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        for group in (*GROUPS, "model.quantization"):
            if any(word.partition("=")[0] == f"--{group}" for word in args):
                raise ValueError(f"{group} is a group: give --{group}.OPTION VALUE, or a file with --config")
        self.config = options = parser.parse_args(args)
        for name in PART_OPTIONS:
            options[name] = stored_option(name, options[name])
        check_classes(options)
        check_seed("seed_everything", options.seed_everything)
        check_trainer(vars(options.trainer), options.model.float_epochs)
        if options.ckpt_path is None and self.name != "fit":
            raise ValueError(f"{self.name} needs --ckpt_path, the .ckpt file to evaluate")
        root = options.trainer.default_root_dir
        check_writable("trainer.default_root_dir", "." if root is None else root)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        options = self.config_init.trainer
        fits = self.name == "fit"
        writes = fits and not options.fast_dev_run
        self._logs = writes and options.logger in (None, True)  # into a folder that `run` makes
        if options.logger in (None, True):
            kwargs["logger"] = False
        if not writes or options.logger is False:
            self.save_config_callback = None
        callbacks = options.callbacks or []
        callbacks = list(callbacks) if isinstance(callbacks, list) else [callbacks]
        saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
        if options.enable_checkpointing is not False and writes and not saves:
            callbacks += [Best(), Last()]
        if fits:
            callbacks += [*([Health()] if has_quantizers(self.model) else []), StopTogether()]
            if not any(isinstance(callback, ProgressBar) for callback in callbacks):
                callbacks += [EpochBar()] if options.enable_progress_bar is not False else []
            if options.enable_model_summary is not False:
                callbacks.append(ShowSummary())
            kwargs["enable_model_summary"] = False  # Lightning's summary knows no bits
        plugins = options.plugins or []
        plugins = list(plugins) if isinstance(plugins, list) else [plugins]
        if not any(isinstance(plugin, CheckpointIO) for plugin in plugins):
            plugins.append(WholeCkpts())
        with refusals_of_trainer(options.accelerator):
            return super().instantiate_trainer(callbacks=callbacks, plugins=plugins, **kwargs)

    def after_instantiate_classes(self) -> None:
        """Refuse a .ckpt file or data that does not fit, before anything is written."""
        ckpt_path, fits = self.config.ckpt_path, self.name == "fit"
        self.model.name_classes(self.datamodule.class_names, "the data")
        self._check_processes()
        if ckpt_path is not None:
            ckpt = read_ckpt("ckpt_path", ckpt_path)
            if fits:  # first, for it names the option that must change
                check_resumable(ckpt, ckpt_path, self.model.hparams, self.trainer)
            load_state(ckpt, ckpt_path, self.model)
        if fits:
            for callback in self.model.configure_callbacks():
                callback.setup(self.trainer, self.model, "fit")
            self.model.load_teacher()
            self.model.load_start()  # nothing to do in a resumed run
        self.datamodule.prepare_data()
        self.datamodule.setup(self.name)
        self.datamodule.trainer = self.trainer  # for the number of processes
        check_batches(self.trainer, self.datamodule, self.name)
        if fits and ckpt_path is not None:
            check_same_batches(ckpt, ckpt_path, self.datamodule.train_dataloader())

    def _check_processes(self) -> None:
        """Refuse what would not start, or would wait for a process that never comes."""
        nodes, strategy = self.config.trainer.num_nodes, self.trainer.strategy
        environment = getattr(strategy, "cluster_environment", None)
        if nodes > 1 and isinstance(environment, LightningEnvironment) and not os.environ.keys() >= ADDRESS:
            raise ValueError(
                f"trainer.num_nodes {nodes} needs a cluster: start the run on each machine with torchrun or "
                f"SLURM, or set {', '.join(sorted(ADDRESS))}; on one machine, leave it out"
            )
        if copies_process(self.trainer):
            given = f"got {self.config.trainer.strategy}; give ddp, which starts them anew"
            raise ValueError(f"trainer.strategy must not copy this process to start others, {given}")
