"""Constructs of OpenMP within parallel regions: barriers, critical sections, tasks, by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.analysis.calls.openmp_places import (
    DirectivePlace,
    body_place,
    construct_place,
    with_short_names,
)
from hpcd.analysis.calls.openmp_times import OpenmpCalls, RegionTimes
from hpcd.analysis.database import Database
from hpcd.analysis.roles.role import OpenmpRole
from hpcd.array_types import I64

_USES = {
    OpenmpRole.BODY: "work",
    OpenmpRole.BARRIER: "imbalance",
    OpenmpRole.LOCK: "lock",
    OpenmpRole.SCHEDULING: "scheduling",
}


@dataclass(frozen=True, slots=True)
class OpenmpConstruct:
    """A ``construct`` at a place in the source, within the region number ``region``, and
    ``seconds`` that its threads used there for ``use``, in ``times`` calls."""

    construct: str
    place: DirectivePlace
    region: int
    use: str
    times: int
    seconds: float

    @property
    def name(self) -> str:
        """The construct with its place."""
        return f"{self.construct} {'in' if self.place.procedure else 'at'} {self.place}"


def openmp_constructs(
    db: Database, calls: OpenmpCalls, times: RegionTimes, node: I64,
    kind: I64, kinds: Sequence[str], region: I64, regions: Sequence[DirectivePlace],
) -> list[OpenmpConstruct]:  # fmt: skip
    """Return the constructs in ``regions``, of which each execution is ``region`` ``int64[m]``, the
    most time first.

    ``node`` ``int64[n]`` is the context of each call, ``kind`` ``int64[n]`` what it belongs to, one
    of ``kinds``. All but work adds up to the times of the regions.
    """
    runtime = np.isin(calls.role, (OpenmpRole.BARRIER, OpenmpRole.LOCK, OpenmpRole.SCHEDULING))
    chosen = np.flatnonzero((times.execution >= 0) & (runtime | times.task))
    keys, group = np.unique(
        np.stack([
            kind[chosen], calls.role[chosen], region[times.execution[chosen]], node[chosen],
        ]),
        axis=1, return_inverse=True,
    )  # fmt: skip
    group = group.reshape(-1)
    sums: dict[tuple[str, DirectivePlace, int, str], list[int]] = {}

    def add(
        construct: str, place: DirectivePlace, number: int, role: int, count: int, ns: int
    ) -> None:
        entry = sums.setdefault((construct, place, number, _USES[OpenmpRole(role)]), [0, 0])
        entry[0] += count
        entry[1] += ns

    counts = sum_whole(group, times.number[chosen], keys.shape[1]).tolist()
    spent = sum_whole(group, times.own[chosen], keys.shape[1]).tolist()
    for (what, role, number, at), count, ns in zip(keys.T.tolist(), counts, spent, strict=True):
        region_at = regions[number]
        if role == OpenmpRole.BODY:
            place = body_place(db, at, "")
        else:
            inlined = role != OpenmpRole.SCHEDULING
            place = construct_place(db, at, region_at, inlined=inlined)
        add(kinds[what], place, number, role, count, ns)
    executions = np.bincount(region, minlength=len(regions)).tolist()
    for words, role, part in (
        ("end of region", OpenmpRole.BARRIER, times.at_end),
        ("start and end of threads", OpenmpRole.SCHEDULING, times.around),
    ):
        for number, ns in enumerate(sum_whole(region, part, len(regions)).tolist()):
            add(words, regions[number], number, role, executions[number], ns)
    ranked = sorted(sums.items(), key=lambda item: -item[1][1])
    short = with_short_names([place for (_, place, _, _), _ in ranked])
    return [
        OpenmpConstruct(construct, place, number, use, count, ns / 1e9)
        for place, ((construct, _, number, use), (count, ns)) in zip(short, ranked, strict=True)
        if ns
    ]
