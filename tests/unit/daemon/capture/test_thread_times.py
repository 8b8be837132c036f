"""Reports of threads become the records, sums and totals that a plain reading makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.bpf.wire import SLOT_BITS, ReportFlag, SwitchEvent
from hpcd.daemon.capture.records.record_batch import RecordBatch
from hpcd.daemon.capture.records.recorder_kernels import look_up
from hpcd.daemon.capture.records.thread_lines import NO_LINE, ThreadLines
from hpcd.daemon.capture.threads.thread_times import BORN, ThreadTimes, WaitEvent
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.reader import open_measurement
from tests.support.report_streams import (
    PERIOD,
    columns,
    lines_of,
    outcome_of,
    record,
    recorded,
    records_of,
)

FIRST = 3
LINES = 5
WAITS = {
    SwitchEvent.OUT_SLEEPING: WaitEvent.BLOCKED,
    SwitchEvent.OUT_IO: WaitEvent.IO,
    SwitchEvent.OUT_UNINTERRUPTIBLE: WaitEvent.UNINTERRUPTIBLE,
    SwitchEvent.OUT_FAULT: WaitEvent.FAULT,
    SwitchEvent.OUT_STOPPED: WaitEvent.STOPPED,
}

LOST_NODE = 7

# (line, time, node, event, value)
Row = tuple[int, int, int, int, int]


class PlainTimes:
    """One report at a time: the records of its line, sums of short waits, and times by job."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self.lines: dict[int, Any] = {}
        self.short: Counter[tuple[int, int, int]] = Counter()
        self.spent: Counter[tuple[str, str]] = Counter()

    def begin(self, line: int, time: int, kind: int, node: int, job: str) -> None:
        self.lines[line] = [time, kind, node, job]

    def report(self, row: Row, *, lost: bool = False) -> Iterator[Row]:
        """Records that follow from a report of (line, time, node, kind, value); with ``lost``,
        switches since the one before are not known."""
        line, time, node, kind, value = row
        before, did, path, _ = self.lines[line]
        # Where another was, or who ran: nothing of this line's time.
        if kind in (SwitchEvent.WOKEN, SwitchEvent.RAN_INSTEAD):
            return
        if kind < FIRST:
            yield row
        time = max(time, before)
        arrives = kind == SwitchEvent.SWITCHED_IN
        if lost:
            self.spend(line, "lost", time - before)
            start, stop = before // TIME_UNIT_NS, time // TIME_UNIT_NS
            if stop > start:
                yield line, start * TIME_UNIT_NS, LOST_NODE, FIRST + WaitEvent.LOST, stop - start
        elif (
            did > SwitchEvent.SWITCHED_IN or arrives
        ):  # else it ran; what arrives without having left slept
            did = did if did > SwitchEvent.SWITCHED_IN else SwitchEvent.OUT_SLEEPING
            yield from self.wait(line, before, time, value if arrives else 0, did, path)
        else:
            self.spend(line, "cpu", time - before)
        self.lines[line][:3] = time, kind, path if arrives else node

    def wait(self, line: int, begin: int, end: int, woken: int, did: int, node: int) -> Any:
        turn = min(max(woken, begin), end) if woken > 0 else end
        if did in (SwitchEvent.OUT_RUNNABLE, BORN):
            turn = begin
        self.spend(line, "blocked", turn - begin)
        self.spend(line, "runnable", end - turn)
        after = WaitEvent.PREEMPTED if did == SwitchEvent.OUT_RUNNABLE else WaitEvent.RUNNABLE
        for start, stop, event, sums in (
            (
                begin,
                turn,
                WAITS.get(SwitchEvent(did) if did != BORN else did),
                WaitEvent.SHORT_BLOCKED,
            ),
            (turn, end, after, WaitEvent.SHORT_RUNNABLE),
        ):
            start_unit, stop_unit = start // TIME_UNIT_NS, stop // TIME_UNIT_NS
            if end - begin < self.threshold:
                self.short[line, node, FIRST + sums] += stop - start
            elif stop_unit > start_unit:
                yield line, start_unit * TIME_UNIT_NS, node, FIRST + event, stop_unit - start_unit

    def spend(self, line: int, what: str, time: int) -> None:
        self.spent[self.lines[line][3], what] += time


