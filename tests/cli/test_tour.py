"""The verb `tour`: options, output and exit codes."""

from pathlib import Path

import pytest

from qat.cli import tour
from qat.tour import CHAPTERS
from qat.tour.experiment import Chapter, Experiment

COUNT = sum(len(chapter.experiments) for chapter in CHAPTERS)


def plant(monkeypatch: pytest.MonkeyPatch, measured: float) -> None:
    good = Experiment(lambda: ({"value": 1.0}, []), "Good", "It is.", {"value": 1.0})
    other = Experiment(lambda: ({"value": measured}, []), "Planted", "It is.", {"value": 1.0})
    monkeypatch.setattr(tour, "CHAPTERS", (Chapter("One", [good, other]),))


@pytest.mark.parametrize("columns", [80, 120])
def test_all_as_expected(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    page = tmp_path / "tour.html"
    tour.main(["--html", str(page)])
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[-2:] == [f"written to {page}", f"{COUNT} of {COUNT} as expected"]
    assert err == ""
    assert max(len(line) for line in lines[:-2]) <= columns
    assert "<section" in page.read_text(encoding="utf-8")
    for chapter in CHAPTERS:
        assert chapter.title in out


def test_a_wrong_value_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, 2.0)
    with pytest.raises(SystemExit) as stop:
        tour.main([])
    assert stop.value.code == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["\N{BALLOT X} 2 Planted", "1 of 2 as expected"]


def test_a_right_value_ends_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, 1.0)
    tour.main([])
    assert capsys.readouterr().out.splitlines()[-1] == "2 of 2 as expected"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "must be a file"),
        ("gone/tour.html", "must lie in a folder that exists"),
        ("file/tour.html", "must lie in a folder that exists"),
    ],
)
def test_an_unwritable_page_is_said_before_the_run(
    name: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tour, "run_tour", None)  # would fail if it were called
    with pytest.raises(SystemExit) as stop:
        tour.main(["--html", str(tmp_path / name)])
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: html: path {message}, got ")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_unknown_option(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        tour.main(["--htm", "x"])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: unknown option 'htm'; nearest: html\n"


def test_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    page = tmp_path / "tour.html"
    page.write_text("before")
    plant(monkeypatch, 1.0)
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(SystemExit) as stop:
        tour.main(["--html", str(page)])
    assert stop.value.code == 2
    assert capsys.readouterr().err == "error: html: No space left on device\n"
    assert list(tmp_path.iterdir()) == [page]
    assert page.read_text() == "before"
