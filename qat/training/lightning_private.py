"""The private names of Lightning that have no public counterpart, all in one place.

`tests/training/test_lightning_private.py` checks each of them, and names the release that was checked.
"""

from lightning import Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher


def load_loader_states(trainer: Trainer) -> None:
    """Load the state of the training loader from the .ckpt file of a resumed run.

    Lightning does so before it has a loader, in vain, if a schedule has asked for the number of steps.
    """
    trainer.fit_loop._load_combined_loader_states()


def set_logged_step(trainer: Trainer, step: int) -> None:
    """The step under which the trainer logs; it counts one too many in some resumed runs."""
    trainer.fit_loop.epoch_loop._batches_that_stepped = step


def is_inside_step(trainer: Trainer) -> bool:
    """Whether the batch that ends is not the last one of its optimizer step."""
    return trainer.fit_loop.epoch_loop._should_accumulate()


def copies_process(trainer: Trainer) -> bool:
    """Whether the trainer's strategy copies this process, by fork or spawn, to start the others."""
    return isinstance(trainer.strategy.launcher, _MultiProcessingLauncher)


def needs_all_gradients(trainer: Trainer) -> bool:
    """Whether the trainer's strategy waits for a gradient of each parameter in each step."""
    strategy = trainer.strategy
    return isinstance(strategy, DDPStrategy) and not strategy._ddp_kwargs.get("find_unused_parameters", False)
