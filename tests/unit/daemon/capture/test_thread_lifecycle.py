"""Threads that come and go: their trace lines, and the events passed on."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpcd.bpf.wire import EventKind, StackEvent, ThreadEvent
from hpcd.daemon.capture.records.thread_lines import NO_LINE
from hpcd.daemon.capture.threads.thread_lifecycle import ThreadLifecycle
from hpcd.model.codes import UnwindStatus
from hpcd.model.identity import Process, Thread
from tests.support.report_streams import lines_of


class RecordedCalls:
    """Stands for the targets and for the writer: process 1 is a target, calls are kept."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.withheld: set[int] = set()
        self.drain_replaced: Callable[[], dict[int, int]] = dict
        self.spaces = SimpleNamespace(free_retired=lambda: None)
        self.process = Process(1, 1, 0, "one", "", (), 0, 0)

    def __contains__(self, pid: int) -> bool:
        return pid == 1

    def target(self, pid: int, name: str = "") -> "RecordedCalls":
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **_: self.calls.append((name, *arguments))


def event(kind: EventKind, pid: int, **fields: Any) -> ThreadEvent:
    return ThreadEvent(**{"kind": kind, "tgid": pid, "tid": pid, **fields})


@pytest.fixture
def calls() -> RecordedCalls:
    return RecordedCalls()


@pytest.fixture
def threads(calls: RecordedCalls) -> ThreadLifecycle:
    stand_in: Any = calls
    return ThreadLifecycle(stand_in, stand_in, stand_in, None)


def test_processes_that_may_be_targets_are_drained_once_in_order(threads: ThreadLifecycle) -> None:
    threads.on_event(event(EventKind.FORK, 7, other=1))
    threads.on_event(event(EventKind.MOVED, 8))
    threads.on_event(event(EventKind.EXEC, 9))
    assert threads.drain_candidates() == [8, 9]
    assert not threads.drain_candidates()


def test_a_target_that_execs_has_its_mappings_read_again(
    threads: ThreadLifecycle, calls: RecordedCalls
) -> None:
    threads.on_event(event(EventKind.EXEC, 1))
    threads.refresh_mappings()
    threads.refresh_mappings()
    assert calls.calls == [("on_exec", 1, 0, "", 0, None), ("refresh", 1)]
    assert not threads.drain_candidates()


def test_an_exit_of_one_thread_is_not_the_process_s(
    threads: ThreadLifecycle, calls: RecordedCalls
) -> None:
    threads.on_event(event(EventKind.EXIT, 1, tid=2))
    assert not calls.calls
    threads.on_event(event(EventKind.EXIT, 1, tid=1, other=1))
    assert calls.calls == [("on_exit", 1, 0)]


def test_the_cpu_time_of_a_thread_is_what_it_used_since_it_was_registered(
    threads: ThreadLifecycle, calls: RecordedCalls
) -> None:
    threads.on_event(event(EventKind.THREAD, 1, tid=1, thread=33, runtime=500))
    threads.on_event(event(EventKind.THREAD, 1, tid=2, thread=34, runtime=0, other=1))
    threads.on_event(event(EventKind.EXIT, 1, tid=1, thread=33, time=90, runtime=600))
    threads.on_event(event(EventKind.EXIT, 1, tid=2, thread=34, time=91, runtime=40))
    threads.on_event(event(EventKind.FREE, 1, tid=1, thread=33, time=95, runtime=2_000_000_500))
    assert threads.cpu.total() == pytest.approx(2.00000004)
    threads.finish()  # of the second, the kernel has not said how much it used in the end
    written = [arguments[0] for name, *arguments in calls.calls if name == "add_thread"]
    assert [(thread.line, thread.end_ns, thread.cpu_ns) for thread in written[2:]] == [
        (0, 95, 2_000_000_000),
        (1, 91, 40),
    ]


def test_a_thread_keeps_its_line_for_a_round_after_its_end(
    threads: ThreadLifecycle, calls: RecordedCalls
) -> None:
    threads.on_event(event(EventKind.THREAD, 1, tid=1, thread=33, start=5, comm=b"name\0\0"))
    assert lines_of(threads.numbered, [33, 34]) == [0, NO_LINE]
    threads.on_event(event(EventKind.EXIT, 1, tid=1, thread=33, time=90))
    assert threads.end_round() == threads.end_round() == {}
    threads.on_event(event(EventKind.FREE, 1, tid=1, thread=33, time=99))
    written = [arguments[0] for name, *arguments in calls.calls if name == "add_thread"]
    assert written == [
        Thread(0, 1, 1, "name", 5, cpu_before_ns=0),
        Thread(0, 1, 1, "name", 5, 99, 0, cpu_before_ns=0),
    ]
    assert threads.end_round() == {}
    assert lines_of(threads.numbered, [33]) == [0]
    assert threads.end_round() == {0: 99}
    assert lines_of(threads.numbered, [33]) == [NO_LINE]
    assert threads.line_count == 1


