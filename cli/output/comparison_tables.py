"""A comparison as text: its sides, and tables of procedures, contexts and calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hpcd.analysis.parallel.comparison import Comparison, CostChange, is_difference
from hpcd.analysis.parallel.run_times import run_time_sentence
from hpcd.analysis.profile.costs import TIME
from hpcd.analysis.profile.row_text import shorten
from hpcd.analysis.profile.tree_rows import Forest
from hpcd.cli.output.tree_tables import Row, forest_rows, omitted_row, program_path
from hpcd.wording import change_text, percent, quantity, time_text

_WORDS = {
    CostChange.ABSENT: "",
    CostChange.SAME: "=",
    CostChange.MORE: "more",
    CostChange.LESS: "less",
    CostChange.NEW: "new",
    CostChange.GONE: "gone",
    CostChange.MINOR: "",
}
# As in the paper what is added is yellow and what differs blue. What is missing is not red: whether
# that is for the better is for the run time to say.
_STYLES = {
    CostChange.GONE: "bold magenta",
    CostChange.NEW: "bold yellow",
    CostChange.MORE: "bold blue",
    CostChange.LESS: "bold blue",
    CostChange.MINOR: "dim",
}


def heading_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the run times, a line for each side and for each step between two of them."""
    if sentence := run_time_sentence(comparison):
        yield sentence
    said = bool(sentence) and comparison.procedure is None
    total = comparison.total
    for number, side in enumerate(comparison.sides):
        ranks = f" for each of {side.ranks} ranks" if side.ranks > 1 else ""
        cost = quantity(float(total[number]), comparison.unit)
        more = ""
        if number and (change := change_text(*total[number - 1 : number + 1].tolist())):
            more = f" ({change})"
        of_time = "" if comparison.metric == TIME else _time_of(comparison, number, said=said)
        yield f"{number + 1}: {side.label}: {cost} of {comparison.metric}{ranks}{more}{of_time}"
        if part := side.seen.sentence():
            yield f"   {part}"
    for number, step in enumerate(comparison.steps()):
        yield (
            f"from {number + 1} to {number + 2}: {step.common:,} contexts in common, "
            f"{step.gone:,} only in {number + 1}, {step.new:,} only in {number + 2} "
            f"({percent(step.gone_share)} and {percent(step.new_share)} of the cost); "
            f"{step.different:,} of those in common differ"
        )


def _time_of(comparison: Comparison, number: int, *, said: bool) -> str:
    """Return the duration of a side, unless it is ``said`` before; with several threads a rank,
    also the sum of theirs."""
    side, lived = comparison.sides[number], float(comparison.lived[number])
    threads = len(np.unique(side.lines))
    if not lived:
        return ""
    part = side.begin is None and not side.seen.whole_run
    took = "recorded for" if part else "it took"
    if threads <= side.ranks:
        return "" if said else f"; {took} {time_text(lived)}"
    together = f"{time_text(lived)} of the time of {threads / side.ranks:,.3g} threads"
    if said or side.begin is not None or not bool(comparison.looked_at.all()):
        return f"; {together}"
    lines = side.database.lines
    elapsed = float(lines.end[side.lines].max() - lines.start[side.lines].min()) / 1e9
    return f"; {took} {time_text(elapsed)}, {together}"


def _figures(
    comparison: Comparison, costs: np.ndarray[Any, Any], changes: np.ndarray[Any, Any]
) -> str:
    unit, most = comparison.unit, float(comparison.total.max())
    parts = [f"{quantity(float(costs[0]), unit, most):>11}"]
    for before, after, change in zip(
        costs[:-1].tolist(), costs[1:].tolist(), changes.tolist(), strict=True
    ):
        parts.append(
            f"{quantity(after, unit, most):>11} {change_text(before, after):>9} {_WORDS[change]:<4}"
        )
    return " ".join(parts) + "  "


def _columns(comparison: Comparison) -> str:
    parts = [f"{'1':>11}"]
    parts += [f"{number:>11} {'':14}" for number in range(2, len(comparison.sides) + 1)]
    return " ".join(parts) + "  "


def _style(changes: np.ndarray[Any, Any]) -> str:
    for change in (CostChange.GONE, CostChange.NEW, CostChange.MORE, CostChange.LESS):
        if (changes == change).any():
            return _STYLES[change]
    return ""


def region_rows(comparison: Comparison, width: int) -> Iterator[Row]:
    """Yield the procedures whose exclusive cost differs, most first."""
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
        figures = _figures(comparison, cost[:, number], changes[:, number])
        name = program_path(comparison.matching, node, width - len(figures))
        yield Row(figures, "", name, _style(changes[:, number]))


def view_rows(comparison: Comparison, kind: str, depth: int | None, width: int) -> Iterator[Row]:
    """Yield the tree of a view; ``depth`` levels of it."""
    sides = len(comparison.sides)
    view = comparison.view(kind, depth=depth)
    rows = view.inclusive if kind == "top-down" else view.exclusive
    cost, changes = rows[:sides], comparison.changes(rows[:sides], rows[sides : 2 * sides])
    shown = ((changes != CostChange.MINOR) & (changes != CostChange.ABSENT)).any(axis=0)
    forest = Forest(view.parent, cost.max(axis=0), shown, depth=depth)
    what = "inclusive" if kind == "top-down" else "exclusive"

    def columns(node: int) -> tuple[str, str, str]:
        figures = _figures(comparison, cost[:, node], changes[:, node])
        name = comparison.places[int(view.procedure[node])].label
        return figures, name, _style(changes[:, node])

    title = f"{what} {comparison.metric}, {kind}"
    yield from forest_rows(forest, _columns(comparison), title, columns, width)
    yield from omitted_row(forest.omitted, "threshold")


def call_rows(comparison: Comparison, width: int) -> Iterator[Row]:
    """Yield the call counts, costliest first."""
    callers, called, visits, cost = comparison.call_points()
    most = float(comparison.total.max())
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
            f"{count:>12,.1f}{quantity(value, comparison.unit, most):>11}"
            for count, value in zip(visits[:, at].tolist(), cost[:, at].tolist(), strict=True)
        )
        caller = comparison.places[int(callers[at])].label
        name = f"{caller} > {comparison.places[int(called[at])].label}"
        if is_difference(changes[:, at]).any():
            figures += " *"
        else:
            figures += "  "
        yield Row(figures, "", shorten(name, width - len(figures)), _style(changes[:, at]))
