"""``hpcd compare``: several runs, or parts of one, side by side."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.parallel.comparison import (
    HOTSPOT,
    SENSITIVITY,
    Change,
    Comparison,
    compare,
    is_difference,
)
from hpcd.analysis.parallel.comparison_sides import (
    Side,
    instances,
    some_processes,
    some_ranks,
    whole_runs,
    windows,
)
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.costs import TIME, WORK
from hpcd.analysis.profile.report import shorten
from hpcd.analysis.profile.tree_rows import Forest, fit
from hpcd.analysis.profile.views import VIEWS
from hpcd.cli.command import Command
from hpcd.cli.options import (
    add_context_options,
    add_database_argument,
    add_tree_options,
    check_ranges,
)
from hpcd.cli.output.phase_tables import print_phases
from hpcd.cli.output.tree_tables import Page, Row, amount, program_path
from hpcd.cli.output.viewer_hint import hint
from hpcd.errors import UsageError

_MIN_NAME = 24
_WORDS = {
    Change.ABSENT: "",
    Change.SAME: "=",
    Change.MORE: "more",
    Change.LESS: "less",
    Change.NEW: "new",
    Change.GONE: "gone",
    Change.MINOR: "",
}
# As in the paper: what is missing red, what is added yellow, what differs blue.
_STYLES = {
    Change.GONE: "bold red",
    Change.NEW: "bold yellow",
    Change.MORE: "bold blue",
    Change.LESS: "bold blue",
    Change.MINOR: "dim",
}


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
        """The options of ``hpcd compare``."""
        add_database_argument(parser, nargs="+")
        parser.add_argument(
            "--time",
            action="append",
            metavar="FROM:TO",
            help="time interval in seconds; give several",
        )
        parser.add_argument(
            "--rank", action="append", type=int, metavar="N", help="rank; give several"
        )
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
        # Former names: a window has a length (hpcd top), and a frequency is a sampling rate.
        parser.add_argument(
            "--window",
            dest="time",
            action="append",
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
        parser.add_argument(
            "--frequency", dest="calls", action="store_true", help=argparse.SUPPRESS
        )
        parser.add_argument(
            "--color",
            choices=("auto", "always", "never"),
            default="auto",
            help="colored text (default: auto)",
        )
        add_tree_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the comparison."""
        check_ranges(args, "sensitivity", "hotspot")
        with ExitStack() as stack:
            databases = [stack.enter_context(open_database(path)) for path in args.databases]
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
            )
            page = Page(args.width, args.color)
            if args.json:
                page.write(_as_json(comparison, args.view, args.depth))
                return 0
            for line in _heading(comparison):
                print(line)
            page.table(_region_rows(comparison, page.width))
            if args.calls:
                page.table(_call_rows(comparison, page.width))
            else:
                page.table(_rows(comparison, args.view, args.depth, page.width))
            hint(databases, pane="compare")
        return 0


