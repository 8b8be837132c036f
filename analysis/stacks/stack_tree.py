"""The merged tree of call paths: which threads stand where."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpcd.analysis.stacks.named_paths import Path
from hpcd.analysis.symbols.frame_lookup import Frame
from hpcd.model.identity import Process
from hpcd.model.stack_snapshot import ThreadStack
from hpcd.wording import number_ranges


@dataclass(slots=True)
class StackNode:
    """A procedure below those above it. ``threads`` are all that are in it or below,
    ``standing`` those that stand in it itself."""

    frame: Frame
    threads: list[ThreadStack] = field(default_factory=list)
    standing: list[ThreadStack] = field(default_factory=list)
    below: dict[Frame, StackNode] = field(default_factory=dict)

    def children(self) -> list[StackNode]:
        """Return the nodes below, the most threads first."""
        return sorted(self.below.values(), key=lambda node: (-len(node.threads), node.frame.name))


def merged(
    threads: Iterable[ThreadStack], paths: Sequence[Path], *, kernel: bool = False
) -> StackNode:
    """The tree of the call paths of ``threads``, by procedure, below a root of no procedure.

    The kernel's part is left out unless ``kernel`` is set or a thread has no other.
    """
    root = StackNode(Frame("", "", False))
    for thread in threads:
        path = paths[thread.path]
        if not kernel and any(not frame.kernel for frame in path):
            path = tuple(frame for frame in path if not frame.kernel)
        node = root
        node.threads.append(thread)
        for frame in path:
            child = node.below.get(frame)
            if child is None:
                child = node.below[frame] = StackNode(frame)
            child.threads.append(thread)
            node = child
        node.standing.append(thread)
    return root


_MOST_PIDS = 3
_MOST_RANGES = 12


def process_names(threads: Iterable[ThreadStack], processes: dict[int, Process]) -> str:
    """The processes of ``threads``: ranks as ranges, others by pid or, of many, their number."""
    pids = dict.fromkeys(thread.pid for thread in threads)
    ranks: dict[str, list[int]] = {}
    alone = []
    for pid in pids:
        process = processes.get(pid)
        if process is not None and process.rank is not None:
            ranks.setdefault(process.job, []).append(process.rank)
        else:
            alone.append(process.pid if process else pid)
    words = []
    jobs = {process.job for process in processes.values() if process.rank is not None}
    for job, numbers in ranks.items():
        of = f" of {job}" if len(jobs) > 1 else ""
        parts = number_ranges(numbers).split(",")
        if len(parts) > _MOST_RANGES:
            words.append(f"{len(set(numbers)):,} ranks ({','.join(parts[:3])} ...){of}")
        else:
            words.append(f"rank{'s' if len(set(numbers)) > 1 else ''} {','.join(parts)}{of}")
    if len(alone) > _MOST_PIDS:
        words.append(f"{len(alone)} processes")
    elif alone:
        words.append(f"pid{'s' if len(alone) > 1 else ''} {','.join(map(str, sorted(alone)))}")
    return ", ".join(words)
