"""The streams that BPF programs would have sent, made from recordings, and a recorder for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U16, U32, U64
from hpcd.bpf.table_memory import UnwindTables
from hpcd.bpf.wire import (
    MAX_EVENTS,
    SLOT_BITS,
    Counters,
    EventKind,
    Sample,
    StackEvent,
    SwitchEvent,
    ThreadEvent,
)
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.capture.calls.wait_recorder import WaitRecorder
from hpcd.daemon.capture.loop.collector import Collector
from hpcd.daemon.capture.paths.cct_builder import CCTBuilder
from hpcd.daemon.capture.paths.deferred_paths import DeferredPaths
from hpcd.daemon.capture.paths.stack_caches import StackCaches
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.capture.records.record_batch import RecordBatch
from hpcd.daemon.capture.records.recorder_kernels import BatchOutcome
from hpcd.daemon.capture.records.thread_lines import ThreadLines
from hpcd.daemon.capture.threads.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.capture.threads.thread_times import ThreadTimes, wait_events
from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.other_wakers import OtherWakers
from hpcd.daemon.targets.shared_spaces import SharedSpaces
from hpcd.kernels.library import structure
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Process
from tests.support.array_memory import ArrayMemory
from tests.support.paths import ROOT

RECORDINGS = ROOT / "tests/data/recordings"
PERIOD = 1_003_009
_RUNNABLE = ("runnable", "preempted")
_BEGIN = 10**15  # later than the clock of this machine: waits that go on are not cut at it


def columns(measurement: Measurement) -> list[npt.NDArray[np.unsignedinteger]]:
    """Line, time, node, event and value of all records, sorted by line and time."""
    parts = list(measurement.record_chunks())
    line = np.concatenate([np.repeat(part.line, np.diff(part.start)) for part in parts])
    columns = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("time_ns", "node", "event", "value")
    ]
    order = np.lexsort((columns[0], line))
    return [line[order], *(column[order] for column in columns)]


@dataclass(frozen=True, slots=True)
class Stream:
    """Reports in order of time (:class:`Sample`), how long they go on (ns), and the depth of each
    stack; threads are numbered from 1 on, stacks from 0 on."""

    reports: npt.NDArray[np.void]
    length: int
    depth: npt.NDArray[np.int64]
    threads: int


def recorded(name: str) -> Stream:
    """Return the stream that the BPF programs of a recording would have sent."""
    with open_measurement(RECORDINGS / name) as measurement:
        line, time_ns, node, event, value = columns(measurement)
        lasting = [e.id for e in measurement.events.values() if e.interval]
        names = {e.id: e.name for e in measurement.events.values()}
        whole = measurement.cct.depth()[np.unique(node)].astype(np.int64)
    sampled = event == 0
    waited = np.isin(event, lasting)
    _, thread = np.unique(line, return_inverse=True)
    _, stack = np.unique(node, return_inverse=True)
    begin = time_ns.astype(np.int64)
    end = begin + value.astype(np.int64) * TIME_UNIT_NS
    # Blocked, and from the wake-up on runnable, in two records: the thread left its CPU once.
    woken = np.append(waited[:-1] & waited[1:] & (end[:-1] == begin[1:]), False)
    woken[:-1] &= line[1:] == line[:-1]
    left = np.flatnonzero(waited & ~np.append(False, woken[:-1]))
    back = left + woken[left]
    runnable = np.isin(event[left], [e for e, name in names.items() if name in _RUNNABLE])
    wake = np.where(woken[left], end[left], np.where(runnable, 0, end[left]))
    parts = []
    for which, kind, when, carried in (
        (np.flatnonzero(sampled), 0, begin[sampled], PERIOD),
        (
            left,
            np.where(runnable, SwitchEvent.OUT_RUNNABLE, SwitchEvent.OUT_SLEEPING),
            begin[left],
            0,
        ),
        (left, SwitchEvent.SWITCHED_IN, end[back], wake),
    ):
        part = np.zeros(len(which), Sample.dtype())
        part["thread"] = (thread[which] + 1) << 10
        part["stack"] = 1 << SLOT_BITS | stack[which]
        part["time"], part["value"] = when, carried
        part["event"] = kind
        parts.append(part)
    reports = np.concatenate(parts)
    reports = reports[np.argsort(reports["time"], kind="stable")]
    start = int(reports["time"][0])
    reports["value"][(reports["event"] == SwitchEvent.SWITCHED_IN) & (reports["value"] > 0)] -= (
        start
    )
    reports["time"] -= start
    return Stream(reports, int(reports["time"][-1]) + PERIOD, whole, int(thread.max()) + 1)


def records_of(
    times: ThreadTimes,
    line: U32,
    time: U64,
    kind: U16,
    value: U64,
    node: U32,
    flags: U32 | int = 0,
) -> RecordBatch:
    """Samples, each of what it counts, and waits that follow from reports, by line and time."""
    return outcome_of(times, line, time, kind, value, node, flags).records


def outcome_of(
    times: ThreadTimes,
    line: U32,
    time: U64,
    kind: U16,
    value: U64,
    node: U32,
    flags: U32 | int = 0,
    stack: U32 | int = 0,
    cache: U16 | int = 0,
) -> BatchOutcome:
    """All that follows from reports."""
    reports = np.zeros(len(line), Sample.dtype())
    reports["time"], reports["event"], reports["value"] = time, kind, value
    reports["flags"], reports["stack"], reports["cache"] = flags, stack, cache
    cct, periods = CCTBuilder(), np.ones(MAX_EVENTS, np.uint64)
    return times.account(
        reports, node, line, cct.struct, structure("periods", count=periods, events=MAX_EVENTS)
    )


def lines_of(threads: ThreadLines, numbers: list[int]) -> list[int]:
    """The trace lines of threads."""
    reports = np.zeros(len(numbers), Sample.dtype())
    reports["thread"], reports["event"] = numbers, SwitchEvent.SWITCHED_IN
    return StackCaches(1).look_up(reports, threads).line.tolist()


class Flood:
    """Stands for the sampler: a stream in rounds of ``size`` reports, over and over."""

    def __init__(self, stream: Stream, size: int) -> None:
        self._stream, self._size, self._at = stream, size, 0
        self.ready = np.zeros(0, Sample.dtype())
        self._events = list(self._announcements(np.random.default_rng(0)))

    def _announcements(self, rng: np.random.Generator) -> Iterator[bytes]:
        for number in range(1, self._stream.threads + 1):
            yield ThreadEvent(kind=EventKind.THREAD, tgid=1, tid=number, thread=number << 10).pack()
        for slot, depth in enumerate(self._stream.depth.tolist()):
            event = np.zeros(1, StackEvent.dtype())
            event["kind"], event["stack"] = EventKind.STACK, 1 << SLOT_BITS | slot
            event["user_frames"] = depth
            offsets = rng.integers(0, 50, depth)
            frames = np.array([module_frame(1, int(offset)) for offset in offsets], np.uint64)
            yield event.tobytes() + frames.tobytes()

    def take_samples(self) -> npt.NDArray[np.void]:
        """The round that was made last."""
        return self.ready

    def make_round(self) -> None:
        """Make the next round."""
        reports, length = self._stream.reports, self._stream.length
        place = np.arange(self._at, self._at + self._size)
        again, index = np.divmod(place, len(reports))
        taken = reports[index]
        shift = (_BEGIN + again * length).astype(np.uint64)
        taken["time"] += shift
        woken = (taken["event"] == SwitchEvent.SWITCHED_IN) & (taken["value"] > 0)
        taken["value"][woken] += shift[woken]
        self._at += self._size
        self.ready = taken

    def take_copies(self) -> list[bytes]:
        """No stack is copied."""
        return []

    def counters(self) -> npt.NDArray[np.void]:
        """No report is lost."""
        return np.zeros(1, Counters.dtype())

    def take_events(self) -> list[bytes]:
        """Everything is announced in the first round."""
        events, self._events = self._events, []
        return events


class OneProcess:
    """Stands for the targets."""

    process = Process(1, 1, 0, "flood", "", (), 0, 0)
    withheld: frozenset[int] = frozenset()
    spaces = SharedSpaces(UnwindTables(ArrayMemory()), UserAccounts())

    def __contains__(self, _: int) -> bool:
        return True

    def target(self, _: int, name: str = "") -> OneProcess:
        """The one there is."""
        return self

    def refresh_postponed(self) -> None:
        """Nothing had to wait."""

    def drain_replaced(self) -> dict[int, int]:
        """Nothing was replaced."""
        return {}


class NoKernel:
    """Stands for the kernel's symbols."""

    def range_of(self, _: str) -> tuple[np.uint64, np.uint64]:
        """Nowhere."""
        return np.uint64(0), np.uint64(0)

    def entry_text(self) -> tuple[np.uint64, np.uint64]:
        """Nowhere."""
        return np.uint64(0), np.uint64(0)

    def signal_ranges(self) -> list[tuple[np.uint64, np.uint64]]:
        """None."""
        return []


