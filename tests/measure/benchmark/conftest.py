"""Benchmarks without the compiler."""

import pytest


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QAT_COMPILE", "0")  # compiling takes longer than all tests here
