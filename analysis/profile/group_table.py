"""Costs of groups as the table that ``hpcd report --by`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.groups import INTERFERER, LINE_GROUPS, Groups
from hpcd.analysis.profile.row_text import shorten_apart
from hpcd.analysis.trace.states import STATE_TIMES
from hpcd.wording import counted, percent, quantity, time_text

_MIN_NAME = 24


class GroupTable:
    """Groups, costliest first by the first of ``metrics``, whose shares are shown. Left out are
    groups beyond the first ``most``, and those with less than ``share`` of every metric that has a
    column, and of the time in phases."""

    def __init__(
        self,
        db: Database,
        groups: Groups,
        metrics: Sequence[int],
        share: float = 0.0,
        most: int | None = None,
    ) -> None:
        names = db.metrics.names
        times = [names.index(name) for name in STATE_TIMES if name in names]
        # With a single metric, or none, the times of threads are shown, too, but of interferers.
        beside = list(metrics[1:])
        if not beside and groups.by != INTERFERER:
            beside = [number for number in times if number != metrics[0]]
        self._columns = [metrics[0], *beside]
        self._db = db
        self._groups = groups
        cost = groups.cost[:, metrics[0]]
        self._total = float(cost.sum())
        order = np.argsort(-cost, kind="stable")
        # A thread or a phase that waits costs little, and lasts.
        columns = list(groups.cost[:, self._columns].T)
        columns += [groups.seconds] if groups.seconds is not None else []
        # No group is a share of a metric whose sum is 0.
        large = [(column >= share * column.sum()) & (column > 0) for column in columns]
        shown = np.any(large, axis=0) if share else np.ones(len(order), bool)
        self._order = order[shown[order]][:most].tolist()
        self._omitted = len(order) - len(self._order)

    def text_lines(self, width: int) -> Iterator[str]:
        """The heading and a line for each group, ``width`` wide."""
        names, units = self._db.metrics.names, self._db.metrics.units
        calls, seconds = self._groups.calls, self._groups.seconds
        of_lines = self._groups.by in LINE_GROUPS or calls is not None
        after = ("threads " if of_lines else "") + ("      calls " if calls is not None else "")
        after += "          time " if seconds is not None else ""
        # The name matters more than all metrics but the first.
        fit = (width - _MIN_NAME - len("   share " + after)) // len(f"{'':14} ")
        columns = self._columns[: max(fit, 1)]
        heading = "   share " + "".join(f"{names[number]:>14} " for number in columns) + after
        yield heading + self._groups.by
        room = max(width - len(heading), _MIN_NAME)
        shown = dict(zip(self._order, shorten_apart(
            [self._groups.name[group] for group in self._order], room), strict=True))  # fmt: skip
        most = self._groups.cost.max(axis=0, initial=0.0)
        longest = None if seconds is None else seconds.max(initial=0.0)
        for group in self._order:
            cost = self._groups.cost[group]
            line = f"{percent(cost[self._columns[0]] / (self._total or 1), 2):>8} "
            line += "".join(f"{quantity(cost[n], units[n], most[n]):>14} " for n in columns)
            if of_lines:
                line += f"{self._groups.threads[group]:7,} "
            if calls is not None:
                line += f"{calls[group]:>11,} " if calls[group] else " " * 12
            if seconds is not None:
                line += f"{time_text(seconds[group], longest):>14} "
            yield line + shown[group]
        if self._omitted:
            yield f"(not shown: {counted(self._omitted, 'group')} below the cut-off)"
        yield from (f"note: {note}" for note in self._groups.notes)

    def as_json(self) -> dict[str, object]:
        """Return the table as one JSON object; costs are in their units, not rounded."""
        metrics = self._db.metrics
        calls, seconds = self._groups.calls, self._groups.seconds
        return {
            "database": str(self._db.path),
            "by": self._groups.by,
            "metric": metrics.names[self._columns[0]],
            "units": dict(zip(metrics.names, metrics.units, strict=True)),
            "groups": [
                {
                    "name": self._groups.name[group],
                    "threads": int(self._groups.threads[group]),
                    **self._groups.details[group],
                    **({} if calls is None else {"calls": int(calls[group])}),
                    **({} if seconds is None else {"seconds": float(seconds[group])}),
                    "cost": dict(
                        zip(metrics.names, self._groups.cost[group].tolist(), strict=True)
                    ),
                }
                for group in self._order
            ],
            "omitted": self._omitted,
            **({"notes": self._groups.notes} if calls is not None else {}),
        }
