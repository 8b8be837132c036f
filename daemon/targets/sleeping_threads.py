"""Call paths of threads that sleep while hpcd attaches to them.

Their stacks are read once they are registered; whoever has slept since before was asleep there at
that moment, too, and its first wait has the call path it really waits on. Of 200 threads some wake
in between: their stacks were read before they were registered as well. The path is finished as
those of new code are
(:class:`~hpcd.daemon.capture.paths.deferred_paths.DeferredPaths`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from hpcd.bpf.task_iterator import TaskIterator
from hpcd.bpf.task_stacks import TaskStack
from hpcd.bpf.wire import EventKind, StackCopy, StackEvent, TaskParts, Wanted
from hpcd.daemon.access.thread_reading import ThreadReading
from hpcd.model.codes import UnwindStatus

# Of stacks that are kept meanwhile, and then wait to be walked: half of what may wait.
_MOST_BYTES = 48 << 20
# No stack cache has this number: the paths take no slot.
_NO_CACHE = 0xFFFE


@dataclass(frozen=True, slots=True)
class SeenThread:
    """A thread when its stack was read. It had come to a CPU ``arrivals`` times, the last time at
    ``arrival`` (monotonic ns, by the scheduler's account).

    Of one that slept the stack is as the programs would have sent it: a stack event of kind COPIED,
    and the copy it names. It had slept ``since``.
    """

    arrivals: int
    arrival: int
    since: int = 0
    event: bytes = b""
    copy: bytes = b""


def seen_asleep(
    time_ns: int, before: SeenThread | None, after: SeenThread | None
) -> SeenThread | None:
    """Return the one of two readings of a thread, before and after ``time_ns``, that saw it asleep
    and since or until when it had not come to a CPU; None if neither is known to."""
    if after is None:
        return None
    if after.event and after.since <= time_ns:
        return after
    if before is None or not before.event or after.arrivals > before.arrivals + 1:
        return None
    return before if after.arrival > time_ns else None


class SleepingThreads:
    """Reads threads that have been registered, by ``iterator``, which it closes.

    ``pythons_of`` gives the ``struct python`` of those pids that run CPython.
    """

    def __init__(
        self,
        iterator: TaskIterator,
        pythons_of: Callable[[Collection[int]], Mapping[int, bytes]],
    ) -> None:
        self._reading = ThreadReading(iterator)
        self._pythons_of = pythons_of
        self._count = 0

    def read(self, pids: Collection[int]) -> dict[int, SeenThread]:
        """Return the threads of ``pids``, by tid."""
        size = 0

        def take(record: TaskStack) -> TaskStack:
            nonlocal size
            size += len(record.record)
            return record if size <= _MOST_BYTES else record.without_stack()

        wanted = dict.fromkeys(pids, Wanted.USER)
        records = self._reading.read(wanted, take, self._pythons_of(pids))
        # How far the scheduler's clock is behind: the thread that reads has just come to its CPU.
        clock = min((now.time - now.reader_arrival for now in records), default=0)
        return {record.tid: self._seen(record, clock) for record in records}

    def _seen(self, record: TaskStack, clock: int) -> SeenThread:
        """``record`` by the scheduler's clock, which is ``clock`` ns behind."""
        arrivals, arrival = record.switches + record.on_cpu, record.arrival + clock
        whole = record.size and record.arrival and not record.on_cpu
        if not whole or record.parts & ~TaskParts.REGISTERS:
            return SeenThread(arrivals, arrival)
        self._count += 1
        event = StackEvent(
            time=record.time, kind=EventKind.COPIED, tgid=record.tgid, stack=self._count,
            cache=_NO_CACHE, kernel_frames=record.kernel_frames,
            end_reason=UnwindStatus.BEFORE_ATTACH,
        )  # fmt: skip
        copy = StackCopy.replaced(record.copy, stack=self._count, cache=_NO_CACHE)
        since = max(record.departure, record.arrival) + clock
        text = event.pack() + record.kernel + record.chain
        return SeenThread(arrivals, arrival, since, text, copy)

    def close(self) -> None:
        """Unload the iterator."""
        self._reading.close()
