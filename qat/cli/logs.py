"""Show the log of this package."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logs_shown() -> Iterator[None]:
    """A context in which the log of this package is shown on stderr: compiled kernels, unhealthy layers."""
    logger, handler = logging.getLogger("qat"), logging.StreamHandler()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
