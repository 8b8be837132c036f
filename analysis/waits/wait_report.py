"""Reports who made whom wait, by call path, with names for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.waits.wait_chains import Cause, Causes, wait_causes
from hpcd.errors import UsageError

_UNKNOWN = "[unknown]"


@dataclass(frozen=True, slots=True)
class WaitCause:
    """A cause of waiting: ``seconds`` of it are due to ``kind``. ``line`` is the trace line of the
    thread that caused it (-1: it is no recorded thread, or the one that waited itself), ``thread``
    its label, ``name`` that of who else it was, where it is known; ``path`` the procedures that it
    was in, the outermost first."""

    kind: Cause
    line: int
    thread: str
    name: str
    path: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class WaitedPath:
    """``waits`` waits at a call path ``path`` (procedures, the outermost first), ``seconds`` in
    all. ``ended_by`` are those who ended them, of waits for locks those who held the lock
    meanwhile, and ``roots`` what the waits came down to; the seconds of either add up to these.
    ``in_vain`` of the waits ended by a wake-up in vain: they are due to who ended the line's next.
    """

    path: tuple[str, ...]
    seconds: float
    waits: int
    in_vain: int
    ended_by: Sequence[WaitCause]
    roots: Sequence[WaitCause]


@dataclass(frozen=True, slots=True)
class WaitReport:
    """Waits that are known one by one, costliest first: ``seconds`` in ``waits`` waits, of which
    ``not_seen`` have nobody who ended them; ``by_message_seconds`` of these in ``by_message`` waits
    for other ranks, as calls of MPI tell. ``other_seconds`` of waiting are in waits below the
    threshold, which are summed, and in those that had not ended. ``in_vain`` are all paths'."""

    paths: Sequence[WaitedPath]
    seconds: float
    waits: int
    not_seen: int
    other_seconds: float
    in_vain: int
    by_message: int
    by_message_seconds: float


def require_waits(db: Database) -> None:
    """Raise :class:`UsageError` unless ``db`` has waits with their wakers, or calls of MPI."""
    if not len(db.waits) and not db.calls.of_group("mpi"):
        raise UsageError(f"{db.path}: no waits with their wakers were recorded")


def wait_report(db: Database) -> WaitReport:
    """Return who made whom wait in ``db``. Raises :class:`hpcd.errors.FormatError`."""
    waits, direct, roots = wait_causes(db)
    in_vain = waits.ender != np.arange(len(waits.ender))
    count, vain_count = (
        np.bincount(node, minlength=len(db.cct)) for node in (waits.node, waits.node[in_vain])
    )
    names = ActivityNames(db)
    groups: dict[tuple[str, ...], tuple[list[int], list[int]]] = {}
    nodes: dict[tuple[str, ...], set[int]] = {}
    for place, causes in enumerate((direct, roots)):
        for at, node in enumerate(causes.node.tolist()):
            groups.setdefault(names.path(node), ([], []))[place].append(at)
            nodes.setdefault(names.path(node), set()).add(node)
    paths = [
        WaitedPath(
            path,
            float(direct.ns[ended].sum()) / 1e9,
            int(count[list(nodes[path])].sum()),
            int(vain_count[list(nodes[path])].sum()),
            names.causes(direct, ended),
            names.causes(roots, root),
        )
        for path, (ended, root) in groups.items()
    ]
    by_message = waits.kind == Cause.MESSAGE
    blocked = 0.0
    if "blocked_time" in db.metrics.names:
        blocked = float(db.line_totals("blocked_time").sum())
    recorded = float((db.waits.end - db.waits.begin).sum()) / 1e9
    return WaitReport(
        sorted(paths, key=lambda path: (-path.seconds, path.path)),
        float(direct.ns.sum()) / 1e9,
        len(waits.begin),
        int(np.count_nonzero(waits.kind == Cause.NOT_SEEN)),
        max(blocked - recorded, 0.0),
        int(np.count_nonzero(in_vain)),
        int(np.count_nonzero(by_message)),
        float((waits.end - waits.begin)[by_message].sum()) / 1e9,
    )


class ActivityNames:
    """Paths and threads in words, each looked up once."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._paths: dict[int, tuple[str, ...]] = {}
        self._threads: dict[int, str] = {}

    def path(self, node: int) -> tuple[str, ...]:
        """The procedures on the path to a node; ``[unknown]`` for the root."""
        path = self._paths.get(node)
        if path is None:
            names, procedure = self._db.procedure_names, self._db.procedure_of_node
            path = tuple(names[procedure[at]] for at in self._db.cct.path(node)) or (_UNKNOWN,)
            self._paths[node] = path
        return path

    def causes(self, causes: Causes, which: Sequence[int]) -> list[WaitCause]:
        """Some of ``causes``, those alike as one, the greatest first."""
        sums: dict[tuple[int, int, int, tuple[str, ...]], int] = {}
        for at in which:
            kind = int(causes.kind[at])
            line = int(causes.line[at]) if kind in OF_THREADS else -1
            path = self.path(int(causes.cause_node[at])) if kind in OF_THREADS else ()
            key = kind, line, int(causes.other[at]), path
            sums[key] = sums.get(key, 0) + int(causes.ns[at])
        return [
            WaitCause(Cause(kind), line, self.thread(line), self.other(other), path, ns / 1e9)
            for (kind, line, other, path), ns in sorted(
                sums.items(), key=lambda item: (-item[1], item[0])
            )
        ]

    def other(self, number: int) -> str:
        """The name of who ended a wait and is no recorded thread; empty where it is not known."""
        return self._db.waits.others[number]

    def thread(self, line: int) -> str:
        """The label of a line; empty for none."""
        if line < 0:
            return ""
        if line not in self._threads:
            self._threads[line] = self._db.lines.labels([line])[0]
        return self._threads[line]


OF_THREADS = (Cause.THREAD, Cause.RUNNABLE, Cause.UNBORN, Cause.MESSAGE)
"""Causes that are recorded threads."""

_OTHERS = {
    Cause.NOT_SEEN: "nobody was seen",
    Cause.OUTSIDE: "a thread that is not recorded",
    Cause.KERNEL_THREAD: "a kernel thread",
    Cause.TIMER: "a timer: it asked to sleep",
    Cause.SOFTIRQ: "the kernel, after an interrupt (network, disk)",
    Cause.INTERRUPT: "an interrupt",
    Cause.UNKNOWN: "a thread or an interrupt: this kernel does not say which",
}


# Formats alone: the names are others'.
_NAMED = {
    Cause.OUTSIDE: "{}, which is not recorded",
    Cause.KERNEL_THREAD: "the kernel thread {}",
    Cause.SOFTIRQ: "the kernel, after an interrupt ({})",
    Cause.INTERRUPT: "an interrupt of {}",
}


def cause_text(kind: Cause, thread: str = "", name: str = "") -> str:
    """Return a cause of waiting in words, without its call path; ``thread`` is the label of the
    recorded thread, if it is one, ``name`` that of who else it was."""
    if name and kind in _NAMED:
        return _NAMED[kind].format(name)
    if kind == Cause.RUNNABLE and thread:
        return f"{thread}, waiting for a CPU"
    if kind == Cause.MESSAGE and thread:
        return f"a message of {thread}"
    if kind == Cause.UNBORN and thread:
        return f"{thread}, before it began"
    return _OTHERS.get(kind, thread or kind.label)
