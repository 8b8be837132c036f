"""Call paths that are finished late: the process or the code was new when the sample was taken.

The programs have sent a copy of the stack (:class:`~hpcd.bpf.wire.StackCopy`). It waits here
until what was mapped at that moment is known and analysed, and is then walked by the programs' own
walker (:class:`hpcd.bpf.saved_walk.SavedWalker`). Until then the path's CCT node is a stand-in,
which the records refer to that wait with it.

A path that waits for too long, or for which there is no room, stays as far as it was found. Copies
that wait for a table are compressed once there are many: a browser's take 25 s to be made, in which
its threads fill 100 MB.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import zstandard

from hpcd.array_types import U32
from hpcd.bpf.events.mapping_events import MmapEvents
from hpcd.bpf.saved_walk import SavedWalker, joined, marked, without_chain
from hpcd.bpf.table_memory import Space, UnwindTables
from hpcd.bpf.wire import EventKind, StackCopy, StackEvent
from hpcd.daemon.capture.paths.past_spaces import PastMappings, PastSpaces
from hpcd.daemon.capture.paths.stand_ins import STAND_IN, StandIns
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.model.codes import UnwindStatus
from hpcd.model.frame import RAW_MASK, SPECIAL
from hpcd.model.region import Region

# Some 10,000 stacks: what two ranks' samples take while a table of their libraries is made.
_MAX_BYTES = 96 << 20
# Beyond that those that wait for a table are compressed, to a fifth or so, at 30 us each.
_MAX_LOOSE_BYTES = 16 << 20
# Of a mapping in a list; most are in others', too.
_REGION_BYTES = 16
# A table takes 20 s at most, but others come before it.
_MAX_WAIT_NS = 300_000_000_000
# How long until the kernel's report of a mapping is in the history, or it is read from /proc.
_MAPPING_WAIT_NS = 1_000_000_000
# As numbers, and single fields: this is done for each path.
_NO_TABLE, _NO_PROCESS = int(UnwindStatus.NO_TABLE), int(UnwindStatus.NO_PROCESS)
_READ_FAULT = int(UnwindStatus.READ_FAULT)
_EARLY = (int(UnwindStatus.NO_MAPPING), _NO_TABLE, _NO_PROCESS)
_NO_FRAMES = np.zeros(0, np.uint64)
_NUMBER_OF_COPY = StackCopy.reader("stack", "cache")
_NUMBER_OF_EVENT = StackEvent.reader("stack", "cache")
_OF_PROCESS = StackCopy.reader("time", "tgid")
_END_REASON = StackEvent.reader("end_reason")


@dataclass(slots=True)
class _Deferred:
    index: int
    tgid: int
    time: int
    user: int
    event: bytes
    copy: bytes
    chain: bytes
    """Python frames of its thread (:func:`hpcd.bpf.saved_walk.without_chain`)."""
    packed: bool = False
    """Whether the copy is compressed."""
    waits_for_table: bool = False
    mapped: PastMappings | None = None
    """The mappings of that moment if the path waits for a table: the history may forget them."""
    module: tuple[str, int] | None = None
    """Device and inode of the file whose table it waits for."""


class DeferredPaths:
    """Owns the copied stacks that wait, and the nodes that stand in for their paths.

    ``walker`` walks the copies, None where the kernel cannot run it: until it is loaded all wait,
    and the caller goes on emptying the rings. ``insert`` turns stack events into CCT nodes;
    ``process_at`` gives the number of the process that had a pid at a time (ns), 0 when it is not
    known, ``space_of`` the space in which a process, by its pid and number, is walked by now, if
    that is of these mappings. ``user_of`` is given where several users are recorded: whose a pid
    is. Copies of one user may take no more room than is left.
    """

    def __init__(
        self,
        walker: Future[SavedWalker | None],
        mmaps: MmapEvents,
        mappings: ModuleMappings,
        tables: UnwindTables,
        process_at: Callable[[int, int], int],
        insert: Callable[[list[bytes]], U32],
        space_of: Callable[[int, int, Sequence[Region]], Space | None] = lambda *_: None,
        user_of: Callable[[int], int] | None = None,
    ) -> None:
        self._walker = walker
        self._mmaps = mmaps
        self._mappings = mappings
        self._tables = tables
        self._process_at = process_at
        self._insert = insert
        self._space_of = space_of
        self._user_of = user_of
        self._waiting: OrderedDict[int, _Deferred] = OrderedDict()
        # Of these, those that do not wait for a table: they are looked at in every round. The
        # others by the file whose table it is, None where it is not known which: when it has come.
        self._fresh: dict[int, _Deferred] = {}
        self._by_module: dict[tuple[str, int] | None, dict[int, _Deferred]] = {}
        # The mappings at the time of the others, each once, and the bytes that takes, by user.
        self._mapped: dict[PastMappings, PastMappings] = {}
        self._mapped_bytes: Counter[int] = Counter()
        # In a round, by pid and number: the last that was requested, and since and until when.
        self._recent: dict[tuple[int, int], tuple[PastMappings, int, int]] = {}
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._decompressor = zstandard.ZstdDecompressor()
        self._unnamed: dict[tuple[int, ...], bytes] = {}
        self._bytes: Counter[int] = Counter()
        self.stand_ins = StandIns()
        """The nodes of the paths that wait."""
        self._tables_came = False
        self.counts: Counter[str] = Counter()
        """Copied stacks by outcome, as :class:`~hpcd.measurement.summary.DeferredPathCounts`."""

    @property
    def waiting(self) -> int:
        """Paths not finished."""
        return len(self._waiting)

    @property
    def waiting_for_tables(self) -> bool:
        """Whether a path is to be finished when an unwind table arrives."""
        return len(self._waiting) > len(self._fresh)

    def add(self, events: Sequence[bytes], copies: Sequence[bytes]) -> U32:
        """Take stacks copied in this round; their stand-ins, in the order of ``events``."""
        # A copy is sent before the event that names it, which may be taken in the next round.
        by_number = self._unnamed
        self._unnamed = {}
        for copy in copies:
            number = _NUMBER_OF_COPY(copy)
            # The pieces before it may have come in the last round.
            known = self._unnamed.get(number) or by_number.get(number)
            self._unnamed[number] = joined(known, marked(copy)) if known else marked(copy)
        by_number.update(self._unnamed)
        indices = self.stand_ins.add(len(events))
        kept_out: list[int] = []
        split = [without_chain(event) for event in events]
        for index, (event, chain) in zip(indices, split, strict=True):
            number = _NUMBER_OF_EVENT(event)
            self._unnamed.pop(number, None)
            if not self._defer(index, event, by_number.get(number), chain):
                kept_out.append(index)
        self._finish(kept_out, [split[index - indices.start][0] for index in kept_out])
        return np.array(indices, np.uint32) | np.uint32(STAND_IN)

    def add_one(self, event: bytes, copy: bytes) -> int:
        """Take a stack that comes with its copy, by no ring; its stand-in."""
        index = self.stand_ins.add(1)[0]
        event, chain = without_chain(event)
        if not self._defer(index, event, copy, chain):
            self._finish([index], [event])
        return index | STAND_IN

    def _defer(self, index: int, event: bytes, copy: bytes | None, chain: bytes) -> bool:
        """Return whether the path waits; else there is no room, or no copy."""
        time, tgid = _OF_PROCESS(copy) if copy else (0, 0)
        user = self._user_of(tgid) if self._user_of else 0
        if copy is None or len(copy) > self._room_for(user):
            self.counts["no_room"] += 1
            return False
        self._bytes[user] += len(copy)
        deferred = _Deferred(index, tgid, time, user, event, copy, chain)
        self._waiting[index] = self._fresh[index] = deferred
        return True

    def _room_for(self, user: int) -> int:
        left = _MAX_BYTES - self._bytes.total() - self._mapped_bytes.total()
        return left - self._bytes[user] - self._mapped_bytes[user] if self._user_of else left

    def tables_came(self) -> None:
        """Unwind tables have arrived: walk the paths that wait for one again."""
        self._tables_came = True

    def finish_paths(self, now: int, *, last: bool = False) -> bool:
        """Finish the paths that can be by now, and give up on others; True when there were any.

        When it is the ``last`` time nothing is waited for.
        """
        if not self._waiting:
            return False
        if not (self._walker.done() or last):
            self._mmaps.needed_since = min(self._mmaps.needed_since, self._oldest())
            return False
        done: list[int] = []
        events: list[bytes] = []
        spaces = PastSpaces(self._tables, self._mappings, self._space_of)
        overdue = now - self._oldest() > _MAX_WAIT_NS
        self._recent.clear()
        due = list(self._waiting.values()) if last or overdue else self._due()
        walker = self._walker.result()
        try:
            for deferred in due:
                event = self._finished(deferred, walker, spaces, now, last)
                if event is not None:
                    done.append(deferred.index)
                    events.append(event)
        finally:
            spaces.close()
        self._tables_came = False
        for index in done:
            deferred = self._waiting.pop(index)
            self._bytes[deferred.user] -= len(deferred.copy)
            self._fresh.pop(index, None)
            self._leave_module(deferred)
        if not self.waiting_for_tables:
            self._mapped.clear()
            self._mapped_bytes.clear()
        self._mmaps.needed_since = self._oldest()
        self._finish(done, events)
        return bool(done)

    def wait_for_walker(self) -> None:
        """Wait until the walker is loaded, so that no path waits for it any more."""
        self._walker.result()

    def _oldest(self) -> int:
        return next((deferred.time for deferred in self._waiting.values()), 1 << 63)

    def _due(self) -> list[_Deferred]:
        """Paths that may be finished by now: their tables have come."""
        due = list(self._fresh.values())
        if self._tables_came:
            for module, waiting in self._by_module.items():
                if module is None or self._mappings.is_analysed(*module):
                    due += waiting.values()
            due.sort(key=attrgetter("index"))
        return due

    def _leave_module(self, deferred: _Deferred) -> None:
        waiting = self._by_module.get(deferred.module, {})
        if waiting.pop(deferred.index, None) and not waiting:
            del self._by_module[deferred.module]

    def _finished(
        self,
        deferred: _Deferred,
        walker: SavedWalker | None,
        spaces: PastSpaces,
        now: int,
        last: bool,
    ) -> bytes | None:
        """The stack event of a path that waits no longer."""
        if walker is None:
            self.counts["gave_up"] += 1
            return deferred.event
        last = last or now - deferred.time > _MAX_WAIT_NS
        if not last and (
            deferred.time >= self._mmaps.taken_until
            or (deferred.waits_for_table and not self._tables_came)
            or (deferred.module and not self._mappings.is_analysed(*deferred.module))
        ):
            return None
        if not (deferred.waits_for_table or last) and self._waits_at_once(deferred):
            return None
        mapped = deferred.mapped or self._mapped_at(deferred.tgid, deferred.time)
        ending, depth, frames = _NO_PROCESS, 0, _NO_FRAMES
        if mapped:
            written = spaces.hold(mapped)
            copy = deferred.copy
            if deferred.packed:
                copy = self._decompressor.decompress(copy)
            ending, depth, frames = walker.walk(copy, written, deferred.chain)
        late = last or now - deferred.time > _MAPPING_WAIT_NS
        if mapped and ending == _NO_TABLE and not last:
            module = _file_at(mapped.regions, int(frames[-1]) & RAW_MASK)
            self._wait_for_table(deferred, mapped, module)
            return None
        if ending in _EARLY and not late:
            deferred.mapped = None  # the history may know more by then
            return None
        head = StackEvent.unpack(deferred.event)
        if ending == _READ_FAULT:
            # The path leaves the copied part of the stack: the reason is why it was copied.
            ending = head.end_reason
        if ending == _NO_PROCESS:
            self.counts["gave_up"] += 1
            return deferred.event
        if ending in _EARLY:
            self.counts["gave_up"] += 1
        else:
            self.counts["walked"] += 1
        head.kind, head.user_frames, head.end_reason = EventKind.STACK, depth, ending
        kernel = deferred.event[head.BYTES : head.BYTES + 8 * head.kernel_frames]
        return head.pack() + kernel + frames.tobytes()

    def _waits_at_once(self, deferred: _Deferred) -> bool:
        """Whether the programs' walk met a file whose table is still not there: to walk the copy
        takes ten times as long."""
        if _END_REASON(deferred.event) != (_NO_TABLE,):
            return False
        frame = int.from_bytes(deferred.event[-8:], "little")
        if frame & ~RAW_MASK != SPECIAL:
            return False  # of a deep stack it was left out
        address = frame & RAW_MASK
        region = self._mmaps.history.lookup(deferred.tgid, address, deferred.time)
        module = _file_at([region], address) if region else None
        if not module or self._mappings.is_analysed(*module):
            return False
        self._wait_for_table(deferred, None, module)
        return True

    def _mapped_at(self, pid: int, time: int) -> PastMappings | None:
        history, process = self._mmaps.history, self._process_at(pid, time)
        mapped, since, until = self._recent.get((pid, process), (None, 0, 0))
        if mapped is None or not since <= time < until:
            regions = history.at(pid, time)
            if not regions:
                return None
            mapped = PastMappings(pid, process, tuple(regions))
            self._recent[pid, process] = mapped, time, history.changes_after(pid, time)
        return mapped

    def _wait_for_table(
        self, deferred: _Deferred, mapped: PastMappings | None, module: tuple[str, int] | None
    ) -> None:
        self._leave_module(deferred)
        deferred.module = module
        self._by_module.setdefault(module, {})[deferred.index] = deferred
        if module:
            self._mappings.want(*module)
        if not deferred.waits_for_table:
            deferred.waits_for_table = True
            del self._fresh[deferred.index]
        if mapped and not deferred.mapped:
            deferred.mapped = self._mapped.setdefault(mapped, mapped)
            if deferred.mapped is mapped:
                self._mapped_bytes[deferred.user] += _REGION_BYTES * len(mapped.regions)
        if not deferred.packed and self._bytes.total() > _MAX_LOOSE_BYTES:
            self._bytes[deferred.user] -= len(deferred.copy)
            deferred.copy, deferred.packed = self._compressor.compress(deferred.copy), True
            self._bytes[deferred.user] += len(deferred.copy)

    def _finish(self, indices: list[int], events: list[bytes]) -> None:
        if indices:
            self.stand_ins.settle(indices, self._insert(events))

    def end_round(self) -> None:
        """Forget stand-ins that nothing refers to any more: see :meth:`StandIns.end_round`."""
        self.stand_ins.end_round(next(iter(self._waiting), None))


def _file_at(regions: Sequence[Region], address: int) -> tuple[str, int] | None:
    for region in regions:
        if region.start <= address < region.end and region.file_backed:
            return region.device, region.inode
    return None
