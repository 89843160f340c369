"""The machine and the versions that figures were measured with."""

import os
import platform
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("qat", "torch", "torchao", "brevitas")


def describe(device: str) -> dict[str, Any]:
    """System, processor, cores, threads, versions, and the present load (None: unknown)."""
    versions = {name: next((d.version for d in distributions(name=name)), None) for name in PACKAGES}
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "load": None if sys.platform == "win32" else os.getloadavg()[0],
        "versions": {"python": platform.python_version()} | versions,
    }


def in_words(machine: dict[str, Any]) -> str:
    """The same as one line."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items() if number)
    load = "" if machine["load"] is None else f", load {machine['load']:.1f}"
    device = "" if machine["device"] == "cpu" else f"{machine['device']}, "
    cores = f"{machine['cores']} cores, {machine['threads']} threads{load}"
    return f"{device}{machine['processor']}, {cores}; {versions}"


def _processor() -> str:
    info = Path("/proc/cpuinfo")  # on Linux platform.processor() is empty
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
