"""``hpcd scaling``: scaling losses between runs on different numbers of ranks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from hpcd.analysis.database import open as open_database
from hpcd.analysis.parallel.scaling import STRONG, WEAK, Scaling, measure
from hpcd.analysis.parallel.tree_matching import path_labels
from hpcd.analysis.profile.costs import TIME
from hpcd.analysis.profile.row_text import joined
from hpcd.analysis.profile.tree_rows import Forest, json_document
from hpcd.analysis.profile.views import VIEWS, View
from hpcd.cli.command import Command
from hpcd.cli.options import (
    add_context_options,
    add_database_argument,
    add_partial_option,
    add_tree_options,
    check_ranges,
)
from hpcd.cli.output.terminal_text import say
from hpcd.cli.output.tree_tables import Row, TextOutput, forest_rows, omitted_row, program_path
from hpcd.cli.output.viewer_hint import hint
from hpcd.errors import UsageError
from hpcd.model.cct import CCT
from hpcd.wording import percent, quantity


class ScalingCommand(Command):
    """Show scaling losses between runs on different numbers of ranks, by calling context.

    The run with the fewest ranks is the reference. With --weak the work per rank is the same in
    all runs, with --strong the total work. A context's loss is its cost beyond ideal scaling, in
    percent of the run's cost; a negative loss means better than ideal scaling. Contexts are
    matched by name, so the program may have been rebuilt.

    The first table lists the program's own contexts with the highest losses, the cost of libraries
    attributed to their callers. Then follows the view. (I) is inclusive, (E) exclusive.
    """

    name = "scaling"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        add_database_argument(parser, nargs="+")
        mode = parser.add_mutually_exclusive_group(required=True)
        mode.add_argument(
            "--weak",
            dest="mode",
            action="store_const",
            const=WEAK,
            help="weak scaling: the same work per rank",
        )
        mode.add_argument(
            "--strong",
            dest="mode",
            action="store_const",
            const=STRONG,
            help="strong scaling: the same total work",
        )
        parser.add_argument("--view", choices=VIEWS, default="top-down", help="default: top-down")
        parser.add_argument(
            "--metric",
            default=TIME,
            metavar="NAME",
            help="metric (default: %(default)s, on CPUs, blocked and waiting for a CPU)",
        )
        parser.add_argument(
            "--ranks",
            metavar="N,N",
            help="numbers of ranks of the runs (default: as recorded)",
        )
        add_partial_option(parser)
        add_context_options(parser)
        parser.add_argument(
            "--percent",
            type=float,
            default=0.5,
            metavar="P",
            help="omit contexts that lose or gain less (default: %(default)s)",
        )
        add_tree_options(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_ranges(args, "percent")
        with ExitStack() as stack:
            databases = [stack.enter_context(open_database(path)) for path in args.databases]
            scaling = measure(
                databases,
                args.mode,
                metric=args.metric,
                sizes=_sizes(args.ranks),
                job=args.job,
                scopes=args.scopes,
                partial=args.partial,
            )
            for run in scaling.runs:
                if run.ranks.note:
                    say(f"note: {run.ranks.note}")
            view = scaling.view(args.view, share=args.percent / 100, depth=args.depth)
            losses = _Losses(scaling, view, args.percent, args.depth)
            if args.json:
                for part in joined(losses.as_json()):
                    sys.stdout.write(part)
            else:
                _print(losses, args.width)
                hint(databases, pane="compare")
        return 0


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        sizes = [int(part) for part in text.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1:
        raise UsageError("--ranks takes whole numbers, as in --ranks 2,4")
    return sizes


class _Losses:
    """A view of losses, and which of its rows are shown."""

    def __init__(self, scaling: Scaling, view: View, percent: float, depth: int | None) -> None:
        self.scaling = scaling
        self.view = view
        runs = len(scaling.runs)
        # The last row of a view's costs is what it was cut by.
        self.own, self.whole = view.exclusive[:runs], view.inclusive[:runs]
        self.own_loss, self.whole_loss = scaling.loss(self.own), scaling.loss(self.whole)
        by = self.whole_loss if view.kind == "top-down" else self.own_loss
        shown = np.max(np.abs(by), axis=0) >= percent
        if view.kind == "top-down":
            # What leads to a loss is shown with it.
            shown = (
                CCT(view.parent, view.procedure.astype(np.uint64)).inclusive(
                    shown.astype(np.float64)
                )
                > 0
            )
        shown[0] = True
        self.forest = Forest(view.parent, by[-1], shown, depth=depth)
        self.omitted = self.forest.omitted + view.omitted
        self.names = [place.label for place in scaling.places]
        self.percent = percent

    def origins(self) -> Iterator[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """(node of the matched tree, its losses, its costs) of the program's own contexts."""
        nodes, cost = self.scaling.origins()
        loss = self.scaling.loss(cost)
        for number, node in enumerate(nodes.tolist()):
            if (np.abs(loss[:, number]) >= self.percent).any():
                yield node, loss[:, number], cost[:, number]

    def as_json(self) -> Iterator[str]:
        """One JSON object, in parts."""
        scaling = self.scaling
        matching = scaling.matching
        head = {
            "mode": scaling.mode,
            "metric": scaling.metric,
            "unit": scaling.unit,
            "runs": [
                {
                    "database": str(run.database.path),
                    "job": run.ranks.job,
                    "ranks": run.size,
                    "ranks_recorded": len(run.ranks),
                    "cost_per_rank": float(self.whole[number, 0]),
                    "seen": run.seen.sentence(),
                }
                for number, run in enumerate(scaling.runs)
            ],
            "loss": self.whole_loss[:, 0].tolist(),
            "excess": scaling.excess(self.whole[:, :1])[:, 0].tolist(),
            "contexts": [
                {
                    "path": path_labels(self.scaling.matching, node),
                    "loss": loss.tolist(),
                    "excess": scaling.excess(cost[:, None])[:, 0].tolist(),
                    "cost": cost.tolist(),
                }
                for node, loss, cost in self.origins()
            ],
            "view": self.view.kind,
        }
        own_excess, whole_excess = scaling.excess(self.own), scaling.excess(self.whole)

        def fields(node: int) -> dict[str, Any]:
            return {
                **matching.places[int(self.view.procedure[node])].as_json(),
                **{
                    kind: {
                        "loss": loss[:, node].tolist(),
                        "excess": excess[:, node].tolist(),
                        "cost": cost[:, node].tolist(),
                    }
                    for kind, loss, excess, cost in (
                        ("inclusive", self.whole_loss, whole_excess, self.whole),
                        ("exclusive", self.own_loss, own_excess, self.own),
                    )
                },
            }

        return json_document(head, self.forest.json(fields))

    def heading(self) -> Iterator[str]:
        """Yield the runs compared, and the loss in total."""
        scaling = self.scaling
        for number, run in enumerate(scaling.runs):
            recorded = "" if len(run.ranks) == run.size else f" ({len(run.ranks)} recorded)"
            part = run.seen.sentence()
            cost = quantity(float(self.whole[number, 0]), scaling.unit)
            yield (
                f"{run.database.path}: {run.size} ranks{recorded}, "
                f"{cost} of {scaling.metric} per rank" + (f"; {part}" if part else "")
            )
        excess = scaling.excess(self.whole[:, :1])[:, 0]
        for run, loss, more in zip(
            scaling.runs[1:], self.whole_loss[:, 0].tolist(), excess.tolist(), strict=True
        ):
            yield (
                f"{scaling.mode} scaling from {scaling.runs[0].size} to {run.size} ranks: "
                f"{percent(loss / 100)} lost, {quantity(more, scaling.unit)} of excess work"
            )

    def origin_rows(self, width: int) -> Iterator[Row]:
        """The program's own contexts, the costliest loss first."""
        runs, most = self.scaling.runs, float(self.whole[:, 0].max())
        columns = [f"{f'to {run.size}':>8}" for run in runs[1:]] + [f"{'excess':>12}"]
        yield Row("".join(columns) + "  ", "", "the program's contexts by loss")
        for node, loss, cost in self.origins():
            excess = float(self.scaling.excess(cost[:, None])[-1, 0])
            figures = "".join(f"{percent(share / 100, 2):>8}" for share in loss)
            figures += f"{quantity(excess, self.scaling.unit, most):>12}  "
            name = program_path(self.scaling.matching, node, width - len(figures))
            yield Row(figures, "", name, _style(float(loss[-1])))

    def rows(self, width: int) -> Iterator[Row]:
        """The rows of the view."""
        scaling, unit = self.scaling, self.scaling.unit
        most = float(self.whole[:, 0].max())
        columns = [f"{f'to {run.size} (I)':>10} {'(E)':>8}" for run in scaling.runs[1:]]
        columns += [f"{f'{run.size} ranks':>11}" for run in scaling.runs]
        head = " ".join(columns) + "  "
        cost = self.whole if self.view.kind == "top-down" else self.own
        loss = self.whole_loss if self.view.kind == "top-down" else self.own_loss

        def columns_of(node: int) -> tuple[str, str, str]:
            figures = [
                f"{percent(whole / 100, 2):>10} {percent(own / 100, 2):>8}"
                for whole, own in zip(self.whole_loss[:, node], self.own_loss[:, node], strict=True)
            ]
            figures += [f"{quantity(float(value), unit, most):>11}" for value in cost[:, node]]
            name = self.names[int(self.view.procedure[node])]
            return " ".join(figures) + "  ", name, _style(float(loss[-1, node]))

        title = f"loss of {scaling.metric}, {self.view.kind}"
        yield from forest_rows(self.forest, head, title, columns_of, width)
        yield from omitted_row(self.omitted)


def _print(losses: _Losses, width: int | None) -> None:
    page = TextOutput(width)
    page.sentences(losses.heading())
    page.table(losses.origin_rows(page.width))
    page.table(losses.rows(page.width))


def _style(loss: float) -> str:
    if loss <= -2:
        return "green"
    return "bold red" if loss >= 10 else "bold" if loss >= 2 else ""
