"""Tests gains of threads whose runs are shorter than the time between samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.database import open as open_database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.waits.gains import what_if
from hpcd.array_types import I64
from hpcd.errors import UsageError
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES
from hpcd.model.codes import Waker
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from hpcd.model.waits import WAIT

START, MS = 10**9, 10**6
ROUNDS = 400
# The procedures of the two threads, and where they wait.
MAIN, BEFORE, AFTER, ANSWERS, WAITS = range(1, 6)
_NAMES = ("main", "before", "after", "answers", "waits")


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two threads that take turns of 4 ms: the main thread is 1 ms in before(), wakes the other,
    is 1 ms in after() and waits; the other is 3 ms in answers(), wakes it and waits. A sample is
    taken every 2.7 ms. A third thread waits all the time."""
    folder = tmp_path_factory.mktemp("turns")
    writer = MeasurementWriter(folder / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_event(Event(1, "blocked", "s", 1e-6, "blocked_time", interval=True))
    writer.add_module(Module(1, ModuleKind.NAMED, "app"))
    writer.add_symbols(1, [(16 * (at + 1), 16, name) for at, name in enumerate(_NAMES)])
    writer.add_clock_pair(START, 10**18)
    parents = [0] + [MAIN] * (len(_NAMES) - 1)
    frames = [module_frame(1, 16 * (at + 1) + 4) for at in range(len(_NAMES))]
    writer.add_nodes(np.array(parents, np.uint32), np.array(frames, np.uint64))
    writer.add_function(WAIT)
    writer.add_process(Process(0, 100, 1, "app", "/bin/app", ("app",), 0, START))
    end = START + 4 * ROUNDS * MS
    for line in range(3):
        writer.add_thread(Thread(line, 0, 100 + line, "app", START, end))
    begins = START + 4 * MS * np.arange(ROUNDS)
    _add_line(writer, 0, begins + 2 * MS, begins + 4 * MS, [(BEFORE, 1), (AFTER, 1)])
    _add_line(writer, 1, begins, begins + MS, [(WAITS, 1), (ANSWERS, 3)])
    _add_line(writer, 2, begins[:1], begins[:1] + 4 * ROUNDS * MS, [(WAITS, 4)])
    times = np.concatenate([begins + 2 * MS, begins]).astype(np.uint64)
    lasts = np.repeat([2 * MS, MS], ROUNDS).astype(np.uint64)
    line = np.repeat([0, 1], ROUNDS).astype(np.uint32)
    value = np.zeros((2 * ROUNDS, MAX_VALUES), np.uint64)
    value[:, 0] = 2 - line
    value[:, 1] = Waker.THREAD
    order = np.argsort(times, kind="stable")
    columns = line[order], times[order], lasts[order]
    writer.add_calls(
        Calls(
            *columns, np.full(2 * ROUNDS, WAITS, np.uint32),
            np.full(2 * ROUNDS, WAIT.id, np.uint16), np.ones(2 * ROUNDS, np.uint32), value[order],
        )
    )  # fmt: skip
    writer.close()
    merge([folder / "m"], folder / "db", workers=1)
    return folder / "db"


def _add_line(
    writer: MeasurementWriter, line: int, begins: I64, ends: I64,
    turn: list[tuple[int, int]],
) -> None:  # fmt: skip
    """A line that waits from ``begins`` to ``ends``, and in a turn is so many ms in contexts."""
    contexts = np.repeat([node for node, _ in turn], [ms for _, ms in turn])
    moments = START + np.arange(550_000, 4 * ROUNDS * MS, 2_700_000)
    at = (moments - START) // MS % 4
    context = np.append(contexts, [WAITS, WAITS])[at]
    ran = context != WAITS
    seen = zip(moments[ran].tolist(), context[ran].tolist(), strict=True)
    samples = [(time, node, 0, 0) for time, node in seen]
    waits = [
        (begin, WAITS, 1, (end - begin) // 1000)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
    for time, node, event, duration in sorted(samples + waits):
        writer.add_records(
            np.full(1, line, np.uint32), np.array([time], np.uint64), np.full(1, node, np.uint32),
            event, *([np.array([duration], np.uint64)] if event else []),
        )  # fmt: skip


def test_work_behind_a_wake_up_is_not_on_the_path(turns: Path) -> None:
    """A turn is before() and answers(); after() is done meanwhile. Most turns have no sample."""
    with open_database(turns) as db:
        report = what_if(db, [("before", 0.5), ("answers", 0.5), ("after", 0.5)])
        assert report.replayed == pytest.approx(4e-3 * ROUNDS, rel=0.01)
        gains = {gain.procedures: gain for gain in report.gains}
        best = what_if(db, limit=2)
    assert gains["before",].seconds == pytest.approx(0.5e-3 * ROUNDS, rel=0.01)
    assert gains["answers",].seconds == pytest.approx(1.5e-3 * ROUNDS, rel=0.01)
    assert gains["after",].seconds == pytest.approx(0, abs=2e-3)
    # All three take half of what they did: before() and answers() are still longer than after().
    together = gains["before", "answers", "after"]
    assert together.seconds == pytest.approx(2e-3 * ROUNDS, rel=0.01)
    assert [gain.procedures for gain in best.gains] == [("answers",), ("before",)]


def test_a_gain_ends_where_another_path_is_as_long(turns: Path) -> None:
    """The main thread is never ready for its turn before after() is done."""
    with open_database(turns) as db:
        gain = what_if(db, [("answers", 1.0)]).gains[0]
    assert gain.seconds == pytest.approx(2e-3 * ROUNDS, rel=0.01)


def test_a_thread_that_was_never_on_a_cpu_has_no_gains(turns: Path) -> None:
    with open_database(turns) as db, pytest.raises(UsageError, match="never on a CPU"):
        what_if(db, last=2)
