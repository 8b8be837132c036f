"""The processes being recorded: who they are, where their code lies, and when they are gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from hpcd.bpf.sampler import Sampler
from hpcd.bpf.tables import NO_SPACE, Space, Tables
from hpcd.daemon.modules import Modules
from hpcd.daemon.processes import identify
from hpcd.model.identity import Process

# A thousand times what a walk takes; whoever runs the machine may hold its CPU up for some.
_RETIREMENT_SECONDS = 0.05


@dataclass
class _SharedSpace:
    """An address space in table memory; a forked child uses its parent's until it changes."""

    space: Space
    users: int = 1


@dataclass
class Target:
    """One process being recorded."""

    process: Process
    shared: _SharedSpace | None = None
    mappings: npt.NDArray[np.void] | None = None
    complete: bool = False
    """Whether all its mappings had been analysed when its space was last written."""
    alive: bool = True
    refreshes: int = field(default=0)


class Targets:
    """Keeps the kernel's idea of every target's address space up to date."""

    def __init__(
        self,
        modules: Modules,
        tables: Tables,
        sampler: Sampler,
        announce: Callable[[Process], None],
    ) -> None:
        self._modules = modules
        self._tables = tables
        self._sampler = sampler
        self._announce = announce
        self._by_pid: dict[int, Target] = {}
        self._count = 0
        # Spaces no process points at any more. A walk that began before the pointer moved may
        # still read them, so they live on for _RETIREMENT_SECONDS at least.
        self._settled = time.monotonic()
        self._retired: list[Space] = []
        self._retiring: list[Space] = []

    def __contains__(self, pid: int) -> bool:
        return pid in self._by_pid

    @property
    def alive(self) -> list[int]:
        """Pids still running."""
        return list(self._by_pid)

    def by_number(self, number: int) -> Process | None:
        """The living process with this number in the measurement."""
        return next((t.process for t in self._by_pid.values() if t.process.id == number), None)

    def target(self, pid: int) -> Target:
        """The target with this pid, taken up now when it is new."""
        found = self._by_pid.get(pid)
        if found is None:
            self._count += 1
            found = self._by_pid[pid] = Target(identify(pid, self._count))
            self._announce(found.process)
        return found

    def enter(self, pid: int, *, unstarted: bool = False) -> None:
        """Have the kernel know ``pid``; with ``unstarted``, its code will only be that of an exec
        to come."""
        if unstarted:
            self._sampler.set_process(pid, NO_SPACE)
        else:
            self.refresh(pid)

    def forked(self, parent: int, child: int) -> None:
        """``child`` came from ``parent``; the kernel already gave it the parent's space."""
        origin = self._by_pid.get(parent)
        if origin is None:
            return
        self._drop(child)
        self._count += 1
        process = replace(
            origin.process, id=self._count, pid=child, parent_pid=parent, rank=None, size=None
        )
        self._by_pid[child] = Target(process, origin.shared, origin.mappings, origin.complete)
        if origin.shared:
            origin.shared.users += 1
        self._announce(process)

    def executed(self, pid: int) -> None:
        """``pid`` runs another program now; its mappings are to be read again."""
        found = self.target(pid)
        found.process = identify(pid, found.process.id)
        self._announce(found.process)

    def gone(self, pid: int) -> None:
        """``pid`` has ended with all its threads."""
        self._drop(pid)

    def refresh(self, pid: int) -> None:
        """Read the mappings of ``pid`` again and write its space when they changed."""
        found = self._by_pid.get(pid)
        if found is None:
            return
        mappings = self._modules.mappings(pid, found.process.id)
        if not len(mappings):
            return  # it has just ended; its exit event is on its way
        found.complete = bool((mappings["module"] != 0).all())
        if found.shared and found.mappings is not None and np.array_equal(found.mappings, mappings):
            self._sampler.set_process(pid, found.shared.space.entry)
            return
        space = self._tables.add_space(mappings)
        self._sampler.set_process(pid, space.entry)
        self._release(found.shared)
        found.shared = _SharedSpace(space)
        found.mappings = mappings

    def refresh_incomplete(self) -> None:
        """Write the spaces that wait for a table, now that one has arrived."""
        for pid, found in list(self._by_pid.items()):
            if not found.complete:
                self.refresh(pid)

    def settle(self) -> None:
        """Free what was retired long enough ago. Called once a drain."""
        now = time.monotonic()
        if now - self._settled < _RETIREMENT_SECONDS:
            return
        self._settled = now
        for space in self._retiring:
            self._tables.blocks.give(space.start, space.blocks)
        self._retiring, self._retired = self._retired, []

    def _drop(self, pid: int) -> None:
        found = self._by_pid.pop(pid, None)
        if found:
            self._release(found.shared)

    def _release(self, shared: _SharedSpace | None) -> None:
        if shared:
            shared.users -= 1
            if not shared.users:
                self._retired.append(shared.space)
