"""Recorded calls of MPI as arrays, whatever they were read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcd.array_types import F64, I64


@dataclass(frozen=True)
class RecordedFunction:
    """A recorded function: its name (that of :class:`hpcd.model.mpi_records.Record`), and name and
    unit of each value."""

    name: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CallArrays:
    """Calls of ``functions``, in any order; one entry each.

    ``line`` the trace line, ``time`` and ``duration`` ns since the origin, ``node`` the CCT node of
    the call path, ``function`` a position in ``functions``, all ``int64[n]``; ``weight``
    ``float64[n]`` how many calls it stands for; ``value`` ``int64[n, 6]``.
    """

    line: I64
    time: I64
    duration: I64
    node: I64
    function: I64
    weight: F64
    value: I64
    functions: Sequence[RecordedFunction]

    def __len__(self) -> int:
        return len(self.line)
