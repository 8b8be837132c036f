"""``hpcd scaling``: scaling losses between runs on different numbers of ranks."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from hpcd.analysis.answers.scaling_losses import ScalingLosses
from hpcd.analysis.database import open as open_database
from hpcd.analysis.parallel.scaling import STRONG, WEAK, measure
from hpcd.analysis.profile.costs import TIME
from hpcd.analysis.profile.views import VIEWS
from hpcd.cli.command import Command
from hpcd.cli.options import (
    add_context_options,
    add_database_argument,
    add_partial_option,
    add_percent_option,
    add_tree_options,
    check_ranges,
)
from hpcd.cli.output.terminal_text import say
from hpcd.cli.output.tree_tables import Row, forest_rows, omitted_row, print_answer, program_path
from hpcd.cli.output.viewer_hint import hint
from hpcd.errors import UsageError
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
        add_percent_option(parser, "omit contexts that lose or gain less", 0.5)
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
            losses = ScalingLosses(scaling, view, args.percent, args.depth)
            print_answer(
                args, losses.json, _heading(losses),
                partial(_origin_rows, losses), partial(_rows, losses),
            )  # fmt: skip
            if not args.json:
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


def _heading(losses: ScalingLosses) -> Iterator[str]:
    scaling = losses.scaling
    for number, run in enumerate(scaling.runs):
        recorded = "" if len(run.ranks) == run.size else f" ({len(run.ranks)} recorded)"
        part = run.seen.sentence()
        cost = quantity(float(losses.whole[number, 0]), scaling.unit)
        yield (
            f"{run.database.path}: {run.size} ranks{recorded}, "
            f"{cost} of {scaling.metric} per rank" + (f"; {part}" if part else "")
        )
    excess = scaling.excess(losses.whole[:, :1])[:, 0]
    for run, loss, more in zip(
        scaling.runs[1:], losses.whole_loss[:, 0].tolist(), excess.tolist(), strict=True
    ):
        yield (
            f"{scaling.mode} scaling from {scaling.runs[0].size} to {run.size} ranks: "
            f"{percent(loss / 100)} lost, {quantity(more, scaling.unit)} of excess work"
        )


def _origin_rows(losses: ScalingLosses, width: int) -> Iterator[Row]:
    """The program's own contexts, the costliest loss first."""
    runs, most = losses.scaling.runs, float(losses.whole[:, 0].max())
    columns = [f"{f'to {run.size}':>8}" for run in runs[1:]] + [f"{'excess':>12}"]
    yield Row("".join(columns) + "  ", "", "the program's contexts by loss")
    for node, loss, cost in losses.origins():
        excess = float(losses.scaling.excess(cost[:, None])[-1, 0])
        figures = "".join(f"{percent(share / 100, 2):>8}" for share in loss)
        figures += f"{quantity(excess, losses.scaling.unit, most):>12}  "
        name = program_path(losses.scaling.matching, node, width - len(figures))
        yield Row(figures, "", name, _style(float(loss[-1])))


def _rows(losses: ScalingLosses, width: int) -> Iterator[Row]:
    scaling, unit = losses.scaling, losses.scaling.unit
    most = float(losses.whole[:, 0].max())
    columns = [f"{f'to {run.size} (I)':>10} {'(E)':>8}" for run in scaling.runs[1:]]
    columns += [f"{f'{run.size} ranks':>11}" for run in scaling.runs]
    head = " ".join(columns) + "  "
    cost = losses.whole if losses.view.kind == "top-down" else losses.own
    loss = losses.whole_loss if losses.view.kind == "top-down" else losses.own_loss

    def columns_of(node: int) -> tuple[str, str, str]:
        figures = [
            f"{percent(whole / 100, 2):>10} {percent(own / 100, 2):>8}"
            for whole, own in zip(losses.whole_loss[:, node], losses.own_loss[:, node], strict=True)
        ]
        figures += [f"{quantity(float(value), unit, most):>11}" for value in cost[:, node]]
        name = scaling.places[int(losses.view.procedure[node])].label
        return " ".join(figures) + "  ", name, _style(float(loss[-1, node]))

    title = f"loss of {scaling.metric}, {losses.view.kind}"
    yield from forest_rows(losses.forest, head, title, columns_of, width)
    yield from omitted_row(losses.omitted)


def _style(loss: float) -> str:
    if loss <= -2:
        return "green"
    return "bold red" if loss >= 10 else "bold" if loss >= 2 else ""
