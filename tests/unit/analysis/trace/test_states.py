"""States of threads in pictures: what a thread does at each moment of its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.profile.state_times import RecordStates
from hpcd.analysis.trace.states import nodes_of, states_of
from hpcd.array_types import U32
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.cct import NO_NODE
from hpcd.model.codes import State
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

MS = 10**6
EVENTS = [
    Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000),
    Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True),
    Event(2, "preempted", "s", 1e-6, "runnable_time", interval=True),
    Event(3, "short-blocked", "s", 1e-9, "blocked_time"),
    Event(4, "short-runnable", "s", 1e-9, "runnable_time"),
]
CPU, BLOCKED, PREEMPTED, SHORT, SHORT_READY = range(5)
# Call paths: main > work, main > other, main > nap > k_sleep, main > rest > k_sleep.
PARENTS = [0, 1, 1, 1, 4, 1, 6]
NAMES = ["main", "work", "other", "nap", "k_sleep", "rest", "k_sleep"]
MAIN, WORK, OTHER, NAP, NAPS, REST, RESTS = range(1, 8)

Row = tuple[float, int, int, int]
"""Time in ms, node, event, value."""


def made(folder: Path, *chunks: list[Row], end: float) -> Database:
    """A database of one thread's records, which lives until ``end`` ms."""
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 1), options={})
    for event in EVENTS:
        writer.add_event(event)
    writer.add_process(Process(1, 10, 1, "p", "/p", (), 0, 0))
    writer.add_module(Module(1, ModuleKind.ELF, "/p", "ab"))
    writer.add_module(Module(2, ModuleKind.KERNEL, "[kernel]"))
    writer.add_thread(Thread(0, 1, 10, "p", 0, round(end * MS)))
    frames = [
        module_frame(2 if name.startswith("k_") else 1, 16 * at) for at, name in enumerate(NAMES, 1)
    ]
    writer.add_nodes(np.array(PARENTS, np.uint32), np.array(frames, np.uint64))
    for at in (0, round(end * MS)):
        writer.add_clock_pair(at, at)
    for rows in chunks:
        time, node, event, value = zip(*rows, strict=True)
        writer.add_records(
            np.zeros(len(rows), np.uint32), (np.array(time) * MS).astype(np.uint64),
            np.array(node, np.uint32), np.array(event, np.uint16), np.array(value, np.uint64),
        )  # fmt: skip
        writer.flush()
    writer.close()
    merge([folder / "m"], folder / "db")
    return Database(folder / "db")


def shown(db: Database, end: float, step: float = 1.0) -> tuple[U32, list[State]]:
    """The node, as this test numbers them, and the state at each multiple of ``step`` ms plus a
    half."""
    width = round(end / step)
    pixels = db.sample_grid(None, 0, round(end * MS), 1, width)[0]
    assert (pixels != NO_NODE).all()
    # Nodes are numbered anew; frames are not.
    place = (db.cct.frame & np.uint64(0xFFFF)) >> np.uint64(4)
    return place[nodes_of(pixels)].astype(np.uint32), [State(state) for state in states_of(pixels)]


def test_a_thread_runs_what_a_sample_saw_between_two_waits_like_these(tmp_path: Path) -> None:
    rows: list[Row] = [
        (0, NAPS, BLOCKED, 10_000), (15, WORK, CPU, 1), (20, NAPS, BLOCKED, 10_000),
        # From here on to rest, and from there on to nap, no sample.
        (40, RESTS, BLOCKED, 10_000),
        (60, NAPS, BLOCKED, 10_000), (75, OTHER, CPU, 1), (80, RESTS, BLOCKED, 10_000),
    ]  # fmt: skip
    with made(tmp_path, rows, end=100) as db:
        node, state = shown(db, 100, step=10)
    assert [kind == State.BLOCKED for kind in state] == [True, False] * 5
    # Work is closer than other, but between two naps.
    assert node[1::2].tolist() == [WORK, OTHER, 0, OTHER, 0]


