"""Threads and their call paths, each read at a moment at which it stood still, or ran."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from hpcd.array_types import U64
from hpcd.bpf.saved_walk import RuntimeCode, SavedWalker
from hpcd.bpf.task_stacks import TaskStack
from hpcd.bpf.wire import COPY_BYTES, EventKind, StackEvent, TaskParts, Wanted
from hpcd.daemon.access.thread_reading import ThreadReading
from hpcd.daemon.stacks.address_spaces import AddressSpaces
from hpcd.daemon.stacks.running_threads import RunningThreads
from hpcd.daemon.stacks.system_calls import system_call
from hpcd.daemon.stacks.target_memory import TargetMemory
from hpcd.daemon.stacks.thread_activity import stands_somewhere
from hpcd.model.codes import UnwindStatus

_STEP = COPY_BYTES - 4096
# Of one stack (the usual limit of a process' first thread is 8 MiB), and of all of a snapshot.
_MOST_PIECES = 512
_MOST_SECONDS = 2.0
# How often a reading goes back to threads that ran meanwhile, and to processes that have executed a
# program or mapped code. Ranks that yield to each other are missed half of the time.
_MOST_ROUNDS = 24
_NAP_SECONDS = 0.0002
_EARLY = (UnwindStatus.NO_MAPPING, UnwindStatus.NO_TABLE, UnwindStatus.NO_PROCESS)
# Within these the registers are the old program's, and the memory may be the new one's.
_EXECS = ("execve", "execveat")


class _Walked(NamedTuple):
    """The end of a walk, the stack as an event, and where memory read later tells more of it, that
    event; else nothing."""

    ending: UnwindStatus
    event: bytes
    longer: bytes


class ThreadWalks:
    """Reads threads and walks their stacks. ``pythons_of`` gives the ``struct python`` of those
    pids that run CPython, ``code_of`` what steps from the code of a pid's runtime."""

    def __init__(
        self,
        reading: ThreadReading,
        spaces: AddressSpaces,
        walker: SavedWalker,
        running: RunningThreads,
        pythons_of: Callable[[Iterable[int]], dict[int, bytes]],
        code_of: Callable[[int], RuntimeCode | None],
    ) -> None:
        self._reading = reading
        self._spaces = spaces
        self._walker = walker
        self._running = running
        self._pythons_of = pythons_of
        self._code_of = code_of
        self._codes: dict[int, RuntimeCode] = {}
        """Of the processes that are read now."""

    def identify(self, pids: Sequence[int]) -> tuple[dict[int, int], int]:
        """The program each process runs, and by how many ns the scheduler's clock is behind."""
        time.sleep(_NAP_SECONDS)  # so that this thread has come to its CPU just now
        wanted = dict.fromkeys((*pids, os.getpid()), Wanted.IDENTITY)
        images: dict[int, int] = {}
        offsets = []
        for record in self._reading.read(wanted):
            offsets.append(record.time - record.reader_arrival)
            images[record.tgid] = record.image
        images.pop(os.getpid(), None)
        return images, min(offsets)

    def read(self, images: dict[int, int]) -> tuple[dict[int, TaskStack], dict[int, bytes]]:
        """The threads of these processes, by tid, and the stack of each that has one as an event
        of the programs (:class:`StackEvent`).

        ``images`` are the programs that the processes' mappings were read of. A thread that never
        stood still, and was not met on a CPU either, has no stack.
        """
        records: dict[int, TaskStack] = {}
        stacks: dict[int, bytes] = {}
        again = set(images)
        partial, waited_for = set[int](), set[int]()
        for number in range(_MOST_ROUNDS):
            fresh, walked = self._iterate(again, images)
            new_programs = {
                record.tgid: record.image
                for record in fresh.values()
                if record.image != images.get(record.tgid)
            }
            kept = self._kept(fresh, records, stacks)
            records = {t: r for t, r in records.items() if r.tgid not in again or t in kept} | {
                tid: record for tid, record in fresh.items() if tid not in kept
            }
            stacks = {
                tid: stack
                for tid, stack in stacks.items()
                if tid in kept or (tid in records and tid not in fresh)
            }
            walkable = [
                record
                for tid, record in fresh.items()
                if tid not in kept and record.tgid not in new_programs
            ]
            trusted, gone = self._trusted(walkable, walked)
            partial = partial - trusted.keys() | gone
            stacks |= trusted
            outdated = {
                record.tgid
                for record in walkable
                if record.tid in walked and walked[record.tid].ending in _EARLY
            }
            # A thread that has gone on runs now and then: once it is waited for as those that run.
            running = {record.tid for record in walkable if record.on_cpu} | (partial - waited_for)
            if running:
                waited_for |= running
                sampled = self._running.sample(running)
                partial -= sampled.keys()
                stacks |= sampled
            if number == _MOST_ROUNDS - 1:
                break
            again = {record.tgid for record in walkable if record.tid not in stacks}
            again |= {records[tid].tgid for tid in partial & records.keys()}
            # What is read of them now is right if they run the same program in the next round.
            self._spaces.read(new_programs)
            images |= new_programs
            again |= new_programs.keys()
            if outdated and self._spaces.refresh(outdated):
                again |= outdated
            if not again:
                break
        return records, stacks

    @staticmethod
    def _kept(
        fresh: dict[int, TaskStack], records: dict[int, TaskStack], stacks: dict[int, bytes]
    ) -> set[int]:
        """Threads whose stack of an earlier round is kept, as they run now."""
        return {
            tid
            for tid, record in fresh.items()
            if tid in stacks
            and not stands_somewhere(record)
            and (record.start, record.image) == (records[tid].start, records[tid].image)
        }

    def gone_on(self, records: dict[int, TaskStack]) -> set[int]:
        """Threads that are no longer where they were read, or not for certain: what their memory
        holds now says nothing of what they waited for."""
        pids = {record.tgid for record in records.values()}
        still = {
            record.tid
            for record in self._reading.read(dict.fromkeys(pids, Wanted.IDENTITY))
            if (before := records.get(record.tid)) is not None
            and not record.on_cpu
            and (record.start, record.switches) == (before.start, before.switches)
        }
        return records.keys() - still

    def _iterate(
        self, pids: set[int], images: dict[int, int]
    ) -> tuple[dict[int, TaskStack], dict[int, _Walked]]:
        """The threads of ``pids``, without their stacks, and the paths of those that stood still
        and run the program whose mappings are known."""
        wanted = {}
        for pid in pids:
            mapped = self._spaces.get(pid)
            whole = mapped is not None and not mapped.withheld
            wanted[pid] = Wanted.USER if whole else Wanted.KERNEL
        self._codes = {pid: code for pid in pids if (code := self._code_of(pid))}
        walked: dict[int, _Walked] = {}
        far = FarFrames(self._walker)

        def take(record: TaskStack) -> TaskStack:
            if stands_somewhere(record) and record.image == images.get(record.tgid):
                walked[record.tid] = self._walk(record, far)
            return record.without_stack()

        threads = self._reading.read(wanted, take, self._pythons_of(pids))
        return {record.tid: record for record in threads}, walked

    def _trusted(
        self, records: Iterable[TaskStack], walked: dict[int, _Walked]
    ) -> tuple[dict[int, bytes], set[int]]:
        """Return the stacks of ``records`` as events, by tid, and those that are less than they
        might be: what was read of memory later than the registers counts where the thread has not
        run since."""
        walks = {record.tid: walked[record.tid] for record in records if record.tid in walked}
        longer = [record for record in records if record.tid in walks and walks[record.tid].longer]
        gone = self.gone_on({record.tid: record for record in longer}) if longer else set()
        stacks = {
            tid: path.longer if path.longer and tid not in gone else path.event
            for tid, path in walks.items()
        }
        return stacks, gone

    def _walk(self, record: TaskStack, far: FarFrames) -> _Walked:
        """Walk the stack of a thread that stood still."""
        mapped = self._spaces.get(record.tgid)
        ending, depth, frames = UnwindStatus.KERNEL_ONLY, 0, np.zeros(0, np.uint64)
        longer = b""
        call = system_call(record)
        if record.parts & TaskParts.REGISTERS and not (call and call.name in _EXECS):
            ending = UnwindStatus.READ_FAULT
            if mapped is None or mapped.space is None:
                ending = UnwindStatus.NO_PROCESS
            elif record.size:
                walked = self._walker.walk(
                    record.copy, mapped.space, record.chain, self._codes.get(record.tgid)
                )
                ending, (_, depth, frames) = UnwindStatus(walked[0]), walked
                if ending is UnwindStatus.READ_FAULT:
                    more = far.finish(record, depth)
                    longer = stack_event(record, *more) if more else b""
        return _Walked(ending, stack_event(record, ending, depth, frames), longer)


