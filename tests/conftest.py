"""One thread for all tests, as waiting threads cost more than they help there; tiny images."""

import signal
from pathlib import Path

import pytest
import torch
from PIL import Image

torch.set_num_threads(1)
# A shell starts a background job with Ctrl-C ignored, which child processes would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 50 images in two classes, so that whole comparisons take seconds."""
    root = tmp_path_factory.mktemp("images")
    generator = torch.Generator().manual_seed(0)
    for part, count in (("train", 20), ("test", 5)):
        for label in range(2):
            folder = root / part / f"class{label}"
            folder.mkdir(parents=True)
            for i in range(count):
                noise = torch.randint(0, 128, (12, 12), generator=generator, dtype=torch.uint8)
                Image.fromarray((noise + 127 * label).numpy()).save(folder / f"{i}.png")
    return root
