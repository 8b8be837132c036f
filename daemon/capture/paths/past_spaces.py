"""Address spaces of processes at past moments, in which copied stacks are walked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from hpcd.bpf.table_memory import Space, UnwindTables
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.model.region import Region

# Address spaces held at once: 50 kB each of a program with many libraries.
_MAX_SPACES = 64


class PastMappings:
    """The mappings of one process at one time; ``process`` is its number, 0 if unknown."""

    __slots__ = ("_hash", "pid", "process", "regions")

    def __init__(self, pid: int, process: int, regions: tuple[Region, ...]) -> None:
        self.pid, self.process, self.regions = pid, process, regions
        self._hash = hash((pid, process, regions))  # of some hundred regions it takes a while

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PastMappings) and (self.pid, self.process, self.regions) == (
            other.pid,
            other.process,
            other.regions,
        )


class PastSpaces:
    """Address spaces of processes at some moments, in table memory while they are walked in.

    Only :meth:`DeferredPaths.finish_paths` walks here, and copies come from a few processes that
    take turns: each one's is written once.
    """

    def __init__(
        self,
        tables: UnwindTables,
        mappings: ModuleMappings,
        space_of: Callable[[int, int, Sequence[Region]], Space | None],
    ) -> None:
        self._tables = tables
        self._mappings = mappings
        self._space_of = space_of
        self._held: OrderedDict[PastMappings, Space] = OrderedDict()

    def hold(self, mapped: PastMappings) -> Space:
        """The space with these mappings."""
        space = self._held.get(mapped)
        if space is None:
            space = self._space_of(mapped.pid, mapped.process, mapped.regions)
            if space:
                return space
            if len(self._held) >= _MAX_SPACES:
                self._give(self._held.popitem(last=False)[1])
            rows = self._mappings.mappings_of(mapped.pid, mapped.process, mapped.regions)
            space = self._held[mapped] = self._tables.add_space(rows)
        return space

    def close(self) -> None:
        """Give the memory back."""
        for space in self._held.values():
            self._give(space)
        self._held.clear()

    def _give(self, space: Space) -> None:
        self._tables.blocks.give(space.start, space.blocks)
