"""The jobs, ranks and containers that run on this node at a moment, from /proc."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import psutil

from hpcd.daemon.access import processes
from hpcd.daemon.targets import jobs
from hpcd.daemon.targets.jobs import Container, JobPlace, JobRole
from hpcd.daemon.targets.process_identity import command_of, place_of
from hpcd.user_names import user_name

# Libraries that only take part in MPI when a rank's own program does.
_MPI_LIBRARIES = ("libmpi", "libmpich", "libpmix", "libpmi", "libpmi2")


@dataclass(frozen=True, slots=True)
class Running:
    """One process. ``cpu_s`` and ``age_s`` in seconds; ``user`` a name, or a number without one."""

    pid: int
    parent: int
    name: str
    command: tuple[str, ...]
    user: str
    threads: int
    cpu_s: float
    age_s: float
    place: JobPlace
    role: JobRole | None
    container: Container | None

    @property
    def cores(self) -> float:
        """CPUs it has kept busy since it began, on average."""
        return self.cpu_s / self.age_s if self.age_s else 0.0

    @property
    def order(self) -> tuple[object, ...]:
        """As trace lines are ordered: job, launchers first, rank, the rank itself, pid."""
        rank = -1 if self.place.rank is None else self.place.rank
        return (self.place.job, rank, self.role is not JobRole.RANK, self.pid)


def survey() -> list[Running]:
    """Every process of this node, ordered by job and rank, kernel threads left out.

    Some 100 µs a process. What cannot be read, for lack of privilege, is left empty.
    """
    processes_seen = [process for pid in psutil.pids() if (process := _look_at(pid))]
    return sorted(_placed(processes_seen), key=lambda process: process.order)


def _look_at(pid: int) -> Running | None:
    fields = processes.stat_fields(pid)
    user = processes.user_of(pid)
    if len(fields) < 20 or user is None or fields[0] in "ZX" or processes.is_kernel_thread(pid):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    place = place_of(pid)
    return Running(
        pid=pid,
        parent=int(fields[1]),
        name=processes.name_of(pid),
        command=command_of(pid),
        user=user_name(user),
        threads=int(fields[17]),
        cpu_s=(int(fields[11]) + int(fields[12])) / ticks,
        age_s=max(time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks, 0.0),
        place=place,
        role=place.role,
        container=jobs.container_of(processes.control_group_of(pid)),
    )


def _placed(running: list[Running]) -> list[Running]:
    """Tell ranks from their helpers, and give launchers the job of the ranks they started."""
    by_pid = {process.pid: process for process in running}
    sharing: dict[tuple[str, int], list[Running]] = defaultdict(list)
    for process in running:
        if process.role is JobRole.RANK and process.place.rank is not None:
            sharing[process.place.job, process.place.rank].append(process)
    for group in sharing.values():
        ranks = _ranks(group)
        for process in group:
            if process.pid not in ranks:
                by_pid[process.pid] = replace(process, role=JobRole.HELPER)
    started: dict[int, set[str]] = defaultdict(set)
    for group in sharing.values():
        for process in group:
            for launcher in _launchers_above(process, by_pid):
                started[launcher].add(process.place.job)
    for pid, names in started.items():
        if len(names) == 1:
            above = by_pid[pid]
            by_pid[pid] = replace(above, place=replace(above.place, job=names.pop()))
    return list(by_pid.values())


def _ranks(group: list[Running]) -> set[int]:
    """Which of the processes that share a rank's environment run it."""
    if len(group) == 1:
        return {group[0].pid}
    using = {process.pid for process in group if _uses_mpi(process.pid)}
    if using:
        return using
    pids = {process.pid for process in group}
    return {process.pid for process in group if process.parent not in pids}


def _uses_mpi(pid: int) -> bool:
    return any(
        region.path.rsplit("/", 1)[-1].split(".so")[0] in _MPI_LIBRARIES
        for region in processes.executable_regions(pid)
    )


def _launchers_above(rank: Running, by_pid: dict[int, Running]) -> Iterable[int]:
    above = by_pid.get(rank.parent)
    seen: set[int] = set()
    while above and above.pid not in seen:
        seen.add(above.pid)
        if above.role is JobRole.LAUNCHER:
            yield above.pid
        above = by_pid.get(above.parent)
