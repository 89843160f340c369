"""Losses as functions, each with a class form."""

from qat.losses.huber import HuberLoss, huber_loss

__all__ = ["HuberLoss", "huber_loss"]