def test_the_closest_of_such_samples_decides(tmp_path: Path) -> None:
    rows: list[Row] = [
        (0, NAPS, BLOCKED, 10_000), (15, WORK, CPU, 1), (20, NAPS, BLOCKED, 60_000),
        (90, NAPS, BLOCKED, 10_000), (105, OTHER, CPU, 1), (110, NAPS, BLOCKED, 10_000),
    ]  # fmt: skip
    with made(tmp_path, rows, end=120) as db:
        node, state = shown(db, 120, step=10)
    # Behind the long nap: other is 25 ms away, work 65 ms.
    assert (state[8], node[8]) == (State.SAMPLED, OTHER)


def test_a_thread_that_lost_its_cpu_goes_on_with_what_it_did(tmp_path: Path) -> None:
    rows: list[Row] = [(0, WORK, PREEMPTED, 10_000), (20, OTHER, PREEMPTED, 10_000)]
    with made(tmp_path, rows, end=40) as db:
        node, state = shown(db, 40, step=10)
    assert state == [State.READY, State.SAMPLED] * 2
    assert node.tolist() == [WORK, WORK, OTHER, OTHER]


def test_chunks_are_looked_at_by_themselves(tmp_path: Path) -> None:
    """So that it does not matter how many are read together."""
    first: list[Row] = [(0, NAPS, BLOCKED, 10_000), (15, WORK, CPU, 1), (20, NAPS, BLOCKED, 10_000)]
    second: list[Row] = [(40, NAPS, BLOCKED, 10_000), (60, NAPS, BLOCKED, 10_000)]
    with made(tmp_path, first, second, end=80) as db:
        node, _ = shown(db, 80, step=10)
    assert node[1::2].tolist() == [WORK, 0, 0, 0]


def test_short_waits_have_their_share_of_pixels(tmp_path: Path) -> None:
    rows: list[Row] = []
    for at in range(0, 1000, 10):
        rows += [(at, RESTS, BLOCKED, 5000), (at + 7, WORK, CPU, 5)]
    # Of 500 ms in which it seems to run it sleeps for 150 and is ready for 50.
    rows += [(999, NAPS, SHORT, 150 * MS), (999, NAPS, SHORT_READY, 50 * MS)]
    with made(tmp_path, rows, end=1000) as db:
        node, state = shown(db, 1000, step=0.1)
        naps = node == NAPS
        assert np.mean(naps) == pytest.approx(0.2, abs=0.01)
        ready = np.array([kind == State.READY for kind in state])
        assert np.mean(ready) == pytest.approx(0.05, abs=0.005)
        assert not (ready & ~naps).any()
        # Exactly, with all of the 999 ms that there are records of.
        seconds = RecordStates(db).occupancy([0], 0, db.duration_ns).sum(axis=1)
        assert seconds == pytest.approx([0.3, 0.65, 0.05], abs=0.003)
        # Pixels shorter than the threshold show recorded waits alone.
        node, _ = shown(db, 10, step=0.01)
        assert not (node == NAPS).any()


def test_the_sum_of_short_waits_does_not_cut_a_longer_wait(tmp_path: Path) -> None:
    """Recorders write sums behind the latest record, which may be a wait that has not ended."""
    rows: list[Row] = [
        (0, WORK, CPU, 1), (10, RESTS, BLOCKED, 80_000), (10, NAPS, SHORT, 1000),
        (20, NAPS, SHORT_READY, 1000), (95, WORK, CPU, 1),
    ]  # fmt: skip
    with made(tmp_path, rows, end=100) as db:
        _, state = shown(db, 100, step=10)
        assert state == [State.SAMPLED] + [State.BLOCKED] * 8 + [State.SAMPLED]
        assert db.metrics.exclusive("blocked_time").sum() == pytest.approx(0.080001)
        assert (np.diff(db.records(0).time) >= 0).all()
