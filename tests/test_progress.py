import pytest

from qat.progress import announced, tracked


def test_short_loops_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(tracked([1, 2, 3], "Working")) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


def test_long_loops_show_what_remains_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    assert list(tracked([1, 2, 3], "Working", after=-1.0)) == [1, 2, 3]
    out, err = capsys.readouterr()
    assert out == ""
    assert "Working" in err
    assert "/3" in err


def test_an_error_ends_the_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        list(map((1).__truediv__, tracked([1, 0], "Working", after=-1.0)))
    assert list(tracked([1], "Again", after=-1.0)) == [1]


def test_announced_pieces_are_named_and_counted_when_the_next_one_begins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", "120")
    with announced("Parts", 4) as announce:
        announce("first", 3)
        announce("second")
    out, err = capsys.readouterr()
    assert out == ""
    assert "Parts: first" in err
    first, second = err.index("Parts: first"), err.index("Parts: second")
    assert "0 %" in err[first:second]
    assert "75 %" in err[second:]


def test_announced_pieces_are_not_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with announced("Parts", 1) as announce:
        announce("first")
    assert capsys.readouterr() == ("", "")
