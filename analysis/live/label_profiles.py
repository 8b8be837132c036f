"""Costs added to a measurement being written since the last look, by labels.

For continuous profiling: costs of call paths, summed over the processes that have the same user,
job, rank and command. Numbers of processes are no labels: a build that starts thousands is one
series, not thousands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database.folding import CodePlace, fold_places
from hpcd.analysis.symbols.frame_lookup import FrameLookup, MakeNamer
from hpcd.analysis.symbols.symbolization import Namer
from hpcd.analysis.trace.states import STATE_TIMES
from hpcd.array_types import F64, I8, I64, U32, U64
from hpcd.measurement.codec import RecordChunk
from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames_of
from hpcd.model.identity import SOURCE_KINDS, Module, Process
from hpcd.model.python_place import lines_of
from hpcd.user_names import user_name

_UNITS_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}
# No wait is longer; what claims to be must not overflow.
_LONGEST_NS = 1e17
# Series at a time, beyond which those that cost least are one.
_MOST_SERIES = 500
OTHERS = "[others]"
# Names are chosen by whoever is recorded; receivers refuse long ones.
_LONGEST_LABEL, _LONGEST_NAME = 200, 4000


class Labels(NamedTuple):
    """The labels of a series; ``job`` and ``rank`` are empty where there is none."""

    user: str
    job: str
    rank: str
    command: str


@dataclass(frozen=True)
class Series:
    """Costs of the processes with ``labels``: at ``node`` ``uint32[n]``, each once, ``value``
    ``int64[metrics, n]`` in ns, in the order of :data:`STATE_TIMES`."""

    labels: Labels
    node: U32
    value: I64


class FrameText(NamedTuple):
    """A frame for a receiver. ``module`` is a load module or None, ``address`` that within it; of a
    Python function the module is its source file, of which ``line`` runs, else 0."""

    name: str
    module: Module | None
    address: int
    line: int = 0


@dataclass(frozen=True)
class IntervalProfiles:
    """Series of the time from ``begin_ns`` to ``end_ns``, ns since 1970, on ``host``.

    ``period_ns`` is the sampling period of CPU time.
    """

    host: str
    begin_ns: int
    end_ns: int
    period_ns: int
    series: list[Series]
    paths: CallPaths


class CallPaths:
    """Call paths of nodes, by the frames of the calling context tree."""

    def __init__(
        self, frames: FrameLookup, parent: U32, frame: list[int], modules: dict[int, Module]
    ):
        self._frames, self._parent, self._frame = frames, parent, frame
        self._modules = modules
        self.of = lru_cache(10_000)(self._of)

    def _of(self, node: int) -> tuple[int, ...]:
        """The frames of ``node``, innermost first."""
        path = []
        while node:
            path.append(self._frame[node])
            node = int(self._parent[node])
        return tuple(path)

    def text(self, frame: int) -> FrameText:
        """Return the name of a frame, and the place of its code."""
        name = shortened(self._frames.frame_of[frame].name, _LONGEST_NAME)
        value = np.array([frame], np.uint64)
        if not bool(frames_of.is_module(value)[0]):
            return FrameText(name, None, 0)
        module = self._modules.get(int(frames_of.module_of(value)[0]))
        offset = frames_of.offset_of(value).astype(np.uint64)
        source = module is not None and module.kind in SOURCE_KINDS
        line = int(lines_of(offset)[0]) if source else 0
        return FrameText(name, module, int(offset[0]), line)


class ProfileFollower:
    """Follows the measurement ``path``; ``make_namer`` says how code is named.

    With ``from_now`` what is there already is left out. Raises what
    :func:`~hpcd.measurement.reader.open_measurement` does.
    """

    def __init__(
        self, path: Path, make_namer: MakeNamer = Namer, *, from_now: bool = False
    ) -> None:
        self.measurement = open_measurement(path)
        self.close = self.measurement.close
        self._frames = FrameLookup(make_namer)
        self._chunks = self.measurement.chunks if from_now else 0
        self._end = 0
        self._series_of: dict[int, int] = {}
        self._labels: dict[Labels, int] = {}

    def collect(self) -> IntervalProfiles | None:
        """Return the costs since the last call, None if there are none."""
        measurement = self.measurement
        measurement.refresh()
        chunks = list(measurement.record_chunks(self._chunks))
        self._chunks = measurement.chunks
        keys: list[I64] = []
        costs: list[F64] = []
        times = [self._end] if self._end else []
        nodes = len(measurement.cct)
        for chunk in chunks:
            key, cost = self._costs(chunk, nodes)
            used = cost.any(axis=0)
            keys.append(key[used])
            costs.append(cost[:, used])
            if len(chunk):
                times += [int(chunk.time_ns.min()), int(chunk.time_ns.max())]
        if not sum(map(len, keys)):
            return None
        distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
        value = sum_by(place, np.hstack(costs), len(distinct))
        begin, self._end = self._end or min(times), max(times)
        metric, scale = self._weights()
        clock = measurement.clock_pairs
        shift = int(clock[-1, 1] - clock[-1, 0]) if len(clock) else 0
        return IntervalProfiles(
            measurement.host.hostname,
            begin + shift,
            self._end + shift,
            max(1, round(float(scale[metric == 0].max(initial=0)))),
            self._series(distinct, _bounded(value), nodes),
            self._paths(np.unique(distinct % nodes)),
        )

    def _costs(self, chunk: RecordChunk, nodes: int) -> tuple[I64, F64]:
        """Series and node of each record as one number, and its ns of each metric."""
        metric, scale = self._weights()
        event_of = np.minimum(chunk.event, len(metric) - 1)
        cost_ns = chunk.value * scale[event_of]
        of_line = np.array([self._number(line) for line in chunk.line.tolist()], np.int64)
        series = np.repeat(of_line, np.diff(chunk.start))
        cost = np.stack(
            [
                np.where(metric[event_of] == number, cost_ns, 0.0)
                for number in range(len(STATE_TIMES))
            ]
        )
        return series * nodes + chunk.node, cost

    def _weights(self) -> tuple[I8, F64]:
        """Return for each event the index of its metric in STATE_TIMES, -1 if none, and the ns
        that one unit of a record's value counts; the last entry is that of events that are
        not described."""
        events = self.measurement.events
        size = max(events, default=-1) + 2
        metric, scale = np.full(size, -1, np.int8), np.zeros(size)
        for number, event in events.items():
            if event.metric in STATE_TIMES and event.unit in _UNITS_NS:
                metric[number] = STATE_TIMES.index(event.metric)
                scale[number] = event.scale * _UNITS_NS[event.unit]
        return metric, scale

    def _number(self, line: int) -> int:
        """The series of a trace line."""
        # A damaged measurement may have records of lines that it does not describe.
        thread = self.measurement.threads.get(line)
        owner = thread.process if thread else -1
        number = self._series_of.get(owner)
        if number is None:
            process = self.measurement.processes.get(owner)
            labels = _labels(process, thread.name if thread else "")
            number = self._labels.setdefault(labels, len(self._labels))
            self._series_of[owner] = number
        return number

    def _series(self, key: I64, value: I64, nodes: int) -> list[Series]:
        number, node = np.divmod(key, nodes)
        labels = list(self._labels)
        bounds = np.flatnonzero(np.diff(number, prepend=-1, append=-1))
        series = [
            Series(labels[int(number[low])], node[low:high].astype(np.uint32), value[:, low:high])
            for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]
        if len(series) <= _MOST_SERIES:
            return series
        series.sort(key=lambda one: -int(one.value.sum()))
        return [*series[: _MOST_SERIES - 1], _joined(series[_MOST_SERIES - 1 :])]

    def _paths(self, nodes: I64) -> CallPaths:
        cct = self.measurement.cct
        reached = cct.reached(nodes)
        reached[0] = False
        modules, symbols = self.measurement.modules, self.measurement.symbols
        self._frames.add(np.unique(cct.frame[reached]), modules, symbols)
        parent, frame = cct.parent, cct.frame
        if any(module.kind in SOURCE_KINDS for module in modules.values()):
            reached[0] = True
            parent, frame = self._folded(np.flatnonzero(reached))
        return CallPaths(self._frames, parent, frame.tolist(), modules)

    def _folded(self, nodes: I64) -> tuple[U32, U64]:
        """Return parents and frames of the tree with the interpreter's frames among ``nodes``,
        which have all nodes above them, folded."""
        parent, frame = self.measurement.cct.parent.copy(), self.measurement.cct.frame.copy()
        named = [self._frames.frame_of[value] for value in frame[nodes[1:]].tolist()]
        place = [CodePlace(one.name, one.module, one.kind) for one in named]
        above = np.searchsorted(nodes, parent[nodes]).astype(np.uint32)
        tree = fold_places(above, [CodePlace("", "", ""), *place])
        frame[nodes] = frame[nodes[tree.shown]]
        parent[nodes] = nodes[tree.cct.parent]
        return parent, frame


def _joined(series: list[Series]) -> Series:
    node, place = np.unique(np.concatenate([one.node for one in series]), return_inverse=True)
    value = np.hstack([one.value for one in series])
    sums = sum_by(place, value.astype(float), len(node))
    return Series(Labels(OTHERS, "", "", OTHERS), node, _bounded(sums))


def _bounded(costs_ns: F64) -> I64:
    """Whole ns of costs, which damaged records may have without end."""
    return np.rint(np.minimum(costs_ns, _LONGEST_NS)).astype(np.int64)


_user_name = lru_cache(1000)(user_name)


def _labels(process: Process | None, thread: str) -> Labels:
    if process is None:
        return Labels("", "", "", shortened(thread, _LONGEST_LABEL))
    return Labels(
        _user_name(process.uid),
        shortened(process.job, _LONGEST_LABEL),
        "" if process.rank is None else str(process.rank),
        shortened(process.name, _LONGEST_LABEL),
    )


def shortened(text: str, most: int) -> str:
    """``text`` of at most ``most`` characters, in what UTF-8 can hold."""
    text = text if len(text) <= most else f"{text[: most - 3]}..."
    return text.encode("utf-8", "backslashreplace").decode()
