"""Call paths: from the stacks that the BPF programs announce to nodes of the CCT.

A stack is sent once, with the slot of the stack cache it took; samples then name the slot. The
resolver turns its addresses into module frames, outermost first, and inserts the path in the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import islice

import numpy as np

from hpcd.array_types import U32, U64
from hpcd.bpf.wire import FRAME_JVM, StackEvent
from hpcd.daemon.capture.paths.cct_builder import CCTBuilder
from hpcd.daemon.capture.paths.stack_caches import StackCaches
from hpcd.daemon.capture.records.recorder_kernels import Paths, gather_paths
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.daemon.runtimes.java.method_naming import JavaNaming
from hpcd.daemon.runtimes.python.frame_naming import PythonNaming
from hpcd.distinct import distinct
from hpcd.kernels.library import structure
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from hpcd.model.region import Region

# Stacks in code that is still being analysed: beyond this many they keep their raw addresses.
_MAX_PENDING = 4096
_OF_PROCESS = StackEvent.reader("time", "tgid")
# As in call_paths.c: spreads consecutive addresses over the table.
_SPREAD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class StackResolver:
    """Owns the CCT, and the nodes of what ``cache_count`` stack caches hold.

    ``find_mapping(pid, address, time)`` returns what a process had mapped at an address then, also
    when the process has ended since. ``user_of(pid)`` returns whose a process is or was; without it
    users have no limits.
    """

    def __init__(
        self,
        mappings: ModuleMappings,
        kernel: KernelNaming,
        find_mapping: Callable[[int, int, int], Region | None],
        cache_count: int,
        user_of: Callable[[int], int] | None = None,
        python: PythonNaming | None = None,
        java: JavaNaming | None = None,
    ) -> None:
        self._python = python
        self._java = java
        self.cct = CCTBuilder()
        self.caches = StackCaches(cache_count)
        self._mappings = mappings
        self._kernel = kernel
        self._find_mapping = find_mapping
        self._user_of = user_of
        self._kernel_frames = KernelFrames()
        self._pending: list[bytes] = []
        self._before_attach: dict[tuple[str, ...], int] = {}
        self.never_sampled = self._marker(UnwindStatus.NEVER_SAMPLED)
        """CCT node of threads that have not been sampled."""
        self.reports_lost = self._marker(UnwindStatus.REPORTS_LOST)
        """CCT node of threads while their switches are not reported."""

    @property
    def failures(self) -> dict[str, str]:
        """Reasons of missing tables, contexts or runtimes' frames, by load module or user."""
        python = self._python.processes.unknown if self._python else {}
        return self.cct.failures | python | (self._java.processes.unknown if self._java else {})

    def _marker(self, status: UnwindStatus) -> int:
        """Return the CCT node of a path with the marker of ``status`` as its only frame."""
        marker = np.array([frames.marker_frame(status)], np.uint64)
        return int(self.cct.insert(marker, np.ones(1, np.int64))[0])

    # Not before they are needed: the kernel's symbols are read while the first samples are taken.

    @cached_property
    def _scheduler(self) -> tuple[np.uint64, np.uint64]:
        return self._kernel.symbols.range_of("__schedule")

    @cached_property
    def _spans(self) -> U64:
        symbols = self._kernel.symbols
        waking = symbols.range_of("try_to_wake_up")
        spans = [self._scheduler, waking, symbols.entry_text(), *symbols.signal_ranges()]
        return np.array(spans, np.uint64).ravel()

    def resolve(self, stacks: list[bytes]) -> Paths:
        """Return the call paths of ``stacks``, as the event ring holds them.

        Those that lead through code which is still being analysed keep raw addresses there, and
        are resolved again by :meth:`resolve_pending_stacks`. Raises :class:`ValueError` if a stack
        does not have as many frames as it says.
        """
        paths = gather_paths(stacks, self._spans, self._kernel_frames.struct)
        if len(paths.missing):
            address = distinct(paths.missing)
            self._kernel_frames.add(address, self._kernel.to_module_frames(address))
            paths = gather_paths(stacks, self._spans, self._kernel_frames.struct)
        if len(paths.python_at):
            paths = self._with_runtimes(stacks, paths)
        incomplete = []
        for at, of in zip(paths.raw_at.tolist(), paths.raw_of.tolist(), strict=True):
            time, pid = _OF_PROCESS(stacks[of])
            paths.frames[at], waits = self._module_frame(int(paths.frames[at]), pid, time)
            if waits:
                incomplete.append(of)
        self._wait_for_modules(stacks, dict.fromkeys(incomplete))
        return paths

    def on_function(self, event: bytes) -> None:
        """The programs have sent a function of Python."""
        if self._python:
            self._python.processes.on_sent(event)

    def read_ahead(self, stacks: list[bytes]) -> None:
        """Read what may not be there any more when ``stacks`` are resolved."""
        if self._python:
            self._python.read_ahead(stacks)
        if self._java:
            self._java.read_ahead(stacks)

    def _with_runtimes(self, stacks: list[bytes], paths: Paths) -> Paths:
        """Return ``paths`` with frames of functions in the place of runtimes' words: of each none
        where it is the runtime's own, or several where functions were inlined."""
        at = paths.python_at
        pids = np.fromiter((_OF_PROCESS(stack)[1] for stack in stacks), np.uint64)
        pid, word, position = pids[paths.python_of], paths.frames[at], paths.python_position
        count = np.zeros(len(at), np.int64)
        java = (word & np.uint64(FRAME_JVM)) != 0
        named = np.zeros(0, np.uint64)
        if self._java and java.any():
            named, count[java] = self._java.frames(pid[java], word[java], position[java])
        python = np.zeros(len(at), np.uint64)
        if self._python and not java.all():
            python[~java] = self._python.frames(pid[~java], word[~java], position[~java])
            count[python != 0] = 1
        copies = np.ones(len(paths.frames), np.int64)
        copies[at] = count
        frame = np.repeat(paths.frames, copies)
        place = np.cumsum(copies) - copies
        frame[place[at[python != 0]]] = python[python != 0]
        frame[np.repeat(np.isin(np.arange(len(copies)), at[java]), copies)] = named
        length = paths.length.copy()
        np.add.at(length, paths.python_of, count - 1)
        return paths._replace(frames=frame, length=length, raw_at=place[paths.raw_at])

    def insert(self, stacks: list[bytes]) -> U32:
        """Return the CCT nodes u32[n] of stacks that take no slot."""
        return self.insert_paths(self.resolve(stacks))

    def insert_paths(self, paths: Paths) -> U32:
        """Return the CCT nodes u32[n] of ``paths``."""
        uid = None
        if self._user_of:
            pids = distinct(paths.pid)
            users = np.array([self._user_of(pid) for pid in pids.tolist()], np.int64)
            uid = users[np.searchsorted(pids, paths.pid)] if users.any() else None
        return self.cct.insert(paths.frames, paths.length, uid)

    def _module_frame(self, raw: int, pid: int, time: int) -> tuple[int, bool]:
        """Return the frame of a user address that was in no module when it was met, and whether
        that will be another once its module is analysed.

        Processes that have ended since and modules unloaded since are found by what the kernel
        reported when it mapped them.
        """
        address = raw & frames.RAW_MASK
        mapping = self._find_mapping(pid, address, time)
        frame = self._mappings.frame_in(pid, mapping, address) if mapping else None
        if frame is not None:
            return int(frame), False
        return raw, bool(mapping and mapping.inode)

    def _wait_for_modules(self, stacks: list[bytes], which: Iterable[int]) -> None:
        room = max(_MAX_PENDING - len(self._pending), 0)
        self._pending += [stacks[index] for index in islice(which, room)]

    def resolve_pending_stacks(self) -> None:
        """Unwind tables have arrived: resolve the stacks that waited for their modules."""
        if self._pending:
            waiting, self._pending = self._pending, []
            paths = self.resolve(waiting)
            node = self.insert_paths(paths)
            self.caches.replace(paths.cache, paths.stack, node)

    def node_before_attach(self, kernel_stack: tuple[str, ...]) -> int:
        """Return the CCT node of a thread that slept when it was attached to, of which only its
        kernel functions are known (innermost first)."""
        node = self._before_attach.get(kernel_stack)
        if node is None:
            address = np.zeros(0, np.uint64)
            if kernel_stack:
                address = self._kernel.addresses(kernel_stack[::-1])
            body = self._kernel.to_module_frames(address)
            path = np.append(np.uint64(frames.marker_frame(UnwindStatus.BEFORE_ATTACH)), body)
            node = int(self.cct.insert(path, np.array([len(path)]))[0])
            self._before_attach[kernel_stack] = node
        return node

    def in_scheduler(self, event: bytes) -> bytes:
        """Return the event of a sleeping thread's stack, which the kernel gives without the
        scheduler's functions, with the one that every such thread is in as its innermost frame."""
        start, end = self._scheduler
        if start >= end:
            return event
        head = StackEvent.unpack(event)
        head.kernel_frames += 1
        return head.pack() + start.tobytes() + event[head.BYTES :]


