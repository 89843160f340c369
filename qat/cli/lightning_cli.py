"""Lightning's command line, with this package's options, checks and callbacks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jsonargparse import Namespace
from lightning import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.strategies import DDPStrategy

from qat.cli.parser import OneLineParser
from qat.data import ImageData, data_shape
from qat.quantizers import Scale
from qat.training.ckpt import check_fits, check_resumable, read_ckpt
from qat.training.classifier import Classifier
from qat.training.health import Health
from qat.training.output import Best, Last, SaveConfig, ShowSummary, check_writable, new_loggers

DESCRIPTION = "Train and test a small CNN with quantization. Details of a subcommand: fit --help."
USAGE = "%(prog)s [--config FILE] [--model.OPTION VALUE] [--data.OPTION VALUE] [--trainer.OPTION VALUE] ..."
PHASES = ("float_epochs", "freeze_epoch", "freeze_batchnorm_epoch")
POSITIVE = ("limit_train_batches", "accumulate_grad_batches", "check_val_every_n_epoch", "max_steps")


class TrainCLI(LightningCLI):
    """Parses, builds and checks everything; `run` then does the work.

    Attributes:
        run: starts the chosen subcommand.
    """

    run: Callable[[], Any]

    def __init__(self, args: Sequence[str] | None = None) -> None:
        super().__init__(
            Classifier,
            ImageData,
            save_config_callback=SaveConfig,
            seed_everything_default=0,
            parser_kwargs={
                "description": DESCRIPTION,
                "allow_abbrev": False,
                **{command: {"usage": USAGE} for command in self.subcommands()},
            },
            parser_class=OneLineParser,
            args=None if args is None else list(args),
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,  # Classifier keeps plain hyper-parameters itself
        )

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        skip = {"model", "datamodule", "weights_only"}
        evaluation = skip | {"dataloaders", "verbose"}
        return {
            "fit": skip | {"train_dataloaders", "val_dataloaders"},
            "validate": evaluation,
            "test": evaluation,
        }

    def add_default_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument(
            "--seed_everything", type=int, default=0, help="Decides the whole run: 0 to 2^32 - 1."
        )

    def add_core_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        # What this package is about first, Lightning's many options last.
        parser.add_lightning_class_args(Classifier, "model")
        parser.add_lightning_class_args(ImageData, "data")
        parser.add_lightning_class_args(Trainer, "trainer")
        parser.set_defaults(
            {
                # "auto" would take Apple's GPU, and "auto" devices would change the batches by the machine.
                "trainer.accelerator": "cuda" if torch.cuda.is_available() else "cpu",
                "trainer.devices": 1,
                "trainer.max_epochs": 5,
                "trainer.default_root_dir": "runs",
            }
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.link_arguments("seed_everything", "model.seed")
        parser.link_arguments("seed_everything", "data.seed")
        data = ("data.name", "data.data_root")
        parser.link_arguments(data, "model.input_shape", compute_fn=lambda *names: data_shape(*names)[0])
        parser.link_arguments(data, "model.classes", compute_fn=lambda *names: data_shape(*names)[1])

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = parser.parse_args(args)
        options = self.config[self.config.subcommand]
        for group in ("model", "data", "trainer", "model.quantization"):
            if not isinstance(options[group], Namespace):
                raise ValueError(f"{group} must be a group of options, got {options[group]}; see fit --help")
        seed, epochs = options.seed_everything, options.trainer.max_epochs
        if not 0 <= seed < 2**32:
            raise ValueError(f"seed_everything must be 0 to 2^32 - 1, got {seed}; any small number will do")
        if epochs is not None and epochs != -1 and epochs < 1:
            raise ValueError(f"trainer.max_epochs must be at least 1, or -1 for no end, got {epochs}")
        if epochs is not None and 0 < epochs <= options.model.float_epochs:
            raise ValueError(
                f"model.float_epochs must be below trainer.max_epochs ({epochs}), or no epoch is quantized; "
                f"got {options.model.float_epochs}"
            )
        for name in POSITIVE:
            value = options.trainer[name]
            if value is not None and value != -1 and value <= 0:
                raise ValueError(f"trainer.{name} must be above 0, got {value}; leave it out to use all")
        root = options.trainer.default_root_dir
        check_writable("trainer.default_root_dir", "." if root is None else root)

    def _parse_ckpt_path(self) -> None:
        """Nothing: the configuration decides, and a .ckpt file of another one is refused."""

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        options = self._get(self.config_init, "trainer")
        writes = self.subcommand == "fit" and not options.fast_dev_run
        if options.logger in (None, True):
            kwargs["logger"] = new_loggers(options.default_root_dir or ".") if writes else False
        if not writes or kwargs.get("logger", options.logger) is False:
            self.save_config_callback = None
        callbacks = options.callbacks or []
        callbacks = list(callbacks) if isinstance(callbacks, list) else [callbacks]
        own = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
        if options.enable_checkpointing is not False and writes and not own:
            callbacks += [Best(), Last()]
        if self.subcommand == "fit":
            callbacks.append(Health())
            if options.enable_model_summary is not False:
                callbacks.append(ShowSummary())
            kwargs["enable_model_summary"] = False  # Lightning's own knows no bits
        try:
            return super().instantiate_trainer(callbacks=callbacks, **kwargs)
        except Exception as error:  # Lightning checks its many options in as many ways
            raise ValueError(f"trainer: {error} (on any machine: --trainer.accelerator cpu)") from error

    def after_instantiate_classes(self) -> None:
        """Refuse a .ckpt file or data that will not do, before anything is written."""
        ckpt_path = self._get(self.config, "ckpt_path")
        if ckpt_path is None and self.subcommand != "fit":
            raise ValueError(f"{self.subcommand} needs --ckpt_path, the .ckpt file to evaluate")
        if ckpt_path is not None:
            ckpt = read_ckpt("ckpt_path", ckpt_path)
            check_fits(ckpt, ckpt_path, self.model)
            self.model.on_load_checkpoint(ckpt)
            if self.subcommand == "fit":
                own = (self.model.hparams["optimizer"], self.model.hparams["quantization"])
                phases = {key: self.model.hparams[key] for key in PHASES}
                check_resumable(ckpt, ckpt_path, *own, phases, self.trainer.max_epochs)
        if self.subcommand == "fit":
            self._check_devices()
            self.model.load_teacher()
            if ckpt_path is None:
                self.model.load_start()
        self.datamodule.prepare_data()
        self.datamodule.setup(self.subcommand)

    def _check_devices(self) -> None:
        """Refuse phases of learned scales where processes wait for every gradient: some phases have none."""
        strategy = self.trainer.strategy
        waits = isinstance(strategy, DDPStrategy) and not strategy._ddp_kwargs.get("find_unused_parameters")
        phases = any(self.model.hparams[key] not in (0, None) for key in ("float_epochs", "freeze_epoch"))
        scales = (module for module in self.model.modules() if isinstance(module, Scale))
        if waits and phases and any(True for scale in scales for _ in scale.parameters()):
            raise ValueError(
                "float_epochs and freeze_epoch with learned scales on several devices need "
                "--trainer.strategy ddp_find_unused_parameters_true"
            )

    def fit(self, **kwargs: Any) -> None:
        self.run = partial(self.trainer.fit, **kwargs, weights_only=True)

    def validate(self, ckpt_path: str, **kwargs: Any) -> None:
        self.run = partial(self.trainer.validate, **kwargs)  # the model holds the .ckpt file's state already

    def test(self, ckpt_path: str, **kwargs: Any) -> None:
        self.run = partial(self.trainer.test, **kwargs)
