"""The collector: from what the kernel sends to what the measurement holds.

Each round empties the sample ring in one numpy view, then the event ring, so that whatever a sample
refers to is known. Work per sample is a handful of gathers over the whole batch; Python runs once
per new stack, thread or process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from hpcd.bpf.mmap_events import Mapped
from hpcd.bpf.records import (
    CACHE_SET_BITS,
    EVENT_HEADER,
    MAX_EVENTS,
    SLOT_BITS,
    STACK_EVENT,
    THREAD_EVENT,
    EventKind,
    Switch,
    ThreadEvent,
)
from hpcd.bpf.sampler import Sampler
from hpcd.daemon import jit
from hpcd.daemon.cct import CCTBuilder
from hpcd.daemon.kernel_symbols import KernelSymbols, kernel_build_id
from hpcd.daemon.modules import Modules
from hpcd.daemon.processes import Region, Sleeper
from hpcd.daemon.targets import Targets
from hpcd.daemon.timeline import BORN, Records, Timelines
from hpcd.measurement.writer import MeasurementWriter, by_line_and_time
from hpcd.model import frame as frames
from hpcd.model.ending import Ending
from hpcd.model.identity import ModuleKind, Thread

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_NO_LINE = 0xFFFFFFFF
# Stacks in code that is being analysed: more than this many different ones wait in vain.
_MAX_UNPLACED = 4096
_SLOTS = 1 << SLOT_BITS
_SLOT_MASK = np.uint32(_SLOTS - 1)
_WHOLE = (Ending.COMPLETE, Ending.KERNEL_ONLY)

assert SLOT_BITS == CACHE_SET_BITS + 1


class Collector:
    """Moves samples from the rings into a measurement.

    ``timelines`` turn what threads do between samples into records too; without them each sample
    stands for one period of its event, ``periods[event]`` of what the event counts.
    """

    def __init__(
        self,
        sampler: Sampler,
        targets: Targets,
        modules: Modules,
        writer: MeasurementWriter,
        kernel: KernelSymbols,
        caches: int,
        periods: Sequence[int],
        timelines: Timelines | None = None,
    ) -> None:
        self._sampler = sampler
        self._targets = targets
        self._modules = modules
        self._writer = writer
        self._periods = np.array(periods, dtype=np.uint64)
        self._left = np.zeros_like(self._periods)
        self._timelines = timelines
        self.cct = CCTBuilder()
        self._written_nodes = 1
        # What each slot of each stack cache held at the end of the last round, and the stacks
        # announced in the last round and in this one. A sample's stack is among them: it was in the
        # cache when the sample was taken, which is after the samples of the last round.
        self._node = np.zeros((caches, _SLOTS), dtype=np.uint32)
        self._generation = np.zeros((caches, _SLOTS), dtype=np.uint16)
        self._last = _Announced()
        self._line: dict[int, int] = {}
        self._threads: dict[int, Thread] = {}
        self._lines = 0
        # Threads whose end was reported in this round and in the last: samples taken before it may
        # come in one round late.
        self._ended: dict[int, int] = {}
        self._ending: dict[int, int] = {}
        self._time = 0
        self._kernel = kernel
        self._kernel_ids: list[int] = []
        self._scheduler = kernel.range_of("__schedule")
        self._signal_ranges = kernel.signal_ranges()
        self._kernel_entry = kernel.entry_text()
        self._never_sampled = self._marker(Ending.NEVER_SAMPLED)
        self._asleep: dict[tuple[str, ...], int] = {}
        self._jit_named = 1
        self._jit_files = jit.JitFiles()
        self._jit_owner: dict[int, tuple[int, int]] = {}
        self._jit_waiting: dict[int, U64] = {}
        self._kernel_named: set[tuple[int, int]] = set()
        self.recorded = 0
        self.switches = 0
        self.dropped: Counter[str] = Counter()
        self.came: list[tuple[EventKind, int, int]] = []
        """Processes that forked (EventKind.FORK, child, parent), ended (EXIT) or may have become
        targets (EXEC) since the list was last taken."""
        self.ended_runtime: list[tuple[int, int, float]] = []
        self.refresh: set[int] = set()
        self._unplaced: list[bytes] = []
        self.mapped: Callable[[int, int], Mapped | None] = lambda pid, address: None
        """What a process mapped last at an address."""

    def drain(self) -> int:
        """One round; returns the samples taken."""
        began = time.monotonic_ns()
        samples = self._sampler.take_samples()
        stacks: list[bytes] = []
        for raw in self._sampler.take_events():
            kind = raw[8]  # EVENT_HEADER.kind, little endian
            if kind == EventKind.STACK:
                stacks.append(raw)
            else:
                self._lifecycle(ThreadEvent(*THREAD_EVENT.unpack(raw)))
        # What new code is waiting for comes first.
        for pid in self.refresh:
            self._targets.refresh(pid)
        self.refresh.clear()
        announced = self._add_stacks(stacks) if stacks else _Announced()
        if len(samples):
            self._record(samples, announced)
        self._node[announced.cache, announced.slot] = announced.node
        self._generation[announced.cache, announced.slot] = announced.generation
        self._last = announced
        self._end_threads()
        self._time = began
        self._targets.settle()
        return len(samples)

    def settle_waits(self) -> None:
        """Hand the writer what is known of waits that go on, and the sums of short ones.

        Once a flush: what is in the measurement is then at most a second behind.
        """
        if self._timelines:
            self._write(self._timelines.pieces(self._time))
            self._write(self._timelines.take_short())

    def finish(self, now: int) -> None:
        """The recording ends at ``now``, and with it all lines."""
        self.drain()
        self._end_threads()
        if self._timelines:
            self._write(self._timelines.end(dict.fromkeys(self._timelines.open_lines(), now)))
            self._write(self._timelines.take_short())
        self.name_jit_frames()
        self._jit_files.close()

    # --- threads and processes ---

    def _lifecycle(self, event: ThreadEvent) -> None:
        kind, pid = event.kind, event.tgid
        if kind == EventKind.THREAD:
            line = self._new_line(event.thread, pid, event.tid, _text(event.comm), event.start)
            if self._timelines:
                # A thread that is new to the system waits for its first CPU.
                state = BORN if event.other else Switch.IN
                job = self._targets.target(pid).process.job
                self._timelines.begin(line, event.time, state, self._never_sampled, job)
        elif kind == EventKind.EXIT:
            number = event.thread
            thread = self._threads.pop(number, None)
            if thread:
                # Without a name when it ended for hpcd alone: it has become another user's.
                name = _text(event.comm) or thread.name
                ended = replace(thread, name=name, end_ns=event.time)
                self._writer.add_thread(ended)
                self._ended[number] = event.time
            self.ended_runtime.append((pid, event.tid, event.runtime / 1e9))
            if event.other:
                self._targets.gone(pid)
                self.came.append((EventKind.EXIT, pid, 0))
        elif kind == EventKind.FORK:
            self._targets.forked(event.other, pid)
            self.came.append((EventKind.FORK, pid, event.other))
        elif kind == EventKind.EXEC and pid in self._targets:
            self._targets.executed(pid)
            self.refresh.add(pid)
        elif kind in (EventKind.EXEC, EventKind.MOVED):
            self.came.append((EventKind.EXEC, pid, 0))
        elif kind == EventKind.REFRESH:
            self.refresh.add(pid)

    def take_up(self, number: int, pid: int, thread: Sleeper, time_ns: int) -> None:
        """A thread that ran before it was attached to at ``time_ns``, as ``number``."""
        line = self._new_line(number, pid, thread.tid, thread.name, thread.start_ns)
        if self._timelines:
            node = self._never_sampled if thread.running else self._asleep_in(thread)
            job = self._targets.target(pid).process.job
            self._timelines.begin(line, time_ns, thread.switch, node, job)

    def _new_line(self, number: int, pid: int, tid: int, name: str, start_ns: int) -> int:
        if pid not in self._targets:
            self.refresh.add(pid)  # recording everything, this is the first of it
        process = self._targets.target(pid).process
        line = self._lines
        self._lines += 1
        thread = Thread(line, process.id, tid, name, start_ns)
        self._line[number] = line
        self._threads[number] = thread
        self._writer.add_thread(thread)
        return line

    def _end_threads(self) -> None:
        if self._ending:
            lines = {self._line.pop(number): time for number, time in self._ending.items()}
            if self._timelines:
                self._write(self._timelines.end(lines))
        self._ending, self._ended = self._ended, {}

    @property
    def lines(self) -> int:
        """Trace lines so far."""
        return self._lines

    def _marker(self, ending: Ending) -> int:
        frame = np.array([frames.marker_frame(ending)], np.uint64)
        return int(self.cct.insert(frame, np.ones(1, np.int64))[0])

    def _asleep_in(self, thread: Sleeper) -> int:
        """CCT node of a thread that slept before hpcd came: the kernel tells its own part."""
        node = self._asleep.get(thread.kernel_stack)
        if node is None:
            address = self._kernel.addresses(thread.kernel_stack[::-1])
            body = self._stored_frames(address, np.zeros(len(address), np.int64))
            path = np.append(np.uint64(frames.marker_frame(Ending.BEFORE_ATTACH)), body)
            node = int(self.cct.insert(path, np.array([len(path)]))[0])
            self._asleep[thread.kernel_stack] = node
        return node

    # --- stacks ---

    def _add_stacks(self, raw: list[bytes]) -> _Announced:
        size = STACK_EVENT.itemsize
        head = np.frombuffer(b"".join(each[:size] for each in raw), STACK_EVENT)
        body = np.frombuffer(b"".join(each[size:] for each in raw), np.uint64)
        count = head["kernel_frames"].astype(np.int64) + head["user_frames"]
        ends = np.cumsum(count)
        starts = ends - count

        # In the ring the innermost frame comes first; a path begins with the outermost.
        within = np.arange(len(body)) - np.repeat(starts, count)
        owner = np.repeat(np.arange(len(head)), count)
        inner = self._frames_of_the_tracepoint(head, body, within, owner)
        changing = self._registers_changing(body, within, owner, len(head))
        outer = np.where(changing, head["kernel_frames"], count)
        if inner.any() or changing.any():
            body = body[(within >= np.repeat(inner, count)) & (within < np.repeat(outer, count))]
            count = outer - inner
            ends = np.cumsum(count)
            starts = ends - count
            within = np.arange(len(body)) - np.repeat(starts, count)
        reverse = np.repeat(ends, count) - 1 - within
        placed, waiting = self._placed(self._stored_frames(body, within), head["tgid"], count)
        path = placed[reverse]
        self._unplaced += [raw[i] for i in waiting[: _MAX_UNPLACED - len(self._unplaced)].tolist()]

        ending = np.where(changing, np.uint64(Ending.REGISTERS_CHANGING), head["ending"])
        whole = np.isin(ending, _WHOLE)
        marked = (~whole).astype(np.int64)
        lengths = count + marked
        place = np.cumsum(lengths) - lengths
        framed = np.empty(int(lengths.sum()), dtype=np.uint64)
        framed[np.repeat(place + marked, count) + within] = path
        framed[place[~whole]] = np.uint64(frames.MARKER) | ending[~whole]

        return _Announced(head["cache"], head["stack"], self.cct.insert(framed, lengths))

    def _frames_of_the_tracepoint(
        self, head: npt.NDArray[np.void], body: U64, within: I64, owner: I64
    ) -> I64:
        """How many of each stack's innermost frames are the tracepoint's, inside ``__schedule``."""
        inner = np.zeros(len(head), np.int64)
        leaving = (head["cache"] & 1).astype(bool)[owner]
        at = np.flatnonzero(leaving & _lies_in(body, self._scheduler))
        inner[owner[at[::-1]]] = within[at[::-1]]  # of several the innermost
        return inner

    def _registers_changing(
        self, body: U64, within: I64, owner: I64, stacks: int
    ) -> npt.NDArray[np.bool_]:
        """Which stacks were taken while the kernel wrote the thread's user registers: what was read
        by registers that belong to two places is nobody's path."""
        interrupted = (within == 0) | np.roll(_lies_in(body, self._kernel_entry), 1)
        changing = np.zeros(stacks, np.bool_)
        for each in self._signal_ranges:
            changing[owner[interrupted & _lies_in(body, each)]] = True
        return changing

    def place_again(self) -> None:
        """Tables have arrived: numbered stacks that end in their code get their place in it."""
        if self._unplaced:
            waiting, self._unplaced = self._unplaced, []
            found = self._add_stacks(waiting)
            same = self._generation[found.cache, found.slot] == found.generation
            self._node[found.cache[same], found.slot[same]] = found.node[same]

    def _placed(self, body: U64, pids: npt.NDArray[np.uint32], count: I64) -> tuple[U64, I64]:
        """Raw addresses in code that the walker had no mapping of, as module frames, and which
        stacks have others left.

        Processes that have ended since and modules unloaded since are found by what the kernel
        said when it mapped them. A step of Python for each such frame of a new stack.
        """
        raw = np.flatnonzero(~frames.is_module(body) & ~frames.is_marker(body))
        if not len(raw):
            return body, raw
        result = body.copy()
        stack = np.repeat(np.arange(len(count)), count)
        left = []
        for at in raw.tolist():
            address = int(body[at]) & frames.RAW_MASK
            pid = int(pids[stack[at]])
            mapped = self.mapped(pid, address)
            frame = self._modules.frame_in(pid, Region(*mapped), address) if mapped else None
            if frame is not None:
                result[at] = frame
            elif mapped and mapped.inode:
                left.append(int(stack[at]))
        return result, np.unique(np.array(left, np.int64))

    def _stored_frames(self, body: U64, within: npt.NDArray[np.int64]) -> U64:
        """Ring frames as measurement frames: kernel addresses become module frames."""
        kernel = np.flatnonzero(frames.is_kernel(body))
        if not len(kernel):
            return body
        if not self._kernel_ids:
            build_id = kernel_build_id()
            self._kernel_ids = [
                self._modules.kernel(name, build_id if i == 0 else "")
                for i, name in enumerate(self._kernel.modules)
            ]
        # Callers are return addresses; the interrupted instruction itself is not.
        address = body[kernel] - (within[kernel] > 0).astype(np.uint64)
        owner, offset = self._kernel.locate(address)
        module = np.array(self._kernel_ids, dtype=np.uint64)[owner]
        result = body.copy()
        result[kernel] = module << np.uint64(frames.MODULE_SHIFT) | (
            offset & np.uint64(frames.OFFSET_MASK)
        )
        self._name_kernel_frames(owner, offset)
        return result

    def _name_kernel_frames(self, owner: npt.NDArray[np.uint32], offset: U64) -> None:
        pairs = set(zip(owner.tolist(), offset.tolist(), strict=True)) - self._kernel_named
        named: dict[int, list[tuple[int, int, str]]] = {}
        for module, where in pairs:
            symbol = self._kernel.symbol(module, where)
            if symbol and (module, -1 - symbol[0]) not in self._kernel_named:
                self._kernel_named.add((module, -1 - symbol[0]))
                named.setdefault(module, []).append(symbol)
        self._kernel_named |= pairs
        for module, symbols in named.items():
            self._writer.add_symbols(self._kernel_ids[module], symbols)

    # --- code made at run time ---

    def name_jit_frames(self) -> None:
        """Name the frames in code made at run time that have no name yet.

        Done once a flush, and once more at the end: the runtime writes its map as it goes.
        """
        fresh = self.cct.frame[self._jit_named : self.cct.count]
        module = frames.module_of(fresh)
        waiting = self._jit_waiting
        for number in np.unique(module).tolist():
            known = self._modules.get(number)
            if known and known.kind is ModuleKind.JIT:
                offsets = np.unique(frames.offset_of(fresh[module == number]))
                waiting[number] = np.union1d(waiting.get(number, offsets), offsets)
        self._jit_named = self.cct.count
        for number, offsets in list(waiting.items()):
            known = self._modules.get(number)
            owner = self._targets.by_number(known.process) if known else None
            # Runtimes may name their code as they end; what they are to be asked by is kept.
            who = (owner.pid, owner.uid) if owner else self._jit_owner.get(number)
            if known is None or who is None:
                continue
            self._jit_owner[number] = who
            base = np.uint64(known.base)
            symbols = jit.named(self._jit_files.symbols(known.process, *who), offsets + base)
            if not symbols:
                continue
            rows = [(start - known.base, size, name) for start, size, name in symbols]
            self._writer.add_symbols(number, rows)
            starts = np.array([row[0] for row in rows], np.int64)
            ends = starts + np.array([row[1] for row in rows], np.int64)
            at = np.searchsorted(starts, offsets.astype(np.int64), "right") - 1
            inside = (at >= 0) & (offsets.astype(np.int64) < ends[np.maximum(at, 0)])
            waiting[number] = offsets[~inside]

    # --- samples ---

    def _record(self, samples: npt.NDArray[np.void], announced: _Announced) -> None:
        cache, stack = samples["cache"], samples["stack"]
        slot = stack & _SLOT_MASK
        node = self._node[cache, slot]
        known = self._generation[cache, slot] == stack >> np.uint32(SLOT_BITS)
        known |= samples["event"] == Switch.IN  # comes without a path
        if not known.all():
            rest = np.flatnonzero(~known)
            for each in (announced, self._last):
                found, at = each.find(cache[rest], stack[rest])
                node[rest[found]] = each.node[at[found]]
                rest = rest[~found]
            # Neither can happen; if it does it is counted, not attributed to another.
            if len(rest):
                self.dropped["stack forgotten"] += len(rest)
                samples, node = np.delete(samples, rest), np.delete(node, rest)
        numbers, place = np.unique(samples["thread"], return_inverse=True)
        lines = [self._line.get(number, _NO_LINE) for number in numbers.tolist()]
        line = np.array(lines, dtype=np.uint32)[place]
        strange = line == _NO_LINE
        if strange.any():
            self.dropped["thread unknown"] += int(strange.sum())
            samples, node, line = samples[~strange], node[~strange], line[~strange]
        event, value = samples["event"], samples["value"]
        taken = event < MAX_EVENTS
        self.cct.count_samples(node[event != Switch.IN])
        self.recorded += int(taken.sum())
        self.switches += len(taken) - int(taken.sum())
        if self._timelines:
            order = by_line_and_time(line, samples["time"])
            samples, node, line = samples[order], node[order], line[order]
            event, taken = samples["event"], taken[order]
            value, waits = self._timelines.advance(
                line, samples["time"], event, samples["value"], node
            )
            self._write(waits)
            counting = taken & (event != 0)
        else:
            counting = taken
        value = value.copy()
        value[counting] = self._periods_of(event[counting], value[counting])
        self._write(
            Records(line[taken], samples["time"][taken], node[taken], event[taken], value[taken])
        )

    def _periods_of(self, event: npt.NDArray[np.uint16], value: U64) -> U64:
        """How many periods of its event each sample stands for.

        What is cut off counts for the next, so that the sum is right whatever the rate.
        """
        period = self._periods[event]
        whole = value == period
        result: U64 = whole.astype(np.uint64)
        for number in np.unique(event[~whole]).tolist():
            at = np.flatnonzero(~whole & (event == number))
            total = np.cumsum(value[at], dtype=np.uint64) + self._left[number]
            level = total // self._periods[number]
            result[at] = np.diff(level, prepend=np.uint64(0))
            self._left[number] = total[-1] % self._periods[number]
        return result

    def _write(self, records: Records) -> None:
        self._write_nodes()
        if len(records.line):
            self._writer.add_records(
                records.line, records.time, records.node, records.event, records.value
            )

    def _write_nodes(self) -> None:
        if self.cct.count > self._written_nodes:
            fresh = slice(self._written_nodes, self.cct.count)
            self._writer.add_nodes(self.cct.parent[fresh], self.cct.frame[fresh])
            self._written_nodes = self.cct.count


