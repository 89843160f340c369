"""The tour as one HTML page that needs nothing else."""

import html
import inspect
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from string import Template

from qat.tour.drawing import draw
from qat.tour.experiment import Chapter, Figure, Result
from qat.tour.graph import Graph
from qat.tour.text import readable

TITLE = "Gradients by hand: a tour"
LEGEND = (
    "Each graph is the one that autograd built while this page was made. "
    '<span class="forward-word">Blue</span> runs forward and carries values, '
    '<span class="backward-word">orange</span> runs back and carries gradients. '
    'A <span class="hand-word">framed</span> node has a backward that was written by hand. '
    'Under an input stands its gradient by <span class="check-word">central differences</span> in float64, '
    "computed from the forward alone: equal where the backward is right, and not where it is wrong or, as "
    "with a straight-through estimator, means to be something else."
)


def check_file(argument: str, path: str | Path) -> None:
    """Ask whether a file can be written, without writing it.

    Raises:
        ValueError: it is a folder, may not be written, or its folder does not exist or may not be written to.
    """
    file = Path(path).absolute()
    if file.is_dir():
        why = "is a folder"
    elif not file.parent.is_dir():
        why = "is in no existing folder"
    elif not os.access(file.parent, os.W_OK | os.X_OK) or (file.exists() and not os.access(file, os.W_OK)):
        why = "is not writable"
    else:
        return
    raise ValueError(
        f"{argument} must be a file one can write, but {path} {why}; choose another, such as tour.html"
    )


def write_page(path: str | Path, results: Sequence[tuple[Chapter, Sequence[Result]]]) -> None:
    """Write the page; a file of that name is replaced at once, never half-written."""
    path, page = Path(path), html_page(results)
    handle, name = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(page)
        Path(name).chmod(0o644)  # mkstemp's own mode would hide the page from everybody else
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def html_page(results: Sequence[tuple[Chapter, Sequence[Result]]]) -> str:
    """The whole page."""
    folder = Path(__file__).parent
    numbered: list[tuple[Chapter, list[tuple[int, Result]]]] = []
    count = 0
    for chapter, group in results:
        numbered.append((chapter, list(enumerate(group, count + 1))))
        count += len(group)
    good = sum(result.ok for _, group in results for result in group)
    strong = f"<strong{'' if good == count else ' class=bad'}>{good} of {count} as expected</strong>"
    body = [
        f'<p class="headline">What autograd does, and what a backward written by hand can do: {strong}.</p>',
        f"<p>{LEGEND}</p>",
        _contents(numbered),
    ]
    for place, (chapter, entries) in enumerate(numbered, 1):
        body.append(f"<h2>{place}&ensp;{html.escape(chapter.title)}</h2>")
        body += [_section(number, result) for number, result in entries]
    return Template((folder / "page.html").read_text(encoding="utf-8")).substitute(
        title=TITLE, style=(folder / "page.css").read_text(encoding="utf-8"), body="\n".join(body)
    )


def _contents(numbered: list[tuple[Chapter, list[tuple[int, Result]]]]) -> str:
    parts = []
    for place, (chapter, group) in enumerate(numbered, 1):
        entries = "".join(
            f'<li><span class="number">{number}</span>{_mark(result.ok)}'
            f'<a href="#experiment-{number}">{html.escape(result.experiment.title)}</a></li>'
            for number, result in group
        )
        parts.append(f"<li>{place}&ensp;{html.escape(chapter.title)}<ol>{entries}</ol></li>")
    return f'<ol class="contents">{"".join(parts)}</ol>'


def _section(number: int, result: Result) -> str:
    subject = result.experiment
    rows = "".join(map(_row, result.figures))
    figures = "".join(_figure(graph, subject.title) for graph in result.graphs)
    code = html.escape(inspect.getsource(subject.measure))
    return (
        f'<section id="experiment-{number}">\n'
        f'<h3><span class="number">{number}</span>{_mark(result.ok)}'
        f"<span>{html.escape(subject.title)}</span></h3>\n"
        f'<p class="why">{html.escape(subject.why)}</p>\n'
        f'<table><thead><tr><th scope="col">figure</th><th scope="col">expected</th>'
        f'<th scope="col">measured</th><th></th></tr></thead><tbody>{rows}</tbody></table>\n'
        f"{figures}\n<details><summary>Code</summary><pre>{code}</pre></details>\n</section>"
    )


def _row(figure: Figure) -> str:
    return (
        f'<tr><th scope="row">{html.escape(figure.name)}</th>'
        f'<td data-label="expected"><span>{html.escape(readable(figure.expected))}</span></td>'
        f'<td data-label="measured"><span>{html.escape(readable(figure.measured))}</span></td>'
        f"<td>{_mark(figure.ok)}</td></tr>"
    )


def _figure(graph: Graph, title: str) -> str:
    alt = f"Graph of: {title}" + (f" ({graph.caption})" if graph.caption else "")
    parts = [f"<figcaption>{html.escape(graph.caption)}</figcaption>"] if graph.caption else []
    # Two drawings, of which the style sheet shows the one that fits: scaled text could not be read.
    parts += [
        f'<div class="{kind}">{draw(graph, alt, narrow)}</div>'
        for kind, narrow in (("wide", False), ("narrow", True))
    ]
    if graph.differs:
        parts.append(f'<p class="note differs">{html.escape(graph.differs)}</p>')
    return f"<figure>{''.join(parts)}</figure>"


def _mark(ok: bool) -> str:
    kind, sign = ("mark", "\N{CHECK MARK}") if ok else ("mark bad", "\N{BALLOT X}")
    return f'<span class="{kind}">{sign}</span>'
