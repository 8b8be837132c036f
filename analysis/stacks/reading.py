"""A snapshot with its paths named, and what stands out in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcd.analysis.stacks.named_paths import Path
from hpcd.analysis.stacks.outliers import Outliers, outliers
from hpcd.analysis.stacks.wait_words import named_wait
from hpcd.analysis.stacks.waiting_chains import WaitingChains, waiting_chains
from hpcd.model.stack_snapshot import StackSnapshot, ThreadStack


@dataclass(frozen=True, slots=True)
class Reading:
    """A snapshot, its ``paths`` named, and what was found in it."""

    snapshot: StackSnapshot
    paths: Sequence[Path]
    outliers: list[Outliers]
    chains: WaitingChains

    @property
    def by_tid(self) -> dict[int, ThreadStack]:
        """The threads, by their ids."""
        return {thread.tid: thread for thread in self.snapshot.threads}


def reading_of(snapshot: StackSnapshot, paths: Sequence[Path]) -> Reading:
    """Return the reading of ``snapshot``: its waits become those that the functions on ``paths``
    show."""
    for thread in snapshot.threads:
        thread.wait = named_wait(thread, paths[thread.path])
    by_tid = {thread.tid: thread for thread in snapshot.threads}
    return Reading(snapshot, paths, outliers(snapshot, paths), waiting_chains(by_tid))
