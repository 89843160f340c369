"""Errors and warnings as one line."""

import warnings

import pytest

from qat.tour.errors import error_of, warning_and_error_of


def test_the_warning_and_the_error_behind_it() -> None:
    def warns_and_fails() -> None:
        warnings.warn("this one", UserWarning, stacklevel=1)
        raise RuntimeError("failed")

    filters = list(warnings.filters)
    both = warning_and_error_of(warns_and_fails, "this")
    assert both == ("UserWarning: this one", "RuntimeError: failed")
    assert warnings.filters == filters


def test_other_warnings_are_passed_on() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.warns(UserWarning, match="other") as passed_on:
            both = warning_and_error_of(lambda: warnings.warn("other one", UserWarning, stacklevel=1), "this")
    assert both == ("no error", "no error")
    assert len(passed_on) == 2


def test_error_of_without_an_error() -> None:
    assert error_of(lambda: None) == "no error"


def test_an_error_is_one_line_without_links() -> None:
    def fails() -> None:
        raise RuntimeError("two\n lines (Example: a.py) https://pytorch.org/docs end")

    assert error_of(fails) == "RuntimeError: two lines end"
