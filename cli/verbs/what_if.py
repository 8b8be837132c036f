"""``hpcd what-if``: how much sooner a run would end if parts of it were faster."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.filters import Filter
from hpcd.analysis.profile.row_text import shorten
from hpcd.analysis.waits.gains import DEFAULT_SHARE, Gain, WhatIf, what_if
from hpcd.cli.command import Command
from hpcd.cli.options import (
    add_database_argument,
    add_limit_option,
    add_native_option,
    add_repeatable,
    chosen_limit,
)
from hpcd.cli.output.tree_tables import MIN_NAME, Column, Row, print_answer, table_rows
from hpcd.cli.trace_places import lines_of_thread
from hpcd.errors import UsageError
from hpcd.wording import counted, percent, time_text

_FASTER = re.compile(r"(.+?)(?:=(\d+(?:\.\d*)?) ?%?)?")
# Beyond this the replay is no base for what would change.
_LARGEST_DRIFT = 0.01


class WhatIfCommand(Command):
    """Show how much sooner a run would end if procedures were faster.

    The run is replayed with less time on CPUs in a procedure and in all that it calls. Threads
    still wait for the threads that they waited for, so that a procedure beside the critical path
    gains nothing, and one on it only until another path is as long. Of ranks whose calls of MPI
    were recorded a row says what perfect balance gains: the same work, shared evenly among ranks
    before each collective operation in which all wait for all. Timers, devices, waits that
    are not known and waiting for CPUs take as long as they did; locks are taken in the same order.
    Errors are one standard error, by the number of samples.
    """

    name = "what-if"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser)
        add_native_option(parser)
        add_repeatable(
            parser, "--faster", "PROCEDURE=PERCENT",
            f"make this procedure faster by so many percent (default: {100 * DEFAULT_SHARE:.0f});"
            " may be repeated, then also all together; * and ? match in names (default: those of"
            " the program that gain most)",
        )  # fmt: skip
        add_repeatable(
            parser, "--filter", "FILTER",
            "faster only on some threads: comm, thread, user, job or host=NAME, rank, pid or"
            " tid=0,2-5",
        )  # fmt: skip
        parser.add_argument("--tid", type=int, metavar="TID",
                            help="when this thread ends (default: the last one)")  # fmt: skip
        add_limit_option(parser, "procedures")
        parser.set_defaults(limit=10)
        parser.add_argument("--width", type=int, metavar="N",
                            help="columns (default: the terminal's)")  # fmt: skip
        parser.add_argument("--json", action="store_true", help="print JSON")

    def run(self, args: argparse.Namespace) -> int:
        faster = [_faster(text) for text in args.faster]
        chosen = Filter.parse(args.filter)
        if chosen.procedures or chosen.modules or chosen.windows or chosen.phases:
            raise UsageError("--filter chooses threads here; procedures are chosen by --faster")
        limit = chosen_limit(args)
        with open_database(args.database, native=args.native) as db:
            last = None if args.tid is None else lines_of_thread(db, args.tid)[0]
            report = what_if(
                db, faster, lines=chosen.lines(db) if args.filter else None, last=last, limit=limit
            )
            return print_answer(
                args, lambda: report, _heading(db, report), lambda width: _rows(report, width)
            )


def _faster(text: str) -> tuple[str, float]:
    match = _FASTER.fullmatch(text)
    share = float(match[2]) / 100 if match and match[2] else DEFAULT_SHARE
    if match is None or not 0 < share <= 1:
        raise UsageError(f"--faster {text}: expected PROCEDURE=PERCENT, above 0, at most 100")
    return match[1], share


def _heading(db: Database, report: WhatIf) -> Iterator[str]:
    drift = report.replayed / report.seconds - 1 if report.seconds else 0.0
    yield (
        f"{db.path}: run of {time_text(report.seconds)}, which ends with {report.thread};"
        f" it depends on {time_text(report.running, report.seconds)} of work on CPUs"
    )
    if abs(drift) > _LARGEST_DRIFT:
        yield (
            f"replayed without a change it takes {time_text(report.replayed)}"
            f" ({percent(drift)} off): gains are uncertain by as much"
        )


def _rows(report: WhatIf, width: int) -> Iterator[Row]:
    whole = report.seconds
    # Balance before meetings alone may be at the cost of what ranks exchange in between.
    gains = [gain for gain in report.gains if gain.seconds > 0 or not gain.balanced]
    columns = [
        Column("sooner", [percent(gain.seconds / whole) for gain in gains]),
        Column("", ["±" + percent(gain.error / whole) for gain in gains]),
        Column("time", [time_text(gain.seconds, whole) for gain in gains]),
        Column("on path", [time_text(gain.on_path, whole) for gain in gains]),
    ]
    return table_rows(
        columns, "if faster", lambda room: [_name(gain, report, room) for gain in gains], width
    )


def _name(gain: Gain, report: WhatIf, room: int) -> str:
    ends = "" if gain.thread == report.thread else f"; then {gain.thread} ends last"
    if gain.balanced:
        meetings = counted(gain.balanced, "collective operation")
        return shorten(f"perfect balance of ranks before {meetings}", max(room, MIN_NAME)) + ends
    shares = [f" by {percent(share, 0)}" for share in gain.shares]
    room = max((room - len(ends)) // len(shares), MIN_NAME)
    parts = [
        shorten(name, room - len(share)) + share
        for name, share in zip(gain.procedures, shares, strict=True)
    ]
    return ", ".join(parts) + ends
