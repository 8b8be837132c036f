"""HPCToolkit databases of version 4, as hpcprof writes them.

A database has sums by thread and context (exact) and, if traces were recorded, the context of each
sample and its time. Both become records: the cost of a context on a thread is divided evenly over
the thread's samples in it, so that sums are the database's and times the trace's. hpcd's own
exports count samples, too: waits have an entry at each end there, of which one is kept. Loops,
source lines and instructions are not call frames: their costs count for the procedure around
them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hpcd.array_types import F64, U32, Array
from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.hpctoolkit.hpctoolkit_layout import MAGIC
from hpcd.interchange.hpctoolkit.hpctoolkit_meta import MetaFile, StoredContext
from hpcd.interchange.hpctoolkit.hpctoolkit_profiles import ProfileFile, ThreadProfile
from hpcd.interchange.hpctoolkit.hpctoolkit_trace import TraceFile
from hpcd.interchange.input.imported_tree import NO_MODULE
from hpcd.interchange.input.recording_builder import RecordingBuilder

_UNIT = re.compile(rb"(.*?)\s*\((sec|s|usec|us|ms|ns|bytes|B)\)$")
_SECONDS = {"sec": 1.0, "s": 1.0, "ms": 1e-3, "usec": 1e-6, "us": 1e-6, "ns": 1e-9}
_METRICS = {"CPUTIME": "cpu_time", "REALTIME": "time"}
# A count below this keeps six decimals.
_LARGE = 1e6
_MAX_VALUE = 2.0**55
_UNKNOWN_ENTRY = 0
# Identifiers of processes; hpcd's exports have the first.
_PROCESSES = ("PROCESS", "RANK")
_MAX_PID = 1 << 30
# The metric by which hpcd's exports count records; every database counts its own.
_COUNTED = b"records"


class _Metric(NamedTuple):
    """A metric of the database: its event, and the factor from values to the event's units."""

    number: int
    event: int
    factor: float


def is_hpctoolkit_database(path: Path) -> bool:
    """Whether ``path`` is the directory of an HPCToolkit database."""
    try:
        with (path / "meta.db").open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


