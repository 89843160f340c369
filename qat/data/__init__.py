"""Image data sets in memory, as one LightningDataModule.

Images are floats in [0, 1], byte / 255, without mean/std normalisation: on an 8-bit grid with the scale 1/255
their codes are the bytes.
"""

from qat.data.images import ImageSet
from qat.data.module import ImageData
from qat.data.sources import SOURCES, DataName, data_shape, find_source, resolve_root

__all__ = ["SOURCES", "DataName", "ImageData", "ImageSet", "data_shape", "find_source", "resolve_root"]
