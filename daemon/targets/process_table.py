"""The processes being recorded: their identities, their mappings, and their ends."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hpcd.bpf.events.mapping_history import MappingHistory
from hpcd.bpf.kernel_targets import KernelTargets
from hpcd.bpf.table_memory import Space, UnwindTables
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.daemon.targets.process_identity import (
    command_of,
    identify,
    identify_child,
    identify_reported,
    listed_start,
)
from hpcd.daemon.targets.reported_program import ReportedProgram
from hpcd.daemon.targets.shared_spaces import SharedSpace, SharedSpaces
from hpcd.model.identity import Process
from hpcd.model.region import Region

# Processes that have ended and are remembered, as a call path of theirs may be finished later.
_MAX_ENDED = 8192
# Readings of a new process's command line for its title: it may have begun just before the first.
_TITLE_READS = 2


@dataclass
class Target:
    """One process being recorded."""

    process: Process
    shared: SharedSpace | None = None
    mappings: npt.NDArray[np.void] | None = None
    complete: bool = False
    """Whether all its mappings had been analysed when its space was last written."""
    image: int = 0
    """The program it runs, by the kernel's count; 0 while no event has said."""
    added: bool = False
    """Whether the programs know it as a target."""
    regions: list[Region] | None = None
    """Its mappings when its space was last written."""
    exec_ns: int = 0
    """When it began its program, or was forked; 0 while that is not known."""
    before_ns: int | None = None
    """When it began the program before that; None when it has begun none since it is known."""
    read_ns: int = 0
    """When its mappings were read."""
    unchanged: int = 0
    """How many readings in a row have found them as they were."""


class MappingWatcher(Protocol):
    """Is notified of targets' executable mappings."""

    def on_mapped(self, pid: int, regions: Iterable[Region], began: int, *, ended: bool) -> None:
        """``pid`` has these, or had them if it has ``ended``; its program began, or it was forked,
        at ``began`` (monotonic ns, 0: before it was a target)."""

    def on_fork(self, parent: int, child: int) -> None:
        """``child`` has those of ``parent``."""

    def on_exit(self, pid: int) -> None:
        """``pid`` has none any more."""


