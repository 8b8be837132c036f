"""Call paths: from the stacks the BPF programs announce to nodes of the CCT.

A stack is sent once, with the slot of the stack cache it took; samples then name the slot. The
resolver turns its addresses into module frames, outermost first, and remembers which CCT node each
slot stands for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
import numpy.typing as npt

from hpcd.bpf.layouts import EVENT_HEADER, MAX_USER_FRAMES, SLOT_BITS, STACK_EVENT
from hpcd.bpf.map_sizes import CACHE_SET_BITS, FIRST_CALL_CONTEXT
from hpcd.bpf.maps import possible_cpus
from hpcd.daemon.capture.cct_builder import CCTBuilder
from hpcd.daemon.capture.deep_stacks import unfold
from hpcd.daemon.capture.path_loops import FrameTable, PathLoops, path_loops
from hpcd.daemon.capture.report_loops import ReportLoops
from hpcd.daemon.capture.thread_lines import ThreadLines
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.load_modules import Modules
from hpcd.model import frame as frames
from hpcd.model.region import Region
from hpcd.model.unwind_status import UnwindStatus

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

# Stacks in code that is still being analysed: beyond this many they keep their raw addresses.
_MAX_PENDING = 4096
# Stacks of calls that are remembered after others have taken their slots: 30 MB of them.
_MOST_OF_CALLS = 1 << 18
_SLOTS = 1 << SLOT_BITS
_SLOT_MASK = np.uint32(_SLOTS - 1)
_WHOLE = (UnwindStatus.COMPLETE, UnwindStatus.KERNEL_ONLY)

_HEAD = struct.Struct("<QII")  # STACK_EVENT begins so: time, kind, tgid
_USER_FRAMES, _USER_FRAMES_AT = struct.Struct("<H"), 26

assert STACK_EVENT.fields and STACK_EVENT.fields["user_frames"][1] == _USER_FRAMES_AT
assert SLOT_BITS == CACHE_SET_BITS + 1
assert EVENT_HEADER.itemsize == 16


class StackResolver:
    """Owns the CCT and what each slot of the ``caches`` stack caches holds.

    ``find_mapping(pid, address, time)`` tells what a process had mapped at an address then, also
    when the process has ended since.

    Samples are looked up among the stacks announced in this round and in the last one, and among
    what the caches held at the end of the last round. A sample's stack is among them: it was in the
    cache when the sample was taken, which is after the samples of the last round.
    """

    def __init__(
        self,
        modules: Modules,
        kernel: KernelNaming,
        find_mapping: Callable[[int, int, int], Region | None],
        caches: int,
    ) -> None:
        self.cct = CCTBuilder()
        self._modules = modules
        self._kernel = kernel
        self._find_mapping = find_mapping
        # Side by side: slots that are looked up are in no cache.
        self._held = np.zeros((caches, _SLOTS, 2), dtype=np.uint32)
        self._node, self._generation = self._held[..., 0], self._held[..., 1]
        self._last_round = _NOTHING
        self._this_round = self._deferred_this_round = self._deferred_last_round = _NOTHING
        self._pending: list[bytes] = []
        self._kernel_frames = FrameTable()
        self._first_of_calls = FIRST_CALL_CONTEXT * possible_cpus()
        self._of_calls: dict[int, int] = {}
        self._standing_in: dict[int, int] = {}
        self._before_attach: dict[tuple[str, ...], int] = {}
        marker = np.array([frames.marker_frame(UnwindStatus.NEVER_SAMPLED)], np.uint64)
        self.never_sampled = int(self.cct.insert(marker, np.ones(1, np.int64))[0])
        """CCT node of threads that have not been sampled."""

    # Not before they are needed: they are read while the first samples are taken.

    @cached_property
    def _scheduler(self) -> tuple[np.uint64, np.uint64]:
        return self._kernel.symbols.range_of("__schedule")

    @cached_property
    def _signal_ranges(self) -> list[tuple[np.uint64, np.uint64]]:
        return self._kernel.symbols.signal_ranges()

    @cached_property
    def _kernel_entry(self) -> tuple[np.uint64, np.uint64]:
        return self._kernel.symbols.entry_text()

    # --- a round ---

    def add(
        self, stacks: list[bytes], deferred: Sequence[bytes] = (), stand_ins: U32 | None = None
    ) -> None:
        """Take the stacks announced in this round, as the event ring holds them, and those whose
        paths are ``deferred``, with the nodes that stand in for these."""
        if stacks:
            self._this_round = self._insert(stacks)
        if deferred and stand_ins is not None:
            size = STACK_EVENT.itemsize
            head = np.frombuffer(b"".join(event[:size] for event in deferred), STACK_EVENT)
            self._deferred_this_round = _Announced(head["cache"], head["stack"], stand_ins)
            of_calls = head["cache"] >= self._first_of_calls
            keys = self._deferred_this_round.keys[of_calls].tolist()
            self._standing_in.update(zip(keys, stand_ins[of_calls].tolist(), strict=True))

    def insert(self, stacks: list[bytes]) -> U32:
        """CCT nodes of stacks that take no slot."""
        return self._insert(stacks).node

    def nodes_of(
        self, cache: npt.NDArray[np.uint16], stack: U32, has_path: Mask
    ) -> tuple[U32, Mask]:
        """CCT nodes u32[n] of samples' stacks, and which are known (bool[n]).

        Samples without a path (``has_path`` is False) need none: any node, known.
        """
        slot = stack & _SLOT_MASK
        node = self._node[cache, slot]
        known = self._generation[cache, slot] == stack >> np.uint32(SLOT_BITS)
        known |= ~has_path
        self._find_announced(cache, stack, node, known, np.flatnonzero(~known))
        return node, known

    def look_up(
        self, loops: ReportLoops, reports: npt.NDArray[np.void], threads: ThreadLines
    ) -> tuple[U32, U32, I64, int]:
        """CCT nodes u32[n] and trace lines u32[n] of ``reports``; the places of those that lack a
        stack that is known, and how many have no line."""
        node, line, rest, strange = loops.look_up(reports, self._held, threads.table)
        if len(rest):
            asked = reports[rest]
            known, found = np.zeros(len(rest), bool), np.zeros(len(rest), np.uint32)
            self._find_announced(asked["cache"], asked["stack"], found, known, np.arange(len(rest)))
            node[rest] = found
            rest = rest[~known]
        return node, line, rest, strange

    def _find_announced(
        self, cache: npt.NDArray[np.uint16], stack: U32, node: U32, known: Mask, rest: I64
    ) -> None:
        """Fill in the nodes of the stacks ``rest``, which no cache holds, as far as they are
        known."""
        for announced in (
            self._this_round,
            self._last_round,
            self._deferred_this_round,
            self._deferred_last_round,
        ):
            if not len(rest):
                break
            found, at = announced.find(cache[rest], stack[rest])
            node[rest[found]] = announced.node[at[found]]
            known[rest[found]] = True
            rest = rest[~found]
        if len(rest) and (self._of_calls or self._standing_in):
            keys = _key(cache[rest], stack[rest]).tolist()
            standing = self._standing_in
            older = np.array(
                [self._of_calls.get(key, standing.get(key, -1)) for key in keys], np.int64
            )
            found = older >= 0
            node[rest[found]] = older[found]
            known[rest[found]] = True

    def end_round(self) -> None:
        """The samples of this round have been looked up: its stacks replace older ones."""
        announced = self._this_round
        if len(announced.node):
            self._keep_of_calls(announced)
            self._node[announced.cache, announced.slot] = announced.node
            self._generation[announced.cache, announced.slot] = announced.generation
        self._last_round, self._this_round = announced, _NOTHING
        self._deferred_last_round = self._deferred_this_round
        self._deferred_this_round = _NOTHING

    def _keep_of_calls(self, announced: _Announced) -> None:
        """Keep the nodes of calls' stacks: a call may last for hours, and is sent when it ends."""
        of_calls = announced.cache >= self._first_of_calls
        if not of_calls.any():
            return
        keys = announced.keys[of_calls].tolist()
        self._of_calls.update(zip(keys, announced.node[of_calls].tolist(), strict=True))
        surplus = len(self._of_calls) - _MOST_OF_CALLS
        for key in list(islice(self._of_calls, max(surplus, 0))):
            del self._of_calls[key]

    def settle(self, translate: Callable[[U32], tuple[U32, Mask]]) -> None:
        """Calls' stacks whose paths are finished get their nodes, by
        :meth:`DeferredPaths.translate`, which forgets them after this."""
        if not self._standing_in:
            return
        keys = list(self._standing_in)
        node, unfinished = translate(np.array(list(self._standing_in.values()), np.uint32))
        for key, one, waiting in zip(keys, node.tolist(), unfinished.tolist(), strict=True):
            if not waiting:
                self._of_calls[key] = one
                del self._standing_in[key]

    def resolve_pending_stacks(self) -> None:
        """Unwind tables have arrived: resolve the frames that waited for the module they are in."""
        if self._pending:
            waiting, self._pending = self._pending, []
            resolved = self._insert(waiting)
            same = self._generation[resolved.cache, resolved.slot] == resolved.generation
            self._node[resolved.cache[same], resolved.slot[same]] = resolved.node[same]

    def node_before_attach(self, kernel_stack: tuple[str, ...]) -> int:
        """CCT node of a thread that slept when it was attached to, of which only its kernel
        functions are known (innermost first)."""
        node = self._before_attach.get(kernel_stack)
        if node is None:
            address = np.zeros(0, np.uint64)
            if kernel_stack:
                address = self._kernel.addresses(kernel_stack[::-1])
            body = self._kernel.to_module_frames(address, np.zeros(len(address), np.int64))
            path = np.append(np.uint64(frames.marker_frame(UnwindStatus.BEFORE_ATTACH)), body)
            node = int(self.cct.insert(path, np.array([len(path)]))[0])
            self._before_attach[kernel_stack] = node
        return node

    def in_scheduler(self, event: bytes) -> bytes:
        """The event of a sleeping thread's stack, which the kernel gives without the scheduler's
        functions, with the one that every such thread stands in as its innermost frame."""
        start, end = self._scheduler
        if start >= end:
            return event
        head = np.frombuffer(event, STACK_EVENT, 1).copy()
        head["kernel_frames"] += 1
        return head.tobytes() + start.tobytes() + event[STACK_EVENT.itemsize :]

    # --- from ring to path ---

    def _insert(self, raw: list[bytes]) -> _Announced:
        loops = path_loops()
        return self._insert_compiled(loops, raw) if loops else self._insert_by_numpy(raw)

    def _insert_compiled(self, loops: PathLoops, announced: list[bytes]) -> _Announced:
        stacks = announced
        gathered = loops.gather(stacks, self._spans, self._kernel_frames)
        if gathered is None:
            stacks = [_unfolded(event) for event in announced]
            gathered = loops.gather(stacks, self._spans, self._kernel_frames)
        if gathered and len(gathered.missing):
            address = np.unique(gathered.missing)
            innermost = np.zeros(len(address), np.int64)
            named = self._kernel.to_module_frames(address, innermost)
            self._kernel_frames.add(address, named)
            gathered = loops.gather(stacks, self._spans, self._kernel_frames)
        if gathered is None:
            raise ValueError("a stack that has not as many frames as it says")
        incomplete = []
        for at, of in zip(gathered.raw_at.tolist(), gathered.raw_of.tolist(), strict=True):
            time, _, pid = _HEAD.unpack_from(stacks[of])
            frame, waits = self._module_frame(int(gathered.path[at]), pid, time)
            gathered.path[at] = frame
            if waits:
                incomplete.append(of)
        self._wait_for_modules(announced, dict.fromkeys(incomplete))
        return _Announced(
            gathered.cache, gathered.stack, self.cct.insert(gathered.path, gathered.length)
        )

    @cached_property
    def _spans(self) -> U64:
        spans = [self._scheduler, self._kernel_entry, *self._signal_ranges]
        return np.array(spans, np.uint64).ravel()

    def _insert_by_numpy(self, raw: list[bytes]) -> _Announced:
        size = STACK_EVENT.itemsize
        head = np.frombuffer(b"".join(event[:size] for event in raw), STACK_EVENT)
        deep = np.flatnonzero(head["user_frames"] > MAX_USER_FRAMES)
        announced = raw
        if len(deep):
            raw = list(raw)
            for index in deep.tolist():
                raw[index] = unfold(raw[index])
            head = np.frombuffer(b"".join(event[:size] for event in raw), STACK_EVENT)
        body = np.frombuffer(b"".join(event[size:] for event in raw), np.uint64)
        count = head["kernel_frames"].astype(np.int64) + head["user_frames"]
        ends = np.cumsum(count)
        starts = ends - count

        # In the ring the innermost frame comes first; a path begins with the outermost.
        depth = np.arange(len(body)) - np.repeat(starts, count)
        owner = np.repeat(np.arange(len(head)), count)
        inner = self._tracepoint_frames(head, body, depth, owner)
        changing = self._registers_changing(body, depth, owner, len(head))
        outer = np.where(changing, head["kernel_frames"], count)
        if inner.any() or changing.any():
            body = body[(depth >= np.repeat(inner, count)) & (depth < np.repeat(outer, count))]
            count = outer - inner
            ends = np.cumsum(count)
            starts = ends - count
            depth = np.arange(len(body)) - np.repeat(starts, count)
        reverse = np.repeat(ends, count) - 1 - depth
        module_frames, incomplete = self._resolve_raw_addresses(
            self._kernel.to_module_frames(body, depth), head["tgid"], head["time"], count
        )
        self._wait_for_modules(announced, incomplete.tolist())

        ending = np.where(changing, np.uint64(UnwindStatus.REGISTERS_CHANGING), head["ending"])
        return _Announced(
            head["cache"],
            head["stack"],
            self.cct.insert(*_with_markers(module_frames[reverse], count, depth, ending)),
        )

    def _tracepoint_frames(
        self, head: npt.NDArray[np.void], body: U64, depth: I64, owner: I64
    ) -> I64:
        """How many of each stack's innermost frames are the tracepoint's, inside ``__schedule``."""
        inner = np.zeros(len(head), np.int64)
        leaving = (head["cache"] & 1).astype(bool)[owner]
        at = np.flatnonzero(leaving & _lies_in(body, self._scheduler))
        inner[owner[at[::-1]]] = depth[at[::-1]]  # of several the innermost
        return inner

    def _registers_changing(self, body: U64, depth: I64, owner: I64, stacks: int) -> Mask:
        """Which stacks were taken while the kernel wrote the thread's user registers.

        Their user part was unwound from registers of two different places and is no call path.
        """
        interrupted = (depth == 0) | np.roll(_lies_in(body, self._kernel_entry), 1)
        changing = np.zeros(stacks, np.bool_)
        for signal_range in self._signal_ranges:
            changing[owner[interrupted & _lies_in(body, signal_range)]] = True
        return changing

    def _resolve_raw_addresses(
        self, body: U64, pids: U32, times: U64, count: I64
    ) -> tuple[U64, npt.NDArray[np.int64]]:
        """Turn addresses in code that the walker had no mapping of into module frames.

        Processes that have ended since and modules unloaded since are found by what the kernel
        reported when it mapped them. Python runs once for each such frame of a new stack.

        Returns the frames u64[n], and the indices of stacks whose module is still being analysed.
        """
        raw = np.flatnonzero(~frames.is_module(body) & ~frames.is_marker(body))
        if not len(raw):
            return body, raw
        result = body.copy()
        stack = np.repeat(np.arange(len(count)), count)
        incomplete = []
        for at in raw.tolist():
            of = int(stack[at])
            result[at], waits = self._module_frame(int(body[at]), int(pids[of]), int(times[of]))
            if waits:
                incomplete.append(of)
        return result, np.unique(np.array(incomplete, np.int64))

    def _module_frame(self, raw: int, pid: int, time: int) -> tuple[int, bool]:
        """The frame of a user address that was in no module when it was met, and whether that will
        be another once its module is analysed."""
        address = raw & frames.RAW_MASK
        mapping = self._find_mapping(pid, address, time)
        frame = self._modules.frame_in(pid, mapping, address) if mapping else None
        if frame is not None:
            return int(frame), False
        return raw, bool(mapping and mapping.inode)

    def _wait_for_modules(self, announced: list[bytes], which: Iterable[int]) -> None:
        room = max(_MAX_PENDING - len(self._pending), 0)
        self._pending += [announced[index] for index in islice(which, room)]