class HpctoolkitReader:
    """Turns a database into records of ``builder``."""

    def __init__(self, builder: RecordingBuilder) -> None:
        self._builder = builder
        self._pids: dict[tuple[int | None, ...], int] = {}
        self._threads_of: dict[int, set[tuple[tuple[str, int], ...]]] = defaultdict(set)
        self._node_of = np.zeros(0, np.uint32)
        self._parent_of = np.zeros(0, np.uint32)
        self._in_tree = np.zeros(0, bool)
        self._idle = 0
        self._next_pid = self._first_tid = 0
        self._counted: _Metric | None = None

    def read(self, folder: Path) -> int | None:
        """Add the database's records; returns when its first trace began, ns since 1970.

        Raises :class:`FormatError`, :class:`NotFoundError`.
        """
        meta = MetaFile(folder)
        profile_file = ProfileFile(folder, meta.identifier_kinds())
        self._read_contexts(meta)
        profiles = profile_file.profiles()
        if any("RANK" in profile.ids for profile in profiles.values()):
            self._builder.threads.rank_job = readable(meta.title)
        numbers = [profile.ids.get(kind, 0) for profile in profiles.values() for kind in _PROCESSES]
        # Above the numbers of all processes.
        self._next_pid = 1 + min(max(numbers, default=0), _MAX_PID)
        self._first_tid = self._next_pid + len(profiles)
        lines = {number: self._line(profile, meta) for number, profile in profiles.items()}
        traces, begin_ns = self._traces(folder, lines)
        metrics = self._metrics(meta, profile_file, profiles)
        for number, profile in profiles.items():
            costs = [self._exclusive(profile_file, profile, metric) for metric in metrics]
            times, nodes = traces.get(number, (np.zeros(0, np.int64), np.zeros(0, np.uint32)))
            counts = None
            if self._counted and len(times):
                counts = self._exclusive(profile_file, profile, self._counted)
                times, nodes = _counted_entries(times, nodes, counts)
            self._write(lines[number], times, nodes, metrics, costs, apart=counts is not None)
        self._rank_sizes(profiles)
        return begin_ns or None

    # --- contexts ---

    def _read_contexts(self, meta: MetaFile) -> None:
        """Find each context's node (the node of its call), and each context's parent."""
        builder = self._builder
        frames: dict[int, int] = {}
        nodes = {0: -1}
        parents = {}
        for context in meta.contexts():
            if context.id in nodes or context.parent not in nodes:
                raise FormatError(
                    f"{builder.source}: damaged: context {context.id} is out of place"
                )
            parents[context.id] = context.parent
            above = nodes[context.parent]
            if context.entry == _UNKNOWN_ENTRY:
                frame = builder.tree.frame(builder.tree.module(NO_MODULE), "[unknown entry]")
            elif context.call:
                key = context.function
                frame = frames[key] if key in frames else self._frame(meta, context)
                frames[key] = frame
            else:
                nodes[context.id] = above
                continue
            nodes[context.id] = builder.tree.child(max(above, 0), frame)
        size = max(nodes) + 1
        if size > 1 << 26:
            raise FormatError(f"{builder.source}: damaged: context {size - 1} is out of range")
        self._node_of = np.zeros(size, np.uint32)
        self._parent_of = np.zeros(size, np.uint32)
        numbers = np.fromiter(nodes, np.int64)
        # A context in no call is the root until it is used.
        self._node_of[numbers] = np.maximum(np.fromiter(nodes.values(), np.int64), 0)
        self._in_tree = np.zeros(size, bool)
        self._in_tree[np.fromiter(parents, np.int64)] = True
        self._parent_of[np.fromiter(parents, np.int64)] = np.fromiter(parents.values(), np.int64)

    def _frame(self, meta: MetaFile, context: StoredContext) -> int:
        builder = self._builder
        if not context.function:
            return builder.tree.unknown()
        name, module, source = meta.function(context.function)
        base = module.rpartition(b"/")[2]
        # hpcprof puts the module behind names without source files.
        name = name.removesuffix(b" [%s]" % base) or b"[%s]" % (base or source)
        return builder.tree.frame(builder.tree.module(module or NO_MODULE), name)

    # --- threads and metrics ---

    def _line(self, profile: ThreadProfile, meta: MetaFile) -> int:
        threads = self._builder.threads
        pid = self._process(profile.ids)
        within = {kind: n for kind, n in profile.ids.items() if kind not in ("NODE", *_PROCESSES)}
        words = " ".join(f"{kind.lower()} {number}" for kind, number in within.items())
        tid, *streams = within.values() or [0]
        # The first thread of a process is its main one.
        tid = pid if tid == 0 else self._first_tid + tid
        stream = sum((number & 0xFFFF) << 16 * place for place, number in enumerate(streams[:3]))
        line = threads.line(pid, tid, words or "thread", stream)
        threads.name_process(pid, meta.title or threads.default_name)
        if (rank := profile.ids.get("RANK")) is not None:
            threads.set_rank(pid, rank)
        return line

    def _process(self, ids: dict[str, int]) -> int:
        """Return the number of the process of a thread with the identifiers ``ids``.

        It is the process of the database if it has one, and no other process is called so. A thread
        with the same identifiers as another begins another process.
        """
        key = tuple(ids.get(kind) for kind in ("NODE", *_PROCESSES))
        thread = tuple(ids.items())
        if key not in self._pids or thread in self._threads_of[self._pids[key]]:
            pid = next((ids[kind] for kind in _PROCESSES if kind in ids), self._next_pid)
            if pid in self._threads_of or pid > _MAX_PID:
                pid = self._next_pid
            self._next_pid += pid == self._next_pid
            self._pids[key] = pid
        self._threads_of[self._pids[key]].add(thread)
        return self._pids[key]

    def _rank_sizes(self, profiles: dict[int, ThreadProfile]) -> None:
        ranks = {profile.ids["RANK"] for profile in profiles.values() if "RANK" in profile.ids}
        if ranks and not self._builder.threads.size:
            self._builder.threads.size = max(ranks) + 1

    def _metrics(
        self, meta: MetaFile, file: ProfileFile, profiles: dict[int, ThreadProfile]
    ) -> list[_Metric]:
        metrics = []
        for number, name in meta.metrics().items():
            if name == _COUNTED:
                self._counted = _Metric(number, 0, 1.0)
                continue
            match = _UNIT.match(name)
            plain = (match[1] if match else name).decode(errors="replace")
            unit = match[2].decode() if match else ""
            metric = _METRICS.get(plain, plain)
            if unit in _SECONDS:
                event = self._builder.event(plain, "s", 1e-9, metric)
                metrics.append(_Metric(number, event, _SECONDS[unit] * 1e9))
                continue
            largest = max(
                (float(file.values(profile, number)[1].max(initial=0.0))
                 for profile in profiles.values()),
                default=0.0,
            )  # fmt: skip
            factor = 1.0 if largest >= _LARGE else 1e6
            unit = "bytes" if unit == "B" else unit
            event = self._builder.event(plain, unit, 1 / factor, metric)
            metrics.append(_Metric(number, event, factor))
        return metrics

    def _exclusive(
        self, file: ProfileFile, profile: ThreadProfile, metric: _Metric
    ) -> dict[int, int]:
        """Return the exclusive cost of each node on a thread, in units of the event."""
        contexts, values = file.values(profile, metric.number)
        # Contexts outside the tree are parts of contexts in it: their values are included there.
        inside = np.minimum(contexts, len(self._parent_of) - 1)
        known = (inside == contexts) & self._in_tree[inside] & np.isfinite(values)
        contexts, values = contexts[known], values[known]
        if not bool((np.abs(values) < _MAX_VALUE / metric.factor).all()):
            raise FormatError(f"{self._builder.source}: a value is out of range")
        own: F64 = np.zeros(len(self._parent_of))
        own[contexts] = values
        # Exclusive values: inclusive values less the values of the children.
        np.subtract.at(own, self._parent_of[contexts], values)
        own[0] = 0.0
        nodes = self._node_of[contexts]
        exclusive = np.bincount(nodes, own[contexts], minlength=1)
        # Smaller values are rounding errors.
        threshold = 1e-9 * float(values.max(initial=0.0))
        costly = np.flatnonzero(exclusive > threshold)
        amounts = np.rint(exclusive[costly] * metric.factor)
        placed = [self._placed(node) for node in costly.tolist()]
        return dict(zip(placed, amounts.astype(np.int64).tolist(), strict=True))

    def _placed(self, node: int) -> int:
        """Return ``node``, or the node of samples without a call path for the root."""
        return node or self._builder.tree.node([])

    # --- records ---

    def _traces(
        self, folder: Path, lines: dict[int, int]
    ) -> tuple[dict[int, tuple[Array, U32]], int]:
        """Return (times since the first, nodes) by profile, and the first time, 0 without traces.

        ``lines`` are the trace lines of profiles.
        """
        if not (folder / "trace.db").exists():
            return {}, 0
        file = TraceFile(folder)
        traces = {}
        builder = self._builder
        for number, times, contexts in file.traces():
            if not len(times) or number not in lines:
                continue
            if bool((times[1:] < times[:-1]).any()) or int(times[0]) < file.begin_ns:
                raise FormatError(f"{builder.source}: damaged: times of a trace run backwards")
            if len(times) > 1 and not contexts[-1]:
                # No sample: the thread has ended.
                end_ns = int(times[-1]) - file.begin_ns
                builder.threads.extend(lines[number], end_ns, end_ns)
                times, contexts = times[:-1], contexts[:-1]
            inside = np.minimum(contexts, len(self._node_of) - 1)
            nodes = self._node_of[inside]
            if bool((contexts == 0).any()):
                nodes = np.where(contexts > 0, nodes, np.uint32(self._not_running()))
            traces[number] = (times - np.uint64(file.begin_ns)).astype(np.int64), nodes
        return traces, file.begin_ns

    def _not_running(self) -> int:
        builder = self._builder
        self._idle = builder.tree.node(
            [builder.tree.frame(builder.tree.module(NO_MODULE), "[not running]")]
        )
        return self._idle

    def _write(
        self, line: int, times: Array, nodes: U32, metrics: list[_Metric],
        costs: list[dict[int, int]], *, apart: bool,
    ) -> None:  # fmt: skip
        """Add the records of a thread: each sample with its share of its node's cost.

        With ``apart`` a sample has one metric, as hpcd's own have; else a record for each metric
        that its node has.
        """
        builder = self._builder
        nodes = np.where(nodes == 0, np.uint32(self._placed(0)), nodes) if 0 in nodes else nodes
        sampled = dict(zip(*(part.tolist() for part in np.unique(nodes, return_counts=True)),
                           strict=True))  # fmt: skip
        plain = builder.event("trace sample", "", 1.0, "")
        left = dict(sampled)
        columns = list(zip(metrics, costs, strict=True))
        of_node = {node: [pair for pair in columns if node in pair[1]] for node in sampled}
        for time_ns, node in zip(times.tolist(), nodes.tolist(), strict=True):
            charged = False
            left[node] -= 1
            count, after, pairs = sampled[node], left[node], of_node[node]
            if apart and len(pairs) > 1 and count >= len(pairs):
                # Metrics take the samples in turn.
                turn, step = after % len(pairs), len(pairs)
                count, after, pairs = -(-(count - turn) // step), after // step, [pairs[turn]]
            for metric, cost in pairs:
                if value := _share(cost[node], count, after):
                    builder.add(line, time_ns, node, metric.event, value)
                    charged = True
            if not charged:
                builder.add(line, time_ns, node, plain, 1)
        builder.taken += len(times) - sampled.get(self._idle, 0)
        # Costs without samples (or without any trace) are at the thread's beginning.
        begin = int(times[0]) if len(times) else 0
        for metric, cost in zip(metrics, costs, strict=True):
            for node, value in cost.items():
                if node not in sampled and value:
                    builder.add(line, begin, node, metric.event, value)


def _counted_entries(times: Array, nodes: U32, counts: dict[int, int]) -> tuple[Array, U32]:
    """Return the entries of a trace that are samples: as many of each node as ``counts`` has.

    Others are ends of waits, which follow their beginnings in the same node.
    """
    place = np.arange(len(nodes))
    begins = np.append(True, nodes[1:] != nodes[:-1])
    within = place - np.maximum.accumulate(np.where(begins, place, 0))
    # Drop ends first, then entries that repeat a node; the first of a run is no end.
    key = np.where(within % 2 == 1, 0, np.where(within > 0, 1, 2))
    order = np.lexsort((place, key, nodes))
    distinct, first, number = np.unique(nodes[order], return_index=True, return_counts=True)
    wanted = np.array([counts.get(node, 0) for node in distinct.tolist()], np.int64)
    surplus = np.repeat(np.maximum(number - wanted, 0) * (wanted > 0), number)
    dropped = (place - np.repeat(first, number) < surplus) & (key[order] < 2)
    kept = np.ones(len(nodes), bool)
    kept[order[dropped]] = False
    return times[kept], nodes[kept]


def _share(value: int, count: int, left: int) -> int:
    """Return one of ``count`` integer shares of ``value``, with ``left`` shares after it."""
    return value * (count - left) // count - value * (count - left - 1) // count