class KernelFrames:
    """Module frames by kernel address: a table with linear probing, at most half full.

    ``addresses`` and ``frames`` are u64[slots], a power of two; 0 is a free slot.
    """

    def __init__(self) -> None:
        self._resize(4096)

    def _resize(self, slots: int) -> None:
        self.addresses: U64 = np.zeros(slots, np.uint64)
        self.frames: U64 = np.zeros(slots, np.uint64)
        self._count = 0
        self.struct = structure(
            "frame_table", addresses=self.addresses, frames=self.frames, slots=slots
        )
        """The table as kernels take it; another one once it has grown."""

    def add(self, addresses: U64, frames: U64) -> None:
        """Enter addresses that are not in the table, each once."""
        slots = len(self.addresses)
        if 2 * (self._count + len(addresses)) > slots:
            known = self.addresses != 0
            addresses = np.append(self.addresses[known], addresses)
            frames = np.append(self.frames[known], frames)
            while slots < 4 * len(addresses):
                slots *= 2
            self._resize(slots)
        for address, frame in zip(addresses.tolist(), frames.tolist(), strict=True):
            slot = (address * _SPREAD & _MASK) >> 32 & slots - 1
            while self.addresses[slot]:
                slot = slot + 1 & slots - 1
            self.addresses[slot], self.frames[slot] = address, frame
        self._count += len(addresses)
