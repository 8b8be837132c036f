"""``hpcd imbalance``: how ranks share the work, and who makes others wait."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.costs import WORK
from hpcd.analysis.database import open as open_database
from hpcd.analysis.forest import Forest, fit
from hpcd.analysis.imbalance import Imbalance, measure
from hpcd.analysis.matching import path_labels
from hpcd.analysis.report import shorten
from hpcd.commands.base import Command
from hpcd.commands.hint import hint
from hpcd.commands.options import add_context_options, add_tree_options, check_ranges
from hpcd.commands.tables import Page, Row, amount

_MIN_NAME = 24
_RANKS_IN_TEXT = 8


class ImbalanceCommand(Command):
    """Show how unevenly the ranks of a run share the work, and who makes others wait.

    Work is CPU time outside of MPI. Of each of the program's contexts (libraries counted to their
    callers): its mean over ranks and its maximum, on which rank; the imbalance, maximum less mean;
    idle, how long ranks waited there for others; and blame, how long others waited while it was
    at work. At each moment the waiting of all idle ranks is shared among those at work.

    Without ranks it is the threads of the busiest process. Then come all contexts, inclusive.
    --ranks shows the costliest contexts rank by rank.
    """

    name = "imbalance"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The options of ``hpcd imbalance``."""
        parser.add_argument("database", type=Path, metavar="DB")
        parser.add_argument(
            "--metric",
            default=WORK,
            metavar="NAME",
            help="what should be balanced (default: %(default)s, CPU time outside of MPI)",
        )
        add_context_options(parser)
        parser.add_argument(
            "--percent",
            type=float,
            default=1.0,
            metavar="P",
            help="leave out contexts of less imbalance, blame and waiting (default: %(default)g)",
        )
        parser.add_argument(
            "--ranks", action="store_true", help="what each rank spent in the contexts listed"
        )
        add_tree_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Print the imbalance."""
        check_ranges(args, "percent")
        with open_database(args.database) as db:
            found = measure(db, metric=args.metric, job=args.job, scopes=args.scopes)
            if found.ranks.note:
                print(f"note: {found.ranks.note}", file=sys.stderr)
            page = Page(args.width)
            if args.json:
                page.write(_as_json(found, args.depth))
                return 0
            for line in _heading(found):
                print(line)
            page.table(_context_rows(found, args.percent / 100, page.width))
            if args.ranks:
                page.table(_rank_rows(found, args.percent / 100, page.width))
            else:
                page.table(_rows(found, args.percent / 100, args.depth, page.width))
            hint([db], pane="lines")
        return 0


def _heading(found: Imbalance) -> Iterator[str]:
    spread, kind = found.inclusive, found.ranks.kind
    idle = float(found.idle.sum())
    yield (
        f"{found.database.path}: {len(found.ranks)} {kind}s; {found.metric}: "
        f"mean {amount(float(spread.mean[0]), found.unit)}, "
        f"most {amount(float(spread.maximum[0]), found.unit)} on {kind} {spread.most[0]} "
        f"({spread.ratio[0]:.2f} times the mean), "
        f"least {amount(float(spread.minimum[0]), found.unit)} on {kind} {spread.least[0]}"
    )
    yield (
        f"waiting for others: {amount(idle, 's')} of {amount(found.lived, 's')} "
        f"({idle / (found.lived or 1):.1%}), {amount(found.unblamed, 's')} with nobody at work"
    )
    blamed = float(found.blame_of_rank.sum())
    if blamed > 0:
        order = np.argsort(-found.blame_of_rank, kind="stable")[:_RANKS_IN_TEXT]
        shares = [
            f"{kind} {found.ranks.number[at]} {found.blame_of_rank[at] / blamed:.0%}"
            for at in order.tolist()
        ]
        yield "others wait for: " + ", ".join(shares)


def _listed(found: Imbalance, share: float) -> Iterator[int]:
    whole = float(found.inclusive.mean[0]) or 1.0
    for node in found.contexts().tolist():
        weight = max(
            float(found.own.imbalance[node]) / whole,
            float(max(found.blame[node], found.idle[node])) / (found.lived or 1.0),
        )
        if weight >= share:
            yield node


def _context_rows(found: Imbalance, share: float, width: int) -> Iterator[Row]:
    yield Row(
        f"{'mean':>10} {'max':>10} {found.ranks.kind:>7} {'max/mean':>8} {'imbalance':>10} "
        f"{'blame':>10} {'idle':>10}  ",
        "",
        f"{found.metric} of the program's contexts",
    )
    own, unit = found.own, found.unit
    for node in _listed(found, share):
        figures = (
            f"{amount(float(own.mean[node]), unit):>10} "
            f"{amount(float(own.maximum[node]), unit):>10} "
            f"{own.most[node]:>7} {own.ratio[node]:>8.2f} "
            f"{amount(float(own.imbalance[node]), unit):>10} "
            f"{amount(float(found.blame[node]), 's'):>10} "
            f"{amount(float(found.idle[node]), 's'):>10}  "
        )
        path = " > ".join(path_labels(found.matching, node)) or "outside the program"
        style = "bold red" if found.blame[node] >= 0.1 * found.lived else ""
        yield Row(figures, "", shorten(path, max(width - len(figures), _MIN_NAME)), style)


def _rank_rows(found: Imbalance, share: float, width: int) -> Iterator[Row]:
    yield Row(f"{found.ranks.kind:>7} {found.metric:>12} {'of mean':>8}  ", "", "context")
    for node in _listed(found, share):
        cost = found.by_rank(node)
        mean = float(cost.mean()) or 1.0
        path = " > ".join(path_labels(found.matching, node)) or "outside the program"
        for at in np.argsort(-cost, kind="stable").tolist():
            figures = (
                f"{found.ranks.number[at]:>7} {amount(float(cost[at]), found.unit):>12} "
                f"{cost[at] / mean:>8.2f}  "
            )
            yield Row(figures, "", shorten(path, max(width - len(figures), _MIN_NAME)))


def _rows(found: Imbalance, share: float, depth: int | None, width: int) -> Iterator[Row]:
    head = f"{'mean':>10} {'max':>10} {found.ranks.kind:>7} {'max/mean':>8} {'imbalance':>10}  "
    yield Row(head, "", f"inclusive {found.metric}, top-down")
    spread, unit, tree = found.inclusive, found.unit, found.matching.tree
    shown = spread.imbalance >= share * (float(spread.mean[0]) or 1.0)
    shown = tree.inclusive(shown.astype(np.float64)) > 0
    forest = Forest(tree.parent, spread.imbalance, shown, depth=depth)
    labels = [place.label for place in found.matching.places]
    room = max(width - len(head), _MIN_NAME)
    for node, before in forest:
        figures = (
            f"{amount(float(spread.mean[node]), unit):>10} "
            f"{amount(float(spread.maximum[node]), unit):>10} "
            f"{spread.most[node]:>7} {spread.ratio[node]:>8.2f} "
            f"{amount(float(spread.imbalance[node]), unit):>10}  "
        )
        lines = fit(before, room, _MIN_NAME)
        yield Row(figures, lines, shorten(labels[int(tree.frame[node])], room - len(lines)))
    if forest.omitted:
        plural = "s" if forest.omitted > 1 else ""
        yield Row("", "", f"(not shown: {forest.omitted:,} context{plural} below the cut-off)")


def _as_json(found: Imbalance, depth: int | None) -> Iterator[str]:
    own = found.own
    head = {
        "database": str(found.database.path),
        "job": found.ranks.job,
        "kind": found.ranks.kind,
        "ranks": found.ranks.number.tolist(),
        "metric": found.metric,
        "unit": found.unit,
        "lived_s": found.lived,
        "idle_s": float(found.idle.sum()),
        "unblamed_s": found.unblamed,
        "blame_of_rank_s": found.blame_of_rank.tolist(),
        "contexts": [
            {
                "path": path_labels(found.matching, node),
                "mean": float(own.mean[node]),
                "max": float(own.maximum[node]),
                "min": float(own.minimum[node]),
                "max_rank": int(own.most[node]),
                "min_rank": int(own.least[node]),
                "max_by_mean": float(own.ratio[node]),
                "imbalance": float(own.imbalance[node]),
                "blame_s": float(found.blame[node]),
                "idle_s": float(found.idle[node]),
                "by_rank": found.by_rank(node).tolist(),
            }
            for node in found.contexts().tolist()
        ],
    }
    spread, tree, places = found.inclusive, found.matching.tree, found.matching.places

    def fields(node: int) -> dict[str, Any]:
        place = places[int(tree.frame[node])]
        return {
            "name": place.label,
            "module": place.module,
            "mean": float(spread.mean[node]),
            "max": float(spread.maximum[node]),
            "min": float(spread.minimum[node]),
            "max_rank": int(spread.most[node]),
            "min_rank": int(spread.least[node]),
            "imbalance": float(spread.imbalance[node]),
        }

    yield json.dumps(head)[:-1] + ', "tree": '
    yield from Forest(tree.parent, spread.imbalance, spread.maximum > 0, depth=depth).json(fields)
    yield "}\n"
