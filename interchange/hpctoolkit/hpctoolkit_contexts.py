"""Calling contexts as HPCToolkit has them: functions, and the lines or instructions in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpcd.array_types import I64, U32, U64, Mask
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.output.context_table import ContextTable, Detail
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.model.cct import CCT
from hpcd.model.cct_union import collapse


@dataclass(frozen=True)
class LexicalFunction:
    """A function: ``module`` and ``file`` are 0 and empty if unknown."""

    name: str
    module: int
    offset: int
    file: str
    line: int
    inlined: bool


@dataclass(frozen=True)
class LexicalPlace:
    """A line of ``file``, or without one the instruction at ``offset`` of ``module``."""

    file: str
    line: int
    module: int
    offset: int


@dataclass(frozen=True)
class LexicalContexts:
    """A tree whose nodes are functions (odd frames: 1 + 2 · function) and, below them, places (even
    ones: 2 + 2 · place). Node 0 is the root; the children of a node are contiguous.

    ``of_context`` int64[n] is the node that each context of ``table`` adds its cost to.
    """

    tree: CCT
    functions: list[LexicalFunction]
    places: list[LexicalPlace]
    table: ContextTable
    of_context: I64

    def __len__(self) -> int:
        return len(self.tree)

    @cached_property
    def within_function(self) -> Mask:
        """bool[nodes]: the places."""
        inside: Mask = self.tree.frame % np.uint64(2) == 0
        inside[0] = False
        return inside

    @cached_property
    def number(self) -> I64:
        """int64[nodes]: the function or place of each node; 0 for the root."""
        numbers: I64 = (np.maximum(self.tree.frame, 1).astype(np.int64) - 1) // 2
        return numbers


def lexical_contexts(selection: ExportSelection) -> LexicalContexts:
    """Return the contexts of ``selection`` in HPCToolkit's form."""
    table = selection.contexts(Detail.PLACE)
    functions, function_of, places, place_of = _code(selection, table)
    frame = table.frame.astype(np.int64)
    count = len(frame)
    label: U64 = np.zeros(2 * count, np.uint64)
    label[::2] = 2 * function_of[frame] + 1
    label[1::2] = 2 * place_of[frame] + 2
    kept = np.ones(2 * count, bool)
    kept[1::2] = place_of[frame] >= 0
    kept[1] = False
    index = np.cumsum(kept) - 1
    innermost = np.where(kept[1::2], index[1::2], index[::2])
    parent: U32 = np.zeros(2 * count, np.uint32)
    parent[::2] = innermost[table.parent]
    parent[1::2] = index[::2]
    tree, into = collapse(CCT(parent[kept], label[kept]), label[kept])
    return LexicalContexts(tree, functions, places, table, into[innermost].astype(np.int64))


def _code(
    selection: ExportSelection, table: ContextTable
) -> tuple[list[LexicalFunction], I64, list[LexicalPlace], I64]:
    """Return the distinct functions and places, and their numbers by frame (-1: no place)."""
    procedures = selection.db.procedures
    functions: Numbering[LexicalFunction] = Numbering()
    places: Numbering[LexicalPlace] = Numbering()
    function_of, place_of = [], []
    frames = table.frames
    columns = zip(
        frames.name, frames.module.tolist(), frames.procedure.tolist(), frames.inlined.tolist(),
        frames.address.tolist(), frames.file, frames.line.tolist(), strict=True,
    )  # fmt: skip
    for name, module, procedure, inlined, address, file, line in columns:
        if inlined:
            function = LexicalFunction(name, module, 0, "", 0, True)
        else:
            begin = int(procedures.address[procedure])
            source, source_line = procedures.file[procedure], int(procedures.line[procedure])
            function = LexicalFunction(name, module, begin, source, source_line, False)
        function_of.append(functions[function])
        if file and line:
            place = LexicalPlace(file, line, 0, 0)
        elif module and not inlined:
            place = LexicalPlace("", 0, module, address)
        else:
            place_of.append(-1)
            continue
        place_of.append(places[place])
    return (
        list(functions),
        np.array(function_of, np.int64),
        list(places),
        np.array(place_of, np.int64),
    )
