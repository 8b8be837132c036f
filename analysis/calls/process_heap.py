"""The heap of processes by call path: what was allocated, and what of it was held, and when.

From the calls of group ``heap``, a sample of the allocations by their bytes with the frees of what
was sampled. All figures are estimates, with standard errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.heap_blocks import NEVER, heap_blocks, held_over_time
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.calls.totals import calls_by_process, path_groups
from hpcd.analysis.database.database import Database
from hpcd.array_types import F64, I64, Mask
from hpcd.errors import UsageError
from hpcd.model.calls import Group

_MOMENTS = 200


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sum of bytes by call path, ``int64[n]``, and the standard error of each, ``float64[n]``."""

    bytes: I64
    error: F64

    @property
    def total(self) -> tuple[int, float]:
        """All together, and the standard error of that."""
        return int(self.bytes.sum()), float(np.sqrt((self.error**2).sum()))

    def at(self, order: I64) -> Estimate:
        """In another order."""
        return Estimate(self.bytes[order], self.error[order])


@dataclass(frozen=True, slots=True)
class ProcessHeap:
    """The heap of one process: its row in the table (``process``), name and pid, the peak of what
    was held (``peak_ns`` since the origin), and ``history``, moments and what was held from then
    on (``int64[k, 2]``).

    By call path, those that hold most first: its ``path``, its first CCT node, the number of calls
    that allocated there, the bytes they ``allocated``, those held ``at_peak`` and ``at_end``.
    """

    process: int
    name: str
    pid: int
    peak_ns: int
    history: I64
    path: list[str]
    node: I64
    calls: I64
    allocated: Estimate
    at_peak: Estimate
    at_end: Estimate


def measure_heap(
    db: Database, processes: Iterable[int] | None = None, since: int | None = None
) -> list[ProcessHeap]:
    """Return the heap of ``processes`` (rows of the table; None: all), the highest peak first.

    Peak and allocated bytes are of the time from ``since`` (ns; None: all) on; blocks allocated
    before count as held. Raises :class:`UsageError` where the heap was not recorded. O(n log n) in
    the processes' calls.
    """
    functions = db.calls.of_group(Group.HEAP)
    if not functions:
        raise UsageError(f"{db.path}: allocations were not recorded; hpcd attach, run and profile"
                         " do with --heap")  # fmt: skip
    result = [
        _measured(db, calls, number, -NEVER if since is None else since)
        for number, calls in calls_by_process(db, functions, processes, None)
    ]
    return sorted(result, key=lambda one: -one.at_peak.total[0])


def _measured(db: Database, calls: npt.NDArray[np.void], process: int, since: int) -> ProcessHeap:
    names = ("function", "time", "duration", "weight", "value")
    blocks = heap_blocks(db.calls.of_group(Group.HEAP), *(calls[name] for name in names))
    group, path, node = path_groups(db, calls["node"][blocks.call].astype(np.int64))
    moments, held = held_over_time(blocks.born, blocks.died, blocks.bytes, since)
    peak_at = int(held.argmax()) if len(held) else -1
    peak_ns = int(moments[peak_at]) if len(held) else 0

    def sums(values: npt.NDArray[np.generic], which: Mask) -> F64:
        return sum_by(group[which], values[which].astype(np.float64), len(path))

    def estimate(which: Mask) -> Estimate:
        total = np.rint(sums(blocks.bytes, which)).astype(np.int64)
        return Estimate(total, np.sqrt(sums(blocks.variance, which)))

    fresh = blocks.born >= since
    at_peak = estimate((blocks.born <= peak_ns) & (blocks.died > peak_ns))
    at_end = estimate(blocks.died == NEVER)
    count = sums(calls["weight"][blocks.call], fresh).astype(np.int64)
    order = np.argsort(-(at_peak.bytes + at_end.bytes), kind="stable")
    line = db.lines[int(calls["line"][0])]
    thin = np.unique(np.linspace(0, max(len(held) - 1, 0), _MOMENTS).astype(np.int64))
    thin = np.union1d(thin, [peak_at]) if len(held) else thin[:0]
    return ProcessHeap(
        process, line.process, line.pid, max(peak_ns, since, 0),
        np.stack([moments[thin], held[thin]], axis=1), [path[at] for at in order.tolist()],
        node[order], count[order], estimate(fresh).at(order), at_peak.at(order), at_end.at(order),
    )  # fmt: skip
