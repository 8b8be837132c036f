"""A profile as one HTML file to send by mail: needs no server and loads nothing.

All that it shows is in the file, the picture of the trace included; it has no scripts, and its
policy forbids them and every other resource. Names are escaped: who is recorded chose them.
"""

from __future__ import annotations

import html
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from hpcd import __version__
from hpcd.analysis.database import Database
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.profile.report import NodeNames, Outline, text_lines
from hpcd.analysis.profile.report_header import HeaderFacts
from hpcd.analysis.profile.row_text import shorten
from hpcd.analysis.profile.views import View, make_view
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.array_types import I64
from hpcd.cli.output.terminal_text import harmless
from hpcd.errors import StorageError, UsageError
from hpcd.model.scope import ScopeKind
from hpcd.output_file import open_output
from hpcd.viewer import palette
from hpcd.viewer.pictures import PictureView, draw
from hpcd.viewer.pictures.flame_graph import boxes_of
from hpcd.wording import percent, quantity

_WIDTH = 1200  # pixels of pictures
_ROW = 18
_MOST_LEVELS = 60
_LETTER = 6.6  # about the width of one, in pixels
_NAME = 300  # characters
_MOST_ROWS = 2000
_MOST_PROCEDURES = 25

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #1b1f26; background: #fff; margin: 24px auto;
  max-width: 1240px; padding: 0 20px; }
