"""Printing tables whose last column is a tree of names."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from textwrap import wrap
from typing import NamedTuple

from rich.text import Text

from hpcd.analysis.answers.json_form import json_form
from hpcd.analysis.parallel.tree_matching import Matching, path_labels
from hpcd.analysis.profile.row_text import fit, joined, path_text, shorten, shorten_apart
from hpcd.analysis.profile.tree_rows import Forest
from hpcd.cli.output.terminal_text import console, harmless
from hpcd.errors import UsageError
from hpcd.wording import compact, counted

# Wider than most terminals, narrow enough for a page: what a pipe or file gets without $COLUMNS.
_DEFAULT_WIDTH = 120
# Rows beyond this are printed without colour: styling them would take longer than making them.
_STYLED_ROWS = 5000
MIN_NAME = 24
"""The least width of the last column."""
_NO_FIGURES = {"0", "-", ""}


class Row(NamedTuple):
    """A row: figures, tree lines and a name in ``style`` (of rich; empty for none)."""

    figures: str
    lines: str
    name: str
    style: str = ""


class Column(NamedTuple):
    """A column of figures: its heading, and a cell for each row. ``always``: it is shown without
    figures, as 0 is a rank."""

    head: str
    cells: Sequence[str]
    always: bool = False


def table_rows(
    columns: Sequence[Column],
    title: str,
    names: Callable[[int], Sequence[str]],
    width: int,
    *,
    left_out: int = 0,
    styles: Sequence[str] | None = None,
) -> Iterator[Row]:
    """Yield the heading, a row for each of ``names`` (of the room that is left for them), and how
    many rows a limit has ``left_out``.

    Columns in which no row has a figure are not shown, but for the first.
    """
    shown = [
        column for column in columns
        if column is columns[0] or column.always or not _NO_FIGURES.issuperset(column.cells)
    ]  # fmt: skip
    rows = []
    for head, cells, _ in shown:
        room = max(map(len, (head, *cells)))
        rows.append([f"{cell:>{room}} " for cell in (head, *cells)])
    heading, *figures = ("".join(cells) + " " for cells in zip(*rows, strict=True))
    yield Row(heading, "", title)
    for at, name in enumerate(names(max(width - len(heading), MIN_NAME))):
        yield Row(figures[at], "", name, styles[at] if styles else "")
    if left_out:
        yield Row("", "", f"(not shown: {left_out:,} more; --limit 0 for all)")


def amount_rows(
    amounts: Sequence[tuple[str, Sequence[float]]], title: str, names: Sequence[str],
    limit: int | None, width: int,
) -> Iterator[Row]:  # fmt: skip
    """Yield a table of ``amounts``, headings and a value for each of ``names``, at most ``limit``
    rows."""
    columns = [Column(head, [*map(compact, values[:limit])]) for head, values in amounts]
    shown = names[:limit]
    return table_rows(
        columns, title, lambda room: shorten_apart(shown, room), width,
        left_out=len(names) - len(shown),
    )  # fmt: skip


def program_path(matching: Matching, node: int, width: int) -> str:
    """The call path of a context by the program's own frames, its innermost ones where ``width``
    has no room for all."""
    return path_text(path_labels(matching, node) or ["outside the program"], max(width, MIN_NAME))


def forest_rows(
    forest: Forest,
    head: str,
    title: str,
    columns: Callable[[int], tuple[str, str, str]],
    width: int,
) -> Iterator[Row]:
    """Yield the heading ``head`` with ``title``, and a row for each node of ``forest``, whose
    figures, name and style are its ``columns``."""
    yield Row(head, "", title)
    room = max(width - len(head), MIN_NAME)
    for node, before in forest:
        figures, name, style = columns(node)
        lines = fit(before, room, MIN_NAME)
        yield Row(figures, lines, shorten(name, room - len(lines)), style)


def omitted_row(count: int, limit: str = "cut-off") -> Iterator[Row]:
    """Yield a row that says how many contexts are below the ``limit``, if there are any."""
    if count:
        yield Row("", "", f"(not shown: {counted(count, 'context')} below the {limit})")


class TextOutput:
    """Standard output, ``width`` columns of it (None: $COLUMNS, else as wide as the terminal).

    In colour on terminals; ``color`` ``always`` or ``never`` decides otherwise.
    """

    def __init__(self, width: int | None, color: str = "auto") -> None:
        on_terminal = sys.stdout.isatty()
        if width is not None and width < 1:
            raise UsageError("--width must be at least 1")
        # A program that reads a pipe has each sentence in one line.
        self._wraps = on_terminal or width is not None or "COLUMNS" in os.environ
        if width is None:
            width = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
        self.width = width
        self._console = None
        if color == "always" or (color == "auto" and on_terminal):
            self._console = console(
                width=width,
                soft_wrap=True,
                force_terminal=True,
                color_system="auto" if on_terminal else "standard",
            )

    def sentences(self, lines: Iterable[str], indent: int = 2) -> None:
        """Print lines of words; long lines are wrapped."""
        for line in map(harmless, lines):
            parts = [line]
            if self._wraps and len(line) > self.width:
                parts = wrap(line, max(self.width, MIN_NAME), subsequent_indent=" " * indent,
                             break_long_words=False, break_on_hyphens=False)  # fmt: skip
            print("\n".join(parts))

    def table(self, rows: Iterator[Row]) -> None:
        """Print ``rows``, the heading among them, after an empty line."""
        print()
        if self._console is not None:
            for _, row in zip(range(_STYLED_ROWS), rows, strict=False):
                text = Text.assemble(
                    row.figures, (row.lines, "dim"), (harmless(row.name), row.style)
                )
                self._console.print(text)
        self.write(harmless(f"{row.figures}{row.lines}{row.name}".rstrip()) + "\n" for row in rows)

    def write(self, parts: Iterable[str]) -> None:
        """Print text that comes in many parts."""
        for part in joined(parts):
            sys.stdout.write(part)


def print_answer(
    args: argparse.Namespace, answer: Callable[[], object], sentences: Iterable[str],
    *tables: Callable[[int], Iterator[Row]],
) -> int:  # fmt: skip
    """Print an ``answer``, as JSON if ``--json`` was given, else as ``sentences`` and ``tables`` of
    a width; return 0. JSON of an answer that comes in pieces is those."""
    output = TextOutput(args.width, getattr(args, "color", "auto"))
    if args.json:
        whole = answer()
        pieces = whole if isinstance(whole, Iterator) else [json.dumps(json_form(whole)), "\n"]
        output.write(pieces)
        return 0
    output.sentences(sentences)
    for table in tables:
        output.table(table(output.width))
    return 0
