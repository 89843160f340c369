"""Small plain float CNNs, which know nothing of quantization.

Each network takes the shape of one image and the number of classes, returns logits `(N, classes)`, and keeps
its repeated part in `blocks`, so that the pattern `blocks.*` matches the blocks that can be checkpointed.
"""

from typing import Literal

from torch import nn

from qat.models.lenet import LeNet
from qat.models.resnet import ResNet8, ResNet20, ResNet56
from qat.models.small_cnn import SmallCNN

ModelName = Literal["lenet", "small_cnn", "resnet8", "resnet20", "resnet56"]
MODELS: dict[str, type[nn.Module]] = {
    "lenet": LeNet,
    "small_cnn": SmallCNN,
    "resnet8": ResNet8,
    "resnet20": ResNet20,
    "resnet56": ResNet56,
}

__all__ = ["MODELS", "LeNet", "ModelName", "ResNet8", "ResNet20", "ResNet56", "SmallCNN"]