class Targets:
    """Keeps the address spaces the BPF programs walk in up to date, one for each target."""

    def __init__(
        self,
        mappings: ModuleMappings,
        tables: UnwindTables,
        kernel: KernelTargets,
        history: MappingHistory,
        announce: Callable[[Process], None],
        accounts: UserAccounts | None = None,
        *,
        on_demand: bool = False,
        catch_up: Callable[[int], None] = lambda _: None,
    ) -> None:
        """``on_demand``: the programs request mappings when they are needed. ``catch_up`` has all
        that was mapped until a time (ns) in ``history``."""
        self._catch_up = catch_up
        self._on_demand = on_demand
        self._accounts = accounts or UserAccounts()
        self._mappings = mappings
        self._history = history
        self._kernel = kernel
        self._announce = announce
        self._by_pid: dict[int, Target] = {}
        # By pid: the number of the last process that has ended, since when that pid was its own at
        # the earliest, and until when (ns).
        self._ended: OrderedDict[int, tuple[int, int, int, int]] = OrderedDict()
        self._count = 0
        self.spaces = SharedSpaces(tables, self._accounts)
        """The address spaces in table memory."""
        # Processes whose mappings are out of date and whose user has had enough read for now.
        self._postponed: set[int] = set()
        self._replaced: dict[int, int] = {}
        # By pid: how often the command line of a process that has begun is still to be read.
        self._titles_due: dict[int, int] = {}
        self.watchers: list[MappingWatcher] = []
        """Receive what targets map, start and that they end."""
        self.unsettled: Callable[[], Iterable[int]] = lambda: ()
        """Returns targets whose mappings say too little yet for a watcher, once a round."""
        self.withheld: set[int] = set()
        """Targets that did not let their mappings be read, and are to be asked again."""

    def __contains__(self, pid: int) -> bool:
        return pid in self._by_pid

    @property
    def alive(self) -> list[int]:
        """Pids of targets still running."""
        return list(self._by_pid)

    def owner_of(self, number: int) -> tuple[int, int] | None:
        """(pid, uid) of the living process with this number in the measurement."""
        processes = (target.process for target in self._by_pid.values())
        return next(((p.pid, p.uid) for p in processes if p.id == number), None)

    def is_known(self, pid: int) -> bool:
        """Whether the programs know ``pid`` as a target, and request its mappings."""
        target = self._by_pid.get(pid)
        return target is not None and target.added

    def has_space(self, pid: int) -> bool:
        """Whether the programs walk ``pid`` with mappings that were found out."""
        target = self._by_pid.get(pid)
        return target is not None and target.shared is not None

    def replaced_at(self, pid: int) -> int | None:
        """Since when (ns) ``pid`` has code mapped where the programs still walk it by that of
        another file; None where it has not."""
        target = self._by_pid.get(pid)
        if target is None or not target.shared or not target.regions:
            return None
        since = None
        for time_ns, new in self._history.mapped_after(pid, target.read_ns):
            if any(_hides(new, old) for old in _under(new, target.regions)):
                since = time_ns
        return since

    def drain_replaced(self) -> dict[int, int]:
        """Return, by pid, the times (ns) that :meth:`replaced_at` gave before mappings were read,
        of all processes read since the last call."""
        replaced, self._replaced = self._replaced, {}
        return replaced

    def space_of(self, pid: int, number: int, regions: Sequence[Region]) -> Space | None:
        """The space in which the programs walk ``pid``, number ``number``, if that is of these
        mappings, all of which have been analysed. It is good until the round ends."""
        target = self._by_pid.get(pid)
        if target is None or not (target.shared and target.complete and target.regions):
            return None
        same = target.process.id == number and target.regions == [*regions]
        return target.shared.space if same else None

    def number_at(self, pid: int, time_ns: int) -> int:
        """The number of the process that had this pid at ``time_ns``, 0 when it was no target or
        is forgotten."""
        number, began, ended, _ = self._ended.get(pid, (0, 0, -1, 0))
        if time_ns <= ended:
            return number if time_ns > began else 0
        target = self._by_pid.get(pid)
        return target.process.id if target else 0

    def user_of(self, pid: int) -> int:
        """Return the uid of the process that has this pid, or had it last; -1: not known."""
        target = self._by_pid.get(pid)
        return target.process.uid if target else self._ended.get(pid, (0, 0, 0, -1))[3]

    def target(self, pid: int, name: str = "") -> Target:
        """The target with this pid, made now when it is new; ``name`` is what the kernel called it,
        should it be gone by now."""
        target = self._by_pid.get(pid)
        return target or self._add(identify(pid, self._count + 1), name)

    def _add(self, process: Process, name: str) -> Target:
        self._count += 1
        process = replace(process, name=process.name or name)
        target = self._by_pid[process.pid] = Target(process)
        self._announce(process)
        return target

    def set_cpu_before(self, pid: int, cpu_ns: int) -> None:
        """Announce that ``pid`` had used ``cpu_ns`` of CPU time before it was recorded."""
        target = self._by_pid[pid]
        target.process = replace(target.process, cpu_before_ns=cpu_ns)
        self._announce(target.process)

    def adopt(self, pid: int, name: str) -> None:
        """Make ``pid``, a child called ``name``, a target that the programs know already: it has
        begun no program yet that is recorded, or an event will say so."""
        self._add(identify_child(pid, self._count + 1), name).added = True
        self.set_cpu_before(pid, 0)

    def on_fork(
        self,
        parent: int,
        child: int,
        time_ns: int,
        image: int,
        *,
        start_ns: int = 0,
        known: bool = True,
    ) -> bool:
        """``child`` came from ``parent`` at ``time_ns``, ``start_ns`` by its own account, and is
        ``known`` to the programs as a target; False when its mappings must be read.

        The programs have given it the space its parent had; that may since have been replaced,
        and freed, for a newer one, which the child is pointed at.
        """
        origin = self._by_pid.get(parent)
        if origin is None:
            return True
        self._drop(child, time_ns)
        self._count += 1
        of = origin.process  # replace() takes three times as long
        process = Process(
            self._count, child, parent, of.name, of.exe, of.command, of.uid,
            listed_start(start_ns or time_ns), of.job, cpu_before_ns=0,
        )  # fmt: skip
        target = self._by_pid[child] = Target(process, image=image, added=known, exec_ns=time_ns)
        self._titles_due[child] = _TITLE_READS
        self._announce(process)
        for watcher in self.watchers:
            watcher.on_fork(parent, child)
        read = origin.shared or origin.read_ns >= origin.exec_ns
        if self._on_demand and known and not read:
            return True  # nothing is known of the parent, nor was when this began
        if not origin.shared or origin.read_ns > time_ns or origin.image not in (0, image):
            return False  # what is known of the parent is from before an exec, or from after this
        target.shared, target.mappings = origin.shared, origin.mappings
        target.regions = origin.regions
        target.complete, target.read_ns = origin.complete, origin.read_ns
        target.shared.users += 1
        self._kernel.set_space(child, target.shared.space, image)
        return True

    def on_exec(
        self, pid: int, image: int, name: str, time_ns: int, program: ReportedProgram | None = None
    ) -> None:
        """Handle an exec event: identify the new program, which the kernel called ``name``, by what
        was reported of it, else by /proc. The caller has its mappings re-read."""
        target = self.target(pid, name)
        target.image = image
        target.before_ns, target.exec_ns = target.exec_ns, time_ns
        # Those known may be the old program's.
        self.spaces.release(target.shared)
        target.shared = target.mappings = target.regions = None
        before = target.process
        if program:
            path = partial(self._program_of, pid, time_ns)
            process = identify_reported(before, name, program, path)
        else:
            process = identify(pid, before.id)
            process = replace(process, cpu_before_ns=before.cpu_before_ns)
        if not (process.name and (process.exe or process.command)):
            # It has ended, or is about to: user, job and rank are those it had.
            process = replace(before, name=process.name or name, exe="", command=())
        target.process = process
        self._titles_due[pid] = _TITLE_READS
        self._announce(process)

    def read_titles(self, *, all_alive: bool = False) -> None:
        """Announce the titles that processes have given themselves (setproctitle(3)), as workers of
        servers do after their fork. A process is read in the two calls after its program began, as
        it may not have come so far in the first, and when all that are alive are."""
        for pid in self.alive if all_alive else [*self._titles_due]:
            process = self._by_pid[pid].process
            if not self._accounts.may_read(process.uid):
                continue
            cpu = time.thread_time()
            command = command_of(pid)
            self._accounts.spend(process.uid, time.thread_time() - cpu)
            if command and command != process.command:
                self._by_pid[pid].process = replace(process, command=command)
                self._announce(self._by_pid[pid].process)
            due = self._titles_due.pop(pid, 0) - 1
            if due > 0:
                self._titles_due[pid] = due

    def _program_of(self, pid: int, time_ns: int) -> str:
        """The path of the program that ``pid`` began at ``time_ns``, "" when it is not known."""
        self._catch_up(time_ns)
        return self._history.program_of(pid, time_ns)

    def on_exit(self, pid: int, time_ns: int | None = None) -> None:
        """``pid`` has ended with all its threads, by default now."""
        self._drop(pid, time.monotonic_ns() if time_ns is None else time_ns)

    def refresh(self, pid: int) -> None:
        """Find out what ``pid`` has mapped and write its space when that changed; a later round
        does when its user has had enough read for now.

        What the kernel has reported since the program began tells, where it goes back so far, is
        news, and of files that were looked up a moment ago; else /proc is read.
        """
        target = self._by_pid.get(pid)
        if target is None:
            return
        user = target.process.uid
        if not self._accounts.may_read(user):
            self._postponed.add(pid)
            return
        self.withheld.discard(pid)
        cpu = time.thread_time()
        try:
            self._read(pid, target, user)
        except WithheldError:
            self.withheld.add(pid)
        self._accounts.spend(user, time.thread_time() - cpu)

    def _read(self, pid: int, target: Target, user: int) -> None:
        """Read a target's mappings. Raises :class:`WithheldError`."""
        began = time.monotonic_ns()
        reported = self._reported(pid, target, began)
        regions, mappings = reported or self._mappings.mappings(pid, target.process.id)
        if not regions:
            return  # it has just ended; its exit event is on its way
        since = self.replaced_at(pid)
        if since is not None:
            self._replaced.setdefault(pid, since)
        target.read_ns = time.monotonic_ns()
        for watcher in self.watchers:
            watcher.on_mapped(pid, regions, target.exec_ns, ended=False)
        if not reported:
            self._history.on_read(pid, began, target.read_ns, tuple(regions))
        target.regions = regions
        target.complete = bool(mappings["module"].all())
        if (
            target.shared
            and target.mappings is not None
            and target.mappings.tobytes() == mappings.tobytes()
        ):
            target.unchanged += 1
            self._store(pid, target, target.shared.space)
            return
        target.unchanged = 0
        shared = self.spaces.add(mappings, user)
        self._store(pid, target, shared.space if shared else None)
        self.spaces.release(target.shared)
        target.shared, target.mappings = shared, mappings
        if shared is None:
            target.mappings = target.regions = None

    def _reported(
        self, pid: int, target: Target, now: int
    ) -> tuple[list[Region], npt.NDArray[np.void]] | None:
        """Return the mappings of ``pid`` that the kernel has reported, and their rows, as
        :meth:`Modules.mappings` does; None where /proc is to be read."""
        before = target.before_ns
        if before is not None and not self._history.executed_after(pid, before):
            return None  # what is known by now is of the program before
        regions = self._history.at(pid, now)
        if not regions or regions == target.regions:
            return None
        memory = [region for region in regions if not region.file_backed]
        if any(old.file_backed for new in memory for old in _under(new, target.regions or [])):
            return None  # it may be the file's text, copied there
        rows = self._mappings.recent_mappings(pid, target.process.id, regions)
        return None if rows is None else (regions, rows)

    def _store(self, pid: int, target: Target, space: Space | None) -> None:
        if target.added:
            self._kernel.set_space(pid, space, target.image, unchanged=target.unchanged)
        else:
            self._kernel.add_process(pid, space, target.image)
            target.added = True

    def refresh_incomplete(self) -> None:
        """Write the spaces that wait for a table, now that one has arrived."""
        for pid, target in list(self._by_pid.items()):
            if not target.complete and (target.shared or not self._on_demand):
                self.refresh(pid)

    def refresh_postponed(self) -> None:
        """Read the mappings that had to wait, as far as their users may have that now, and those
        that watchers are to see again."""
        postponed, self._postponed = self._postponed, set()
        for pid in postponed.union(self.unsettled()):
            self.refresh(pid)

    def _drop(self, pid: int, time_ns: int) -> None:
        self.withheld.discard(pid)
        self._titles_due.pop(pid, None)
        target = self._by_pid.pop(pid, None)
        if target:
            _, _, before, _ = self._ended.pop(pid, (0, 0, 0, 0))
            self._ended[pid] = target.process.id, before, time_ns, target.process.uid
            if len(self._ended) > _MAX_ENDED:
                self._ended.popitem(last=False)
            if self.watchers:
                self._catch_up(time_ns)
                regions = self._history.at(pid, time_ns) or ()
            for watcher in self.watchers:
                watcher.on_mapped(pid, regions, target.exec_ns, ended=True)
                watcher.on_exit(pid)
            self.spaces.release(target.shared)


_start, _end = attrgetter("start"), attrgetter("end")


def _under(new: Region, regions: Sequence[Region]) -> Sequence[Region]:
    """The ``regions`` (in order of address) that overlap ``new``."""
    first = bisect_right(regions, new.start, key=_end)
    return regions[first : bisect_left(regions, new.end, first, key=_start)]


def _hides(new: Region, old: Region) -> bool:
    """Whether ``new``, which lies where ``old`` does, is of another file or place in it."""
    return (new.device, new.inode) != (old.device, old.inode) or (
        new.file_backed and new.start - new.offset != old.start - old.offset
    )