def in_order(rows: list[Row]) -> list[Row]:
    """By line and time; of one time waits until a thread could run first, samples last."""

    def rank(event: int) -> int:
        return 2 if event < FIRST else event >= FIRST + WaitEvent.RUNNABLE

    return sorted(rows, key=lambda row: (row[0], row[1], rank(row[3])))


def random_reports(random: np.random.Generator, n: int) -> list[Any]:
    line = np.sort(random.integers(0, LINES, n)).astype(np.uint32)
    # Of a line that is reported often, samples and waits begin with one unit of time.
    time = random.integers(0, random.choice([10**4, 10**7]), n) + 10**12
    time = time[np.lexsort((time, line))]
    kind = random.choice(
        [0, 1, 2, *SwitchEvent, SwitchEvent.SWITCHED_IN, SwitchEvent.SWITCHED_IN, BORN], n
    )
    value = np.where(random.random(n) < 0.3, 0, time - random.integers(-(10**5), 10**6, n))
    node = random.integers(1, 4, n)
    flags = np.where(random.random(n) < 0.1, ReportFlag.LOST, 0)
    return [line, time.astype(np.uint64), kind.astype(np.uint16), value.astype(np.uint64),
            node.astype(np.uint32), flags.astype(np.uint32)]  # fmt: skip


def rows(records: RecordBatch) -> list[Row]:
    return list(zip(*(column.tolist() for column in records.columns()), strict=True))


