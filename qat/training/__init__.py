"""One training run: the LightningModule, its schedule and callbacks, and the result of the run."""

from qat.quiet import quiet
from qat.training.classifier import Classifier
from qat.training.dampening import dampening_loss
from qat.training.epoch_bar import EpochBar
from qat.training.health import Health
from qat.training.oscillation import FreezeOscillating
from qat.training.phases import Phases
from qat.training.reestimation import Reestimation
from qat.training.schedule import parameter_groups

__all__ = [
    "Classifier",
    "EpochBar",
    "FreezeOscillating",
    "Health",
    "Phases",
    "Reestimation",
    "dampening_loss",
    "parameter_groups",
    "quiet",
]
