"""The whole tour, in order."""

from qat.tour import run_tour
from qat.tour.experiment import Chapter, Experiment, Measured


def test_run_tour_shows_chapters_and_results() -> None:
    subject = Experiment("Planted", "To be seen.", {"one": 1.0}, lambda: Measured({"one": 1.0}))
    chapters = [Chapter("One", [subject]), Chapter("Two", [subject, subject])]
    shown: list[tuple[str, int]] = []
    tour = run_tour(chapters, lambda chapter, one: shown.append((chapter.title, one.number if one else 0)))
    assert [chapter for chapter, _ in tour] == chapters
    assert all(one.ok for _, group in tour for one in group)
    assert shown == [("One", 0), ("One", 1), ("Two", 0), ("Two", 2), ("Two", 3)]
