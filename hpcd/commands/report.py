"""``hpcd report``: where the time went, as text."""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.filters import Filter
from hpcd.analysis.formula import Formula, is_formula, parse_formula
from hpcd.analysis.report import (
    Facts,
    Outline,
    csv_rows,
    gather_facts,
    joined,
    json_parts,
    text_lines,
)
from hpcd.analysis.views import SCOPE_VIEWS, hot_path, make_view
from hpcd.commands.base import Command
from hpcd.commands.hint import costliest, hint
from hpcd.errors import UsageError

# Wider than most terminals, narrow enough for a page: what a pipe or file gets.
_DEFAULT_WIDTH = 120
# Rows beyond this are printed without colour: styling them would take longer than making them.
_STYLED_ROWS = 5000


class Report(Command):
    """Print where the time went.

    top-down shows callers above what they call, bottom-up each procedure above its callers, flat
    all procedures side by side, lines and loops those of the source. Loops and, where debug
    information was found, calls the compiler inlined stand between a procedure and what it calls. A
    context that is all its caller shows stands in its caller's column. [k] marks the kernel; what
    hangs below [truncated: ...] was called by something that could not be unwound.
    """

    name = "report"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd report``."""
        parser.add_argument("database", type=Path, metavar="DB")
        parser.add_argument(
            "--view", choices=SCOPE_VIEWS, default="top-down", help="default: top-down"
        )
        parser.add_argument(
            "--metric",
            action="append",
            default=[],
            metavar="NAME",
            help="what to sort and cut by (default: CPU time), or 'NAME = FORMULA' of metrics with"
            " + - * / abs sqrt min max; more of them are shown beside the first",
        )
        parser.add_argument(
            "--filter",
            action="append",
            default=[],
            metavar="WHAT",
            help="only procedure=NAME (what has it on its call path), module=NAME (its own code),"
            " rank=0,2-5 or time=BEGIN-END (s); may be repeated, * and ? in names",
        )
        parser.add_argument(
            "--hot-path",
            action="store_true",
            help="only the path to the costliest context, down to where no child has half of it",
        )
        parser.add_argument(
            "--percent",
            type=float,
            default=0.5,
            metavar="P",
            help="leave out contexts below this share of the whole (default: %(default)s)",
        )
        parser.add_argument("--depth", type=int, metavar="N", help="levels to show (default: all)")
        parser.add_argument(
            "--width", type=int, metavar="N", help="columns (default: the terminal's)"
        )
        parser.add_argument(
            "--addresses",
            action="store_true",
            help="keep calls from different addresses of a procedure apart (top-down)",
        )
        form = parser.add_mutually_exclusive_group()
        form.add_argument(
            "--json", action="store_true", help="print one JSON object, children nested"
        )
        form.add_argument("--csv", action="store_true", help="print a row for each context")

    def run(self, args: argparse.Namespace) -> int:
        """Print the report."""
        if not 0 <= args.percent <= 100:
            raise UsageError("--percent is between 0 and 100")
        if args.depth is not None and args.depth < 1:
            raise UsageError("--depth is at least 1")
        if args.addresses and args.view != "top-down":
            raise UsageError("--addresses goes with --view top-down")
        with open_database(args.database) as db:
            metrics, derived = chosen_metrics(db, args.metric)
            measured = len(db.metrics.names)
            formula = derived[metrics[0] - measured] if metrics[0] >= measured else None
            # Shares are of what adds up; a ratio does not.
            cut_by = metrics[0] if formula is None or formula.additive else default_metric(db)
            share = 0.0 if args.hot_path else args.percent / 100
            view = make_view(
                db,
                args.view,
                metric=cut_by if cut_by < measured else 0,
                share=share if cut_by < measured else 0.0,
                depth=args.depth,
                addresses=args.addresses,
                only=Filter.parse(args.filter),
                derived=derived,
            )
            only = hot_path(view, metrics[0]) if args.hot_path else None
            outline = Outline(
                view, metrics[0], share=share, depth=args.depth, cut_by=cut_by, only=only
            )
            if args.csv:
                csv.writer(sys.stdout, lineterminator="\n").writerows(csv_rows(db, outline))
                return 0
            facts = gather_facts(db)
            if args.json:
                for part in joined(json_parts(db, facts, outline)):
                    sys.stdout.write(part)
            else:
                _print_text(db, facts, outline, args.width, metrics[1:])
                if outline.omitted and not args.hot_path:
                    plural = "s" if outline.omitted > 1 else ""
                    print(f"(not shown: {outline.omitted:,} context{plural} below the cut-off)")
                hint([db], find=costliest(db, cut_by if cut_by < measured else 0))
        return 0


def chosen_metrics(db: Database, texts: list[str]) -> tuple[list[int], list[Formula]]:
    """Numbers of the metrics asked for, the default one if none was, and the formulas.

    Formulas are numbered after the database's metrics. Raises :class:`UsageError`.
    """
    numbers: list[int] = []
    derived: list[Formula] = []
    for text in texts:
        if is_formula(text):
            numbers.append(len(db.metrics.names) + len(derived))
            derived.append(parse_formula(text, db.metrics.names, db.metrics.units))
        else:
            numbers.append(db.metrics.number(text))
    return numbers or [default_metric(db)], derived


def default_metric(db: Database) -> int:
    """The first measured quantity; samples where there is none."""
    names = db.metrics.names
    return names.index("cpu_time") if "cpu_time" in names else min(1, len(names) - 1)


def _print_text(
    db: Database, facts: Facts, outline: Outline, width: int | None, more: list[int]
) -> None:
    on_terminal = sys.stdout.isatty()
    if width is None:
        width = shutil.get_terminal_size().columns if on_terminal else _DEFAULT_WIDTH
    for line in facts.as_text():
        print(line)
    print()
    console = Console(width=width, soft_wrap=True) if on_terminal else None

    def plain(row: tuple[float, str, str, str]) -> str:
        return "".join(row[1:]).rstrip() + "\n"

    rows = text_lines(db, outline, width, more)
    if console is not None:
        for _, row in zip(range(_STYLED_ROWS), rows, strict=False):
            console.print(_styled(row), highlight=False)
    for part in joined(map(plain, rows)):
        sys.stdout.write(part)


def _styled(row: tuple[float, str, str, str]) -> Text:
    cost, figures, lines, name = row
    if cost < 0:
        return Text(figures + lines + name, style="bold")
    style = "bold red" if cost >= 0.5 else "bold" if cost >= 0.1 else ""
    return Text.assemble(figures, (lines, "dim"), (name, style))
