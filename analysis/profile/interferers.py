"""Time in which threads waited for a CPU, by interferer: what ran instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hpcd.analysis.database import Database
from hpcd.array_types import I64, Mask
from hpcd.model import codes


class InterfererKind(StrEnum):
    """Kinds of interferers."""

    OWN = "own threads"
    """Of the same process."""
    RECORDED = "recorded process"
    """Another recorded process."""
    PROCESS = "process"
    """A process that is not recorded."""
    KERNEL_THREAD = "kernel thread"
    IDLE = "idle CPU"
    """The thread had been given a CPU, which did not run anything yet."""
    LIMIT = "limit of the control group"
    NOT_SEEN = "not seen"


_KIND = {
    codes.Interferer.KERNEL_THREAD: InterfererKind.KERNEL_THREAD,
    codes.Interferer.IDLE: InterfererKind.IDLE,
    codes.Interferer.LIMIT: InterfererKind.LIMIT,
}

# In place of the numbers of processes, which follow.
_NONE, _OWN = 0, 1


@dataclass(frozen=True, slots=True)
class InterfererTime:
    """An interferer, which had CPUs for ``seconds`` while threads waited for them. ``name`` is of a
    process, with its pid, or of a kernel thread, and empty for other kinds."""

    kind: InterfererKind
    name: str
    seconds: float

    @property
    def is_somebody(self) -> bool:
        """Whether it is a program, or the kernel."""
        return self.kind == InterfererKind.OWN or bool(self.name)

    @property
    def text(self) -> str:
        """The interferer in words."""
        kernel = self.kind == InterfererKind.KERNEL_THREAD and self.name
        return f"{self.name} (kernel thread)" if kernel else self.name or str(self.kind)


def interferers(
    db: Database,
    waited: float,
    lines: Mask,
    nodes: Mask | None,
    windows: Sequence[tuple[int, int]] = (),
) -> list[InterfererTime]:
    """Return the interferers while the trace ``lines`` ``bool[lines]`` waited for a CPU, ``waited``
    seconds in all, in contexts ``nodes`` ``bool[nodes]`` (None: in all), within ``windows`` that do
    not overlap (none: at any time), the longest first.

    Their seconds add up to ``waited``: what is not known of waits, as of those too short for
    records of their own, is not seen. O(parts of waits). Raises :class:`hpcd.errors.FormatError`.
    """
    parts = db.interference
    line = np.repeat(np.arange(len(lines)), np.diff(parts.first))
    chosen = lines[line]
    if nodes is not None:
        chosen &= nodes[parts.node]
    ns = np.where(chosen, _within(parts.begin, parts.duration, windows), 0)
    process = db.lines.process.astype(np.int64) + 2
    ran = np.where(parts.thread >= 0, process[parts.thread], _NONE)
    own = ran == process[line]
    labels = [f"{name} {pid}" for name, pid in db.rows("SELECT name, pid FROM process ORDER BY id")]
    # One number for each kind and interferer: the first two of processes are none, and the own.
    shape = max(codes.Interferer) + 1, len(labels) + 2, len(parts.others)
    key = np.ravel_multi_index((parts.kind, np.where(own, _OWN, ran), parts.other), shape)
    distinct, place = np.unique(key, return_inverse=True)
    sums = np.bincount(place.ravel(), ns, len(distinct))
    seconds: dict[tuple[InterfererKind, str], float] = {}
    parts_of_keys = (part.tolist() for part in np.unravel_index(distinct, shape))
    for kind, of, other, total in zip(*parts_of_keys, sums.tolist(), strict=True):
        who = _who(kind, of, parts.others[other], labels)
        seconds[who] = seconds.get(who, 0.0) + total / 1e9
    not_seen = InterfererKind.NOT_SEEN, ""
    seconds[not_seen] = max(waited - sum(seconds.values()) + seconds.get(not_seen, 0.0), 0.0)
    rows = [
        InterfererTime(kind, name, total) for (kind, name), total in seconds.items() if total > 0
    ]
    return sorted(rows, key=lambda row: (-row.seconds, row.kind, row.name))


def _who(kind: int, of: int, other: str, labels: Sequence[str]) -> tuple[InterfererKind, str]:
    if of == _OWN:
        return InterfererKind.OWN, ""
    if of != _NONE:
        return InterfererKind.RECORDED, labels[of - 2]
    if kind == codes.Interferer.THREAD and other:
        return InterfererKind.PROCESS, other
    return _KIND.get(codes.Interferer(kind), InterfererKind.NOT_SEEN), other


def _within(begin: I64, duration: I64, windows: Sequence[tuple[int, int]]) -> I64:
    """``int64[n]``: of each stretch of time the part within windows."""
    if not windows:
        return duration
    inside = np.zeros_like(duration)
    for low, high in windows:
        inside += np.maximum(np.minimum(begin + duration, high) - np.maximum(begin, low), 0)
    return inside
