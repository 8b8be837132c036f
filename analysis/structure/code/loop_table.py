"""The loops of a module, by address."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpcd.analysis.arrays.named_arrays import Arrays
from hpcd.analysis.structure.array_records import from_arrays, to_arrays, within
from hpcd.analysis.structure.dwarf.line_table import depths, value_at
from hpcd.array_types import I32, U64, Array, Mask
from hpcd.errors import FormatError


@dataclass(frozen=True)
class LoopTable:
    """The loops of functions.

    Blocks, ``[b]``, ascending by ``start`` ``uint64``: ``last`` ``uint64`` an address within the
    last instruction; ``loop`` ``int32`` the innermost loop, -1 none. A block ends where the next
    one begins; code without loops makes one block of many. Loops, ``[l]``, parents before children:
    ``parent`` ``int32``, -1 for outermost ones; ``header`` ``uint64``: its first instruction;
    ``irreducible`` ``bool``: it has several entries. Exits, ``[e]``: ``exit`` ``uint64`` a
    branch that may leave loop ``exit_of`` ``int32``; for a loop without exits the jump back.
    """

    start: U64
    last: U64
    loop: I32
    parent: I32
    header: U64
    irreducible: Mask
    exit: U64
    exit_of: I32

    def loop_of(self, addresses: U64) -> I32:
        """``int32[n]``: the innermost loop of each address, -1 for none."""
        return value_at(self.start, self.loop, addresses)

    def to_arrays(self) -> Arrays:
        """Return the table as arrays by name."""
        return to_arrays(self)

    @staticmethod
    def from_arrays(arrays: Arrays) -> LoopTable:
        """Make the table from the result of :meth:`to_arrays`. Raises :class:`FormatError`."""
        table = from_arrays(LoopTable, arrays)
        blocks, loops = len(table.start), len(table.parent)
        if not (
            len(table.last) == len(table.loop) == blocks
            and len(table.header) == len(table.irreducible) == loops
            and len(table.exit) == len(table.exit_of)
            and within(table.exit_of, 0, loops)
            and within(table.loop, -1, loops)
            and within(table.parent, -1, max(loops, 1))
            and bool((table.parent < np.maximum(np.arange(loops), 0)).all())
            and bool((table.start[1:] > table.start[:-1]).all())
        ):
            raise FormatError("table of loops: numbers that do not fit together")
        return table

    @staticmethod
    def joined(parts: list[LoopTable]) -> LoopTable:
        """Concatenate tables of different functions; the order does not matter."""
        offsets = np.cumsum([0, *(len(part.parent) for part in parts)])
        start = np.concatenate([np.zeros(0, np.uint64), *(part.start for part in parts)])
        order = np.argsort(start, kind="stable")

        def column(name: str, kind: type) -> Array:
            return np.concatenate([np.zeros(0, kind), *(getattr(part, name) for part in parts)])

        def shifted(name: str) -> I32:
            return np.concatenate(
                [np.zeros(0, np.int32)]
                + [
                    np.where(getattr(part, name) >= 0, getattr(part, name) + offset, -1)
                    for part, offset in zip(parts, offsets.tolist(), strict=False)
                ]
            ).astype(np.int32)

        # Parents before children, then by address.
        parent, header = shifted("parent"), column("header", np.uint64)
        loops = np.lexsort((header, depths(parent)))
        number = np.full(len(loops) + 1, -1, np.int32)
        number[loops] = np.arange(len(loops), dtype=np.int32)
        exits, exit_of = column("exit", np.uint64), number[shifted("exit_of")]
        by_loop = np.lexsort((exits, exit_of))
        return LoopTable(
            start=start[order],
            last=column("last", np.uint64)[order],
            loop=number[shifted("loop")][order],
            parent=number[parent[loops]],
            header=header[loops],
            irreducible=column("irreducible", np.bool_)[loops],
            exit=exits[by_loop],
            exit_of=exit_of[by_loop],
        )

    @staticmethod
    def empty() -> LoopTable:
        """The table of no code."""
        return LoopTable.joined([])
