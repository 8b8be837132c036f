"""Growth of the memory of processes, by call path, and what held it when it was most.

From the calls of group ``memory``: pages touched for the first time, and the system calls that give
pages back. A page counts from its first touch until it is unmapped, discarded or its process ends;
one that was there when the process was attached to, from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.heap_blocks import NEVER, held_over_time
from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.analysis.calls.totals import calls_by_process, path_groups, time_stretches
from hpcd.analysis.database.database import Database
from hpcd.array_types import I64, Mask
from hpcd.errors import UsageError
from hpcd.model.calls import CalledFunction, Group

_DISCARDS = "madvise"
_RESIDENT, _RESIDENT_PATH = "resident_before", "[resident before the recording]"
_SMALL_PAGE = 4096


@dataclass(frozen=True, slots=True)
class PathMemory:
    """Bytes by call path, those that held most at the peak first.

    ``name`` of each path, ``node`` ``int64[n]`` its first CCT node; ``mapped``, ``released`` by the
    calls made there, ``touched``, ``huge`` (of that by pages larger than 4 KB), ``remote`` (of that
    on another NUMA node than that of the CPU), ``at_peak`` and ``at_end`` (touched there and still
    held then), each ``int64[n]``.
    """

    name: list[str]
    node: I64
    mapped: I64
    released: I64
    touched: I64
    huge: I64
    remote: I64
    at_peak: I64
    at_end: I64

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """The memory of one process: its row in the table (``process``), name and pid, bytes it
    ``touched``, the ``peak`` of what it held and when (``peak_ns`` since the origin), what it held
    at the end, what it touched by the NUMA node of the pages (empty: not recorded), and all by call
    path."""

    process: int
    name: str
    pid: int
    touched: int
    peak: int
    peak_ns: int
    at_end: int
    by_numa_node: dict[int, int]
    paths: PathMemory

    @property
    def remote(self) -> int:
        """Bytes touched on another NUMA node than that of the CPU."""
        return int(self.paths.remote.sum())


@dataclass(frozen=True, slots=True)
class MemoryStretches:
    """Memory of processes together in stretches of time, one after another: ``name`` of each
    stretch; bytes ``held`` at its end, ``peak`` the most held within, and ``touched``, ``mapped``
    and ``released`` within, each ``int64[n]``."""

    name: list[str]
    held: I64
    peak: I64
    touched: I64
    mapped: I64
    released: I64


def recorded_pages(db: Database) -> list[CalledFunction]:
    """Return the functions by which ``--memory`` records pages; none if it was not given."""
    # Allocators that were probed say nothing of pages.
    return [one for one in db.calls.of_group(Group.MEMORY) if not one.library]


def measure_memory(
    db: Database,
    processes: Iterable[int] | None = None,
    t0: int | None = None,
    t1: int | None = None,
) -> list[ProcessMemory]:
    """The memory of ``processes`` (rows of the table; None: all), that with the highest peak first.

    Of [t0, t1), ns since the origin: the peak is the highest in it, the end is ``t1``, and touched,
    mapped and released is what was so within; what was touched before counts as held. Raises
    :class:`UsageError` where memory was not recorded. O(n log n) in the processes' calls until
    ``t1``, and for each call that gives pages back the pages there.
    """
    begin = -NEVER if t0 is None else t0
    result = []
    for number, first, events in _by_process(db, processes, t1):
        line = db.lines[first]
        paths = _paths(db, events)
        result.append(_measured(number, line.process, line.pid, events, *paths, begin))
    return sorted(result, key=lambda one: -one.peak)


def memory_over_time(
    db: Database, processes: Iterable[int] | None, t0: int, t1: int
) -> Iterator[tuple[I64, I64]]:
    """Yield of each of ``processes`` the moments at which what it holds changes (ns since the
    origin, in order, from the last before ``t0`` until ``t1``), and the bytes it holds from then
    on. Raises :class:`UsageError` where memory was not recorded."""
    for _, (born, died, size) in _pages(db, processes, t1):
        yield held_over_time(born, died, size, t0)


def memory_by_time(
    db: Database,
    processes: Iterable[int] | None = None,
    t0: int | None = None,
    t1: int | None = None,
) -> MemoryStretches:
    """The memory of ``processes`` (rows of the table; None: all) by stretches of [t0, t1), ns since
    the origin (None: from the first to the last change). Raises :class:`UsageError` where memory
    was not recorded."""
    pages, changes = [np.zeros((3, 0), np.int64)], [np.zeros((4, 0), np.int64)]
    for events, one in _pages(db, processes, t1):
        pages.append(one)
        touched = np.where(events.resident, 0, events.touched)
        changes.append(np.stack([events.time, touched, events.mapped, events.released]))
    born, died, size = np.concatenate(pages, axis=1)
    moments, held = held_over_time(born, died, size, -NEVER)
    change = np.concatenate(changes, axis=1)
    if not change.size:
        return MemoryStretches([], *np.zeros((5, 0), np.int64))
    first = int(change[0].min()) if t0 is None else t0
    last = max(
        first, int(max(change[0].max(), moments.max(initial=first))) if t1 is None else t1 - 1
    )
    edges, names = time_stretches(first, last)
    time, *amounts = change[:, change[0] >= first]
    cuts = np.searchsorted(moments, edges)
    at_edge = np.append(0, held)[cuts]
    peak = np.array([held[low:high].max(initial=0) for low, high in pairwise(cuts.tolist())])
    stretch = np.searchsorted(edges, time, side="right") - 1

    totals = (sum_whole(stretch, values, len(names)) for values in amounts)
    return MemoryStretches(names, at_edge[1:], np.maximum(at_edge[:-1], peak), *totals)


def _pages(
    db: Database, processes: Iterable[int] | None, t1: int | None
) -> Iterator[tuple[_Events, I64]]:
    """Yield the events of each of ``processes`` until ``t1``; and ``int64[3, n]``: of its pages
    when they were touched, when given back, also by the end of the process, and their bytes."""
    rows = db.rows("SELECT id, CAST(end_ns AS INTEGER) FROM process WHERE end_ns IS NOT NULL")
    ended = {number: end for number, end in rows if t1 is None or end < t1}
    for number, _, events in _by_process(db, processes, t1):
        touches = np.flatnonzero(events.touched > 0)
        born = events.time[touches]
        died = np.maximum(born, np.minimum(_deaths(events, touches), ended.get(number, NEVER)))
        yield events, np.stack([born, died, events.touched[touches]])


def _by_process(
    db: Database, processes: Iterable[int] | None, t1: int | None
) -> Iterator[tuple[int, int, _Events]]:
    """Yield the processes that have calls of memory until ``t1``, the line of the first of these,
    and the calls."""
    functions = recorded_pages(db)
    if not functions:
        raise UsageError(f"{db.path}: memory was not recorded; hpcd attach, run and profile do with"
                         " --memory (what is allocated: --heap)")  # fmt: skip
    for number, calls in calls_by_process(db, functions, processes, t1):
        yield number, int(calls["line"][0]), _Events.of(calls, functions)


@dataclass(frozen=True, slots=True)
class _Events:
    """Calls of one process in order of time, as columns ``int64[n]``.

    ``numa_node`` is -1 where it is not recorded. ``gives_back``: the number of addresses from
    ``start`` on that are no longer held, but for the first ``keeps`` of them, which are now those
    from ``to`` on. ``resident`` bool[n]: memory held before the recording, not a touch.
    """

    time: I64
    node: I64
    mapped: I64
    released: I64
    touched: I64
    huge: I64
    remote: I64
    numa_node: I64
    start: I64
    gives_back: I64
    keeps: I64
    to: I64
    resident: Mask

    @staticmethod
    def of(calls: npt.NDArray[np.void], functions: list[CalledFunction]) -> _Events:
        """The events that ``calls`` are."""
        value = calls["value"].astype(np.int64)

        def named(name: str, otherwise: int = 0) -> I64:
            # Not all functions have the same values.
            column = np.full(len(calls), otherwise, np.int64)
            for function in functions:
                if (number := function.value(name)) is not None:
                    mine = calls["function"] == function.id
                    column[mine] = value[mine, number]
            return column

        weight = calls["weight"].astype(np.int64)
        names = {function.id: function.name for function in functions}
        discards, resident = (
            np.array([names[f] == name for f in calls["function"].tolist()], bool)
            for name in (_DISCARDS, _RESIDENT)
        )
        mapped, released, touched = named("mapped"), named("released"), named("touched")
        address, before = named("address"), named("before")
        # Discarded pages are given back, but their addresses stay mapped.
        return _Events(
            calls["time"],
            calls["node"].astype(np.int64),
            mapped * weight,
            np.where(discards, 0, released) * weight,
            touched * weight,
            np.where((touched > _SMALL_PAGE) & ~resident, touched, 0) * weight,
            named("remote") * weight,
            named("node", -1),
            np.where(before > 0, before, address),
            released,
            np.where(before > 0, mapped, 0),
            address,
            resident,
        )


def _paths(db: Database, events: _Events) -> tuple[I64, list[str], I64]:
    """Return the group of each event, and the name and first node of each group, the last of which
    is what was held before the recording."""
    resident = events.resident
    group = np.zeros(len(resident), np.int64)
    group[~resident], names, node = path_groups(db, events.node[~resident])
    group[resident] = len(names)
    return group, [*names, _RESIDENT_PATH], np.append(node, 0)


def _deaths(events: _Events, touches: I64) -> I64:
    """Return when the pages of ``touches`` were given back; :data:`NEVER` where they were not."""
    address, born = events.start[touches].copy(), events.time[touches]
    died = np.full(len(touches), NEVER, np.int64)
    order = np.argsort(address, kind="stable")
    ascending = address[order]
    for at in np.flatnonzero(events.gives_back > 0).tolist():
        start, moment = int(events.start[at]), int(events.time[at])
        low, high = np.searchsorted(ascending, [start, start + int(events.gives_back[at])])
        inside = order[low:high]
        inside = inside[(born[inside] <= moment) & (died[inside] == NEVER)]
        kept = address[inside] - start < events.keeps[at]
        died[inside[~kept]] = moment
        moved = inside[kept]
        if len(moved) and events.to[at] != start:
            address[moved] += events.to[at] - start
            order = np.argsort(address, kind="stable")
            ascending = address[order]
    return died


def _measured(
    process: int, name: str, pid: int, events: _Events, group: I64, names: Sequence[str],
    node: I64, t0: int,
) -> ProcessMemory:  # fmt: skip
    touches = np.flatnonzero(events.touched > 0)
    born, size = events.time[touches], events.touched[touches]
    died = _deaths(events, touches)
    moments, held = held_over_time(born, died, size, t0)
    peak_at = int(held.argmax()) if len(held) else -1
    peak_ns = int(moments[peak_at]) if len(held) else 0
    # What lives at the peak: born by then and not yet gone.
    living = (born <= peak_ns) & (died > peak_ns)
    count = len(names)

    def by_path(values: I64, which: I64) -> I64:
        return sum_whole(group[which], values, count)

    within = np.flatnonzero(events.time >= t0)
    at_peak = by_path(size[living], touches[living])
    at_end = by_path(size[died == NEVER], touches[died == NEVER])
    fresh = (born >= t0) & ~events.resident[touches]
    touched = by_path(size[fresh], touches[fresh])
    huge = by_path(events.huge[touches[fresh]], touches[fresh])
    remote = by_path(events.remote[touches[fresh]], touches[fresh])
    numa_node = events.numa_node[touches[fresh]]
    by_numa_node = {
        one: int(events.touched[touches[fresh]][numa_node == one].sum())
        for one in np.unique(numa_node).tolist()
        if one >= 0
    }
    best = np.lexsort((-touched, -at_peak))
    if not events.resident.any():
        best = best[best < count - 1]
    paths = PathMemory(
        [names[at] for at in best.tolist()],
        node[best],
        by_path(events.mapped[within], within)[best],
        by_path(events.released[within], within)[best],
        touched[best],
        huge[best],
        remote[best],
        at_peak[best],
        at_end[best],
    )
    peak = int(held[peak_at]) if len(held) else 0
    return ProcessMemory(
        process, name, pid, int(size[fresh].sum()), peak, max(peak_ns, t0), int(at_end.sum()),
        by_numa_node, paths,
    )  # fmt: skip
