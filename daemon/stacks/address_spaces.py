"""The code that the processes of a snapshot map, ready for their stacks to be walked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf.sampler import Sampler
from hpcd.bpf.table_memory import MAPPING, Space, UnwindTables
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.daemon.targets.process_identity import identify
from hpcd.daemon.targets.process_table import MappingWatcher
from hpcd.model.identity import Process
from hpcd.model.region import Region

# The decoder gives up on one table after 20 s.
_TABLE_SECONDS = 25.0


@dataclass(slots=True)
class Mapped:
    """A process, and where the walker finds its mappings; ``space`` is None while it has none."""

    process: Process
    image: int
    regions: list[Region]
    rows: npt.NDArray[np.void]
    space: Space | None = None
    withheld: bool = False
    """It keeps readers of its address space waiting: its memory is not to be read either."""


class AddressSpaces:
    """Owns the address spaces in table memory, one for each process, and shows ``watchers`` what
    they map."""

    def __init__(
        self,
        modules: Modules,
        mappings: ModuleMappings,
        tables: UnwindTables,
        sampler: Sampler,
        watchers: Sequence[MappingWatcher],
    ) -> None:
        self._modules = modules
        self._module_mappings = mappings
        self._tables = tables
        self._watchers = watchers
        modules.installer.connect(tables, sampler.set_rules)
        self._kernel = sampler.targets
        self._by_pid: dict[int, Mapped] = {}
        self._count = 0

    def get(self, pid: int) -> Mapped | None:
        """Return what is known of process ``pid``."""
        return self._by_pid.get(pid)

    def user_of(self, pid: int) -> int:
        """Return the user of a process that was read; root's of another."""
        mapped = self._by_pid.get(pid)
        return mapped.process.uid if mapped else 0

    def read(self, images: dict[int, int]) -> None:
        """Request the analysis of what these processes map, if they run another program than when
        they were read last. ``images`` are the programs they run, by pid."""
        fresh = [
            pid
            for pid, image in images.items()
            if pid not in self._by_pid or self._by_pid[pid].image != image
        ]
        for pid in fresh:
            known = self._by_pid.get(pid)
            self._count += 1
            number = known.process.id if known else self._count
            if known:
                self._free(known)
            nothing = np.zeros(0, MAPPING)
            self._by_pid[pid] = Mapped(identify(pid, number), images[pid], [], nothing)
        self.refresh(fresh)

    def refresh(self, pids: Iterable[int]) -> bool:
        """Read the mappings of these processes again and wait for what is new to be analysed;
        False when they are what they were."""
        read = {pid: self._mappings(self._by_pid[pid]) for pid in pids}
        installed = False
        while self._modules.installer.install_next(_TABLE_SECONDS):
            installed = True
        changed = False
        for pid, rows in read.items():
            mapped = self._by_pid[pid]
            if installed and not (rows["module"] != 0).all():
                rows = self._mappings(mapped)
            if len(rows) and not np.array_equal(rows, mapped.rows):
                self._store(mapped, rows)
                changed = True
            for watcher in self._watchers:
                watcher.on_mapped(pid, mapped.regions, mapped.image, ended=False)
        return changed

    def _mappings(self, mapped: Mapped) -> npt.NDArray[np.void]:
        """The mappings of a process as the walker reads them; none when it is gone."""
        if mapped.withheld:
            return np.zeros(0, MAPPING)
        try:
            process = mapped.process
            mapped.regions, rows = self._module_mappings.mappings(process.pid, process.id)
        except WithheldError:
            mapped.withheld = True
            return np.zeros(0, MAPPING)
        return rows

    def _store(self, mapped: Mapped, rows: npt.NDArray[np.void]) -> None:
        self._free(mapped)
        mapped.rows = rows
        mapped.space = self._tables.add_space(rows)
        self._kernel.add_process(mapped.process.pid, mapped.space, mapped.image)

    def _free(self, mapped: Mapped) -> None:
        if mapped.space:
            self._kernel.add_process(mapped.process.pid, None)
            self._tables.blocks.give(mapped.space.start, mapped.space.blocks)
            mapped.space = None

    def keep(self, pids: Collection[int]) -> None:
        """Forget all processes but these: the others have ended."""
        for pid in self._by_pid.keys() - set(pids):
            self._free(self._by_pid.pop(pid))
            self._kernel.forget_process(pid)
            for watcher in self._watchers:
                watcher.on_exit(pid)