def test_a_thread_whose_end_is_not_reported_ended_at_its_exit(
    threads: ThreadLifecycle, calls: RecordedCalls
) -> None:
    """Main threads with their process: another thread may take over their tid until then."""
    now = time.monotonic_ns()
    for number in (33, 34, 35):
        threads.on_event(event(EventKind.THREAD, 1, tid=number - 32, thread=number))
    for number, pid, tid, exited, other in (
        (33, 1, 1, 40, 0), (34, 1, 2, 41, 0), (36, 8, 9, 43, 1), (35, 1, 3, now, 0)
    ):  # fmt: skip
        left = event(EventKind.EXIT, pid, tid=tid, thread=number, time=exited, other=other)
        threads.on_event(left)
    assert threads.end_round() == {}
    written = [arguments[0] for name, *arguments in calls.calls if name == "add_thread"]
    assert [(thread.line, thread.end_ns) for thread in written[3:]] == [(1, 41)]
    assert threads.end_round() == {}
    assert threads.end_round() == {1: 41}
    threads.on_event(event(EventKind.FREE, 1, tid=2, thread=34, time=99))
    assert len([name for name, *_ in calls.calls if name == "add_thread"]) == len(written)
    threads.on_event(event(EventKind.EXIT, 1, tid=4, time=50, other=1))
    ends = [threads.end_round() for _ in range(3)]
    assert ends == [{}, {}, {0: 40}]


def test_on_demand_mappings_are_read_when_the_programs_ask(calls: RecordedCalls) -> None:
    stand_in: Any = calls
    stand_in.is_known = stand_in.on_fork = lambda *_, **__: True
    threads = ThreadLifecycle(stand_in, stand_in, stand_in, None, on_demand=True)
    threads.on_event(event(EventKind.FORK, 7, other=1, thread=1))
    threads.on_event(event(EventKind.EXEC, 1))
    threads.refresh_mappings()
    assert [name for name, *_ in calls.calls if name == "refresh"] == []
    threads.on_event(event(EventKind.REFRESH, 1))
    threads.refresh_mappings()
    assert [name for name, *_ in calls.calls if name == "refresh"] == ["refresh"]


@pytest.mark.parametrize("on_demand", [True, False])
def test_paths_through_code_that_was_replaced_are_not_whole(
    calls: RecordedCalls, on_demand: bool
) -> None:
    stand_in: Any = calls
    stand_in.has_space = lambda _pid: True
    stand_in.replaced_at = lambda pid: 50 if pid == 1 else None
    stand_in.drain_replaced = lambda: {} if on_demand else {1: 50}
    threads = ThreadLifecycle(stand_in, stand_in, stand_in, None, on_demand=on_demand)
    threads.request_refresh([1, 2])
    threads.refresh_mappings()
    later = time.monotonic_ns() + 1
    stacks = []
    lost, whole, deep = UnwindStatus.READ_FAULT, UnwindStatus.COMPLETE, UnwindStatus.DEPTH_LIMIT
    for pid, taken, ending in ((1, 49, lost), (1, 50, lost), (1, 51, whole), (1, 51, deep),
                               (2, 50, lost), (1, later, lost)):  # fmt: skip
        head = np.zeros(1, StackEvent.dtype())
        head["time"], head["tgid"], head["end_reason"], head["cache"] = taken, pid, ending, 3
        stacks.append(head.tobytes() + b"12345678")
    marked = threads.mark_replaced(stacks)
    endings = [
        int(np.frombuffer(event, StackEvent.dtype(), 1)["end_reason"][0]) for event in marked
    ]
    unknown = UnwindStatus.NO_MAPPING
    assert endings == [lost, unknown, unknown if on_demand else whole, deep, lost, lost]
    assert [event[30:] for event in marked] == [event[30:] for event in stacks]
    # Once more, before the first is forgotten.
    threads.request_refresh([1])
    threads.refresh_mappings()
    assert threads.mark_replaced(stacks)[-1] != stacks[-1]
    stand_in.drain_replaced = dict
    threads.end_round()
    threads.end_round()
    assert threads.mark_replaced(stacks) == stacks