def stack_event(record: TaskStack, ending: int, depth: int, frames: U64) -> bytes:
    """A stack as the programs would have sent it: ``depth`` user frames, those kept ``frames``."""
    head = StackEvent(
        time=record.time, kind=EventKind.STACK, tgid=record.tgid,
        kernel_frames=record.kernel_frames, user_frames=depth, end_reason=ending,
    )  # fmt: skip
    return head.pack() + record.kernel + frames.tobytes()


class FarFrames:
    """Finishes walks that ended as they could not read, as frames lie further apart than what is
    copied of a stack; made for one snapshot.

    Programs keep large arrays on their stacks: the caller's frame may be megabytes away. The walk
    goes on from where it could not read, with one piece of the stack after another until one holds
    the caller's frame. Pieces overlap, so that what belongs to a frame lies in one.
    """

    def __init__(self, walker: SavedWalker) -> None:
        self._walker = walker
        self._memory = TargetMemory()
        self._spent = 0.0

    def finish(self, record: TaskStack, depth: int) -> tuple[UnwindStatus, int, U64] | None:
        """The ending, depth and frames of the walk of ``record`` that has just ended with
        :attr:`UnwindStatus.READ_FAULT` after ``depth`` frames; None when nothing more was found."""
        began = time.monotonic()
        try:
            return self._finish(record, depth) if self._spent < _MOST_SECONDS else None
        finally:
            self._spent += time.monotonic() - began

    def _finish(self, record: TaskStack, depth: int) -> tuple[UnwindStatus, int, U64] | None:
        walked = None
        at = self._walker.stack_pointer
        for _ in range(_MOST_PIECES):
            piece = self._memory.read_some(record.tgid, at, COPY_BYTES)
            if not piece:
                break
            ending, now, frames = self._walker.go_on(at, piece)
            if now > depth:
                walked = UnwindStatus(ending), now, frames
            if ending != UnwindStatus.READ_FAULT:
                return UnwindStatus(ending), now, frames
            # Further up, from its present innermost frame if that is another.
            at = self._walker.stack_pointer if now > depth else at + _STEP
            depth = now
        return walked