def _sides(databases: list[Database], args: argparse.Namespace) -> list[Side]:
    given = [name for name in ("time", "rank", "pid", "iteration") if getattr(args, name)]
    if args.phase and "iteration" not in given:
        given.append("phase")
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} cannot be combined")
    if given in (["time"], ["rank"], ["pid"]) and len(databases) > 1:
        raise UsageError(f"--{given[0]} takes one database")
    if args.time:
        return windows(databases[0], [_span(text) for text in args.time], args.job)
    if args.rank:
        return some_ranks(databases[0], args.rank, args.job)
    if args.pid:
        return some_processes(databases[0], args.pid)
    if given:
        sides = []
        for db in databases:
            iterations = instances(
                db,
                args.iteration or [],
                procedure=args.phase,
                inside=args.within,
                job=args.job,
            )
            # Of several runs one each is compared: the one in the middle.
            sides += (
                iterations
                if args.iteration or len(databases) == 1
                else [iterations[len(iterations) // 2]]
            )
        return sides
    if len(databases) == 1:
        raise UsageError(
            "give two databases, or one and several --rank, --pid, --time or --iteration"
        )
    return whole_runs(databases, args.job)


def _span(text: str) -> tuple[int, int]:
    try:
        low, high = (round(float(part) * 1e9) for part in text.split(":"))
    except (ValueError, OverflowError):
        raise UsageError(f"--time takes seconds as in 1.5:2, not {text}") from None
    if not 0 <= low < high < 1 << 62:
        raise UsageError(f"--time {text} is not a time interval")
    return low, high


def _heading(comparison: Comparison) -> Iterator[str]:
    total = comparison.total
    for number, side in enumerate(comparison.sides):
        ranks = f" for each of {side.ranks} ranks" if side.ranks > 1 else ""
        cost = amount(float(total[number]), comparison.unit)
        more = ""
        if number and total[number - 1] > 0:
            more = f" ({100 * (total[number] / total[number - 1] - 1):+.1f} %)"
        of_time = "" if comparison.metric == TIME else _time_of(comparison, number)
        yield f"{number + 1}: {side.label}: {cost} of {comparison.metric}{ranks}{more}{of_time}"
    for number, step in enumerate(_steps(comparison)):
        yield (
            f"from {number + 1} to {number + 2}: {step['common']:,} contexts in common, "
            f"{step['gone']:,} only in {number + 1}, {step['new']:,} only in {number + 2} "
            f"({step['gone_share']:.1%} and {step['new_share']:.1%} of the cost); "
            f"{step['different']:,} of those in common differ"
        )


def _time_of(comparison: Comparison, number: int) -> str:
    """How long a side took; of several threads for each rank, how long these were there."""
    side, lived = comparison.sides[number], float(comparison.lived[number])
    threads = len(np.unique(side.lines))
    if not lived:
        return ""
    if threads <= side.ranks:
        return f"; it took {amount(lived, 's')}"
    together = f"{amount(lived, 's')} of the time of {threads / side.ranks:,.3g} threads"
    if side.begin is not None or not bool(comparison.looked_at.all()):
        return f"; {together}"
    lines = side.database.lines
    elapsed = float(lines.end[side.lines].max() - lines.start[side.lines].min()) / 1e9
    return f"; it took {amount(elapsed, 's')}, {together}"


def _steps(comparison: Comparison) -> list[dict[str, Any]]:
    """Per step: how many contexts are in both, in one, and different."""
    tree = comparison.matching.tree
    inclusive, variance = (
        np.stack([tree.inclusive(row) for row in rows])
        for rows in (comparison.cost, comparison.variance)
    )
    changes = comparison.changes(inclusive, variance)
    result = []
    for number, change in enumerate(changes):
        before, after = inclusive[number] > 0, inclusive[number + 1] > 0
        shares = [
            float(comparison.cost[side][~other].sum() / (comparison.total[side] or 1))
            for side, other in ((number, after), (number + 1, before))
        ]
        result.append(
            {
                "common": int((before & after).sum()) - 1,
                "gone": int((before & ~after).sum()),
                "new": int((after & ~before).sum()),
                "gone_share": shares[0],
                "new_share": shares[1],
                "different": int(((change == Change.MORE) | (change == Change.LESS))[1:].sum()),
            }
        )
    return result


def _percent(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.1f}%" if before > 0 else ""


def _figures(costs: np.ndarray[Any, Any], changes: np.ndarray[Any, Any], unit: str) -> str:
    parts = [f"{amount(float(costs[0]), unit):>11}"]
    for before, after, change in zip(
        costs[:-1].tolist(), costs[1:].tolist(), changes.tolist(), strict=True
    ):
        parts.append(f"{amount(after, unit):>11} {_percent(before, after):>9} {_WORDS[change]:<4}")
    return " ".join(parts) + "  "


def _columns(comparison: Comparison) -> str:
    parts = [f"{'1':>11}"]
    parts += [f"{number:>11} {'':14}" for number in range(2, len(comparison.sides) + 1)]
    return " ".join(parts) + "  "


def _style(changes: np.ndarray[Any, Any]) -> str:
    for change in (Change.GONE, Change.NEW, Change.MORE, Change.LESS):
        if (changes == change).any():
            return _STYLES[change]
    return ""


def _region_rows(comparison: Comparison, width: int) -> Iterator[Row]:
    nodes, cost, changes = comparison.regions()
    if not len(nodes):
        yield Row(
            "",
            "",
            f"no procedure of at least {100 * comparison.hotspot:g} % of the total differs by more "
            f"than {100 * comparison.sensitivity:g} %",
        )
        return
    yield Row(_columns(comparison), "", "procedures whose exclusive cost differs")
    for number, node in enumerate(nodes.tolist()):
        figures = _figures(cost[:, number], changes[:, number], comparison.unit)
        name = program_path(comparison.matching, node, width - len(figures))
        yield Row(figures, "", name, _style(changes[:, number]))


def _rows(comparison: Comparison, kind: str, depth: int | None, width: int) -> Iterator[Row]:
    sides = len(comparison.sides)
    view = comparison.view(kind, depth=depth)
    rows = view.inclusive if kind == "top-down" else view.exclusive
    cost, changes = rows[:sides], comparison.changes(rows[:sides], rows[sides : 2 * sides])
    shown = ((changes != Change.MINOR) & (changes != Change.ABSENT)).any(axis=0)
    forest = Forest(view.parent, cost.max(axis=0), shown, depth=depth)
    what = "inclusive" if kind == "top-down" else "exclusive"
    head = _columns(comparison)
    yield Row(head, "", f"{what} {comparison.metric}, {kind}")
    room = max(width - len(head), _MIN_NAME)
    for node, before in forest:
        lines = fit(before, room, _MIN_NAME)
        name = shorten(comparison.places[int(view.procedure[node])].label, room - len(lines))
        figures = _figures(cost[:, node], changes[:, node], comparison.unit)
        yield Row(figures, lines, name, _style(changes[:, node]))
    if forest.omitted:
        plural = "s" if forest.omitted > 1 else ""
        yield Row("", "", f"(not shown: {forest.omitted:,} context{plural} below the threshold)")


def _call_rows(comparison: Comparison, width: int) -> Iterator[Row]:
    callers, called, visits, cost = comparison.call_points()
    hot = (cost >= comparison.hotspot * comparison.total[:, None]).any(axis=0)
    # What libraries and the kernel call among themselves is in the JSON.
    own = [place.program for place in comparison.places]
    if not any(own):
        own = [not place.kernel for place in comparison.places]
    hot &= np.array(own)[callers]
    changes = comparison.changes_of_visits(visits)
    head = "".join(f"{f'visits {n + 1}':>12}{f'time {n + 1}':>11}" for n in range(len(cost)))
    yield Row(head.replace("time", comparison.metric[:6]) + "  ", "", "calls: caller > callee")
    for at in np.flatnonzero(hot).tolist():
        figures = "".join(
            f"{count:>12,.1f}{amount(value, comparison.unit):>11}"
            for count, value in zip(visits[:, at].tolist(), cost[:, at].tolist(), strict=True)
        )
        caller = comparison.places[int(callers[at])].label
        name = f"{caller} > {comparison.places[int(called[at])].label}"
        if is_difference(changes[:, at]).any():
            figures += " *"
        else:
            figures += "  "
        yield Row(figures, "", shorten(name, width - len(figures)), _style(changes[:, at]))


def _as_json(comparison: Comparison, kind: str, depth: int | None) -> Iterator[str]:
    sides = len(comparison.sides)
    nodes, cost, changes = comparison.regions()
    callers, called, visits, point_cost = comparison.call_points()
    visit_changes = comparison.changes_of_visits(visits)
    names = {change: change.name.lower() for change in Change}
    head = {
        "metric": comparison.metric,
        "unit": comparison.unit,
        "sensitivity": comparison.sensitivity,
        "hotspot": comparison.hotspot,
        "sides": [
            {
                "label": side.label,
                "database": str(side.database.path),
                "ranks": side.ranks,
                "cost": float(comparison.total[number]),
                "lived_s": float(comparison.lived[number]),
            }
            for number, side in enumerate(comparison.sides)
        ],
        "steps": _steps(comparison),
        "regions": [
            {
                "path": path_labels(comparison.matching, node),
                "cost": cost[:, number].tolist(),
                "change": [names[change] for change in changes[:, number].tolist()],
            }
            for number, node in enumerate(nodes.tolist())
        ],
        "frequency": [
            {
                "caller": comparison.places[int(callers[at])].label,
                "name": comparison.places[int(called[at])].label,
                "visits": visits[:, at].tolist(),
                "cost": point_cost[:, at].tolist(),
                "change": [names[change] for change in visit_changes[:, at].tolist()],
            }
            for at in range(len(called))
        ],
        "view": kind,
    }
    view = comparison.view(kind, depth=depth)
    rows = view.inclusive if kind == "top-down" else view.exclusive
    tree_changes = comparison.changes(rows[:sides], rows[sides : 2 * sides])

    def fields(node: int) -> dict[str, Any]:
        place = comparison.places[int(view.procedure[node])]
        return {
            "name": place.label,
            "module": place.module,
            "file": place.file,
            "line": place.line,
            "inclusive": view.inclusive[:sides, node].tolist(),
            "exclusive": view.exclusive[:sides, node].tolist(),
            "change": [names[change] for change in tree_changes[:, node].tolist()],
        }

    yield json.dumps(head)[:-1] + ', "tree": '
    everything = view.inclusive[:sides].max(axis=0) > 0
    yield from Forest(view.parent, rows[:sides].max(axis=0), everything, depth=depth).json(fields)
    yield "}\n"
