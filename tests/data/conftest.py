from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

WriteFolder = Callable[..., dict[str, Tensor]]


@pytest.fixture
def write_folder() -> WriteFolder:
    """Writes an image folder of random PNG files; returns its images, `part/class/name` -> `(C, H, W)`."""

    def write(
        root: Path,
        train: dict[str, int],
        test: dict[str, int],
        shape: tuple[int, int, int] = (3, 6, 5),
    ) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(0)
        images = {}
        for part, counts in (("train", train), ("test", test)):
            for name, count in counts.items():
                (root / part / name).mkdir(parents=True)
                for i in range(count):
                    image = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
                    pixels = image.permute(1, 2, 0).numpy().squeeze()
                    Image.fromarray(pixels).save(root / part / name / f"{i:04}.png")
                    images[f"{part}/{name}/{i:04}.png"] = image
        return images

    return write
