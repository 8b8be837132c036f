"""Outliers, not where the others are: of the ranks of a job, of processes of one program, of
threads.

Compared is one procedure: that which most of a group are in, but not all. In a job it is an MPI
call where there is one; all others wait in it for the one that is missing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcd.analysis.roles.role import NameRole
from hpcd.analysis.roles.role_table import role_table
from hpcd.analysis.stacks.named_paths import Path
from hpcd.analysis.symbols.frame_lookup import Frame
from hpcd.model.identity import Process
from hpcd.model.stack_snapshot import StackSnapshot, ThreadStack

# How many ranks, or processes or threads, can be compared; and the share of these that are outliers
# at most, as more are another half.
_RANKS, _OTHERS = (3, 0.25), (8, 0.125)
# Where ever more stand out, of programs that have nothing to do with each other, none does.
_MOST_OTHERS = 3


@dataclass(frozen=True, slots=True)
class Outliers:
    """``members`` of the ``group`` (``ranks of job 12``) of ``size`` are not in ``procedure``; each
    with the thread that stands for it. ``where`` is the procedure each is in instead."""

    group: str
    size: int
    procedure: str
    members: list[tuple[str, ThreadStack]]
    where: list[str]


def outliers(snapshot: StackSnapshot, paths: Sequence[Path]) -> list[Outliers]:
    """Return the outliers of a snapshot: of the ranks of each job, or, where there are none, of the
    processes of a program and the threads of a process."""
    outliers_by_limits: dict[tuple[int, float], list[Outliers]] = {_RANKS: [], _OTHERS: []}
    for group, limits, found_members in _groups(snapshot, paths):
        # Of whom no procedure is known nothing can be said.
        members = [member for member in found_members if _procedures(paths[member[1].path])]
        if len(members) < limits[0]:
            continue
        stands_out = _compare(group, members, paths, snapshot.processes, limits[1])
        if stands_out:
            outliers_by_limits[limits].append(stands_out)
    if any(process.rank is not None for process in snapshot.processes.values()):
        return outliers_by_limits[_RANKS]
    return outliers_by_limits[_OTHERS] if len(outliers_by_limits[_OTHERS]) <= _MOST_OTHERS else []


def _groups(
    snapshot: StackSnapshot, paths: Sequence[Path]
) -> Iterable[tuple[str, tuple[int, float], list[tuple[str, ThreadStack]]]]:
    """Groups of what should be in one place: name, limits, members."""
    own = {pid: process.pid for pid, process in snapshot.processes.items()}
    main = {t.pid: t for t in snapshot.threads if t.tid == own.get(t.pid, t.pid)}
    jobs: defaultdict[str, dict[int, ThreadStack]] = defaultdict(dict)
    programs: defaultdict[str, list[tuple[str, ThreadStack]]] = defaultdict(list)
    parents = {process.parent_pid for process in snapshot.processes.values()}
    for pid, process in sorted(snapshot.processes.items()):
        thread = main.get(pid)
        if thread is None:
            continue
        if process.rank is None:
            if process.exe:
                programs[process.exe].append((f"process {process.pid}", thread))
            continue
        # A rank's wrapper scripts and helpers have its environment too.
        other = jobs[process.job].get(process.rank)
        if other is None or _more_likely(thread, other, paths, parents):
            jobs[process.job][process.rank] = thread
    for job, ranks in jobs.items():
        members = [(f"rank {rank}", thread) for rank, thread in sorted(ranks.items())]
        yield (f"ranks of {job}" if len(jobs) > 1 else "ranks"), _RANKS, members
    for exe, members in programs.items():
        yield f"processes of {exe.rpartition('/')[2]}", _OTHERS, members
    threads: defaultdict[int, list[tuple[str, ThreadStack]]] = defaultdict(list)
    for thread in snapshot.threads:
        if main.get(thread.pid) is not thread:
            threads[thread.pid].append((f"thread {thread.tid} ({thread.name})", thread))
    for pid, members in threads.items():
        yield f"threads that process {own.get(pid, pid)} started", _OTHERS, members


def _more_likely(
    thread: ThreadStack, other: ThreadStack, paths: Sequence[Path], parents: set[int]
) -> bool:
    """Whether ``thread`` rather than ``other`` is the rank's own."""

    def rank_of(which: ThreadStack) -> tuple[bool, bool, int]:
        communicates = any(map(_communicates, paths[which.path]))
        return communicates, which.pid not in parents, -which.start_ns

    return rank_of(thread) > rank_of(other)


def _communicates(frame: Frame) -> bool:
    roles = role_table().of_procedure(frame.name, kernel=frame.kernel, module=frame.module)
    return bool(roles & NameRole.COMMUNICATION)


def _compare(
    group: str,
    members: list[tuple[str, ThreadStack]],
    paths: Sequence[Path],
    processes: dict[int, Process],
    most: float,
) -> Outliers | None:
    counts: Counter[str] = Counter()
    depth: dict[str, int] = {}
    communication: set[str] = set()
    for _, thread in members:
        procedures = _procedures(paths[thread.path])
        names = [frame.name for frame in procedures]
        communication.update(frame.name for frame in procedures if _communicates(frame))
        counts.update(set(names))
        for level, name in enumerate(names):
            depth[name] = max(depth.get(name, 0), level)
    least = len(members) * (1 - most)
    common = [name for name, count in counts.items() if least <= count < len(members)]
    calls = [name for name in common if name in communication]
    if not common:
        return None
    if calls:
        procedure = max(calls, key=lambda name: (counts[name], -depth[name]))
    else:
        procedure = max(common, key=lambda name: (counts[name], depth[name]))
    apart = [
        (label, thread)
        for label, thread in members
        if all(frame.name != procedure for frame in paths[thread.path])
    ]
    where = [own_procedure(paths[thread.path], processes.get(thread.pid)) for _, thread in apart]
    return Outliers(group, len(members), procedure, apart, where)


def _procedures(path: Path) -> list[Frame]:
    """The user's procedures on ``path``, outermost first."""
    return [frame for frame in path if frame.is_procedure and not frame.kernel]


def own_procedure(path: Path, process: Process | None) -> str:
    """The innermost procedure of the program itself on ``path``, or of whatever it is in; "" when
    there is none."""
    user = _procedures(path)
    own = [frame for frame in user if process is not None and frame.module == process.exe]
    innermost = (own or user or list(path))[-1:]
    return innermost[0].name if innermost else ""
