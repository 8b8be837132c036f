"""Parallel regions of OpenMP: how the time of their threads was used (``hpcd openmp``).

All times are exact: begins and ends of recorded calls (``--probes openmp``). A region lasts as long
as the call that begins it. Each thread executes the region's body, a procedure that the compiler
made, and in it calls of the runtime, which wait for others, wait for locks, or hand out work; tasks
that are run within these calls are work again. So for each execution of a region and each of its
threads the time is divided among

- work: in bodies and tasks, and what they call, the runtime's functions apart;
- imbalance: in barriers, and after its body until the last thread's has ended;
- locks: in calls that wait for a lock, a critical section, or a turn;
- scheduling: handing out iterations and tasks, and before the body begins and after the last has
  ended, while the threads are started and let go.

The four add up to elapsed time times threads. Calls that were recorded one in n count n times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.sparse_sums import sum_whole
from hpcd.analysis.calls.openmp_constructs import OpenmpConstruct, openmp_constructs
from hpcd.analysis.calls.openmp_places import DirectivePlace, region_place, with_short_names
from hpcd.analysis.calls.openmp_times import OpenmpCalls, RegionTimes, divide_times
from hpcd.analysis.database import Database
from hpcd.analysis.profile.advice import of_probes
from hpcd.analysis.roles.role import OpenmpRole
from hpcd.analysis.roles.role_table import role_table
from hpcd.array_types import I64, U64
from hpcd.errors import UsageError
from hpcd.masks import positions
from hpcd.model.calls import CalledFunction
from hpcd.wording import counted

# The value by which a body is known to be of a region: what the region hands to it.
_DATA = "data"


@dataclass(frozen=True, slots=True)
class ParallelRegion:
    """All ``executions`` of the region at a place in the source.

    ``elapsed_s`` is their sum, ``thread_s`` that of elapsed time times threads, which ``work_s``,
    ``imbalance_s``, ``lock_s`` and ``scheduling_s`` add up to. ``threads`` is their mean number;
    0: no thread's part was recorded.
    """

    place: DirectivePlace
    executions: int
    elapsed_s: float
    threads: float
    thread_s: float
    work_s: float
    imbalance_s: float
    lock_s: float
    scheduling_s: float


@dataclass(frozen=True, slots=True)
class OpenmpReport:
    """The regions of all processes that have any, and the constructs in them, the most time first.
    ``lived_s`` is how long the ``processes`` were recorded, ``serial_s`` the part of it that was
    outside of all regions."""

    regions: Sequence[ParallelRegion]
    constructs: Sequence[OpenmpConstruct]
    processes: int
    lived_s: float
    serial_s: float
    notes: Sequence[str]


def records_regions(db: Database) -> bool:
    """Return whether functions that begin parallel regions were recorded."""
    roles = (role_table().openmp_function(function.name).role for function in db.calls.functions)
    return OpenmpRole.REGION in roles


def openmp_report(db: Database) -> OpenmpReport:
    """Return how the threads of parallel regions used their time.

    Raises :class:`UsageError` where no region was recorded. O(n log n) in the calls of OpenMP.
    """
    known = [role_table().openmp_function(function.name) for function in db.calls.functions]
    roles = np.array([function.role for function in known], np.int64)
    calls = db.calls.select(
        functions=[one for one in db.calls.functions if roles[one.id] != OpenmpRole.NONE]
    )
    role = roles[calls["function"]]
    if not bool((role == OpenmpRole.REGION).any()):
        raise UsageError(
            f"{db.path}: no parallel region was recorded; hpcd attach, run and profile do with"
            " --probes openmp"
        )
    ended = calls["duration"] > 0
    notes = _notes(role, calls["weight"], int(np.count_nonzero(~ended)))
    calls, role = calls[ended], role[ended]
    begin = calls["time"].astype(np.int64)
    arrays = OpenmpCalls(
        role,
        np.asarray(db.lines.process).astype(np.int64)[calls["line"]],
        calls["line"].astype(np.int64),
        begin,
        begin + calls["duration"].astype(np.int64),
        calls["weight"].astype(np.int64),
        _data(db.calls.functions, calls),
    )
    times = divide_times(arrays)
    if times.strays:
        notes.append(
            f"{counted(times.strays, 'body', 'bodies')} ran outside of all recorded regions"
        )
    bare = int(np.count_nonzero(times.threads == 0))
    if bare:
        notes.append(
            f"{counted(bare, 'execution')} of regions without any body: the procedures that the"
            " compiler makes of them have no symbols, or were not probed yet"
        )
    notes += of_probes(db)
    processes, lived, serial = _serial_time(db, arrays, times)
    node = calls["node"].astype(np.int64)
    region, places = _places(db, node, arrays, times)
    constructs = openmp_constructs(
        db, arrays, times, node, calls["function"].astype(np.int64),
        [function.construct for function in known], region, places,
    )  # fmt: skip
    regions = _regions(arrays, times, region, places)
    return OpenmpReport(regions, constructs, processes, lived, serial, notes)


def _notes(role: I64, weight: npt.NDArray[np.integer], endless: int) -> list[str]:
    """Return what makes the figures uncertain: calls without an end or passed over."""
    notes = []
    if endless:
        notes.append(f"{counted(endless, 'call')} of OpenMP without a known end left out")
    whole = np.isin(role, (OpenmpRole.REGION, OpenmpRole.BODY))
    if passed_over := int((weight[whole].astype(np.int64) - 1).sum()):
        notes.append(
            f"{counted(passed_over, 'region or body', 'regions or bodies')} not recorded, to keep"
            " the budget: figures are of the others"
        )
    return notes


def _data(functions: Sequence[CalledFunction], calls: npt.NDArray[np.void]) -> U64:
    """``uint64[n]``: what regions hand to their bodies; 0 for other calls."""
    data = np.zeros(len(calls), np.uint64)
    for function in functions:
        number = function.value(_DATA)
        if number is not None:
            mine = calls["function"] == function.id
            data[mine] = calls["value"][mine, number]
    return data


def _serial_time(db: Database, calls: OpenmpCalls, times: RegionTimes) -> tuple[int, float, float]:
    """Return the number of processes that have regions, how long they were recorded, and how much
    of it was outside of all regions (s)."""
    process, begin, end = (column[times.call] for column in (calls.process, calls.begin, calls.end))
    order = np.lexsort((begin, process))
    process, begin, end = process[order], begin[order], end[order]
    parallel = lived = 0
    owners = np.unique(process)
    of_line = np.asarray(db.lines.process)
    for owner in owners.tolist():
        mine = slice(*np.searchsorted(process, (owner, owner + 1)).tolist())
        latest = np.maximum.accumulate(end[mine])
        before = np.append(begin[mine][0], latest[:-1])
        parallel += int(np.maximum(end[mine] - np.maximum(begin[mine], before), 0).sum())
        lines = of_line == owner
        lived += int(
            np.asarray(db.lines.end)[lines].max() - np.asarray(db.lines.start)[lines].min()
        )
    return len(owners), lived / 1e9, max(lived - parallel, 0) / 1e9


def _places(
    db: Database, node: I64, calls: OpenmpCalls, times: RegionTimes
) -> tuple[I64, list[DirectivePlace]]:
    """Return the region that each execution is of, ``int64[m]``, and the regions' places, the
    longest first; ``node`` ``int64[n]`` is the context of each call."""
    call = node[times.call]
    body = np.where(times.body >= 0, node[times.body], 0)
    pairs, of = np.unique(np.stack([call, body]), axis=1, return_inverse=True)
    known: dict[DirectivePlace, int] = {}
    numbers = [known.setdefault(region_place(db, *pair), len(known)) for pair in pairs.T.tolist()]
    region = np.array(numbers, np.int64)[of.reshape(-1)]
    elapsed = sum_whole(region, calls.end[times.call] - calls.begin[times.call], len(known))
    order = np.argsort(-elapsed, kind="stable")
    places = [*known]
    return positions(len(known), order)[region], [places[at] for at in order.tolist()]


def _regions(
    calls: OpenmpCalls, times: RegionTimes, region: I64, places: Sequence[DirectivePlace]
) -> list[ParallelRegion]:
    """Return the regions at ``places``; ``region`` ``int64[m]`` is the place of each execution."""
    executions = np.bincount(region, minlength=len(places)).tolist()
    threads = sum_whole(region, times.threads, len(places)).tolist()
    columns = (
        calls.end[times.call] - calls.begin[times.call],
        times.thread_time, times.work, times.barrier, times.lock, times.scheduling,
    )  # fmt: skip
    elapsed, whole, *used = (
        (sum_whole(region, column, len(places)) / 1e9).tolist() for column in columns
    )
    return [
        ParallelRegion(
            place, executions[at], elapsed[at],
            threads[at] / executions[at], whole[at], *(column[at] for column in used),
        )
        for at, place in enumerate(with_short_names(places))
    ]  # fmt: skip
