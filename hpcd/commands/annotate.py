"""``hpcd annotate``: source lines or instructions with what they cost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcd.analysis.annotation import Annotated, Annotator, Code
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.filters import Filter, matching
from hpcd.analysis.formula import Formula
from hpcd.analysis.report import MetricColumn, metric_columns
from hpcd.analysis.sourcefile import read_source
from hpcd.analysis.tables import text as printable
from hpcd.analysis.views import with_derived
from hpcd.commands.base import Command
from hpcd.commands.hint import hint
from hpcd.commands.options import add_source_option
from hpcd.commands.report import chosen_metrics
from hpcd.errors import UsageError


class Annotate(Command):
    """Print source lines of a procedure with what they cost.

    Inclusive costs are with the calls made from a line. Code inlined into the procedure is under
    its own file. Without debug information, or with --assembly, the machine code is shown
    instead. Lines are those of the sources as they are now.
    """

    name = "annotate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd annotate``."""
        parser.add_argument(
            "procedure",
            metavar="PROCEDURE",
            help="its name, with or without parameters; * and ? fit any; inlined ones too",
        )
        parser.add_argument("database", type=Path, metavar="DB")
        parser.add_argument(
            "--assembly", action="store_true", help="instructions, even where lines are known"
        )
        parser.add_argument(
            "--metric",
            action="append",
            default=[],
            metavar="NAME",
            help="what to show (default: CPU time), or 'NAME = FORMULA'; may be repeated",
        )
        parser.add_argument(
            "--filter",
            action="append",
            default=[],
            metavar="WHAT",
            help="as hpcd report has it: procedure=, module=, rank=, time=",
        )
        add_source_option(parser)
        parser.add_argument(
            "--context",
            type=int,
            default=3,
            metavar="N",
            help="lines to show around those with costs (default: %(default)s)",
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Print it."""
        if args.context < 0:
            raise UsageError("--context is at least 0")
        with open_database(args.database) as db:
            metrics, derived = chosen_metrics(db, args.metric)
            inside = matching(db, [args.procedure])
            annotator = Annotator(db, inside, Filter.parse(args.filter).exclusive(db))
            found = annotator.lines()
            whole = with_formulas(found.whole, derived)
            every = metric_columns(db, whole.costs)
            columns = [every[each] for each in metrics]
            lines = [] if args.assembly else [with_formulas(each, derived) for each in found.lines]
            code = [] if lines else annotator.code()
            code = [replace(each, costs=with_formulas(each.costs, derived)) for each in code]
            unplaced = [with_formulas(each, derived) for each in found.unplaced] if lines else []
            if args.json:
                told = as_json(db, every, lines, unplaced, code, args.source)
                print(json.dumps({"procedures": found.procedures, **told}))
                return 0
            print(f"{args.procedure}: {', '.join(found.procedures)}")
            print("".join(f"{each.name + ', inclusive and exclusive':>37} " for each in columns))
            if len(whole.place):
                print(f"{figures(columns, whole, 0)}all of it")
            for each in lines:
                for line in source_text(each, columns, args.source, args.context):
                    print(line)
            for each in unplaced:
                print(f"{figures(columns, each, 0)}{each.name}: lines unknown")
            for listing in code:
                for line in code_text(listing, columns):
                    print(line)
            hint([db], find=args.procedure)
        return 0


def with_formulas(each: Annotated, derived: Sequence[Formula]) -> Annotated:
    """The same with derived metrics."""
    return replace(each, costs=with_derived(each.costs, derived))


def figures(columns: Sequence[MetricColumn], each: Annotated, number: int) -> str:
    """The costs of the place of this number."""
    return "".join(column.figures(each.costs, number + 1) for column in columns)


def source_text(
    each: Annotated, columns: Sequence[MetricColumn], folders: Sequence[Path], context: int
) -> Iterator[str]:
    """Lines of a file with costs and ``context`` lines around them."""
    found = read_source(each.name, folders)
    yield ""
    yield f"{printable(each.name)}: {found.note}".rstrip()
    lines = found.lines
    costs = {line: number for number, line in enumerate(each.place.tolist())}
    blank = " " * 38 * len(columns)
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
        cost = figures(columns, each, costs[line]) if line in costs else blank
        text = lines[line - 1].expandtabs(4) if 0 < line <= len(lines) else ""
        yield f"{cost}{line:>5} {printable(text)}".rstrip()


def code_text(each: Code, columns: Sequence[MetricColumn]) -> Iterator[str]:
    """Instructions with their costs; those with costs alone when the code cannot be shown."""
    yield ""
    note = f" ({each.note})" if each.note else ""
    yield f"{each.costs.name} of {each.module or 'no file'}{note}:"
    costs = {place: number for number, place in enumerate(each.costs.place.tolist())}
    blank = " " * 38 * len(columns)
    for address, text in each.text or [(place, "") for place in costs]:
        cost = figures(columns, each.costs, costs[address]) if address in costs else blank
        yield f"{cost}{address:>8x} {text}".rstrip()


def as_json(
    db: Database,
    columns: Sequence[MetricColumn],
    lines: Sequence[Annotated],
    unplaced: Sequence[Annotated],
    code: Sequence[Code],
    folders: Sequence[Path],
) -> dict[str, Any]:
    """Everything with a cost."""

    def costs(each: Annotated, number: int) -> dict[str, Any]:
        return {
            kind: {column.name: float(values[column.number, number + 1]) for column in columns}
            for kind, values in (
                ("inclusive", each.costs.inclusive),
                ("exclusive", each.costs.exclusive),
            )
        }

    files = []
    for each in lines:
        found = read_source(each.name, folders)
        source = found.lines
        files.append(
            {
                "file": each.name,
                "found": str(found.path) if found.path else None,
                "lines": [
                    {
                        "line": line,
                        "text": source[line - 1] if 0 < line <= len(source) else None,
                        **costs(each, number),
                    }
                    for number, line in enumerate(each.place.tolist())
                ],
            }
        )
    listings = []
    for listing in code:
        text = dict(listing.text)
        listings.append(
            {
                "procedure": listing.costs.name,
                "module": listing.module,
                "note": listing.note,
                "instructions": [
                    {"address": at, "text": text.get(at), **costs(listing.costs, number)}
                    for number, at in enumerate(listing.costs.place.tolist())
                ],
            }
        )
    return {
        "database": str(db.path),
        "units": {each.name: each.unit for each in columns},
        "files": files,
        "unplaced": [{"procedure": each.name, **costs(each, 0)} for each in unplaced],
        "code": listings,
    }
