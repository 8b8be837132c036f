"""Which threads the sampler is attached to: those selected, and nobody else pays."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from hpcd.bpf.sampler import Sampler
from hpcd.daemon import processes
from hpcd.daemon.processes import Sleeper
from hpcd.daemon.selector import Selector
from hpcd.daemon.targets import Targets


class Attachment:
    """Attaches to the threads of selected processes and lets go of them when they are gone.

    What a thread starts inherits its events, so one descriptor serves all that comes from it, and
    it must stay open as long as anything does: processes that descend from each other are a family.
    """

    def __init__(
        self,
        selector: Selector,
        sampler: Sampler,
        targets: Targets,
        take_up: Callable[[int, int, Sleeper, int], None],
        *,
        children: bool,
        only_user: int | None = None,
    ) -> None:
        self._selector = selector
        self._sampler = sampler
        self._targets = targets
        self._take_up = take_up
        self._children = children
        self._only_user = only_user
        self._seen: set[int] = set()
        self._family: dict[int, int] = {}
        self._members: defaultdict[int, set[int]] = defaultdict(set)
        self._tids: defaultdict[int, list[int]] = defaultdict(list)
        self.baseline: dict[tuple[int, int], float] = {}

    def attach(self, *, unstarted: bool = False) -> None:
        """Attach to every thread there is, again and again until no new one turns up.

        With ``unstarted`` the targets' present code is of no interest: they have yet to exec.
        """
        while True:
            fresh = [self.take(pid, unstarted=unstarted) for pid in self._selected()]
            if not any(fresh):
                return

    def _selected(self) -> list[int]:
        pids = dict.fromkeys(self._selector.scan())
        if self._children:
            for pid in list(pids):
                pids.update(dict.fromkeys(processes.descendants(pid)))
        return list(pids)

    def consider(self, pid: int) -> None:
        """``pid`` runs another program now, or is in another control group: is it selected?"""
        if pid not in self._targets and self._selector.matches(pid):
            while self.take(pid):
                pass

    def take(self, pid: int, *, unstarted: bool = False) -> bool:
        """Attach to the threads of ``pid`` that are not attached to; False when there were none."""
        if not self._allowed(pid):
            return False
        if pid not in self._targets:
            self._targets.target(pid)
            self._members[pid].add(pid)
            self._family[pid] = pid
            self._targets.enter(pid, unstarted=unstarted)
        family = self._family.get(pid, pid)
        fresh = False
        for tid in processes.thread_ids(pid):
            if tid in self._seen:
                continue
            self._seen.add(tid)
            fresh = True
            # A thread started by one already attached has inherited its events.
            if self._sampler.inherited(tid):
                continue
            now = time.monotonic_ns()
            number = self._sampler.add_thread(tid)
            thread = processes.sleeper(pid, tid)
            if thread is None or not self._sampler.attach_thread(tid):
                if number is not None:
                    self._sampler.forget_thread(tid)
                continue
            self._tids[family].append(tid)
            self.baseline[pid, tid] = processes.cpu_seconds(pid, tid) or 0.0
            if number is not None:
                self._take_up(number, pid, thread, now)
        if not self._allowed(pid):  # another process has this pid now, or it has run sudo
            self._let_go(pid)
            return False
        return fresh

    def _allowed(self, pid: int) -> bool:
        return self._only_user is None or processes.user_of(pid) == self._only_user

    def _let_go(self, pid: int) -> None:
        self._sampler.exclude_process(pid)
        for tid in self._tids.pop(self._family.get(pid, pid), []):
            self._sampler.detach_thread(tid)
            self._sampler.forget_thread(tid)

    def forked(self, parent: int, child: int) -> None:
        """``child`` descends from ``parent``, and belongs to its family."""
        family = self._family.get(parent)
        if family is not None:
            self._leave(child)
            self._family[child] = family
            self._members[family].add(child)

    def gone(self, pid: int) -> None:
        """``pid`` has ended; when it was the last of its family, so are its events."""
        self._leave(pid)

    def _leave(self, pid: int) -> None:
        family = self._family.pop(pid, None)
        if family is None:
            return
        members = self._members[family]
        members.discard(pid)
        if not members:
            for tid in self._tids.pop(family, ()):
                self._sampler.detach_thread(tid)
            del self._members[family]

    def forget_thread(self, tid: int) -> None:
        """The kernel may give ``tid`` to another thread now."""
        self._seen.discard(tid)
