"""The report as Markdown with SVG files beside it, and as one HTML file that needs nothing else."""

import base64
import io
import re
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from markdown_it import MarkdownIt
from markupsafe import Markup
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from qat.experiment.results import load_results
from qat.report import figures
from qat.report.groups import group
from qat.report.pairs import pairs
from qat.report.seed_spread import short
from qat.report.tables import health_cells, losses, result_table, settings
from qat.training.health import LIMITS
from qat.whole_file import write_whole


def write_report(out: Path) -> Path:
    """Write `report.html`, `report.md` and `report_figures/*.svg` into the folder of a comparison.

    Each file replaces the earlier one as a whole. Returns the path of `report.html`.

    Raises:
        ValueError: there is no result, or a broken one, which the message names.
        OSError: a file cannot be written.
    """
    out, groups = Path(out), group(load_results(out))
    pictures: dict[str, bytes] = {}

    def shown(figure: Figure, name: str, alt: str) -> Markup:
        path, stream = f"report_figures/{name}.svg", io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})  # the same each time
        pictures[path] = stream.getvalue()
        return Markup(f"![{_markdown(alt)}]({path})")

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    html = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    markdown = html.overlay(finalize=_markdown)
    # Inside backticks everything is literal but the bar, which ends a table's cell even there.
    markdown.filters["code"] = lambda name: Markup("`{}`".format(name.replace("|", r"\|")))
    markdown.filters |= {"shown": shown, "short": short}
    with mpl.rc_context(fname=Path(__file__).with_name("report.mplstyle")):
        text = markdown.get_template("report.md").render(
            groups=groups,
            pairs=pairs(groups),
            result=result_table(groups),
            settings=settings(groups),
            losses=losses(groups),
            health_cells=health_cells,
            figures=figures,
            limits=LIMITS,
        )
        colours = {name: to_hex(f"C{n}") for n, name in enumerate(groups.results.listing.setups)}
    text = re.sub("\n{3,}", "\n\n", text)
    page = html.get_template("report.html").render(body=_html(text, pictures, colours))
    (out / "report_figures").mkdir(exist_ok=True)
    for path, content in pictures.items():
        write_whole(out / path, content)
    write_whole(out / "report.md", text)
    return write_whole(out / "report.html", page)


def _markdown(value: Any) -> Markup:
    """A value as Markdown in which nothing has a meaning; `Markup` stays as it is."""
    plain = re.sub(r"([\\*_<\[\]#&`|])", r"\\\1", " ".join(str(value).splitlines()))
    return value if isinstance(value, Markup) else Markup(plain)


def _html(text: str, pictures: dict[str, bytes], colours: dict[str, str]) -> Markup:
    """The Markdown as HTML, with pictures as data, and with what the style sheet needs."""
    page = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)

    def code(found: re.Match[str]) -> str:
        broken = re.sub(r"(?<=\w)([._])(?=\w)", r"\1<wbr>", found[1])
        colour = colours.get(Markup(found[1]).unescape())
        mark = f' class="setup"><i style="background: {colour}"></i>' if colour else ">"
        return f"<code{mark}{broken}</code>"

    page = re.sub(r"<img [^>]*>", r'<span class="scroll" tabindex="0">\g<0></span>', page)
    for path, picture in pictures.items():
        data = base64.b64encode(picture).decode()
        page = page.replace(f'src="{path}"', f'src="data:image/svg+xml;base64,{data}"')
    page = re.sub(r"<tr>\n<td>(.*)</td>", r'<tr>\n<th scope="row">\1</th>', page)
    page = re.sub(r'(<td style="text-align:right")>0<', r'\1 class="zero">0<', page)
    page = re.sub(r'(<td style="text-align:right")>! ', r'\1 class="bad">! ', page)
    page = re.sub(r"<code>(.*?)</code>", code, page)
    page = page.replace("<table>", '<div class="scroll" tabindex="0"><table>')
    return Markup(page.replace("</table>", "</table></div>"))
