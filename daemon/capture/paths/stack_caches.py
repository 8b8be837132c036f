"""CCT nodes of the stacks in the BPF programs' stack caches; samples name cache and slot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64, U16, U32, U64, Mask
from hpcd.bpf.kernel.maps import possible_cpus
from hpcd.bpf.wire import CACHE_SET_BITS, FIRST_CALL_CONTEXT, SLOT_BITS, StackEvent
from hpcd.daemon.capture.records.recorder_kernels import look_up
from hpcd.daemon.capture.records.thread_lines import ThreadLines

# Stacks of calls that are remembered after others have taken their slots: 30 MB of them.
_MAX_CALL_STACKS = 1 << 18
_SLOTS = 1 << SLOT_BITS
_SLOT_MASK = np.uint32(_SLOTS - 1)
assert SLOT_BITS == CACHE_SET_BITS + 1


class Lookup(NamedTuple):
    """Nodes and trace lines of ``n`` reports."""

    node: U32
    """u32[n]; anything for reports without a known stack."""
    line: U32
    """u32[n]; NO_LINE for unknown threads."""
    forgotten: I64
    """Positions of the reports whose stack is not known."""
    unknown: int
    """Number of reports of unknown threads."""


class StackCaches:
    """The CCT node of each slot of ``count`` stack caches.

    Samples are looked up among the stacks announced in this round and in the last one, among what
    the caches held at the end of the last round, and among what was replaced in it. A sample's
    stack is among them: it was in the cache when the sample was taken, which is after the samples
    of the last round, but not always after its announcements, which are taken later.
    """

    def __init__(self, count: int) -> None:
        # Side by side: slots that are looked up are in no processor cache.
        self._held = np.zeros((count, _SLOTS, 2), dtype=np.uint32)
        self._node, self._generation = self._held[..., 0], self._held[..., 1]
        self._last_round = self._this_round = self._replaced = _NOTHING
        self._deferred_last_round = self._deferred_this_round = _NOTHING
        self._first_of_calls = FIRST_CALL_CONTEXT * possible_cpus()
        # Nodes of calls' stacks, and stand-ins of those whose paths are not finished, by key.
        self._of_calls: dict[int, int] = {}
        self._standing_in: dict[int, int] = {}

    def announce(self, cache: U16, stack: U32, node: U32) -> None:
        """Take the stacks announced in this round: n caches, slots with generations, and nodes."""
        self._this_round = _Announced(cache, stack, node)

    def announce_deferred(self, events: Sequence[bytes], stand_ins: U32) -> None:
        """Take the events of stacks whose paths are deferred, and their ``stand_ins`` u32[n]."""
        size = StackEvent.BYTES
        head = np.frombuffer(b"".join(event[:size] for event in events), StackEvent.dtype())
        announced = _Announced(head["cache"], head["stack"], stand_ins)
        self._deferred_this_round = announced
        of_calls = announced.cache >= self._first_of_calls
        keys = announced.keys[of_calls].tolist()
        self._standing_in.update(zip(keys, stand_ins[of_calls].tolist(), strict=True))

    def look_up(self, reports: npt.NDArray[np.void], threads: ThreadLines) -> Lookup:
        """Return the nodes and trace lines of ``reports`` (:class:`hpcd.bpf.wire.Sample`).

        Those of threads that arrive on a CPU have no stack: their node is 0.
        """
        node, line, rest, unknown = look_up(reports, self._held, threads.table)
        if len(rest):
            known, late = self._find_announced(reports["cache"][rest], reports["stack"][rest])
            node[rest[known]] = late[known]
            rest = rest[~known]
        return Lookup(node, line, rest, unknown)

    def _find_announced(self, cache: U16, stack: U32) -> tuple[Mask, U32]:
        """Return which of these stacks, which no cache holds, are known, and the nodes u32[n] of
        those that are."""
        keys = _key(cache, stack)
        node, known = np.zeros(len(keys), np.uint32), np.zeros(len(keys), bool)
        for announced in (
            self._this_round,
            self._last_round,
            self._replaced,
            self._deferred_this_round,
            self._deferred_last_round,
        ):
            rest = np.flatnonzero(~known)
            here, at = announced.find(keys[rest])
            node[rest[here]] = announced.node[at[here]]
            known[rest[here]] = True
        if self._of_calls or self._standing_in:
            for place in np.flatnonzero(~known).tolist():
                key = int(keys[place])
                older = self._of_calls.get(key, self._standing_in.get(key))
                if older is not None:
                    node[place], known[place] = older, True
        return known, node

    def end_round(self) -> None:
        """The samples of this round have been looked up: its stacks replace older ones."""
        announced = self._this_round
        self._replaced = _NOTHING
        if len(announced.node):
            self._keep_of_calls(announced)
            self._replaced = _Announced(
                announced.cache,
                self._generation[announced.cache, announced.slot] << SLOT_BITS | announced.slot,
                self._node[announced.cache, announced.slot],
            )
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
        surplus = len(self._of_calls) - _MAX_CALL_STACKS
        for key in list(islice(self._of_calls, max(surplus, 0))):
            del self._of_calls[key]

    def settle(self, translate: Callable[[U32], tuple[U32, Mask]]) -> None:
        """Give calls' stacks whose paths are finished their nodes, by
        :meth:`StandIns.translate`, which forgets them after this."""
        if not self._standing_in:
            return
        keys = list(self._standing_in)
        node, unfinished = translate(np.array(list(self._standing_in.values()), np.uint32))
        for key, one, waiting in zip(keys, node.tolist(), unfinished.tolist(), strict=True):
            if not waiting:
                self._of_calls[key] = one
                del self._standing_in[key]

    def replace(self, cache: U16, stack: U32, node: U32) -> None:
        """Give stacks that are still in their slots other nodes u32[n]."""
        replaced = _Announced(cache, stack, node)
        same = self._generation[cache, replaced.slot] == replaced.generation
        self._node[cache[same], replaced.slot[same]] = node[same]


class _Announced:
    """Stacks announced in one round: the cache slot that each took, and its CCT node."""

    def __init__(self, cache: U16, stack: U32, node: U32) -> None:
        self.cache = cache
        self.node = node
        self.slot = stack & _SLOT_MASK
        self.generation = stack >> np.uint32(SLOT_BITS)
        self.keys = _key(cache, stack)

    @cached_property
    def _sorted(self) -> tuple[I64, U64]:
        order = np.argsort(self.keys)
        return order, self.keys[order]

    def find(self, keys: U64) -> tuple[Mask, I64]:
        """Return which of ``keys`` u64[n] were announced, and their positions i64[n]."""
        if not len(self.keys):
            return np.zeros(len(keys), bool), np.zeros(len(keys), np.int64)
        order, known = self._sorted
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return known[at] == keys, order[at]


def _key(cache: U16, stack: U32) -> U64:
    return cache.astype(np.uint64) << np.uint64(32) | stack


_NOTHING = _Announced(np.zeros(0, np.uint16), np.zeros(0, np.uint32), np.zeros(0, np.uint32))
