"""Lines and inlined calls of Go programs without debug information, from Go's own table."""

from __future__ import annotations

import numpy as np

from hpcd.analysis.structure.array_records import Strings
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.line_table import MAX_DEPTH, NO_ENTRY, SourceLineTable
from hpcd.array_types import I64, U64
from hpcd.elf.elf_file import ElfFile
from hpcd.elf.go_table import GoTable, go_table

_LAST = (1 << 64) - 1


def go_lines(elf: ElfFile, wanted: U64 | None) -> tuple[SourceLineTable, AddressRanges] | None:
    """The lines of the functions that hold ``wanted`` addresses, of all if None, and which
    addresses these are; None of a program that is not Go's. Raises :class:`FormatError`."""
    table = go_table(elf)
    if table is None:
        return None
    if wanted is None:
        functions, covered = np.arange(len(table.start)), AddressRanges.everything()
    else:
        functions = table.holding(np.minimum(wanted, np.uint64(_LAST >> 1)).astype(np.int64))
        covered = _covered(table, functions)
    lines, files, calls = table.lines(functions), table.files(functions), table.inlined(functions)
    edges = [lines.start, lines.end, files.start, files.end, calls.number.start, calls.number.end]
    start = np.unique(np.concatenate([table.start[functions], *edges]))
    line, file, call = lines.at(start), files.at(start), calls.number.at(start)

    # Each row is a place; a call was made at the row of its place.
    inlined = call >= 0
    caller = np.full(len(start), -1, np.int64)
    caller[inlined] = np.searchsorted(start, calls.place[call[inlined]], side="right") - 1
    depth, caller = _depths(caller)
    order = np.argsort(depth, kind="stable")
    rank = np.zeros(len(start), np.int64)
    rank[order] = np.arange(len(start))
    caller = np.where(caller >= 0, rank[caller], -1)[order]

    # Procedures that were inlined come behind procedures with code of their own.
    names, which = np.unique(calls.name, return_inverse=True)
    function = np.searchsorted(table.start[functions], start, side="right") - 1
    function[inlined] = len(functions) + which[call[inlined]]
    entry = np.full(len(functions) + len(names), NO_ENTRY, np.uint64)
    entry[: len(functions)] = table.start[functions].astype(np.uint64)
    sources = np.unique(file[file >= 0])
    number = np.where(file >= 0, np.searchsorted(sources, file), -1)
    offsets = [*table.names[functions].tolist(), *names.tolist()]
    texts = Strings.of(list(map(table.name, offsets)))
    return (
        SourceLineTable(
            start=start.astype(np.uint64),
            at=np.where(line >= 0, rank, -1).astype(np.int32),
            caller=caller.astype(np.int32),
            function=function[order].astype(np.int32),
            file=number[order].astype(np.int32),
            line=np.clip(line, 0, (1 << 32) - 1)[order].astype(np.uint32),
            entry=entry,
            names=texts,
            linkage=texts,
            files=Strings.of(list(map(table.file, sources.tolist()))),
        ),
        covered,
    )


def _covered(table: GoTable, functions: I64) -> AddressRanges:
    """All addresses but those in other functions than these ``functions``."""
    unasked = np.ones(len(table.start), bool)
    unasked[functions] = False
    low = np.concatenate([[0], table.end[unasked].astype(np.uint64)]).astype(np.uint64)
    high = np.append(table.start[unasked].astype(np.uint64), np.uint64(_LAST))
    return AddressRanges.of(low, high, low < high)


def _depths(caller: I64) -> tuple[I64, I64]:
    """Return the number of callers of each place, ``int64[n]``, and ``caller`` without circles and
    nests of more than :data:`MAX_DEPTH`, which no compiler makes."""
    depth = np.where(caller < 0, 0, -1)
    open_ = np.flatnonzero(depth < 0)
    for level in range(1, MAX_DEPTH):
        next_ = depth[caller[open_]] == level - 1
        if not bool(next_.any()):
            break
        depth[open_[next_]] = level
        open_ = open_[~next_]
    caller = caller.copy()
    caller[open_], depth[open_] = -1, 0
    return depth, caller
