"""``hpcd critical-path``: what the length of a run depended on."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from hpcd.analysis.answers.json_form import json_form
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.row_text import path_text
from hpcd.analysis.waits.path_report import PathPart, PathReport, path_report
from hpcd.cli.command import Command
from hpcd.cli.options import (
    add_database_argument,
    add_native_option,
    add_percent_option,
    check_ranges,
)
from hpcd.cli.output.tree_tables import MIN_NAME, Row, TextOutput
from hpcd.cli.trace_places import lines_of_thread, trace_time
from hpcd.wording import counted, percent, time_text

# Kinds below this share are left out of the heading.
_LEAST_SHARE = 0.0005
# Threads that the heading names.
_LINES = 5


class CriticalPathCommand(Command):
    """Show what the length of a run depended on: its critical path through threads.

    The path is followed backward from the end of a thread. While that thread runs or waits for a
    CPU the path stays with it; where a wait ended it passes to the thread that ended the wait, of
    ranks whose calls of MPI were recorded also to the one whose message they waited for, and before
    a thread began to the one that created it. Waits that no recorded thread ended are on the
    path as what ended them: timers, devices, other processes. The parts add up to the length. Less
    work on the path makes the run shorter, less work elsewhere does not.
    """

    name = "critical-path"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser)
        add_native_option(parser)
        parser.add_argument("--from", dest="start", type=float, metavar="S",
                            help="begin at this second (default: the begin)")  # fmt: skip
        parser.add_argument("--to", dest="end", type=float, metavar="S",
                            help="end at this second (default: the end)")  # fmt: skip
        parser.add_argument("--tid", type=int, metavar="TID",
                            help="end on this thread (default: the one that worked last)",
                            )  # fmt: skip
        add_percent_option(parser, "omit parts below this share")
        parser.add_argument("--width", type=int, metavar="N",
                            help="columns (default: the terminal's)")  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print JSON, all of the path")

    def run(self, args: argparse.Namespace) -> int:
        check_ranges(args, "percent")
        with open_database(args.database, native=args.native) as db:
            start, end = (
                None if seconds is None else trace_time(seconds)
                for seconds in (args.start, args.end)
            )
            line = None if args.tid is None else lines_of_thread(db, args.tid)[0]
            report = path_report(db, start, end, line)
            if args.json:
                print(json.dumps(json_form(report)))
                return 0
            output = TextOutput(args.width)
            output.sentences(_heading(db, report))
            output.table(_rows(report, args.percent / 100, output.width))
        return 0


def _heading(db: Database, report: PathReport) -> Iterator[str]:
    yield (
        f"{db.path}: critical path of {time_text(report.seconds)}, which ends on {report.thread};"
        f" {counted(report.threads, 'thread')}, {counted(report.changes, 'change')} of thread"
    )
    if report.sentence:
        yield report.sentence
    shares = sorted(report.kinds.items(), key=lambda item: -item[1])
    yield ", ".join(
        f"{report.words[label]} {time_text(seconds, report.seconds)}"
        f" ({percent(seconds / report.seconds)})"
        for label, seconds in shares
        if seconds >= _LEAST_SHARE * report.seconds
    )

    if len(report.lines) > 1:
        yield "most of it on " + ", ".join(
            f"{thread} {percent(seconds / report.seconds, 0)}"
            for thread, seconds in report.lines[:_LINES]
        )


def _rows(report: PathReport, least: float, width: int) -> Iterator[Row]:
    yield Row(f"{'share':>7} {'time':>11}  ", "", "on the critical path")
    left_out: list[PathPart] = []
    for part in report.parts:
        share = part.seconds / report.seconds
        if share < least:
            left_out.append(part)
            continue
        others = f" and {part.threads - 1:,} more" if part.threads > 1 else ""
        head = f"{part.text}: {part.thread}{others}"
        figures = f"{percent(share):>7} {time_text(part.seconds, report.seconds):>11}  "
        if part.path:
            head += ", in " + path_text(part.path, max(width - 22 - len(head), MIN_NAME))
        yield Row(figures, "", head, "bold" if share >= 0.1 else "")
    if left_out:
        seconds = time_text(sum(part.seconds for part in left_out), report.seconds)
        yield Row(
            "", "", f"(not shown: {counted(len(left_out), 'part')} below the cut-off, {seconds})"
        )
