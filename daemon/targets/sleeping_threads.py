"""Call paths of threads that sleep while hpcd attaches to them.

Their stacks are read once they are registered; whoever has slept since before was asleep there at
that moment, too, and its first wait has the call path it really waits on. The path is finished as
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
class SleepingThread:
    """The stack of a thread as the programs would have sent it: a stack event of kind COPIED, and
    the copy it names. It has slept ``since`` (monotonic ns), by the scheduler's account."""

    event: bytes
    copy: bytes
    since: int


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

    def read(self, pids: Collection[int]) -> dict[int, SleepingThread]:
        """Return the threads of ``pids`` that sleep, by tid, where it is known since when."""
        size = 0

        def take(record: TaskStack) -> TaskStack:
            nonlocal size
            size += len(record.record)
            return record if size <= _MOST_BYTES else record.without_stack()

        wanted = dict.fromkeys(pids, Wanted.USER)
        records = self._reading.read(wanted, take, self._pythons_of(pids))
        # How far the scheduler's clock is behind: the thread that reads has just come to its CPU.
        clock = min((now.time - now.reader_arrival for now in records), default=0)
        return {
            record.tid: self._as_sent(record, clock)
            for record in records
            if record.size
            and record.arrival
            and not record.on_cpu
            and not record.parts & ~TaskParts.REGISTERS
        }

    def _as_sent(self, record: TaskStack, clock: int) -> SleepingThread:
        """``record`` as the programs would have sent it; the scheduler's clock is ``clock`` ns
        behind."""
        self._count += 1
        event = StackEvent(
            time=record.time, kind=EventKind.COPIED, tgid=record.tgid, stack=self._count,
            cache=_NO_CACHE, kernel_frames=record.kernel_frames,
            end_reason=UnwindStatus.BEFORE_ATTACH,
        )  # fmt: skip
        copy = StackCopy.replaced(record.copy, stack=self._count, cache=_NO_CACHE)
        since = max(record.departure, record.arrival) + clock
        return SleepingThread(event.pack() + record.kernel + record.chain, copy, since)

    def close(self) -> None:
        """Unload the iterator."""
        self._reading.close()
