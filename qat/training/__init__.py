"""One run: the LightningModule, its schedule, its command line."""

from qat.training.classifier import Classifier

__all__ = ["Classifier"]
