"""The time of the threads of parallel regions by its use, from calls alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.analysis.calls.nested_calls import NestedCalls
from hpcd.analysis.roles.role import OpenmpRole
from hpcd.array_types import I64, U64, Mask


@dataclass(frozen=True, slots=True)
class OpenmpCalls:
    """Calls of OpenMP in order of line and begin, ``int64[n]`` each: ``role``
    (:class:`OpenmpRole`), ``process``, trace ``line``, ``begin`` and ``end`` (ns, ``end > begin``),
    ``weight``; ``data`` ``uint64[n]``: what a region hands to its bodies, of other calls 0."""

    role: I64
    process: I64
    line: I64
    begin: I64
    end: I64
    weight: I64
    data: U64


@dataclass(frozen=True, slots=True)
class RegionTimes:
    """The time of the threads of each execution of a region by its use, ``int64[m]`` each.

    ``call``: the call that begins it; ``body``: one of its body, -1 if there is none; ``threads``
    that have run it; ``thread_time``: its elapsed time times threads, which ``work``, ``barrier``,
    ``lock`` and ``scheduling`` (ns) add up to. ``at_end`` is the part of ``barrier`` in which
    threads had ended their body, ``around`` the part of ``scheduling`` before the first body and
    after the last. ``strays`` is the number of bodies that ran within no execution.

    Of each call, ``int64[n]``: ``execution`` that it is a part of, -1: none; ``own`` time (ns), all
    that it stands for, calls in it apart; ``number`` of calls that it counts as: 0 in one of its
    own kind. ``task`` ``bool[n]``: bodies of tasks.
    """

    call: I64
    body: I64
    threads: I64
    thread_time: I64
    work: I64
    barrier: I64
    lock: I64
    scheduling: I64
    at_end: I64
    around: I64
    strays: int
    execution: I64
    own: I64
    number: I64
    task: Mask


def divide_times(calls: OpenmpCalls) -> RegionTimes:
    """Divide the time of the threads of each region of ``calls``. O(n log n)."""
    nested = NestedCalls(calls.line, calls.begin, calls.end)
    region = np.flatnonzero(calls.role == OpenmpRole.REGION)
    count = len(region)
    body, of_body = _bodies(calls, nested, region)
    strays = int(np.count_nonzero(of_body < 0))
    body, of_body = body[of_body >= 0], of_body[of_body >= 0]
    execution = _inside(calls, nested, body, of_body)
    own = nested.own_time(calls.weight) * calls.weight
    begin, end = calls.begin[region], calls.end[region]
    # By execution and thread: before its first body, in bodies, and after them until the last has
    # ended. Tasks that are run at a region's end are bodies, too.
    started, ended = calls.begin[body], np.minimum(calls.end[body], end[of_body])
    pair, thread = np.unique(
        of_body * (calls.line.max(initial=0) + 1) + calls.line[body], return_inverse=True
    )
    of = np.zeros(len(pair), np.int64)
    of[thread] = of_body
    first, last = end[of], begin.copy()
    np.minimum.at(first, thread, started)
    np.maximum.at(last, of_body, ended)
    idle = last[of] - first - sum_whole(thread, ended - started, len(pair))
    threads = np.bincount(of, minlength=count).astype(np.int64)
    at_end = sum_whole(of, np.maximum(idle, 0), count)
    around = sum_whole(of, first - begin[of], count) + (end - last) * threads
    barrier, lock, scheduling = (
        sum_whole(execution[which], own[which], count)
        for role in (OpenmpRole.BARRIER, OpenmpRole.LOCK, OpenmpRole.SCHEDULING)
        for which in [np.flatnonzero((calls.role == role) & (execution >= 0))]
    )
    barrier, scheduling = barrier + at_end, scheduling + around
    thread_time = (end - begin) * threads
    begins = started == first[thread]
    a_body = np.full(count, -1)
    a_body[of_body[begins]] = body[begins]
    task = calls.role == OpenmpRole.BODY
    task[body[begins]] = False
    within = np.where(nested.parent >= 0, calls.role[nested.parent], OpenmpRole.NONE)
    return RegionTimes(
        region, a_body, threads, thread_time, thread_time - barrier - lock - scheduling,
        barrier, lock, scheduling, at_end, around, strays,
        execution, own, np.where((within == calls.role) & ~task, 0, calls.weight), task,
    )  # fmt: skip


def _bodies(calls: OpenmpCalls, nested: NestedCalls, region: I64) -> tuple[I64, I64]:
    """Return the calls of bodies that are in no other body of their thread but that of a region
    around it, and which execution each is of; -1: of none.

    One that is nested in a region's call is that region's. Others are of the last region of their
    process to have begun with the same data. Tasks that are run at a region's end have data of
    their own: they are of the region that their thread was in before. Regions without any data
    are the last that a thread outside of regions has begun.
    """
    role, begin, end = calls.role, calls.begin, calls.end
    above = np.where(nested.parent >= 0, role[nested.parent], OpenmpRole.NONE)
    is_outer = np.isin(above, (OpenmpRole.NONE, OpenmpRole.REGION))
    body = np.flatnonzero((role == OpenmpRole.BODY) & is_outer)
    execution = np.searchsorted(region, nested.parent[body])
    execution[nested.parent[body] < 0] = -1
    _, process_and_data = np.unique(
        np.stack([calls.process.astype(np.uint64), calls.data]), axis=1, return_inverse=True
    )

    def assign(key: I64, candidate: I64, of: I64) -> None:
        """Assign each body that is left to the execution ``of`` the last ``candidate`` before it
        with the same ``key``, if that has not ended."""
        left = np.flatnonzero(execution < 0)
        mine = body[left]
        latest = _latest(key[candidate], begin[candidate], key[mine], begin[mine])
        left, latest = left[latest >= 0], of[latest[latest >= 0]]
        running = end[region[latest]] > begin[body[left]]
        execution[left[running]] = latest[running]

    assign(process_and_data.reshape(-1), region, np.arange(len(region)))
    known = execution >= 0
    assign(calls.line, body[known], execution[known])
    outermost = np.flatnonzero(nested.parent[region] < 0)
    assign(calls.process, region[outermost], outermost)
    return body, execution


def _latest(key: I64, begin: I64, of_key: I64, at: I64) -> I64:
    """Return ``int64[n]``: which of ``key`` and ``begin`` ``[m]`` is the last to begin of those
    with the key ``of_key`` ``[n]``, until ``at``; -1: none."""
    count = len(key)
    keys, times = np.concatenate([key, of_key]), np.concatenate([begin, at])
    order = np.lexsort((np.arange(len(keys)) >= count, times, keys))
    place = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    latest = np.full(len(keys), -1)
    latest[order] = np.where(place >= 0, order[place], -1)
    latest = latest[count:]
    latest[(latest >= 0) & (keys[latest] != of_key)] = -1
    return latest


def _inside(calls: OpenmpCalls, nested: NestedCalls, body: I64, execution: I64) -> I64:
    """Return ``int64[n]``: the execution that each call is a part of, -1 for none; ``execution``
    are those of ``body``. What is in a region within a body is of that region alone."""
    of = np.full(len(calls.role), -1, np.int64)
    of[body] = execution
    for level in nested.levels[1:]:
        parent = nested.parent[level]
        inner = (of[level] < 0) & (calls.role[parent] != OpenmpRole.REGION)
        of[level[inner]] = of[parent[inner]]
    return of
