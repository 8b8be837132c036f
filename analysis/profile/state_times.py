"""Times of threads by state: how long they ran, waited, and waited for a CPU, in which context."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.trace.records import Records
from hpcd.analysis.trace.states import (
    STATES,
    EventStates,
    borders,
    nodes_of,
    states_of,
)
from hpcd.array_types import F64, I64, U8
from hpcd.model.cct import NO_NODE
from hpcd.model.codes import State

# Records read for one answer: about a second.
_MOST_RECORDS = 8_000_000
# Pixels of a sampled answer: shares are right to 0.1 % (twice the standard error).
_ROWS, _COLUMNS = 1000, 1000


@dataclass(frozen=True)
class StateTimes:
    """``seconds`` ``float64[STATES, nodes]`` that threads were in each state in each node itself,
    and the number of ``pixels`` that was estimated from; 0: they are exact."""

    seconds: F64
    pixels: int


def times_by_state(db: Database, lines: I64, t0: int, t1: int) -> StateTimes:
    """Return the time of ``lines`` in [t0, t1) ns by state, from records where these are few, else
    sampled."""
    if int(db.lines.records[lines].sum()) <= _MOST_RECORDS and len(lines) <= _MOST_RECORDS // 1000:
        return StateTimes(RecordStates(db).occupancy(lines.tolist(), t0, t1), 0)
    pixels = db.sample_grid(lines, t0, t1, _ROWS, _COLUMNS)
    rows = len(pixels)
    pixels = pixels[pixels != NO_NODE]
    seconds = (t1 - t0) * 1e-9 / _COLUMNS * len(lines) / max(rows, 1)
    place = states_of(pixels) * np.int64(len(db.cct)) + nodes_of(pixels)
    count = np.bincount(place, minlength=STATES * len(db.cct)).astype(np.float64)
    return StateTimes((count * seconds).reshape(STATES, -1), len(pixels))


class RecordStates:
    """The states of threads of a database over time, as its records tell."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._events = EventStates.of(
            db.rows("SELECT id, unit, metric, interval, scale FROM event")
        )

    def of_records(self, records: Records) -> U8:
        """Return the state of a thread from each record on, ``uint8[n]`` (:class:`State`)."""
        state = self._events.state[records.event]
        ended = ((state == State.BLOCKED) | (state == State.READY)) & (records.value == 0)
        return np.where(ended, np.uint8(State.RESUMED), state)

    def borders(self, line: int, records: Records) -> I64:
        """Return from when to when, in ns, each of all ``records`` of ``line`` says what its thread
        did, ``int64[n + 1]``. None tells what it did before a wait that is the first."""
        time = records.time.astype(np.int64)
        state = self.of_records(records)
        begins = time[0] if state[0] in (State.BLOCKED, State.READY) else self._db.lines.start[line]
        ends = self._db.lines.end[line]
        return np.concatenate(([begins], borders(time, state), [ends])).astype(np.int64)

    def occupancy(self, lines: Iterable[int], t0: int, t1: int) -> F64:
        """Return how many seconds of [t0, t1) ns ``lines`` were in each state in each node itself,
        ``float64[STATES, nodes]``.

        Waits so short that they have no records of their own count where they were summed up, in
        place of time in which the thread seems to run. O(records of the lines).
        """
        db = self._db
        count = len(db.cct)
        seconds = np.zeros(STATES * count)
        for line in lines:
            if min(t1, int(db.lines.end[line])) <= max(t0, int(db.lines.start[line])):
                continue
            records = db.records(line)
            if not len(records):
                continue
            last = min(int(db.lines.end[line]), db.duration_ns) - 1
            state = self.of_records(records)
            edges = np.clip(self.borders(line, records), t0, t1)
            length = np.diff(edges) * 1e-9
            before = edges[0] - max(t0, int(db.lines.start[line]))
            seconds[0] += max(int(before), 0) * 1e-9
            state[state == State.RESUMED] = State.SAMPLED
            runs = state == State.SAMPLED
            short = self._events.short_ns[records.event] * records.value * 1e-9
            # The last sum may be recorded as the line ends, and counts in its last moment.
            summed_at = np.minimum(records.time.astype(np.int64), last)
            short[(summed_at < t0) | (summed_at >= t1)] = 0
            running, waited = float(length[runs].sum()), float(short.sum())
            if waited > 0 and running > 0:
                part = min(waited, running)
                length[runs] *= 1 - part / running
                summed = np.flatnonzero(short)
                state_of = self._events.short_state[records.event[summed]].astype(np.int64)
                place = state_of * count + records.node[summed]
                seconds += np.bincount(place, short[summed] * (part / waited), len(seconds))
            used = np.flatnonzero(length)
            place = state[used].astype(np.int64) * count + records.node[used]
            seconds += np.bincount(place, length[used], len(seconds))
        return seconds.reshape(STATES, count)