h1 { font-size: 20px; } h2 { font-size: 15px; margin: 26px 0 8px; }
p, li { margin: 3px 0; } .soft { color: #5b6472; } img, svg { max-width: 100%; height: auto; }
.rows { overflow-x: auto; font: 12px/1.5 ui-monospace, monospace; white-space: pre; }
.rows div { background: linear-gradient(to right, #1f6feb33 var(--share), transparent var(--share));
  min-width: max-content; } .rows .head { font-weight: 600; } .rows i { color: #5b6472; }
svg text { font: 11px system-ui, sans-serif; pointer-events: none; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write_html(
    path: Path,
    db: Database,
    facts: HeaderFacts,
    outline: Outline,
    more: Sequence[int],
    only: Filter,
) -> None:
    """Write ``path``: ``facts``, the trace, a flame graph, and ``outline`` with ``more`` metrics
    beside its own, of what fits ``only``. Raises :class:`StorageError` when it cannot.
    """
    text = "".join(html_parts(db, facts, outline, more, only))
    try:
        with open_output(path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None


def html_parts(
    db: Database, facts: HeaderFacts, outline: Outline, more: Sequence[int], only: Filter
) -> Iterator[str]:
    """The page in parts; arguments as of :func:`write_html`."""
    title = _escaped(f"{db.path.name}: profile")
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    )
    reported = set(facts.findings)
    for line in facts.as_text():
        if line.removeprefix("stands out: ") not in reported:
            yield f'<p class="soft">{_escaped(line)}</p>\n'
    if facts.findings:
        yield "<h2>What stands out</h2>\n<ul>\n"
        yield from (f"<li>{_escaped(finding)}</li>\n" for finding in facts.findings)
        yield "</ul>\n"
    yield from _trace(db, only)
    yield from _flame_graph(db, outline, only)
    yield f"<h2>Profile: {_escaped(outline.view.title)}</h2>\n"
    yield from _rows(db, outline, more, _MOST_ROWS)
    if outline.view.kind != "flat":
        flat = make_view(db, "flat", only=only, derived=list(outline.view.derived), nameless=False)
        listed = Outline(flat, outline.metric, depth=1, cut_by=outline.cut_by)
        yield "<h2>Procedures by exclusive cost</h2>\n"
        yield from _rows(db, listed, more, _MOST_PROCEDURES)
    yield f'<p class="soft">Made by hpcd {_escaped(__version__)}.</p>\n</body></html>\n'


def _trace(db: Database, only: Filter) -> Iterator[str]:
    """The lines over time as an image in the page; nothing where there are none."""
    selected = only.lines(db)
    working = selected & working_lines(db)
    lines: I64 = np.flatnonzero(working if bool(working.any()) else selected)
    if not len(lines) or db.duration_ns <= 0:
        return
    height = int(min(max(220 + 60 * len(lines), 420), 900))
    with tempfile.TemporaryDirectory(prefix="hpcd-report-") as folder:
        path = Path(folder) / "trace.png"
        try:
            drawn = draw(
                db, path, PictureView(width=1600, height=height, lines=lines.tolist(), share=True)
            )
        except UsageError:
            return
        data = b64encode(path.read_bytes()).decode("ascii")
    shares = ", ".join(f"{name} {percent(share, 0)}" for name, share in drawn.shares[:5])
    yield (
        f"<h2>Trace: {len(lines):,} of {len(db.lines):,} threads over time, by procedure</h2>\n"
        f'<img src="data:image/png;base64,{data}" alt="{_escaped("Trace: " + shares)}">\n'
    )


def _flame_graph(db: Database, outline: Outline, only: Filter) -> Iterator[str]:
    """Calling contexts by cost, a tip on each; nothing where the metric does not add up."""
    metric = outline.cut_by
    if metric >= len(db.metrics.names):
        return
    view = outline.view
    if view.kind != "top-down" or view.frame is not None:
        view = make_view(db, "top-down", only=only, nameless=False)
    total = float(view.total[metric])
    boxes = boxes_of(view, view.inclusive[metric], total, _WIDTH, _MOST_LEVELS)
    if not boxes:
        return
    name = db.metrics.names[metric].replace("_", " ")
    unit = db.metrics.units[metric]
    height = _ROW * (1 + max(box.row for box in boxes))
    names = NodeNames(db, view)
    rgb = palette.colours([_coloured_as(db, view, box.node) for box in boxes])
    yield (
        f"<h2>Flame graph by {_escaped(name)}: width is cost, callees below their callers</h2>\n"
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Flame graph">\n'
    )
    for box, colour in zip(boxes, rgb, strict=True):
        label = names(box.node)
        cost = float(view.inclusive[metric, box.node])
        own = float(view.exclusive[metric, box.node])
        tip = (
            f"{shorten(label, _NAME)}\n{quantity(cost, unit)}, {percent(cost / total)}"
            f"\nitself {quantity(own, unit)}, {percent(own / total)}"
        )
        y, width = box.row * _ROW, max(box.width - 1, 0.5)
        # The tip has line ends of its own; line ends of names are escapes by now.
        tip = "\n".join(_escaped(part) for part in tip.split("\n"))
        yield (
            f'<g><title>{tip}</title><rect x="{box.x:.2f}" y="{y}" width="{width:.2f}"'
            f' height="{_ROW - 1}" fill="#{bytes(colour.tolist()).hex()}"/>'
        )
        room = int((box.width - 8) / _LETTER)
        if room > 2:
            ink = "#fff" if palette.is_dark(colour) else "#000"
            text = _escaped(shorten(label, room))
            yield f'<text x="{box.x + 4:.2f}" y="{y + 13}" fill="{ink}">{text}</text>'
        yield "</g>\n"
    yield "</svg>\n"


def _coloured_as(db: Database, view: View, node: int) -> str:
    """The procedure whose colour a context has: its own, or the one it is in."""
    number = int(view.procedure[node])
    entities = view.entities
    if entities is None:
        return db.procedure_names[number]
    if int(entities.kind[number]) <= ScopeKind.INLINED:
        return entities.name[number]
    return db.procedure_names[int(entities.procedure[number])]


def _rows(db: Database, outline: Outline, more: Sequence[int], most: int) -> Iterator[str]:
    """The rows of a view as text, a bar behind each of its share of the cost."""
    rows = text_lines(db, outline, _NAME, more, fold=True)
    # Spaces and line ends count in it.
    yield '<div class="rows">'
    heads = 2 if more else 1
    for cost, figures, lines, name in islice(rows, most + heads):
        kind = (
            ' class="head"' if cost < 0 else f' style="--share:{100 * min(max(cost, 0), 1):.2f}%"'
        )
        yield f"<div{kind}>{_escaped(figures)}<i>{_escaped(lines)}</i>{_escaped(name)}</div>"
    yield "</div>\n"
    left = sum(1 for _ in rows) + outline.omitted
    if left:
        yield f'<p class="soft">{left:,} contexts with less cost are not shown.</p>\n'


def _escaped(text: str) -> str:
    """Text as HTML shows it as text, also in an attribute; what is not printable as escapes."""
    return html.escape(harmless(text), quote=True)
