"""One training run: the LightningModule, its schedule and callbacks, and the result of the run."""

from qat.training.classifier import Classifier

__all__ = ["Classifier"]
