"""The last seconds of a measurement that is still being written: where its threads are and wait.

Each refresh reads the chunks that came since, keeps the records of the window, and names what is
new. Cost: O(records of the window) in numpy, and a step of Python for each node of the calling
context tree the first time it is seen in a window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from hpcd.analysis.database.folding import CodePlace, fold_places
from hpcd.analysis.live.recent_calls import CallWindow, RecentCalls
from hpcd.analysis.profile.working_lines import select_working
from hpcd.analysis.symbols.frame_lookup import FrameLookup
from hpcd.analysis.trace.states import STATE_TIMES
from hpcd.array_types import F64, I8, I64, U32
from hpcd.measurement.codec import RecordChunk
from hpcd.measurement.reader import Measurement, open_measurement
from hpcd.measurement.summary import Summary
from hpcd.model.identity import KERNEL_KINDS, SOURCE_KINDS

# No wait is longer; what claims to be must not overflow.
_LONGEST_SECONDS = 1e8


@dataclass(frozen=True, slots=True)
class HotPath:
    """A call path of procedures, outermost first; seconds of CPU, blocked, runnable time in it.

    Its last ``kernel_frames`` are the kernel's.
    """

    path: tuple[str, ...]
    kernel_frames: int
    cpu_s: float
    blocked_s: float
    runnable_s: float


@dataclass(frozen=True, slots=True)
class Busy:
    """A process of the window: its place, its living threads, how many of them did the work
    (:func:`~hpcd.analysis.profile.working_lines.select_working`), seconds as in :class:`HotPath`.
    """

    job: str
    rank: int | None
    pid: int
    name: str
    threads: int
    working: int
    cpu_s: float
    blocked_s: float
    runnable_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The window: its length in seconds, what was hot in it, and what recording it cost.

    ``overhead_cpu`` is the recorder's CPU time for each second, ``overhead_bpf`` that of its
    programs in the kernel; None until two summaries are there to be compared. ``calls`` is what
    recorded calls did, None where none are recorded.
    """

    seconds: float
    samples: int
    cpu_s: float
    blocked_s: float
    runnable_s: float
    hottest: list[HotPath]
    waits: list[HotPath]
    busiest: list[Busy]
    threads: int
    dropped: int
    frequency: int
    overhead_cpu: float | None
    overhead_bpf: float | None
    calls: RecentCalls | None


@dataclass(frozen=True, slots=True)
class _Block:
    """Records of a chunk: ``begin``, ``end`` int64[n] ns, the same but for intervals, ``metric``
    int8[n] (index in STATE_TIMES, or -1), ``seconds`` float64[n]."""

    begin: I64
    end: I64
    line: U32
    node: U32
    metric: I8
    seconds: F64