@given(seed=st.integers(0, 1 << 30), n=st.integers(1, 80))
@settings(max_examples=60)
def test_times_are_accounted_for(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    threshold = int(random.choice([0, 200_000]))
    times, plain = ThreadTimes(FIRST, threshold, LOST_NODE), PlainTimes(threshold)
    for line in range(LINES):
        state = 10**12 + 10**6 * line, (SwitchEvent.SWITCHED_IN, BORN)[line & 1], 9, "ab"[line & 1]
        times.begin(line, *state)
        plain.begin(line, *state)
    for _ in range(2):
        line, time, kind, value, node, flags = reports = random_reports(random, n)
        whole = list(zip(*(c.tolist() for c in (line, time, node, kind, value)), strict=True))
        expected = [
            row
            for report, flag in zip(whole, flags.tolist(), strict=True)
            for row in plain.report(report, lost=bool(flag))
        ]
        assert rows(records_of(times, *reports)) == in_order(expected)
    ends = {line: 10**12 + 10**7 * line for line in range(1, LINES)}
    expected = []
    for line, end in ends.items():
        before, did, node, _ = plain.lines[line]
        if did > SwitchEvent.SWITCHED_IN:
            expected += plain.wait(line, before, max(end, before), 0, did, node)
        else:
            plain.spend(line, "cpu", max(end - before, 0))
    assert rows(times.end(ends)) == in_order(expected)
    sums = {(line, node, event): value for line, _, node, event, value in
            rows(times.drain_short_waits())}  # fmt: skip
    assert sums == {key: value for key, value in plain.short.items() if value}
    for job, spent in times.jobs().items():
        assert spent._asdict() == {what: plain.spent[job, what] / 1e9 for what in spent._fields}


@given(seed=st.integers(0, 1 << 30), n=st.integers(1, 80))
@settings(max_examples=60)
def test_others_ran_no_longer_than_lines_could_run(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    times = ThreadTimes(FIRST, 0, LOST_NODE)
    for line in range(LINES):
        times.begin(line, 10**12, (SwitchEvent.SWITCHED_IN, BORN)[line & 1], 9)
    ran = 0
    for _ in range(2):
        line, time, kind, value, node, flags = random_reports(random, n)
        kind[random.random(n) < 0.4] = SwitchEvent.RAN_INSTEAD
        value[kind == SwitchEvent.RAN_INSTEAD] >>= np.uint64(random.integers(10, 40))
        ran += int(
            outcome_of(times, line, time, kind, value, node, flags).interferers.duration.sum()
        )
    assert ran / 1e9 <= times.totals(0).runnable


def test_who_ran_instead_has_the_time_that_a_line_could_run() -> None:
    times = ThreadTimes(FIRST, 0)
    times.begin(0, 0, SwitchEvent.SWITCHED_IN, 1)
    parts = []
    came, instead = SwitchEvent.SWITCHED_IN, SwitchEvent.RAN_INSTEAD
    for reports in (
        # Preempted for 500 ns: one ran for 300, another for 200 and more than that.
        [(1000, SwitchEvent.OUT_RUNNABLE, 0, 0), (1500, came, 0, 0), (1500, instead, 300, 0)],
        # The reports of one wait may be in two rounds.
        [(1500, instead, 900, 0)],
        # Asleep for 100 ns, runnable for 400.
        [(2000, SwitchEvent.OUT_SLEEPING, 0, 0), (2500, came, 2100, 0), (2500, instead, 400, 0)],
        # Who woke it was not seen, or what it did before was lost: nothing is known to have been
        # time for which it could run.
        [(3000, SwitchEvent.OUT_SLEEPING, 0, 0), (3500, came, 0, 0), (3500, instead, 400, 0)],
        [(4500, came, 4100, ReportFlag.LOST), (4500, instead, 400, 0)],
    ):
        time, kind, value, flags = (
            np.array(column, np.uint64) for column in zip(*reports, strict=True)
        )
        outcome = outcome_of(
            times, np.zeros(len(time), np.uint32), time, kind.astype(np.uint16), value,
            np.full(len(time), 5, np.uint32), flags.astype(np.uint32), stack=7, cache=2,
        )  # fmt: skip
        who = outcome.interferers
        assert outcome.beside == np.count_nonzero(kind == instead)
        assert (who.waker == 7).all() and (who.kind == 2).all() and (who.node == 5).all()
        parts += list(zip(who.time.tolist(), who.duration.tolist(), strict=True))
    assert parts == [(1000, 300), (1300, 200), (2100, 400)]


def test_reports_that_cannot_be_change_nothing() -> None:
    times = ThreadTimes(FIRST, 0)
    times.begin(0, 0, SwitchEvent.SWITCHED_IN, 1)
    for line, kind in ((1, 0), (1 << 31, 0), (0, BORN + 1)):
        with pytest.raises(ValueError):
            records_of(
                times, np.array([line], np.uint32), np.array([1000], np.uint64),
                np.array([kind], np.uint16), np.zeros(1, np.uint64), np.ones(1, np.uint32),
            )  # fmt: skip
    assert times.totals(0).cpu == 0


def test_a_recording_has_the_records_its_reports_say(tmp_path: Path) -> None:
    stream, size = recorded("mpi"), 1500
    record(stream, size, 3, tmp_path / "m")
    with open_measurement(tmp_path / "m") as measurement:
        line, _, node, event, value = columns(measurement)
    taken = np.concatenate([stream.reports] * 9)[: 3 * size]
    sampled = taken["event"] == 0
    assert np.count_nonzero(event == 0) == np.count_nonzero(sampled)
    assert (value[event == 0] == 1).all() and (taken["value"][sampled] == PERIOD).all()
    by_thread = Counter((taken["thread"][sampled] >> 10).tolist())
    assert sorted(Counter(line[event == 0].tolist()).values()) == sorted(by_thread.values())
    by_stack = Counter(taken["stack"][sampled].tolist())
    assert sum(Counter(node[event == 0].tolist()).values()) == sum(by_stack.values())
    assert len(line) > 3000


def test_reports_of_unknown_caches_and_threads_are_left_out() -> None:
    stream = recorded("mpi")
    reports = stream.reports[:100].copy()
    reports["cache"], reports["stack"] = 65_535, 0xFFFFFFFF
    reports["thread"][::2] = 0
    threads = ThreadLines()
    threads[int(reports["thread"][1])] = 7
    held = np.zeros((2, 1 << SLOT_BITS, 2), np.uint32)
    _, line, missing, strange = look_up(reports, held, threads.table)
    assert missing.tolist() == np.flatnonzero(reports["event"] != SwitchEvent.SWITCHED_IN).tolist()
    assert set(line.tolist()) == {7, NO_LINE}
    assert strange == int((line == NO_LINE).sum())


def test_threads_by_number() -> None:
    threads = ThreadLines()
    for number in range(1, 5000):
        threads[number << 10] = number
        if number > 100:
            assert threads.pop(number - 100 << 10) == number - 100
    assert lines_of(threads, [5000 - 1 << 10, 4899 << 10, 3]) == [4999, NO_LINE, NO_LINE]
    assert len(threads.numbers) == 1024
    living = threads.numbers[threads.lines != NO_LINE]
    assert sorted(living.tolist()) == [number << 10 for number in range(4900, 5000)]