def record(stream: Stream, size: int, rounds: int, path: Path) -> tuple[float, int, int]:
    """Record so many rounds into ``path``: CPU seconds, records and their bytes."""
    flood: Any = Flood(stream, size)
    targets: Any = OneProcess()
    nothing: Any = None
    kernel: Any = NoKernel()
    writer = MeasurementWriter(path, Host("", "", "", "", 1), options={})
    for event in (Event(0, "cpu-clock", "s", PERIOD / 1e9, "cpu_time"), *wait_events(1)):
        writer.add_event(event)
    thread_times = ThreadTimes(1, 50_000)
    stacks = StackResolver(nothing, KernelNaming(lambda: kernel, nothing, writer), nothing, 1)
    threads = ThreadLifecycle(targets, writer, stacks, thread_times)
    modules: Any = SimpleNamespace(jit_modules=[], jit_files=[])
    jit = JitNaming(modules, lambda number: None, writer)
    deferred = DeferredPaths(nothing, nothing, nothing, nothing, nothing, stacks.insert)
    others = OtherWakers(nothing, writer.add_object, None)
    waits = WaitRecorder(stacks.caches, threads.numbered, deferred.stand_ins, writer, others)
    collector = Collector(
        flood, threads, stacks, jit, writer, [PERIOD], deferred, thread_times, waits
    )
    collector.drain()  # announces all stacks
    writer.flush()
    spent = 0.0
    records = writer.records_written
    for _ in range(rounds):
        flood.make_round()
        before = time.process_time()
        collector.drain()
        collector.settle_waits()
        writer.flush()
        spent += time.process_time() - before
    records = writer.records_written - records
    writer.close()
    written = writer.bytes_written["records"]
    return spent, records, written
