"""``hpcd annotate``: source lines or instructions with their cost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from hpcd.analysis.answers.annotated_code import instructions, source_lines, unplaced_costs
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.merge.publish.table_rows import text as printable
from hpcd.analysis.profile.annotation import Annotated, Annotator, InstructionListing
from hpcd.analysis.profile.filters import Filter, matching
from hpcd.analysis.profile.formula import Formula
from hpcd.analysis.profile.report import FIGURES_WIDTH, MetricColumn, metric_columns
from hpcd.analysis.profile.source_files import read_source
from hpcd.analysis.profile.views import with_derived
from hpcd.array_types import Mask
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_repeatable, add_source_option
from hpcd.cli.output.viewer_hint import hint
from hpcd.cli.verbs.report import chosen_metrics
from hpcd.errors import UsageError


class Annotate(Command):
    """Print the source lines of a procedure with their cost.

    Inclusive costs include the calls made from a line. Code inlined into the procedure is listed
    under its own file. Without debug information, or with --assembly, the machine code is shown
    instead. Source files are read as they are now.
    """

    name = "annotate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "procedure",
            metavar="PROCEDURE",
            help="procedure name, with or without parameters; * and ? match; may be inlined",
        )
        add_database_argument(parser)
        parser.add_argument(
            "--assembly",
            action="store_true",
            help="show instructions even where lines are known",
        )
        add_repeatable(
            parser, "--metric", "NAME",
            "metric to show (default: CPU time), or 'NAME = FORMULA'; may be repeated",
        )  # fmt: skip
        add_repeatable(
            parser, "--filter", "FILTER", "as of hpcd report: procedure=, module=, rank= or time="
        )
        add_source_option(parser)
        parser.add_argument(
            "--context",
            type=int,
            default=3,
            metavar="N",
            help="source lines to show around those with costs (default: %(default)s)",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        if args.context < 0:
            raise UsageError("--context must be at least 0")
        if not args.procedure:
            raise UsageError("the name of the procedure is empty")
        with ExitStack() as stack:
            db, inside = _opened(args, stack)
            metrics, derived = chosen_metrics(db, args.metric)
            annotator = Annotator(db, inside, Filter.parse(args.filter).exclusive(db))
            annotation = annotator.lines()
            whole = with_formulas(annotation.whole, derived)
            every = metric_columns(db, whole.costs)
            columns = [every[metric] for metric in metrics]
            lines = [] if args.assembly else annotation.lines
            lines, unplaced = (
                [with_formulas(annotated, derived) for annotated in some]
                for some in (lines, annotation.unplaced if lines else [])
            )
            code = [
                replace(listing, costs=with_formulas(listing.costs, derived))
                for listing in ([] if lines else annotator.code())
            ]
            if args.json:
                names = [column.name for column in every]
                answer = {
                    "procedures": annotation.procedures,
                    "database": str(db.path),
                    "units": {column.name: column.unit for column in every},
                    "files": [
                        source_lines(annotated, read_source(annotated.name, args.source), names)
                        for annotated in lines
                    ],
                    "unplaced": unplaced_costs(unplaced, names),
                    "code": [instructions(listing, names) for listing in code],
                }
                print(json.dumps(answer))
                return 0
            print(f"{args.procedure}: {', '.join(annotation.procedures)}")
            print(
                "".join(
                    f"{column.name + ', inclusive and exclusive':>{FIGURES_WIDTH - 1}} "
                    for column in columns
                )
            )
            if len(whole.place):
                print(f"{figures(columns, whole, 0)}all of it")
            for annotated in lines:
                for line in source_text(annotated, columns, args.source, args.context):
                    print(line)
            for procedure in unplaced:
                print(f"{figures(columns, procedure, 0)}{procedure.name}: lines unknown")
            for listing in code:
                for line in code_text(listing, columns):
                    print(line)
            hint([db], find=args.procedure)
        return 0


def _opened(args: argparse.Namespace, stack: ExitStack) -> tuple[Database, Mask]:
    """Open the database, and find the procedure: where it is one of the interpreter's own, whose
    frames are folded, in the call paths as they were recorded. ``stack`` closes it."""
    db = stack.enter_context(open_database(args.database))
    try:
        inside = matching(db, [args.procedure])
        if bool(inside.any()) or not bool(db.is_python.any()):
            return db, inside
    except UsageError:
        if not bool(db.is_python.any()):
            raise
    native = stack.enter_context(open_database(args.database, native=True))
    return native, matching(native, [args.procedure])


def with_formulas(annotated: Annotated, derived: Sequence[Formula]) -> Annotated:
    """Return ``annotated`` with derived metrics added."""
    return replace(annotated, costs=with_derived(annotated.costs, derived))


def figures(columns: Sequence[MetricColumn], annotated: Annotated, number: int) -> str:
    """The costs of the place of this number."""
    return "".join(column.figures(annotated.costs, number + 1) for column in columns)


def source_text(
    annotated: Annotated, columns: Sequence[MetricColumn], folders: Sequence[Path], context: int
) -> Iterator[str]:
    """Lines of a file with costs and ``context`` lines around them."""
    source_file = read_source(annotated.name, folders)
    yield ""
    yield f"{printable(annotated.name)}: {source_file.note}".rstrip()
    lines = source_file.lines
    costs = {line: number for number, line in enumerate(annotated.place.tolist())}
    blank = " " * FIGURES_WIDTH * len(columns)
    shown = sorted(
        {
            near
            for line in costs
            for near in range(line - context, line + context + 1)
            if near in costs or 0 < near <= len(lines)
        }
    )
    before = None
    for line in shown:
        if before is not None and line != before + 1:
            yield f"{blank}  ..."
        before = line
        cost = figures(columns, annotated, costs[line]) if line in costs else blank
        text = lines[line - 1].expandtabs(4) if 0 < line <= len(lines) else ""
        yield f"{cost}{line:>5} {printable(text)}".rstrip()


def code_text(listing: InstructionListing, columns: Sequence[MetricColumn]) -> Iterator[str]:
    """Instructions with their costs; only costly ones when the code cannot be shown."""
    yield ""
    note = f" ({listing.note})" if listing.note else ""
    yield f"{listing.costs.name} of {listing.module or 'no file'}{note}:"
    costs = {place: number for number, place in enumerate(listing.costs.place.tolist())}
    blank = " " * FIGURES_WIDTH * len(columns)
    for address, text in listing.text or [(place, "") for place in costs]:
        cost = figures(columns, listing.costs, costs[address]) if address in costs else blank
        yield f"{cost}{address:>8x} {text}".rstrip()