class Live:
    """Follows a measurement, finished or being written, over a window of ``seconds``."""

    def __init__(self, path: Path, seconds: float, *, native: bool = False) -> None:
        self.measurement = open_measurement(path)
        self.close = self.measurement.close
        self._seconds = seconds
        self._chunks = 0
        self._blocks: deque[_Block] = deque()
        self._summaries: deque[Summary] = deque(maxlen=64)
        self._names = _PathNames(self.measurement, native=native)
        self._calls = CallWindow(self.measurement, seconds)
        self.refresh()

    @property
    def begun(self) -> bool:
        """Whether the recorder has written what it saw, once or more often."""
        return bool(self._summaries)

    def refresh(self) -> None:
        """Take in what was written since."""
        self.measurement.refresh()
        for chunk in self.measurement.record_chunks(self._chunks):
            self._take(chunk)
        self._chunks = self.measurement.chunks
        self._calls.refresh()
        summary = self.measurement.summary
        if summary and (not self._summaries or summary is not self._summaries[-1]):
            self._summaries.append(summary)

    def _take(self, chunk: RecordChunk) -> None:
        events = self.measurement.events
        # One more for records of events that were never announced.
        size = max(events, default=-1) + 2
        metric, scale = np.full(size, -1, np.int8), np.zeros(size)
        interval = np.zeros(size, bool)
        for number, event in events.items():
            if event.metric in STATE_TIMES:
                metric[number], scale[number] = STATE_TIMES.index(event.metric), event.scale
                interval[number] = event.interval
        event_of = np.minimum(chunk.event, size - 1)
        seconds = chunk.value * scale[event_of]
        begin = chunk.time_ns.astype(np.int64)
        lasts = np.where(interval[event_of], np.minimum(seconds, _LONGEST_SECONDS) * 1e9, 0)
        self._blocks.append(
            _Block(
                begin,
                begin + lasts.astype(np.int64),
                np.repeat(chunk.line, np.diff(chunk.start)),
                chunk.node,
                metric[event_of],
                seconds,
            )
        )

    def snapshot(self, paths: int = 10, processes: int = 10) -> Snapshot:
        """Return the contents of the window, its hottest ``paths`` and busiest ``processes``."""
        block = self._window()
        count = self.measurement.cct.parent.size
        seconds = np.zeros((len(STATE_TIMES), count))
        lines = np.zeros((len(STATE_TIMES), int(block.line.max(initial=0)) + 1))
        for number in range(len(STATE_TIMES)):
            selected = block.metric == number
            weights = block.seconds[selected]
            seconds[number] = np.bincount(block.node[selected], weights, minlength=count)
            lines[number] = np.bincount(block.line[selected], weights, minlength=lines.shape[1])
        by_path = self._names.by_path(seconds)
        totals = seconds.sum(axis=1).tolist()
        cpu, bpf = self._overhead()
        last = self._summaries[-1] if self._summaries else Summary()
        return Snapshot(
            seconds=self._length(block),
            samples=int((block.metric == 0).sum()),
            cpu_s=totals[0],
            blocked_s=totals[1],
            runnable_s=totals[2],
            hottest=self._names.top(by_path, 0, paths),
            waits=self._names.top(by_path, 1, paths),
            busiest=self._busiest(lines, self._length(block), processes),
            threads=int((lines.sum(axis=0) > 0).sum()),
            dropped=sum(last.samples.dropped.values()),
            frequency=last.rates[-1].frequency if last.rates else 0,
            overhead_cpu=cpu,
            overhead_bpf=bpf,
            calls=self._calls.snapshot(max(int(block.end.max(initial=0)), self._calls.end), paths),
        )

    def _window(self) -> _Block:
        """The records of the window, intervals cut to it and older ones forgotten."""
        newest = max((int(block.end.max(initial=0)) for block in self._blocks), default=0)
        oldest = newest - int(self._seconds * 1e9)
        # Chunks are about a second each, and a long wait may be in any.
        self._blocks = deque(
            block for block in self._blocks if int(block.end.max(initial=0)) >= oldest
        )
        parts = []
        for block in self._blocks:
            fresh = (block.end >= oldest) & (block.metric >= 0)
            begin, end = np.maximum(block.begin[fresh], oldest), block.end[fresh]
            lasts = (end - block.begin[fresh]).astype(float)
            share = np.divide(end - begin, lasts, out=np.ones(len(lasts)), where=lasts > 0)
            parts.append(
                (begin, end, block.line[fresh], block.node[fresh], block.metric[fresh],
                 block.seconds[fresh] * share)
            )  # fmt: skip
        if not parts:
            none, empty = np.zeros(0, np.int64), np.zeros(0, np.uint32)
            return _Block(none, none, empty, empty, np.zeros(0, np.int8), np.zeros(0))
        return _Block(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _length(self, block: _Block) -> float:
        if not len(block.end):
            return 0.0
        return float(block.end.max() - block.begin.min()) / 1e9

    def _busiest(self, lines: F64, seconds: float, limit: int) -> list[Busy]:
        threads = np.flatnonzero(lines.sum(axis=0))
        # A damaged measurement may have records of lines that it does not describe.
        described = map(self.measurement.threads.get, threads.tolist())
        owner = np.array([thread.process if thread else -1 for thread in described], np.int64)
        processes = self.measurement.processes
        # Ranks are processes here: which of a rank's processes is its program does not matter.
        rank = np.array(
            [n if n in processes and processes[n].rank is not None else -1 for n in owner.tolist()],
            np.int64,
        )
        working = select_working(lines[0, threads], np.full(len(threads), seconds), owner, rank)
        used, group = np.unique(owner, return_inverse=True)
        count = np.bincount(group).tolist()
        at_work = np.bincount(group[working], minlength=len(used)).tolist()
        sums = np.stack([np.bincount(group, row, len(used)) for row in lines[:, threads]], axis=1)
        busiest = [
            Busy(process.job, process.rank, process.pid, process.name, count[n], at_work[n],
                 *sums[n].tolist())
            for n, number in enumerate(used.tolist())
            if (process := processes.get(number))
        ]  # fmt: skip
        busiest.sort(key=lambda usage: (-usage.cpu_s, -usage.runnable_s, usage.pid))
        return busiest[:limit]

    def _overhead(self) -> tuple[float | None, float | None]:
        """CPU of the recorder and of its programs for each second, over the window, or since the
        recording began while it has one summary."""
        if not self._summaries:
            return None, None
        last = self._summaries[-1]
        known = [Summary(), *self._summaries]
        recent = [one for one in known[1:] if one.duration_s >= last.duration_s - self._seconds]
        first = recent[0] if len(recent) > 1 else known[-2]
        span = last.duration_s - first.duration_s
        if span <= 0:
            return None, None
        return (
            (last.overhead.collector_cpu_s - first.overhead.collector_cpu_s) / span,
            (last.overhead.bpf_s - first.overhead.bpf_s) / span,
        )


class _PathNames:
    """Call paths of procedures, numbered; names are looked up once for each frame. The frames of
    interpreters are folded (:mod:`hpcd.analysis.database.folding`) unless they are to be shown as
    ``native``."""

    def __init__(self, measurement: Measurement, *, native: bool) -> None:
        self._measurement = measurement
        self._native = native
        self._frames = FrameLookup()
        self._path_of_node = np.full(1, 0, np.int64)
        # Path 0 is the empty one, the root.
        self._paths: list[tuple[int, CodePlace]] = [(0, CodePlace("", "", ""))]
        self._numbers: dict[tuple[int, CodePlace], int] = {}
        self._shown = self._paths
        """The paths as they are shown."""
        self._fold = lru_cache(1)(self._folded)  # anew where there are more paths

    def by_path(self, seconds: F64) -> F64:
        """``seconds[metric, node]`` summed by call path: ``float64[metrics, paths]``."""
        nodes = np.flatnonzero(seconds.any(axis=0))
        self._number(nodes)
        places = self._fold(len(self._paths))[self._path_of_node[nodes]]
        return np.array([
            np.bincount(places, row[nodes], minlength=len(self._shown)) for row in seconds
        ])  # fmt: skip

    def _folded(self, _: int) -> I64:
        """Return the number in the paths that are shown of each path int64[n]."""
        everything = np.arange(len(self._paths))
        if self._native or all(place.kind not in SOURCE_KINDS for _, place in self._paths):
            self._shown = self._paths
            return everything
        parent = np.array([above for above, _ in self._paths], np.uint32)
        tree = fold_places(parent, [place for _, place in self._paths])
        numbers = dict.fromkeys(self._paths[:1], 0)
        shown = everything
        for at, above, of in zip(
            everything[1:].tolist(), tree.cct.parent[1:].tolist(), tree.shown[1:].tolist(),
            strict=True,
        ):  # fmt: skip
            key = int(shown[above]), self._paths[of][1]
            shown[at] = numbers.setdefault(key, len(numbers))
        self._shown = list(numbers)
        return shown

    def top(self, by_path: F64, metric: int, limit: int) -> list[HotPath]:
        row = by_path[metric]
        best = np.argsort(-row, kind="stable")[:limit]
        return [
            HotPath(*self._path(int(number)), *(float(value) for value in by_path[:, number]))
            for number in best
            if row[number] > 0
        ]

    def _path(self, number: int) -> tuple[tuple[str, ...], int]:
        """The procedures of path ``number``, and how many of them are the kernel's."""
        names, kernel = [], 0
        while number:
            number, place = self._shown[number]
            names.append(place.name)
            kernel += place.kind in KERNEL_KINDS
        return tuple(reversed(names)), kernel

    def _number(self, nodes: I64) -> None:
        """Give a path number to each of ``nodes``, and so to each node above them."""
        cct = self._measurement.cct
        numbers = self._path_of_node
        if len(cct) > len(numbers):
            numbers = np.concatenate([numbers, np.full(len(cct) - len(numbers), -1, np.int64)])
            self._path_of_node = numbers
        fresh = np.flatnonzero(cct.reached(nodes[numbers[nodes] < 0]) & (numbers < 0))
        modules, symbols = self._measurement.modules, self._measurement.symbols
        self._frames.add(np.unique(cct.frame[fresh]), modules, symbols)
        # Parents come first, so theirs is always numbered.
        for node, parent, frame in zip(
            fresh.tolist(), cct.parent[fresh].tolist(), cct.frame[fresh].tolist(), strict=True
        ):
            named = self._frames.frame_of[frame]
            key = int(numbers[parent]), CodePlace(named.name, named.module, named.kind)
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._paths)
                self._paths.append(key)
            numbers[node] = number
