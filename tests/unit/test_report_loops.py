"""What is compiled for the recorder does what numpy does, to the byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.bpf.layouts import SLOT_BITS, Switch
from hpcd.daemon.capture import collector, thread_times
from hpcd.daemon.capture.report_loops import report_loops
from hpcd.daemon.capture.thread_lines import NO_LINE, ThreadLines
from hpcd.daemon.capture.thread_times import BORN, Records, ThreadTimes
from hpcd.measurement.reader import open_measurement
from tests.support import report_streams
from tests.support.report_streams import columns, record, recorded, records_of

FIRST = 3
LINES = 5


def without(call: Any, *arguments: Any) -> Any:
    """What a call returns where the library was not compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collector, "report_loops", lambda: None)
        patch.setattr(thread_times, "report_loops", lambda: None)
        patch.setattr(report_streams, "report_loops", lambda: None)
        return call(*arguments)


def random_reports(random: np.random.Generator, n: int) -> list[Any]:
    line = np.sort(random.integers(0, LINES, n)).astype(np.uint32)
    # Of a line that is reported often, samples and waits begin with one unit of time.
    time = random.integers(0, random.choice([10**4, 10**7]), n) + 10**12
    time = time[np.lexsort((time, line))]
    kind = random.choice([0, 1, 2, *Switch, Switch.IN, Switch.IN, BORN], n)
    value = np.where(random.random(n) < 0.3, 0, time - random.integers(-(10**5), 10**6, n))
    node = random.integers(1, 4, n)
    return [line, time.astype(np.uint64), kind.astype(np.uint16), value.astype(np.uint64),
            node.astype(np.uint32)]  # fmt: skip


def rows(records: Records) -> list[tuple[int, ...]]:
    columns = (records.line, records.time, records.node, records.event, records.value)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@given(seed=st.integers(0, 1 << 30), n=st.integers(1, 80))
@settings(deadline=None, max_examples=60)
def test_times_accounted_for_are_the_same(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    threshold = int(random.choice([0, 200_000]))
    both = [ThreadTimes(FIRST, threshold) for _ in range(2)]
    for line, times in ((line, times) for line in range(LINES) for times in both):
        times.begin(line, 10**12 + 10**6 * line, (Switch.IN, BORN)[line & 1], 9, "ab"[line & 1])
    for _ in range(2):
        reports = random_reports(random, n)
        assert rows(records_of(both[0], *reports)) == rows(without(records_of, both[1], *reports))
    assert rows(both[0].drain_short_waits()) == rows(without(both[1].drain_short_waits))
    assert both[0].totals(2 * 10**12) == both[1].totals(2 * 10**12)
    assert both[0].jobs() == both[1].jobs()


def test_reports_that_cannot_be_change_nothing() -> None:
    times = ThreadTimes(FIRST, 0)
    times.begin(0, 0, Switch.IN, 1)
    for line, kind in ((1, 0), (1 << 31, 0), (0, BORN + 1)):
        with pytest.raises(ValueError):
            records_of(
                times, np.array([line], np.uint32), np.array([1000], np.uint64),
                np.array([kind], np.uint16), np.zeros(1, np.uint64), np.ones(1, np.uint32),
            )  # fmt: skip
    assert times.totals(0).cpu == 0


def test_measurements_are_the_same(tmp_path: Path) -> None:
    stream = recorded("mpi")
    record(stream, 1500, 3, tmp_path / "compiled")
    without(record, stream, 1500, 3, tmp_path / "plain")
    with (
        open_measurement(tmp_path / "compiled") as compiled,
        open_measurement(tmp_path / "plain") as plain,
    ):
        one, other = columns(compiled), columns(plain)
    # Nodes are numbered by a hash that each recording chooses anew.
    nodes = one.pop(2), other.pop(2)
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    both = np.unique(np.stack(nodes), axis=1)
    assert both.shape[1] == len(np.unique(nodes[0])) == len(np.unique(nodes[1]))
    assert len(one[0]) > 3000


def test_reports_of_unknown_caches_and_threads_are_left_out() -> None:
    loops: Any = report_loops()
    stream = recorded("mpi")
    reports = stream.reports[:100].copy()
    reports["cache"], reports["stack"] = 65_535, 0xFFFFFFFF
    reports["thread"][::2] = 0
    threads = ThreadLines()
    threads[int(reports["thread"][1])] = 7
    held = np.zeros((2, 1 << SLOT_BITS, 2), np.uint32)
    _, line, missing, strange = loops.look_up(reports, held, threads.table)
    assert missing.tolist() == np.flatnonzero(reports["event"] != Switch.IN).tolist()
    assert set(line.tolist()) == {7, NO_LINE}
    assert strange == int((line == NO_LINE).sum())


def test_threads_by_number() -> None:
    threads = ThreadLines()
    for number in range(1, 5000):
        threads[number << 10] = number
        if number > 100:
            assert threads.pop(number - 100 << 10) == number - 100
    known = threads.of([5000 - 1 << 10, 4899 << 10, 3])
    assert known.tolist() == [4999, NO_LINE, NO_LINE]
    assert len(threads.numbers) == 1024
    living = threads.numbers[threads.lines != NO_LINE]
    assert sorted(living.tolist()) == [number << 10 for number in range(4900, 5000)]
