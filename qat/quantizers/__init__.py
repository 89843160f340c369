"""Quantizers: a tensor in, the same tensor on an integer grid out."""

from qat.quantizers.grid import IntGrid
from qat.quantizers.observed import ObservedScale
from qat.quantizers.observers import OBSERVERS, Observer, ObserverName
from qat.quantizers.quantizer import Quantizer

__all__ = ["OBSERVERS", "IntGrid", "ObservedScale", "Observer", "ObserverName", "Quantizer"]