class _Announced:
    """Stacks announced in one round: which cache slot each took, and the CCT node it is."""

    def __init__(
        self,
        cache: npt.NDArray[np.uint16] | None = None,
        stack: npt.NDArray[np.uint32] | None = None,
        node: npt.NDArray[np.uint32] | None = None,
    ) -> None:
        empty = np.zeros(0, np.uint32)
        self.cache = empty if cache is None else cache
        stack = empty if stack is None else stack
        self.node = empty if node is None else node
        self.slot = stack & _SLOT_MASK
        self.generation = stack >> np.uint32(SLOT_BITS)
        keys = _key(self.cache, stack)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def find(
        self, cache: npt.NDArray[np.uint16], stack: npt.NDArray[np.uint32]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """(whether each of these was announced, where)."""
        if not len(self._keys):
            return np.zeros(len(cache), bool), np.zeros(len(cache), np.int64)
        keys = _key(cache, stack)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return self._keys[at] == keys, self._order[at]


def _lies_in(address: U64, span: tuple[np.uint64, np.uint64]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (address >= span[0]) & (address < span[1])
    return found


def _key(cache: npt.NDArray[np.unsignedinteger], stack: npt.NDArray[np.unsignedinteger]) -> U64:
    return cache.astype(np.uint64) << np.uint64(32) | stack


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


assert EVENT_HEADER.itemsize == 16
