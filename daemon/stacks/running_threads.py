"""The call paths of threads that are on a CPU. The registers of their last entry to the kernel say
nothing of where they are, so each is sampled once, by the recorder's own programs and clock."""

from __future__ import annotations

import time
from collections.abc import Collection

from hpcd.bpf.sampler import Sampler
from hpcd.bpf.saved_walk import without_chain
from hpcd.bpf.wire import EventHead, EventKind, StackEvent, SwitchEvent, ThreadEvent

FREQUENCY, _IDLE_FREQUENCY = 997, 1
"""Samples a second of each CPU while threads are looked for, and else."""
# The clock fires every millisecond of each CPU; a thread that is on one for this long is met.
_MOST_SECONDS = 0.05
_POLL_SECONDS = 0.002


class RunningThreads:
    """Samples threads of the processes that ``sampler`` knows. Attaches it at first use."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._attached = False
        self._tid_of: dict[int, int] = {}
        self._events: dict[tuple[int, int], bytes] = {}

    def sample(self, tids: Collection[int]) -> dict[int, bytes]:
        """The last stack of each of ``tids`` that was met on a CPU (:class:`StackEvent` and its
        frames), by tid. Takes 50 ms at most, less when all were met."""
        self._sampler.take_samples()  # what came since the last time is old
        self._sampler.programs.set_pace(FREQUENCY, 1)
        if not self._attached:
            self._sampler.programs.attach()
            self._attached = True
        wanted, stacks = set(tids), dict[int, bytes]()
        end = time.monotonic() + _MOST_SECONDS
        while wanted - stacks.keys() and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
            stacks |= self._take(wanted)
        # Until the next snapshot, which may be minutes away, it costs next to nothing.
        self._sampler.programs.set_pace(_IDLE_FREQUENCY, 1)
        return stacks

    def _take(self, wanted: Collection[int]) -> dict[int, bytes]:
        samples = self._sampler.take_samples()
        for event in self._sampler.take_events():
            kind = EventHead.unpack(event).kind
            if kind in (EventKind.STACK, EventKind.COPIED):
                stack = StackEvent.unpack(event)
                self._events[stack.cache, stack.stack], _ = without_chain(event)
            elif kind == EventKind.THREAD:
                thread = ThreadEvent.unpack(event)
                self._tid_of[thread.thread] = thread.tid
        self._sampler.take_copies()
        stacks = {}
        samples = samples[samples["event"] < SwitchEvent.SWITCHED_IN]
        for number, cache, slot in zip(
            samples["thread"].tolist(), samples["cache"].tolist(), samples["stack"].tolist(),
            strict=True,
        ):  # fmt: skip
            tid, met = self._tid_of.get(number, 0), self._events.get((cache, slot))
            if tid in wanted and met is not None:
                stacks[tid] = met
        return stacks
