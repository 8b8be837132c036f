"""Time accounted for: what becomes of reports of threads leaving CPUs and coming back."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.bpf.wire import SwitchEvent
from hpcd.daemon.capture.records.record_batch import RecordBatch
from hpcd.daemon.capture.threads.thread_times import BORN, ThreadTimes, WaitEvent, wait_events
from hpcd.measurement.summary import JobSeconds
from hpcd.model.codes import Waker
from hpcd.model.waits import AGAIN
from tests.support.report_streams import outcome_of, records_of

PERIOD = 1000
FIRST = 4
OUT = [
    SwitchEvent.OUT_RUNNABLE,
    SwitchEvent.OUT_SLEEPING,
    SwitchEvent.OUT_IO,
    SwitchEvent.OUT_FAULT,
]

# (line, time, kind, value, node)
Report = tuple[int, int, int, int, int]
Row = tuple[int, int, int, int, int]


def rows(records: RecordBatch) -> list[Row]:
    return list(zip(*(column.tolist() for column in records.columns()), strict=True))


def advance(thread_times: ThreadTimes, reports: list[Report]) -> list[Row]:
    """The waits that follow from reports."""
    ordered = sorted(reports, key=lambda report: report[:2])
    line, time, kind, value, node = zip(*ordered, strict=True)
    records = records_of(
        thread_times,
        np.array(line, np.uint32),
        np.array(time, np.uint64),
        np.array(kind, np.uint16),
        np.array(value, np.uint64),
        np.array(node, np.uint32),
    )
    return [row for row in rows(records) if row[3] >= FIRST]


def test_a_sleep_is_blocked_until_woken_and_runnable_from_then_on() -> None:
    thread_times = ThreadTimes(FIRST, 0)
    thread_times.begin(7, 1_000_000, SwitchEvent.SWITCHED_IN, 1)
    waits = advance(
        thread_times,
        [
            (7, 2_000_000, SwitchEvent.OUT_SLEEPING, 0, 5),
            (7, 9_000_000, SwitchEvent.SWITCHED_IN, 8_000_000, 0),
        ],
    )
    assert waits == [
        (7, 2_000_000, 5, FIRST + WaitEvent.BLOCKED, 6000),
        (7, 8_000_000, 5, FIRST + WaitEvent.RUNNABLE, 1000),
    ]
    totals = thread_times.totals(10_000_000)
    assert (totals.cpu, totals.blocked, totals.runnable) == (0.002, 0.006, 0.001)
    assert totals.lifetime == 0.009


def test_a_wait_has_who_ended_it_where_and_what_it_was_for() -> None:
    """A line waits for a futex until another, on call path 8, wakes it; straight after that it
    waits in the same place, until nobody knows who wakes it, and then in another place."""
    thread_times = ThreadTimes(FIRST, 50_000)
    thread_times.begin(0, 0, SwitchEvent.SWITCHED_IN, 1)
    # (time, kind, value, node, stack, cache)
    reports = [
        (1_000_000, SwitchEvent.OUT_SLEEPING, 4097, 5, 0, 0),
        (3_000_000, SwitchEvent.WOKEN, 77, 8, 1, 1),
        (3_100_000, SwitchEvent.SWITCHED_IN, 3_000_100, 0, 77, Waker.THREAD),
        (3_110_000, SwitchEvent.OUT_SLEEPING, 0, 5, 0, 0),
        (4_000_000, SwitchEvent.SWITCHED_IN, 0, 0, 0, 0),
        (4_010_000, SwitchEvent.OUT_SLEEPING, 0, 6, 0, 0),
        (5_000_000, SwitchEvent.SWITCHED_IN, 4_900_000, 0, 0, Waker.TIMER),
    ]
    time, kind, value, node, stack, cache = (
        np.array(column, kind)
        for column, kind in zip(zip(*reports, strict=True), ("u8", "u2", "u8", "u4", "u4", "u2"),
                                strict=True)
    )  # fmt: skip
    for part in (slice(2), slice(2, None)):  # two rounds
        line = np.zeros(len(time[part]), np.uint32)
        outcome = outcome_of(
            thread_times, line, time[part], kind[part], value[part], node[part], 0, stack[part],
            cache[part],
        )  # fmt: skip
    waits = outcome.waits
    assert waits.duration.tolist() == [2_000_100, 890_000, 890_000]
    assert waits.waker.tolist() == [77, 0, 0]
    assert waits.kind.tolist() == [Waker.THREAD, Waker.NOT_SEEN | AGAIN, Waker.TIMER]
    assert waits.path.tolist() == [8, 0, 0]
    assert waits.futex.tolist() == [4097, 0, 0]


def test_reasons_have_events_of_their_own() -> None:
    thread_times = ThreadTimes(FIRST, 0)
    thread_times.begin(0, 0, BORN, 1)
    reports: list[Report] = [(0, 10_000, SwitchEvent.SWITCHED_IN, 0, 0)]
    for i, out in enumerate(OUT):
        reports.append((0, 20_000 + 20_000 * i, out, 0, 2))
        reports.append((0, 30_000 + 20_000 * i, SwitchEvent.SWITCHED_IN, 0, 0))
    waits = advance(thread_times, reports)
    assert Counter(row[3] - FIRST for row in waits) == Counter(
        [WaitEvent.RUNNABLE, WaitEvent.PREEMPTED, WaitEvent.BLOCKED, WaitEvent.IO, WaitEvent.FAULT]
    )
    metrics = {event.id: event.metric for event in wait_events(FIRST)}
    assert Counter(metrics[row[3]] for row in waits) == {"runnable_time": 2, "blocked_time": 3}


def test_short_waits_are_summed_by_call_path() -> None:
    thread_times = ThreadTimes(FIRST, 50_000)
    thread_times.begin(0, 0, SwitchEvent.SWITCHED_IN, 1)
    reports: list[Report] = []
    for i in range(10):
        reports.append((0, 100_000 * i + 1000, SwitchEvent.OUT_SLEEPING, 0, 3 + i % 2))
        reports.append((0, 100_000 * i + 11_000, SwitchEvent.SWITCHED_IN, 100_000 * i + 9000, 0))
    waits = advance(thread_times, reports)
    assert waits == []
    short = rows(thread_times.drain_short_waits())
    assert [(node, event - FIRST, value) for _, _, node, event, value in short] == [
        (3, WaitEvent.SHORT_BLOCKED, 5 * 8000),
        (3, WaitEvent.SHORT_RUNNABLE, 5 * 2000),
        (4, WaitEvent.SHORT_BLOCKED, 5 * 8000),
        (4, WaitEvent.SHORT_RUNNABLE, 5 * 2000),
    ]
    assert rows(thread_times.drain_short_waits()) == []


def test_an_open_wait_is_written_in_pieces_that_abut() -> None:
    thread_times = ThreadTimes(FIRST, 0)
    thread_times.begin(0, 0, SwitchEvent.OUT_SLEEPING, 9)
    pieces = [row for cut in (2, 3, 5) for row in rows(thread_times.split_open_waits(cut * 10**9))]
    waits = advance(thread_times, [(0, 5_500_000_000, SwitchEvent.SWITCHED_IN, 5_250_000_000, 0)])
    spans = [(time, time + 1000 * value) for _, time, _, _, value in pieces + waits]
    assert spans[0][0] == 0 and spans[-1][1] == 5_500_000_000
    assert all(one[1] == two[0] for one, two in itertools.pairwise(spans))
    assert waits[-1][3] == FIRST + WaitEvent.RUNNABLE


def test_a_lost_report_of_leaving_does_not_make_cpu_time() -> None:
    thread_times = ThreadTimes(FIRST, 0)
    thread_times.begin(0, 0, SwitchEvent.SWITCHED_IN, 1)
    advance(thread_times, [(0, 8_000_000, SwitchEvent.SWITCHED_IN, 7_000_000, 0)])
    totals = thread_times.totals(8_000_000)
    assert (totals.cpu, totals.blocked, totals.runnable) == (0, 0.007, 0.001)


@st.composite
def histories(draw: st.DrawFn) -> list[Report]:
    """Draw the reports of one to three threads in turn."""
    reports: list[Report] = []
    for line in range(draw(st.integers(1, 3))):
        time, running = 0, True
        for step in draw(st.lists(st.integers(1, 300_000), max_size=30)):
            time += step
            if not running:
                woken = draw(st.integers(0, step)) + time - step
                reports.append((line, time, SwitchEvent.SWITCHED_IN, woken, 0))
                running = True
            elif draw(st.booleans()):
                reports.append((line, time, draw(st.sampled_from(OUT)), 0, 2 + line))
                running = False
            else:
                reports.append((line, time, 0, PERIOD, 10 + line))
    return reports


@given(histories(), st.lists(st.integers(0, 6_000_000), max_size=3), st.sampled_from([0, 50_000]))
def test_whatever_the_batches_time_adds_up(
    reports: list[Report], cuts: list[int], threshold: int
) -> None:
    """CPU, blocked and runnable time are the lifetime; batches change nothing of the records."""
    end = max((time for _, time, *_ in reports), default=0) + 7000
    edges = [0, *sorted(cuts), end]
    outcomes = []
    for batches in ([0, end], edges):
        thread_times = ThreadTimes(FIRST, threshold)
        for line in range(3):
            thread_times.begin(line, 0, SwitchEvent.SWITCHED_IN, 1)
        written: list[Row] = []
        for begin, stop in itertools.pairwise(batches):
            part = [report for report in reports if begin < report[1] <= stop]
            if part:
                written += advance(thread_times, part)
        written += rows(thread_times.end(dict.fromkeys(range(3), end)))
        totals = thread_times.totals(end)
        parts = totals.cpu + totals.blocked + totals.runnable
        assert np.isclose(parts, totals.lifetime, atol=1e-12)
        assert np.isclose(totals.lifetime, 3 * end / 1e9, atol=1e-12)
        # No record of a line lies inside an interval of it.
        for line in range(3):
            mine = sorted(row[1:] for row in written if row[0] == line and row[3] > 0)
            for one, two in itertools.pairwise(mine):
                assert one[0] + 1000 * one[3] <= two[0]
        outcomes.append((sorted(written), rows(thread_times.drain_short_waits()), totals))
    assert outcomes[0] == outcomes[1]


def test_bogus_jobs_leave_others_their_places() -> None:
    """More jobs of one user's than there are places, which wait for longer than others compute, and
    two that compute."""
    thread_times = ThreadTimes(FIRST, 0)
    alice, mallory, count = 48_001, 48_002, 1_050
    for line in range(count):
        thread_times.begin(line, 0, SwitchEvent.OUT_SLEEPING, 1, f"bogus{line}", mallory)
    for line, (job, uid) in enumerate([("his", mallory), ("hers", alice)], start=count):
        thread_times.begin(line, 0, SwitchEvent.SWITCHED_IN, 1, job, uid)
    thread_times.begin(count + 2, 0, SwitchEvent.OUT_SLEEPING, 1, "hers too", alice)
    thread_times.end(dict.fromkeys(range(count + 3), 9_000_000))
    jobs = thread_times.jobs()
    assert list(jobs)[:1] == ["hers"] and list(jobs).index("hers too") < 4
    assert jobs["hers"].cpu == 0.009
    # His last ones have no places of their own; their time is that of threads without a job.
    assert len(jobs) == 1_000 + 2 and "his" not in jobs
    assert thread_times.totals(9_000_000).cpu == pytest.approx(0.018)


def test_time_is_summed_by_job() -> None:
    thread_times = ThreadTimes(FIRST, 0)
    for line, job in enumerate(["a", "b", "a", ""]):
        thread_times.begin(line, 0, SwitchEvent.SWITCHED_IN, 1, job)
    advance(thread_times, [(line, 1_000_000, SwitchEvent.OUT_SLEEPING, 0, 5) for line in range(4)])
    thread_times.end(dict.fromkeys(range(4), 4_000_000))
    assert thread_times.jobs() == {
        "a": JobSeconds(cpu=0.002, blocked=0.006, runnable=0.0),
        "b": JobSeconds(cpu=0.001, blocked=0.003, runnable=0.0),
    }