class _Announced:
    """Stacks announced in one round: which cache slot each took, and the CCT node it is."""

    def __init__(
        self,
        cache: npt.NDArray[np.uint16] | None = None,
        stack: U32 | None = None,
        node: U32 | None = None,
    ) -> None:
        empty = np.zeros(0, np.uint32)
        self.cache = empty if cache is None else cache
        stack = empty if stack is None else stack
        self.node = empty if node is None else node
        self.slot = stack & _SLOT_MASK
        self.generation = stack >> np.uint32(SLOT_BITS)
        self.keys = _key(self.cache, stack)

    @cached_property
    def _sorted(self) -> tuple[I64, U64]:
        order = np.argsort(self.keys)
        return order, self.keys[order]

    def find(self, cache: npt.NDArray[np.uint16], stack: U32) -> tuple[Mask, I64]:
        """(whether each of these was announced, where)."""
        if not len(self.keys):
            return np.zeros(len(cache), bool), np.zeros(len(cache), np.int64)
        order, known = self._sorted
        keys = _key(cache, stack)
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return known[at] == keys, order[at]


def _unfolded(event: bytes) -> bytes:
    user_frames = _USER_FRAMES.unpack_from(event, _USER_FRAMES_AT)[0]
    return unfold(event) if user_frames > MAX_USER_FRAMES else event


def _with_markers(path: U64, count: I64, depth: I64, ending: U64) -> tuple[U64, I64]:
    """Paths one after another, each that is not whole below a marker of its ending; and lengths."""
    whole = np.isin(ending, _WHOLE)
    marked = (~whole).astype(np.int64)
    lengths = count + marked
    starts = np.cumsum(lengths) - lengths
    result = np.empty(int(lengths.sum()), dtype=np.uint64)
    result[np.repeat(starts + marked, count) + depth] = path
    result[starts[~whole]] = np.uint64(frames.MARKER) | ending[~whole]
    return result, lengths


def _lies_in(address: U64, span: tuple[np.uint64, np.uint64]) -> Mask:
    inside: Mask = (address >= span[0]) & (address < span[1])
    return inside


def _key(cache: npt.NDArray[np.unsignedinteger], stack: npt.NDArray[np.unsignedinteger]) -> U64:
    return cache.astype(np.uint64) << np.uint64(32) | stack


_NOTHING = _Announced()
