"""Reading the stacks of processes that may keep their reader waiting.

A process can hold its own address space locked for as long as it likes (see
:mod:`hpcd.daemon.access.patience`), and its stack may lie in pages that are never brought; what
copies the stack waits meanwhile, and cannot be killed. So the iterator is run by a process that can
be left behind (:mod:`hpcd.daemon.access.target_reader`). When nothing comes from it any more, the
process it is at is read without its memory, by another iterator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from hpcd.bpf.task_iterator import TaskIterator
from hpcd.bpf.task_stacks import TaskStack, TaskStacks
from hpcd.bpf.wire import Wanted
from hpcd.daemon.access import processes, target_reader

# A stack that has to come back from a disk takes milliseconds for each page.
_STALL_SECONDS = 2.0
# A reader that has a CPU or waits for one is delayed by the load, not by a process.
_RUNNABLE_SECONDS = 20.0
_LOOK_SECONDS = 0.2
# Each leaves an iterator and a process behind.
_MOST_STUCK = 4
_NO_PYTHONS: Mapping[int, bytes] = {}


class ThreadReading:
    """Reads threads, by ``iterator`` to begin with. Raises what
    :class:`hpcd.bpf.task_stacks.TaskStacks` does."""

    def __init__(self, iterator: TaskIterator | None = None) -> None:
        self._stacks = TaskStacks(iterator)
        self.withheld: set[int] = set()
        """Processes that do not let their memory be read: of these the kernel's part is."""

    def read(
        self,
        wanted: Mapping[int, Wanted],
        take: Callable[[TaskStack], TaskStack] = lambda record: record,
        pythons: Mapping[int, bytes] = _NO_PYTHONS,
    ) -> list[TaskStack]:
        """The threads of the processes ``wanted``, in order of their ids; as far as they could be
        read when too many processes do not let themselves be. ``pythons`` are the ``struct python``
        of those that run CPython.

        ``take`` is called with each at once, in a thread that the caller waits for, and says what
        is kept of it; of one that has to be read once more again.
        """
        while True:
            asked = {
                pid: min(what, Wanted.KERNEL) if pid in self.withheld else what
                for pid, what in wanted.items()
            }
            target_reader.OWN.start()
            attempt = _Attempt(self._stacks, asked, take, pythons)
            if attempt.wait():
                return attempt.records
            attempt.abandoned = True
            stuck = _stuck_at(asked, attempt.records)
            target_reader.OWN.leave_behind(min(stuck))
            self.withheld.update(wanted if len(self.withheld) >= _MOST_STUCK else stuck)
            self._stacks = TaskStacks()

    def close(self) -> None:
        """Unload the iterator, and end the process that ran it."""
        self._stacks.close()
        target_reader.OWN.close()


class _Attempt:
    """One reading, in a thread that is not waited for for ever."""

    def __init__(
        self,
        stacks: TaskStacks,
        wanted: Mapping[int, Wanted],
        take: Callable[[TaskStack], TaskStack],
        pythons: Mapping[int, bytes],
    ) -> None:
        self.records: list[TaskStack] = []
        self.abandoned = False
        """Whether the result is no longer waited for."""
        self._take = take
        self._error: Exception | None = None
        self._stacks, self._wanted, self._pythons = stacks, wanted, pythons
        self._thread = threading.Thread(target=self._run, name="stack reader", daemon=True)

    def _run(self) -> None:
        try:
            run = target_reader.OWN.run_iterator
            for record in self._stacks.read(self._wanted, run, self._pythons):
                if self.abandoned:
                    return
                self.records.append(self._take(record))
        except Exception as error:
            self._error = error

    def wait(self) -> bool:
        """Whether the reading has ended. Raises its exception."""
        self._thread.start()
        seen, moved = 0, time.monotonic()
        self._thread.join(_LOOK_SECONDS)
        while self._thread.is_alive():
            now, known = time.monotonic(), self._stacks.pending + len(self.records)
            if known != seen:
                seen, moved = known, now
            elif now - moved > _STALL_SECONDS and (
                now - moved > _RUNNABLE_SECONDS or not target_reader.OWN.runnable
            ):
                return False
            self._thread.join(_LOOK_SECONDS)
        if self._error:
            raise self._error
        return True


def _stuck_at(wanted: Mapping[int, Wanted], records: list[TaskStack]) -> set[int]:
    """The process of the next thread to read; all, if there is none."""
    read = {record.tid for record in records}
    left = [
        (tid, pid)
        for pid, what in wanted.items()
        if what >= Wanted.USER
        for tid in processes.thread_ids(pid)
        if tid not in read
    ]
    return {min(left)[1]} if left else set(wanted)
