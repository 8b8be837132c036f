"""Recorded calls of MPI as arrays, whatever they were read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcd.array_types import F64, I64, Mask
from hpcd.rows import take_rows


@dataclass(frozen=True)
class RecordedFunction:
    """A recorded function: its name (that of :class:`hpcd.model.mpi_records.Record`), and name and
    unit of each value."""

    name: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DescribedCommunicator:
    """A communicator that the recording itself describes: ranks of the job in its order, ``remote``
    those of the other group where it is between two, its ``parent``'s place in the list (-1: none),
    extents and which of these wrap around where it is Cartesian."""

    name: str
    parent: int
    members: I64
    remote: I64 | None = None
    dims: tuple[int, ...] = ()
    periods: tuple[int, ...] = ()
    ordered: bool = True


@dataclass(frozen=True)
class CallArrays:
    """Calls of ``functions``, in any order; one entry each.

    ``line`` the trace line, ``time`` and ``duration`` ns since the origin, ``node`` the CCT node of
    the call path, ``function`` a position in ``functions``, all ``int64[n]``; ``weight``
    ``float64[n]`` how many calls it stands for; ``value`` ``int64[n, 6]``. Where communicators are
    ``described``, those of calls are places in that list, and not handles.
    """

    line: I64
    time: I64
    duration: I64
    node: I64
    function: I64
    weight: F64
    value: I64
    functions: Sequence[RecordedFunction]
    described: Sequence[DescribedCommunicator] = ()

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, which: Mask) -> CallArrays:
        """The calls in ``which``, bool[n]."""
        return take_rows(self, which)
