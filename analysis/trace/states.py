"""States of threads in a trace: whether one runs or waits, from each entry of its line on.

The begin and the end of a wait are known, and between two waits a thread runs, whether or not a
sample saw it there. So a trace line is divided by its entries without a gap: a wait lasts until the
next entry, and the time outside of waits is divided among its samples
(``hpcd/kernels/sources/common.h:twice_border``).

A *pixel* is a node of the database and, in its two highest bits, the state of the thread there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from hpcd.array_types import F64, I64, U8, U32
from hpcd.model.cct import NO_NODE
from hpcd.model.codes import State
from hpcd.model.identity import SECONDS

CPU_TIME, BLOCKED_TIME, RUNNABLE_TIME = "cpu_time", "blocked_time", "runnable_time"
STATE_TIMES = (CPU_TIME, BLOCKED_TIME, RUNNABLE_TIME)
"""Metrics: seconds on a CPU, blocked, and ready without a CPU."""
NOT_SAMPLED = "[running, not sampled]"
"""Name of the call path, the root, of a thread between two waits without a sample."""

STATES = 3
"""States that pixels have."""
STATE_SHIFT = np.uint32(30)
_NODE = np.uint32((1 << 30) - 1)
_EVENTS = 1 << 16


class EventStates(NamedTuple):
    """Tables of thread states by event.

    ``state`` ``uint8[65536]`` is the state from a record of the event on. ``short_ns``
    ``float64[65536]`` is the time of short waits for each unit of the value of an event that is
    their sum, 0 of other events, and ``short_state`` ``uint8[65536]`` the state in these waits.
    """

    state: U8
    short_ns: F64
    short_state: U8

    @staticmethod
    def of(events: Iterable[tuple[int, str, str, bool, float]]) -> EventStates:
        """Return the states of ``events``: id, unit, metric, whether it is an interval, scale.

        A record with the sum of short waits says about its moment only that the thread
        runs: :attr:`State.RESUMED`.
        """
        state, short_state = np.zeros((2, _EVENTS), np.uint8)
        short_ns = np.zeros(_EVENTS)
        waits = {BLOCKED_TIME: State.BLOCKED, RUNNABLE_TIME: State.READY}
        for number, unit, metric, interval, scale in events:
            if metric not in waits or unit not in SECONDS or not 0 <= number < _EVENTS:
                continue
            if interval:
                state[number] = waits[metric]
            else:
                state[number], short_state[number] = State.RESUMED, waits[metric]
                short_ns[number] = scale * SECONDS[unit] * 1e9
        return EventStates(state, short_ns, short_state)


def nodes_of(pixels: U32) -> U32:
    """Return the node of each pixel, or NO_NODE."""
    nodes: U32 = np.where(pixels == NO_NODE, NO_NODE, pixels & _NODE)
    return nodes


def states_of(pixels: U32) -> U8:
    """Return the state of each pixel, ``uint8``; SAMPLED where there is no thread."""
    state = (pixels >> STATE_SHIFT).astype(np.uint8)
    return np.where(pixels == NO_NODE, np.uint8(State.SAMPLED), state)


def borders(time: I64, state: U8) -> I64:
    """Return when each entry of a line ends and the next begins, ``int64[n - 1]``.

    ``time`` ``int64[n]`` ascends; ``state`` ``uint8[n]``. As ``twice_border`` of ``common.h``.
    """
    before, after = state[:-1], state[1:]
    middle = (time[1:] + time[:-1]) // 2
    known = np.where((before == State.RESUMED) & (after == State.SAMPLED), time[:-1], time[1:])
    return np.where((before | after) > 0, known, middle)
