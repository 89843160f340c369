"""Lightning's progress bar, with epochs that are counted from 1."""

from lightning.pytorch.callbacks import RichProgressBar


class EpochBar(RichProgressBar):
    """Lightning's bar, whose first epoch of two is `Epoch 1/2`; Lightning itself writes `Epoch 0/1`."""

    def _get_train_description(self, current_epoch: int) -> str:
        last = self.trainer.max_epochs
        known = last is not None and last > 0
        text = f"Epoch {current_epoch + 1}/{last}" if known else f"Epoch {current_epoch + 1}"
        return text.ljust(len(self.validation_description))  # or the bars move
