"""Call paths of threads between two waits in which no sample saw them.

A thread that works for 0.4 ms and sleeps for 0.4 ms is sampled in some of the stretches between its
waits. Its code in the other stretches is taken from the closest sample between two
waits in the same user frames. Only records of the same chunk of the measurement are compared, so
that the answer does not depend on how many chunks are read together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpcd.analysis.merge.read.record_batches import Batch
from hpcd.analysis.trace.intervals import Intervals
from hpcd.analysis.trace.short_waits import ShortWaits
from hpcd.analysis.trace.states import STATES
from hpcd.array_types import U32, U64
from hpcd.kernels.library import kernels, structure
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.model.codes import State


class BetweenWaits(NamedTuple):
    """Activity of threads between the recorded waits of a batch.

    ``resumed`` ``uint32[n]`` is the node that the thread of each record runs in behind it, in the
    order the records came: NO_NODE where a sample shows it or there is no such time, 0 where it is
    not known. None without waits. ``short`` are the waits without records of their own, with nodes
    of the tree.
    """

    resumed: U32 | None
    short: ShortWaits | None


class ResumedPaths:
    """Finds the call paths of threads between two waits without a sample."""

    def __init__(self, user: U32, intervals: Intervals) -> None:
        """``user`` is the innermost node outside the kernel of each node of
        the records' tree."""
        self._user = user
        self._intervals = intervals
        self._tells = intervals.states.state != State.SAMPLED
        self._stretches = 0
        # Twice as many places as nodes: few pairs of a stretch share one.
        places = 1 << max(2 * len(user) - 1, 1).bit_length()
        words = np.zeros((3, places), np.uint32)
        self._seen: dict[str, object] = {
            "places": places, "from": words[0], "to": words[1], "node": words[2],
            "time": np.zeros(places, np.uint64), "mark": np.zeros(places, np.int64),
        }  # fmt: skip
        self._before: U64 = np.zeros(0, np.uint64)

    def find(self, batch: Batch) -> BetweenWaits:
        """Return the activity of threads between the waits of ``batch``.

        Raises :class:`IndexError` for nodes that are not in the tree.
        """
        time, node, event, value = batch.columns
        if not bool(self._tells[event].any()):
            return BetweenWaits(None, None)
        if len(self._before) < len(time):
            self._before = np.empty(len(time), np.uint64)
        resumed, running = np.empty(len(time), np.uint32), np.empty(len(batch.begin), np.uint64)
        records = structure(
            "record_columns", time=time, node=node, event=event, value=value, n=len(time)
        )
        tree = structure(
            "resumption", user=self._user, nodes=len(self._user),
            length=self._intervals.length_ns, state_of=self._intervals.states.state,
            stretches_before=self._stretches,
        )  # fmt: skip
        begin, end = batch.begin, batch.end
        if not kernels.find_resumed_paths(
            begin, end, len(begin), records, tree, structure("seen_samples", **self._seen),
            self._before, resumed, running,
        ):  # fmt: skip
            raise IndexError("records of nodes that do not exist")
        self._stretches += 2 * len(begin)
        return BetweenWaits(resumed, self._short_waits(batch, running))

    def _short_waits(self, batch: Batch, running: U64) -> ShortWaits | None:
        """Return the share of the time that threads seem to run in which they wait, by stretch: of
        each state at the call path of most of it. ``running`` ``uint64[stretches]`` is that time.
        """
        time, node, event, value = batch.columns
        states = self._intervals.states
        sums = np.flatnonzero(states.short_ns[event] > 0)
        if not len(sums):
            return None
        order = np.argsort(batch.begin, kind="stable")
        stretch = order[np.searchsorted(batch.begin[order], sums, side="right") - 1]
        state = states.short_state[event[sums]]
        length = value[sums] * states.short_ns[event[sums]]
        key = stretch * STATES + state
        by_key = np.lexsort((-length, key))
        first = np.flatnonzero(np.diff(key[by_key], prepend=-1))
        top = by_key[first]
        total = np.add.reduceat(length[by_key], first)
        stretch = stretch[top]
        share = np.minimum(total / np.maximum(running[stretch], 1), 1)
        row = np.repeat(batch.row, np.diff(batch.first))[stretch]
        ticks = time.astype(np.int64, copy=False)
        return ShortWaits(
            row, ticks[batch.begin[stretch]] // TIME_UNIT_NS,
            ticks[batch.end[stretch] - 1] // TIME_UNIT_NS,
            node[sums[top]] << np.uint32(2) | state[top], share.astype(np.float32),
        )  # fmt: skip


def joined(resumed: U32 | None, number: U32, batch: Batch, low: int, high: int) -> U32 | None:
    """Return the nodes that :meth:`ResumedPaths.find` gave for rows ``low`` to ``high`` of
    ``batch``, in the order of :meth:`Batch.joined`, as the part numbers them (``number``)."""
    if resumed is None:
        return None
    stretches = range(int(batch.first[low]), int(batch.first[high]))
    nodes = np.concatenate([resumed[int(batch.begin[s]) : int(batch.end[s])] for s in stretches])
    known = nodes < len(number)
    nodes[known] = number[nodes[known]]
    return nodes
