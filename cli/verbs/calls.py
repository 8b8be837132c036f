"""``hpcd calls``: what system calls and other recorded functions did."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

from hpcd.analysis.answers.call_groups import call_groups
from hpcd.analysis.calls.totals import GROUPINGS, CallTotals, total_calls
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.advice import of_probes
from hpcd.analysis.profile.row_text import shorten_apart
from hpcd.cli.command import Command
from hpcd.cli.options import add_database_argument, add_limit_option, add_repeatable, chosen_limit
from hpcd.cli.output.tree_tables import MIN_NAME, Column, Row, print_answer, table_rows
from hpcd.errors import UsageError
from hpcd.model.calls import CalledFunction
from hpcd.wording import compact, time_text

# Columns of a table with all figures.
_ALL_COLUMNS = 87


class CallsCommand(Command):
    """Show what recorded calls did: how many, how long, how many bytes, how fast.

    Totals by function and by file, or by what --by names: function, file, filesystem, mount, peer
    (of sockets), path (the call path), thread, rank, time (when they began). Bandwidth is that of
    calls that moved bytes: all bytes over all their time, then the lowest, mean and highest of one
    call and the standard deviation. Calls are recorded by hpcd attach, run and profile with --io.
    """

    name = "calls"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser, nargs="?")
        add_repeatable(
            parser, "--by", "GROUP",
            f"what to group calls by: {', '.join(GROUPINGS)}, or phase=FUNCTION;"
            " may be repeated (default: function and file)",
        )  # fmt: skip
        add_repeatable(parser, "--function", "NAME", "only calls of this function; may be repeated")
        parser.add_argument(
            "--group", metavar="NAME",
            help="only functions recorded as io, mpi, memory, heap or probe",
        )  # fmt: skip
        add_limit_option(parser, "groups")
        parser.add_argument("--width", type=int, metavar="N", help="columns")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        limit = chosen_limit(args)
        with open_database(args.database) as db:
            if not db.calls.functions:
                raise UsageError(
                    f"{db.path}: no calls were recorded; hpcd attach, run and profile do with --io"
                )
            functions = _functions(db, args)
            tables = [
                total_calls(db, by, functions)
                for by in dict.fromkeys(args.by or ("function", "file"))
            ]
            return print_answer(
                args, lambda: _as_json(db, tables, limit), _heading(db),
                *(partial(_rows, table, limit) for table in tables),
            )  # fmt: skip


def _functions(db: Database, args: argparse.Namespace) -> list[CalledFunction]:
    functions = db.calls.functions
    if args.group:
        functions = [function for function in functions if function.group == args.group]
        if not functions:
            raise UsageError(f"no functions of group {args.group} were recorded")
    if args.function:
        named = [db.calls.find(name) for name in args.function]
        functions = [function for function in functions if function in named]
    return functions


def _heading(db: Database) -> Iterator[str]:
    recorded = len(db.calls)
    stands_for = int(db.calls.weight.sum(dtype="int64"))
    lost = passed_over = 0
    for measurement in db.measurements:
        calls = measurement.summary.calls
        if calls is not None:
            lost += sum(calls.dropped.values())
            passed_over += calls.passed_over
    note = f", recorded {recorded:,} of them" if passed_over else ""
    yield f"{db.path}: {stands_for:,} calls{note}" + (f"; {lost:,} were lost" if lost else "")
    yield from (f"note: {line}" for line in of_probes(db))


def _rows(totals: CallTotals, limit: int | None, width: int) -> Iterator[Row]:
    shown = totals.first(limit)
    speeds = {"B/s": shown.bandwidth, "min": shown.least, "mean": shown.mean, "max": shown.most,
              "stddev": shown.stddev}  # fmt: skip
    # What the calls were made with matters more than how their bandwidth varied.
    if width < _ALL_COLUMNS + MIN_NAME:
        speeds = {"B/s": shown.bandwidth}
    sizes = {"bytes": shown.size, "read": shown.read, "written": shown.written, **speeds}
    columns = [
        Column("time", [*map(time_text, shown.seconds.tolist())]),
        Column("calls", [f"{calls:,}" for calls in shown.calls.tolist()]),
        Column("errors", [f"{errors:,}" for errors in shown.errors.tolist()]),
        *(Column(head, [*map(compact, size.tolist())]) for head, size in sizes.items()),
    ]
    return table_rows(
        columns, totals.key, lambda room: shorten_apart(shown.name, room), width,
        left_out=len(totals) - len(shown),
    )  # fmt: skip


def _as_json(db: Database, tables: list[CallTotals], limit: int | None) -> dict[str, object]:
    return {
        "database": str(db.path),
        "calls": len(db.calls),
        "notes": of_probes(db),
        "stand_for": int(db.calls.weight.sum(dtype="int64")),
        "functions": [
            {"name": function.name, "library": function.library, "group": function.group}
            for function in db.calls.functions
        ],
        "totals": {table.key: call_groups(table.first(limit)) for table in tables},
    }
