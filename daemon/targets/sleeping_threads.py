"""Call paths of threads that sleep while hpcd attaches to them.

Their stacks are read once before they are registered; whoever has not run until they all are was
asleep there at that moment, too, and its first wait has the call path it really waits on. The path
is finished as those of new code are
(:class:`~hpcd.daemon.capture.paths.deferred_paths.DeferredPaths`).
"""

from __future__ import annotations

from collections.abc import Collection
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
    the copy it names. It has slept ``since`` (monotonic ns), as far as the scheduler knows; 0: that
    is not known."""

    event: bytes
    copy: bytes
    since: int


class SleepingThreads:
    """Reads threads before and after they are registered, by ``iterator``, which it closes."""

    def __init__(self, iterator: TaskIterator) -> None:
        self._reading = ThreadReading(iterator)
        self._before: dict[int, TaskStack] = {}
        self._count = 0

    def read(self, pids: Collection[int]) -> None:
        """Read the threads of ``pids``, which are to be registered now."""
        self._before.clear()
        size = 0

        def take(record: TaskStack) -> TaskStack:
            nonlocal size
            size += len(record.record)
            return record if size <= _MOST_BYTES else record.without_stack()

        for record in self._reading.read(dict.fromkeys(pids, Wanted.USER), take):
            if record.size and not record.on_cpu and not record.parts & ~TaskParts.REGISTERS:
                self._before[record.tid] = record

    def unmoved(self) -> dict[int, SleepingThread]:
        """The threads, by tid, that have not run since :meth:`read`."""
        pids = {record.tgid for record in self._before.values()}
        unmoved = {}
        records = self._reading.read(dict.fromkeys(pids, Wanted.IDENTITY))
        # How far the scheduler's clock is behind: the thread that reads has just come to its CPU.
        clock = min((now.time - now.reader_arrival for now in records), default=0)
        for now in records:
            before = self._before.get(now.tid)
            if (
                before is not None
                and not now.on_cpu
                and (before.start, before.switches, before.image)
                == (now.start, now.switches, now.image)
            ):
                self._count += 1
                unmoved[now.tid] = _as_sent(before, now.time, self._count, clock)
        self._before.clear()
        return unmoved

    def close(self) -> None:
        """Unload the iterator."""
        self._reading.close()


def _as_sent(record: TaskStack, time: int, number: int, clock: int) -> SleepingThread:
    """``record`` as of ``time``, when the thread was still there; the scheduler's clock is
    ``clock`` ns behind."""
    since = max(record.departure, record.arrival) + clock if record.arrival else 0
    event = StackEvent(
        time=time, kind=EventKind.COPIED, tgid=record.tgid, stack=number, cache=_NO_CACHE,
        kernel_frames=record.kernel_frames, end_reason=UnwindStatus.BEFORE_ATTACH,
    )  # fmt: skip
    copy = StackCopy.replaced(record.copy, time=time, stack=number, cache=_NO_CACHE)
    return SleepingThread(event.pack() + record.kernel, copy, since)
