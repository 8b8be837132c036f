"""``hpcd compare``: several runs, or parts of one, side by side."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial

from hpcd.analysis.answers.compared_runs import comparison_json
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.parallel.comparison import (
    HOTSPOT,
    SENSITIVITY,
    compare,
)
from hpcd.analysis.parallel.comparison_sides import Side, choose_sides
from hpcd.analysis.profile.costs import TIME, WORK
from hpcd.analysis.profile.views import VIEWS
from hpcd.cli.command import Command
from hpcd.cli.options import (
    add_context_options,
    add_database_argument,
    add_native_option,
    add_partial_option,
    add_tree_options,
    check_ranges,
)
from hpcd.cli.output.comparison_tables import call_rows, heading_lines, region_rows, view_rows
from hpcd.cli.output.phase_tables import print_phases
from hpcd.cli.output.tree_tables import print_answer
from hpcd.cli.output.viewer_hint import hint
from hpcd.errors import UsageError


class CompareCommand(Command):
    """Compare several runs, or parts of one, by calling context.

    With several databases each is compared with the one before it; with one database its ranks
    (--rank), processes (--pid), parts of its time (--time) or iterations (--iteration, --phase),
    which are found in the trace: --phases lists them. Contexts are matched by name, so the program
    may have been rebuilt.

    A context is unchanged (=), costs more or less beyond the sensitivity, is new or is gone.
    Contexts below the hotspot threshold are not judged, and differences within the statistical
    error of sampling do not count. Waiting times depend on the machine, so by default work is
    compared; --metric time compares all time.

    The first table lists the procedures whose exclusive cost differs, by call path, with the cost
    of libraries attributed to their callers. Then follows the view, or call counts (--calls).
    """

    name = "compare"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser, nargs="+")
        add_native_option(parser)
        _add_side_options(parser)
        _add_threshold_options(parser)
        parser.add_argument(
            "--metric",
            metavar="NAME",
            help="a metric; work (the default), CPU time outside of MPI; or time (the default with "
            "--calls), on CPUs, blocked and waiting for a CPU",
        )
        parser.add_argument(
            "--shares",
            action="store_true",
            help="compare percentages of the total, for runs at different speeds",
        )
        add_partial_option(parser)
        parser.add_argument(
            "--within", metavar="PROCEDURE", help="compare only this procedure and its callees"
        )
        add_context_options(parser)
        parser.add_argument("--view", choices=VIEWS, default="top-down", help="default: top-down")
        parser.add_argument(
            "--calls",
            action="store_true",
            help="call counts by caller and callee instead of a view",
        )
        parser.add_argument(
            "--color",
            choices=("auto", "always", "never"),
            default="auto",
            help="colored text (default: auto)",
        )
        add_tree_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_ranges(args, "sensitivity", "hotspot")
        with ExitStack() as stack:
            databases = [
                stack.enter_context(open_database(path, native=args.native))
                for path in args.databases
            ]
            if args.phases:
                print_phases(databases, inside=args.within, job=args.job, as_json=args.json)
                return 0
            comparison = compare(
                _sides(databases, args),
                metric=args.metric or (TIME if args.calls else WORK),
                sensitivity=args.sensitivity / 100,
                hotspot=args.hotspot / 100,
                shares=args.shares,
                procedure=args.within,
                scopes=args.scopes,
                partial=args.partial,
            )
            print_answer(
                args, lambda: comparison_json(comparison, args.view, args.depth),
                heading_lines(comparison), partial(region_rows, comparison),
                partial(call_rows, comparison)
                if args.calls
                else partial(view_rows, comparison, args.view, args.depth),
            )  # fmt: skip
            if not args.json:
                hint(databases, pane="compare")
        return 0


def _add_side_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--time",
        action="append",
        metavar="FROM:TO",
        help="time interval in seconds; give several",
    )
    parser.add_argument("--rank", action="append", type=int, metavar="N", help="rank; give several")
    parser.add_argument(
        "--pid", action="append", type=int, metavar="PID", help="process; give several"
    )
    parser.add_argument(
        "--iteration",
        action="append",
        type=int,
        metavar="N",
        help="iteration found in the trace, from 1; give several",
    )
    parser.add_argument(
        "--phase",
        metavar="PROCEDURE",
        help="take each visit of PROCEDURE as an iteration; without --iteration the shortest, "
        "the median and the longest are compared",
    )
    parser.add_argument(
        "--phases", action="store_true", help="only list the phases and iterations found"
    )


def _add_threshold_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sensitivity",
        type=float,
        default=100 * SENSITIVITY,
        metavar="P",
        help="smallest difference that counts, in percent (default: %(default)g)",
    )
    parser.add_argument(
        "--hotspot",
        type=float,
        default=100 * HOTSPOT,
        metavar="P",
        help="smallest context that is judged, in percent of the total (default: %(default)g)",
    )


def _sides(databases: list[Database], args: argparse.Namespace) -> list[Side]:
    given = [name for name in ("time", "rank", "pid", "iteration") if getattr(args, name)]
    if args.phase and "iteration" not in given:
        given.append("phase")
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} cannot be combined")
    if given in (["time"], ["rank"], ["pid"]) and len(databases) > 1:
        raise UsageError(f"--{given[0]} takes one database")
    kind = given[0] if given else ""
    if not kind and len(databases) == 1:
        raise UsageError(
            "give two databases, or one and several --rank, --pid, --time or --iteration"
        )
    parts = [_span(text) for text in args.time] if args.time else getattr(args, kind, None)
    return choose_sides(
        databases, {"time": "window", "phase": "iteration"}.get(kind, kind),
        parts if isinstance(parts, list) else [],
        procedure=args.phase, inside=args.within, job=args.job,
    )  # fmt: skip


def _span(text: str) -> tuple[int, int]:
    try:
        low, high = (round(float(part) * 1e9) for part in text.split(":"))
    except (ValueError, OverflowError):
        raise UsageError(f"--time takes seconds as in 1.5:2, not {text}") from None
    if not 0 <= low < high < 1 << 62:
        raise UsageError(f"--time {text} is not a time interval")
    return low, high
