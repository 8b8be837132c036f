"""A history of mappings that is given what the kernel's reports say, not their bytes."""

from __future__ import annotations

from hpcd.bpf.events.mapping_history import MappingHistory, ReportKind, _Entry
from hpcd.model.region import Region


class ReportedHistory(MappingHistory):
    """Takes reports that have been read already."""

    def on_fork(self, parent: int, child: int, time: int) -> None:
        """``child`` begins with what ``parent`` has mapped."""
        self._add(child, _Entry(time, ReportKind.FORK, parent, ()))

    def on_exec(self, pid: int, time: int) -> None:
        """``pid`` begins anew; what its new program maps is reported after this."""
        self._add(pid, _Entry(time, ReportKind.EXEC, 0, ()))

    def on_map(self, pid: int, time: int, mapped: Region) -> None:
        """``pid`` has mapped code."""
        self._add(pid, _Entry(time, ReportKind.MAP, 0, (mapped,)))
