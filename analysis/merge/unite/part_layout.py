"""Which parts a database has, and which of their rows are its trace lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.analysis.trace.part_contents import MeasurementContents, PartContents
from hpcd.array_types import I64, U32


@dataclass(frozen=True, slots=True)
class PartLayout:
    """The parts of a database: ``parts``, in an order that depends on the measurements only, and
    for each the numbers of its ``members`` among the measurements, in the order of their rows.

    A part that is kept may have rows of a measurement that has grown and is now in another part:
    they are no trace lines.
    """

    parts: tuple[PartContents, ...]
    members: tuple[tuple[int, ...], ...]
    measurements: Sequence[MeasurementContents]

    @staticmethod
    def of(
        measurements: Sequence[MeasurementContents], parts: Iterable[PartContents]
    ) -> PartLayout:
        """Return the layout of ``parts``, those without any of ``measurements`` left out."""
        by_path = {part.path: part for part in parts}
        members: dict[Path, list[int]] = {}
        for number, contents in enumerate(measurements):
            members.setdefault(contents.part, []).append(number)
        return PartLayout(
            tuple(by_path[path] for path in members),
            tuple(
                tuple(sorted(numbers, key=lambda number: measurements[number].first_row))
                for numbers in members.values()
            ),
            measurements,
        )

    def live_rows(self, part: int) -> I64:
        """``int64[n]``: the rows of ``part`` that are trace lines, ascending."""
        mine = [self.measurements[number] for number in self.members[part]]
        return np.concatenate(
            [np.arange(one.first_row, one.first_row + len(one.lines)) for one in mine]
        )

    def lines(self, part: int, rows: Sequence[I64]) -> I64:
        """``int64[n]``: the trace lines of :meth:`live_rows`; ``rows`` are the rows of each
        measurement."""
        return np.concatenate([rows[number] for number in self.members[part]])

    def place(self, rows: Sequence[I64]) -> tuple[U32, U32]:
        """``uint32[measurements]``: the part of each measurement; ``uint32[lines]``: each trace
        line's row in it; ``rows`` are the trace lines of each measurement."""
        part_of = np.zeros(len(self.measurements), np.uint32)
        row = np.zeros(sum(map(len, rows)), np.uint32)
        for part, numbers in enumerate(self.members):
            part_of[list(numbers)] = part
        for contents, mine in zip(self.measurements, rows, strict=True):
            row[mine] = np.arange(contents.first_row, contents.first_row + len(mine))
        return part_of, row
