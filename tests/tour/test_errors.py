"""Errors and warnings as one line."""

import warnings

import pytest

from qat.tour.errors import collected_warnings, error_of


def test_other_warnings_are_passed_on() -> None:
    said: list[str] = []

    def warn_twice() -> None:
        with collected_warnings(UserWarning, "this") as found:
            warnings.warn("this one", UserWarning, stacklevel=1)
            warnings.warn("other one", UserWarning, stacklevel=1)
        said.extend(found)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(UserWarning, match="other"):
            warn_twice()
    assert said == ["UserWarning: this one"]


def test_error_of_without_an_error() -> None:
    assert error_of(lambda: None) == "no error"


def test_an_error_is_one_line_without_links() -> None:
    def fails() -> None:
        raise RuntimeError("two\n lines (Example: a.py) https://pytorch.org/docs end")

    assert error_of(fails) == "RuntimeError: two lines end"
