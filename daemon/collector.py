"""The collector: from what the kernel sends to what the measurement holds.

Each round empties the sample ring in one numpy view, then the event ring, so that whatever a sample
refers to is known. Work per sample is a handful of gathers over the whole batch; Python runs once
per new stack, thread or process.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from hpcd.bpf.records import (
    CACHE_SET_BITS,
    EVENT_HEADER,
    SLOT_BITS,
    STACK_EVENT,
    THREAD_EVENT,
    EventKind,
)
from hpcd.bpf.sampler import Sampler
from hpcd.daemon import jit
from hpcd.daemon.cct import CCTBuilder
from hpcd.daemon.kernel_symbols import KernelSymbols, kernel_build_id
from hpcd.daemon.modules import Modules
from hpcd.daemon.targets import Targets
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame as frames
from hpcd.model.ending import Ending
from hpcd.model.identity import ModuleKind, Thread

U64 = npt.NDArray[np.uint64]

_SLOTS = 1 << SLOT_BITS
_SLOT_MASK = np.uint32(_SLOTS - 1)
_WHOLE = (Ending.COMPLETE, Ending.KERNEL_ONLY)

assert SLOT_BITS == CACHE_SET_BITS + 1


class Collector:
    """Moves samples from the rings into a measurement.

    ``runtime`` sums the CPU seconds of threads that have ended, by tid, as the kernel counted them.
    """

    def __init__(
        self,
        sampler: Sampler,
        targets: Targets,
        modules: Modules,
        writer: MeasurementWriter,
        kernel: KernelSymbols,
        cpus: int,
        period_ns: int,
    ) -> None:
        self._sampler = sampler
        self._targets = targets
        self._modules = modules
        self._writer = writer
        self._period = np.uint64(period_ns)
        self.cct = CCTBuilder()
        self._written_nodes = 1
        # What each slot of each CPU's stack cache held at the end of the last round, and the
        # stacks announced in the last round and in this one. A sample's stack is among them: it
        # was in the cache when the sample was taken, which is after the samples of the last round.
        self._node = np.zeros((cpus, _SLOTS), dtype=np.uint32)
        self._generation = np.zeros((cpus, _SLOTS), dtype=np.uint16)
        self._last = _Announced()
        self._line: dict[int, int] = {}
        self._threads: dict[int, Thread] = {}
        self._lines = 0
        self._kernel = kernel
        self._kernel_ids: list[int] = []
        self._jit_named = 1
        self._jit_waiting: dict[int, U64] = {}
        self._kernel_named: set[tuple[int, int]] = set()
        self.recorded = 0
        self.dropped: Counter[str] = Counter()
        self.ended_runtime: list[tuple[int, int, float]] = []
        self.refresh: set[int] = set()

    def drain(self) -> int:
        """One round; returns the samples taken."""
        samples = self._sampler.take_samples()
        stacks: list[bytes] = []
        for raw in self._sampler.take_events():
            kind = raw[8]  # EVENT_HEADER.kind, little endian
            if kind == EventKind.STACK:
                stacks.append(raw)
            else:
                self._lifecycle(kind, np.frombuffer(raw, THREAD_EVENT, 1)[0])
        announced = self._add_stacks(stacks) if stacks else _Announced()
        if len(samples):
            self._record(samples, announced)
        self._node[announced.cpu, announced.slot] = announced.node
        self._generation[announced.cpu, announced.slot] = announced.generation
        self._last = announced
        for pid in self.refresh:
            self._targets.refresh(pid)
        self.refresh.clear()
        self._targets.settle()
        return len(samples)

    # --- threads and processes ---

    def _lifecycle(self, kind: int, event: np.void) -> None:
        pid = int(event["tgid"])
        if kind == EventKind.THREAD:
            self._new_thread(event)
        elif kind == EventKind.EXIT:
            number = int(event["thread"])
            thread = self._threads.pop(number, None)
            if thread:
                self._writer.add_thread(
                    Thread(
                        thread.line,
                        thread.process,
                        thread.tid,
                        _text(event["comm"]),
                        thread.start_ns,
                        int(event["time"]),
                    )
                )
            self.ended_runtime.append((pid, int(event["tid"]), int(event["runtime"]) / 1e9))
            if event["other"]:
                self._targets.gone(pid)
        elif kind == EventKind.FORK:
            self._targets.forked(int(event["other"]), pid)
        elif kind == EventKind.EXEC:
            self._targets.executed(pid)
        elif kind == EventKind.REFRESH:
            self.refresh.add(pid)

    def _new_thread(self, event: np.void) -> None:
        process = self._targets.target(int(event["tgid"])).process
        line = self._lines
        self._lines += 1
        thread = Thread(
            line, process.id, int(event["tid"]), _text(event["comm"]), int(event["start"])
        )
        self._line[int(event["thread"])] = line
        self._threads[int(event["thread"])] = thread
        self._writer.add_thread(thread)

    @property
    def lines(self) -> int:
        """Trace lines so far."""
        return self._lines

    # --- stacks ---

    def _add_stacks(self, raw: list[bytes]) -> _Announced:
        size = STACK_EVENT.itemsize
        head = np.frombuffer(b"".join(each[:size] for each in raw), STACK_EVENT)
        body = np.frombuffer(b"".join(each[size:] for each in raw), np.uint64)
        kernel = head["kernel_frames"].astype(np.int64)
        count = kernel + head["user_frames"]
        ends = np.cumsum(count)
        starts = ends - count

        # In the ring the innermost frame comes first; a path begins with the outermost.
        within = np.arange(len(body)) - np.repeat(starts, count)
        reverse = np.repeat(ends, count) - 1 - within
        path = self._stored_frames(body, within)[reverse]

        whole = np.isin(head["ending"], _WHOLE)
        marked = (~whole).astype(np.int64)
        lengths = count + marked
        place = np.cumsum(lengths) - lengths
        framed = np.empty(int(lengths.sum()), dtype=np.uint64)
        framed[np.repeat(place + marked, count) + within] = path
        framed[place[~whole]] = np.uint64(frames.MARKER) | head["ending"][~whole]

        return _Announced(head["cpu"], head["stack"], self.cct.insert(framed, lengths))

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
            if known is None or owner is None:
                continue
            base = np.uint64(known.base)
            symbols = jit.named(jit.jit_symbols(owner.pid, owner.uid), offsets + base)
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
        cpu, stack = samples["cpu"], samples["stack"]
        slot = stack & _SLOT_MASK
        node = self._node[cpu, slot]
        known = self._generation[cpu, slot] == stack >> np.uint32(SLOT_BITS)
        if not known.all():
            rest = np.flatnonzero(~known)
            for each in (announced, self._last):
                found, at = each.find(cpu[rest], stack[rest])
                node[rest[found]] = each.node[at[found]]
                rest = rest[~found]
            if len(rest):  # cannot happen; if it does it is counted, not attributed to another
                self.dropped["stack forgotten"] += len(rest)
                keep = np.ones(len(samples), bool)
                keep[rest] = False
                samples, node = samples[keep], node[keep]
        numbers, place = np.unique(samples["thread"], return_inverse=True)
        line = np.array([self._line[number] for number in numbers.tolist()], dtype=np.uint32)[place]
        value = samples["value"]
        single = bool((value == self._period).all())
        self.cct.count_samples(node)
        self._write_nodes()
        self._writer.add_records(
            line,
            samples["time"],
            node,
            0,
            None if single else np.maximum(value // self._period, np.uint64(1)),
        )
        self.recorded += len(samples)

    def _write_nodes(self) -> None:
        if self.cct.count > self._written_nodes:
            fresh = slice(self._written_nodes, self.cct.count)
            self._writer.add_nodes(self.cct.parent[fresh], self.cct.frame[fresh])
            self._written_nodes = self.cct.count


class _Announced:
    """Stacks announced in one round: which cache slot each took, and the CCT node it is."""

    def __init__(
        self,
        cpu: npt.NDArray[np.uint16] | None = None,
        stack: npt.NDArray[np.uint32] | None = None,
        node: npt.NDArray[np.uint32] | None = None,
    ) -> None:
        empty = np.zeros(0, np.uint32)
        self.cpu = empty if cpu is None else cpu
        stack = empty if stack is None else stack
        self.node = empty if node is None else node
        self.slot = stack & _SLOT_MASK
        self.generation = stack >> np.uint32(SLOT_BITS)
        keys = _key(self.cpu, stack)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]

    def find(
        self, cpu: npt.NDArray[np.uint16], stack: npt.NDArray[np.uint32]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """(whether each of these was announced, where)."""
        if not len(self._keys):
            return np.zeros(len(cpu), bool), np.zeros(len(cpu), np.int64)
        keys = _key(cpu, stack)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return self._keys[at] == keys, self._order[at]


def _key(cpu: npt.NDArray[np.unsignedinteger], stack: npt.NDArray[np.unsignedinteger]) -> U64:
    return cpu.astype(np.uint64) << np.uint64(32) | stack


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


assert EVENT_HEADER.itemsize == 16
