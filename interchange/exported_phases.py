"""Phases that recorded calls mark, as traces in other formats show them."""

from __future__ import annotations

from collections.abc import Iterator

from hpcd.analysis.database import Database
from hpcd.analysis.profile.filters import Filter, apart
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.analysis.profile.time_segments import Segments

FORMATS = ("firefox", "otf2", "perfetto")
"""Those that can hold phases."""


class ExportedPhases:
    """The phases that ``text`` marks (as ``hpcd report --by phase=`` takes it; empty: none), as far
    as ``only`` has their time. ``names`` by group; that of group 0 is of no phase.

    Raises :class:`hpcd.errors.UsageError` where no call marks any.
    """

    def __init__(self, db: Database, only: Filter, text: str) -> None:
        self._marked = MarkedPhases(db, text) if text else None
        self._windows = Segments.of_windows(apart(only.windows)) if only.windows else None
        self.names = self._marked.name if self._marked else []
        self.notes = self._marked.notes if self._marked else []

    def __bool__(self) -> bool:
        return self._marked is not None

    def of_line(self, line: int) -> Iterator[tuple[int, int, int]]:
        """Begin and end (ns since the origin) and group of each phase of trace line ``line``, in
        order of time; of phases within one another the innermost at any moment."""
        if self._marked is None:
            return
        segments = self._marked.segments(line)
        if self._windows is not None:
            segments = segments.within(self._windows)
        yield from zip(
            segments.begin.tolist(), segments.end.tolist(), segments.group.tolist(), strict=True
        )
