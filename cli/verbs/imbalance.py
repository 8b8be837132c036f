"""``hpcd imbalance``: load imbalance of ranks, and which ranks cause waiting."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import numpy as np

from hpcd.analysis.answers.rank_imbalance import imbalance_json
from hpcd.analysis.database import open as open_database
from hpcd.analysis.parallel.imbalance import Imbalance, measure
from hpcd.analysis.profile.costs import WORK
from hpcd.analysis.profile.tree_rows import Forest
from hpcd.array_types import F64
from hpcd.cli.command import Command
from hpcd.cli.options import (
    add_context_options,
    add_database_argument,
    add_percent_option,
    add_tree_options,
    check_ranges,
)
from hpcd.cli.output.terminal_text import say
from hpcd.cli.output.tree_tables import (
    Column,
    Row,
    forest_rows,
    omitted_row,
    print_answer,
    program_path,
    table_rows,
)
from hpcd.cli.output.viewer_hint import hint
from hpcd.wording import counted, percent, quantity, time_text

_RANKS_IN_TEXT = 8
# Of a table with all figures; in narrower ones names count for more.
_ALL_COLUMNS = 110


class ImbalanceCommand(Command):
    """Show the load imbalance of the ranks of a run, and which ranks cause waiting.

    Work is CPU time outside of MPI. For each of the program's contexts (the cost of libraries
    attributed to their callers): mean and maximum over ranks, and the rank of the maximum; the
    imbalance, maximum minus mean; idle, how long ranks waited there for others; and blame, how long
    others waited while it worked. At each moment the waiting of all idle ranks is shared equally
    among the working ones.

    A run without ranks is measured over the threads of its busiest process. Then follow all
    contexts, inclusive. --by-rank lists the contexts rank by rank.
    """

    name = "imbalance"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser)
        parser.add_argument(
            "--metric",
            default=WORK,
            metavar="NAME",
            help="metric (default: %(default)s, CPU time outside of MPI)",
        )
        add_context_options(parser)
        add_percent_option(parser, "omit contexts with less imbalance, blame and waiting")
        parser.add_argument(
            "--by-rank", action="store_true", help="list the cost of each rank in the contexts"
        )
        add_tree_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_ranges(args, "percent")
        with open_database(args.database) as db:
            imbalance = measure(db, metric=args.metric, job=args.job, scopes=args.scopes)
            if imbalance.ranks.note:
                say(f"note: {imbalance.ranks.note}")
            least = args.percent / 100
            print_answer(
                args, lambda: imbalance_json(imbalance, args.depth), _heading(imbalance),
                partial(_context_rows, imbalance, least),
                partial(_rank_rows, imbalance, least)
                if args.by_rank
                else partial(_rows, imbalance, least, args.depth),
            )  # fmt: skip
            if not args.json:
                hint([db], pane="lines")
        return 0


def _heading(imbalance: Imbalance) -> Iterator[str]:
    spread, kind = imbalance.inclusive, imbalance.ranks.kind
    idle = float(imbalance.idle.sum())
    yield (
        f"{imbalance.database.path}: {counted(len(imbalance.ranks), kind)}; {imbalance.metric}: "
        f"mean {_cost(imbalance, spread.mean[0])}, "
        f"most {_cost(imbalance, spread.maximum[0])} on {kind} {spread.most[0]} "
        f"({spread.ratio[0]:.2f} times the mean), "
        f"least {_cost(imbalance, spread.minimum[0])} on {kind} {spread.least[0]}"
    )
    if part := imbalance.seen.sentence():
        yield f"part of a run: {part}"
    yield (
        f"waiting for others: {time_text(idle, imbalance.lived)} of {time_text(imbalance.lived)} "
        f"({percent(idle / (imbalance.lived or 1))}), "
        f"{time_text(imbalance.unblamed, imbalance.lived)} while no {kind} worked"
    )
    blamed = float(imbalance.blame_of_rank.sum())
    if blamed > 0:
        order = np.argsort(-imbalance.blame_of_rank, kind="stable")[:_RANKS_IN_TEXT]
        shares = [
            f"{kind} {imbalance.ranks.number[at]} "
            f"{percent(imbalance.blame_of_rank[at] / blamed, 0)}"
            for at in order.tolist()
        ]
        yield "waiting caused by: " + ", ".join(shares)


def _cost(imbalance: Imbalance, value: float) -> str:
    """A cost in the unit of the largest of a rank."""
    return quantity(float(value), imbalance.unit, float(imbalance.inclusive.maximum[0]))


def _listed(imbalance: Imbalance, share: float) -> Iterator[int]:
    whole = float(imbalance.inclusive.mean[0]) or 1.0
    for node in imbalance.contexts().tolist():
        weight = max(
            float(imbalance.own.imbalance[node]) / whole,
            float(max(imbalance.blame[node], imbalance.idle[node])) / (imbalance.lived or 1.0),
        )
        if weight >= share:
            yield node


def _context_rows(imbalance: Imbalance, share: float, width: int) -> Iterator[Row]:
    own, nodes = imbalance.own, list(_listed(imbalance, share))

    def costs(values: F64) -> list[str]:
        return [_cost(imbalance, value) for value in values[nodes]]

    def times(values: F64) -> list[str]:
        return [time_text(value, imbalance.lived) for value in values[nodes].tolist()]

    columns = [
        Column("mean", costs(own.mean)),
        Column("max", costs(own.maximum)),
        Column(imbalance.ranks.kind, [*map(str, own.most[nodes].tolist())], always=True),
        Column("max/mean", [f"{ratio:.2f}" for ratio in own.ratio[nodes].tolist()]),
        Column("imbalance", costs(own.imbalance)),
        Column("blame", times(imbalance.blame)),
        Column("idle", times(imbalance.idle)),
    ]
    if width < _ALL_COLUMNS:
        columns = [column for column in columns if column.head not in ("mean", "max/mean")]
    return table_rows(
        columns,
        f"{imbalance.metric} of the program's contexts",
        lambda room: [program_path(imbalance.matching, node, room) for node in nodes],
        width,
        styles=["bold red" if imbalance.blame[n] >= 0.1 * imbalance.lived else "" for n in nodes],
    )


def _rank_rows(imbalance: Imbalance, share: float, width: int) -> Iterator[Row]:
    yield Row(f"{imbalance.ranks.kind:>7} {imbalance.metric:>12} {'of mean':>8}  ", "", "context")
    for node in _listed(imbalance, share):
        cost = imbalance.by_rank(node)
        mean = float(cost.mean()) or 1.0
        for at in np.argsort(-cost, kind="stable").tolist():
            figures = (
                f"{imbalance.ranks.number[at]:>7} {_cost(imbalance, cost[at]):>12} "
                f"{cost[at] / mean:>8.2f}  "
            )
            yield Row(figures, "", program_path(imbalance.matching, node, width - len(figures)))


def _rows(imbalance: Imbalance, share: float, depth: int | None, width: int) -> Iterator[Row]:
    head = f"{'mean':>10} {'max':>10} {imbalance.ranks.kind:>7} {'max/mean':>8} {'imbalance':>10}  "
    spread, tree = imbalance.inclusive, imbalance.matching.tree
    shown = spread.imbalance >= share * (float(spread.mean[0]) or 1.0)
    shown = tree.inclusive(shown.astype(np.float64)) > 0
    forest = Forest(tree.parent, spread.imbalance, shown, depth=depth)
    labels = [place.label for place in imbalance.matching.places]

    def columns(node: int) -> tuple[str, str, str]:
        figures = (
            f"{_cost(imbalance, spread.mean[node]):>10} "
            f"{_cost(imbalance, spread.maximum[node]):>10} "
            f"{spread.most[node]:>7} {spread.ratio[node]:>8.2f} "
            f"{_cost(imbalance, spread.imbalance[node]):>10}  "
        )
        return figures, labels[int(tree.frame[node])], ""

    yield from forest_rows(forest, head, f"inclusive {imbalance.metric}, top-down", columns, width)
    yield from omitted_row(forest.omitted)
