"""Makes selected processes known to the BPF programs, which ignore all others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hpcd.bpf.kernel_targets import KernelTargets
from hpcd.daemon.access import processes
from hpcd.daemon.targets.lifecycle import AttachedThread, attach_thread
from hpcd.daemon.targets.process_table import Targets
from hpcd.daemon.targets.selector import Selector
from hpcd.daemon.targets.sleeping_threads import SeenThread, SleepingThreads, seen_asleep


class Attachment:
    """Finds the processes that are to be recorded, and registers them and their threads.

    The programs sample every CPU: from the moment a process is registered its threads are, and
    those it starts from then on are registered by the programs, at their birth.
    """

    def __init__(
        self,
        selector: Selector,
        kernel: KernelTargets,
        targets: Targets,
        *,
        children: bool,
        only_user: int | None,
        only_groups: Collection[int],
        sleeping: SleepingThreads | None,
    ) -> None:
        """``sleeping`` reads where threads stand that sleep at that moment; it is closed then."""
        self._sleeping = sleeping
        self._selector = selector
        self._kernel = kernel
        self._targets = targets
        self._children = children
        self._only_user = only_user
        self._only_groups = only_groups
        self._attached: list[AttachedThread] = []

    def adopt(self, thread: AttachedThread) -> None:
        """Register a process that is about to exec, or has, whose ``thread`` the programs know."""
        # None of the CPU time it has used is its program's.
        self._targets.adopt(thread.pid, thread.state.name)
        self._attached.append(thread)

    def attach(self) -> None:
        """Register every selected process, again and again until no new one turns up."""
        attached = True
        while attached:
            pids = [pid for pid in self._selected() if self._is_new(pid)]
            for pid in pids:
                self._read_mappings(pid)
            before = self._sleeping.read(pids) if self._sleeping and pids else {}
            begun = len(self._attached)
            attached = any([self._attach_process(pid) for pid in pids])
            self._attached[begun:] = self._with_stacks(self._attached[begun:], before)
        if self._sleeping:
            self._sleeping.close()

    def _with_stacks(
        self, threads: list[AttachedThread], before: Mapping[int, SeenThread]
    ) -> list[AttachedThread]:
        """``threads`` with the stacks of those that slept when they were registered; ``before``
        has, by tid, what they did before that."""
        pids = {thread.pid for thread in threads}
        after = self._sleeping.read(pids) if self._sleeping and pids else {}
        stacked = []
        for thread in threads:
            tid = thread.state.tid
            seen = seen_asleep(thread.time_ns, before.get(tid), after.get(tid))
            if seen:
                since = None if thread.state.running else seen.since
                thread = replace(thread, stack=seen.event, copy=seen.copy, asleep_since_ns=since)
            elif tid not in after and not thread.state.running:
                places = processes.kernel_stack(thread.pid, tid)
                thread = replace(thread, kernel_stack=places)
            stacked.append(thread)
        return stacked

    def _selected(self) -> list[int]:
        pids = list(self._selector.scan())
        if self._children:
            pids += processes.descendants(*pids)
        return list(dict.fromkeys(pids))

    def on_exec(self, pid: int) -> None:
        """Register ``pid``, which runs another program now, if that makes it a target."""
        if self._selector.matches(pid) and self._is_new(pid):
            self._read_mappings(pid)
            self._attach_process(pid)

    def drain_attached(self) -> list[AttachedThread]:
        """Threads registered since the last call, for which the programs have sent no event."""
        attached, self._attached = self._attached, []
        return attached

    def _is_new(self, pid: int) -> bool:
        """Whether ``pid`` is to be registered here: one that the programs have registered, as the
        child of a process, is announced by them."""
        return not (pid in self._targets or self._kernel.records(pid)) and self._allowed(pid)

    def _read_mappings(self, pid: int) -> None:
        self._targets.target(pid)
        self._targets.refresh(pid)

    def _attach_process(self, pid: int) -> bool:
        """Register the threads of ``pid``; False when there are none."""
        used = processes.process_cpu_ns(pid)
        # From here on the programs number the threads it starts; those it has are numbered here.
        attached = [
            thread
            for tid in processes.thread_ids(pid)
            if (thread := attach_thread(self._kernel, pid, tid)) is not None
        ]
        if not self._allowed(pid):  # another process has this pid now, or it has run sudo
            self._kernel.exclude_process(pid)
            for thread in attached:
                self._kernel.forget_thread(thread.state.tid)
            return False
        threads = () if attached else processes.thread_ids(pid)
        if not attached and not any(processes.thread_state(pid, tid) for tid in threads):
            # Gone: no event will say so.
            self._kernel.forget_process(pid)
            self._targets.on_exit(pid)
            return False
        used = max(used, sum(thread.cpu_ns for thread in attached))
        self._targets.set_cpu_before(pid, used)
        self._attached += attached
        return True

    def _allowed(self, pid: int) -> bool:
        return self._only_user is None or processes.is_open_to(
            pid, self._only_user, self._only_groups
        )
