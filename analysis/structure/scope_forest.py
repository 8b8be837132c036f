"""Scopes of a module: procedures, inlined calls, loops, statements."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hpcd.analysis.arrays.named_arrays import Arrays
from hpcd.analysis.structure.array_records import Strings, from_arrays, to_arrays, within
from hpcd.analysis.structure.dwarf.line_table import MAX_DEPTH, SourceLineTable, depths
from hpcd.array_types import I32, I64, U8, U32, U64
from hpcd.errors import FormatError
from hpcd.model.scope import ScopeKind


@dataclass(frozen=True)
class ScopeForest:
    """Scopes, one array entry each; a scope's parent has a smaller number.

    ``parent`` ``int32[n]``, -1 for procedures, the only roots; ``kind``
    ``uint8`` (:class:`ScopeKind`); ``name`` ``int32``: which of ``names`` and ``linkage`` (the
    linker's) a procedure or inlined procedure has, -1 for loops and statements; ``file``
    ``int32``: which of ``files``, -1 unknown; ``line`` ``uint32``, 0 unknown. File and line are
    where a procedure begins, where an inlined one was called, a loop's head, a statement.
    ``address`` ``uint64``: the entry of a procedure, the first instruction of a loop's head, 0 for
    the others.
    """

    parent: I32
    kind: U8
    name: I32
    file: I32
    line: U32
    address: U64
    names: Strings
    linkage: Strings
    files: Strings

    def __len__(self) -> int:
        return len(self.parent)

    def path(self, scope: int) -> list[int]:
        """The scopes from ``scope`` out to its procedure."""
        chain = []
        while scope >= 0:
            chain.append(scope)
            scope = int(self.parent[scope])
        return chain

    def label(self, scope: int) -> str:
        """Return a scope's name without its place."""
        kind = ScopeKind(int(self.kind[scope]))
        if kind in (ScopeKind.PROCEDURE, ScopeKind.INLINED):
            return str(self.names[int(self.name[scope])])
        return kind.name.lower()

    def place(self, scope: int) -> tuple[str, int]:
        """File and line of a scope; ``""`` and 0 where unknown."""
        file = int(self.file[scope])
        return (str(self.files[file]) if file >= 0 else "", int(self.line[scope]))

    def depths(self) -> I64:
        """``int64[n]``: the number of scopes above each."""
        return depths(self.parent)

    def walk(self) -> Iterator[tuple[int, int]]:
        """(scope, depth), each scope after its parent and before its parent's next child."""
        order = np.lexsort((np.arange(len(self)), self.parent))
        first = np.searchsorted(self.parent[order], np.arange(-1, len(self) + 1))
        pending = [(scope, 0) for scope in order[first[0] : first[1]].tolist()[::-1]]
        while pending:
            scope, depth = pending.pop()
            yield scope, depth
            inside = order[first[scope + 1] : first[scope + 2]].tolist()
            pending += [(child, depth + 1) for child in inside[::-1]]

    def only(self, scopes: I32, *, texts: bool = True) -> tuple[ScopeForest, I32]:
        """The forest of ``scopes`` (``int32[k]``, -1 allowed) and their ancestors.

        Second, ``int32[k]``: their numbers in it. Unused names and files are left out,
        unless not ``texts``.
        """
        wanted = np.zeros(len(self), bool)
        fresh = np.unique(scopes[scopes >= 0])
        while len(fresh):
            wanted[fresh] = True
            above = self.parent[fresh]
            above = above[above >= 0]
            fresh = np.unique(above[~wanted[above]])
        keep = np.flatnonzero(wanted)
        number = np.full(len(self) + 1, -1, np.int32)
        number[keep] = np.arange(len(keep), dtype=np.int32)
        if not texts:
            columns = {name: getattr(self, name)[keep] for name in _COLUMNS}
            columns["parent"] = number[columns["parent"]]
            return replace(self, **columns), number[scopes]
        name, names = _used(self.name[keep])
        file, files = _used(self.file[keep])
        return (
            ScopeForest(
                number[self.parent[keep]],
                self.kind[keep],
                name,
                file,
                self.line[keep],
                self.address[keep],
                self.names.take(names),
                self.linkage.take(names),
                self.files.take(files),
            ),
            number[scopes],
        )

    def to_arrays(self) -> Arrays:
        """Return the forest as arrays by name."""
        return to_arrays(self)

    @staticmethod
    def from_arrays(arrays: Arrays) -> ScopeForest:
        """Make the forest from the result of :meth:`to_arrays`. Raises :class:`FormatError`."""
        forest = from_arrays(ScopeForest, arrays)
        count = len(forest)
        numbers = np.arange(count)
        root = forest.kind == ScopeKind.PROCEDURE
        if not (
            all(len(getattr(forest, name)) == count for name in _COLUMNS)
            and len(forest.names) == len(forest.linkage)
            and within(forest.name, -1, len(forest.names))
            and within(forest.file, -1, len(forest.files))
            and within(forest.kind, 0, len(ScopeKind))
            and within(forest.parent, -1, max(count, 1))
            and bool((forest.parent < np.maximum(numbers, 0)).all())
            and bool((root == (forest.parent < 0)).all())
            and bool(((forest.name >= 0) | (forest.kind >= ScopeKind.LOOP)).all())
            and int(forest.depths().max(initial=0)) <= MAX_DEPTH + 1
        ):
            raise FormatError("table of scopes: numbers that do not fit together")
        return forest


_COLUMNS = ("parent", "kind", "name", "file", "line", "address")


def _used(numbers: I32) -> tuple[I32, I64]:
    """``numbers`` counted anew without gaps (-1 stays), and which they were."""
    used = np.unique(numbers[numbers >= 0])
    renamed: I32 = np.where(numbers >= 0, np.searchsorted(used, numbers), -1).astype(np.int32)
    return renamed, used.astype(np.int64)


def lines_forest(lines: SourceLineTable) -> tuple[ScopeForest, I32]:
    """The scopes of a line table: procedures, inlined procedures, statements.

    Second, ``int32[p]``: the statement of each place, -1 for places without an address.
    """
    functions = max(len(lines.entry), 1)
    # An instance of a function is the function and the place it was inlined at. As places know
    # callers of smaller number only, an instance's number is greater than its parent's.
    key = (lines.caller.astype(np.int64) + 1) * functions + lines.function
    instances, instance_of = np.unique(key, return_inverse=True)
    call = instances // functions - 1
    function = (instances % functions).astype(np.int32)
    inlined = call >= 0
    parent = np.where(inlined, instance_of[call], -1)
    first = _outermost(lines, lines.place_of(lines.entry))[function]
    at = np.where(inlined, call, first)
    file = np.where(at >= 0, lines.file[at], -1) if len(lines.file) else at
    line = np.where(at >= 0, lines.line[at], 0) if len(lines.file) else at

    forest = ScopeForest(
        parent=parent.astype(np.int32),
        kind=np.where(inlined, ScopeKind.INLINED, ScopeKind.PROCEDURE).astype(np.uint8),
        name=function,
        file=file.astype(np.int32),
        line=line.astype(np.uint32),
        address=np.where(inlined, np.uint64(0), lines.entry[function]),
        names=lines.names,
        linkage=lines.linkage,
        files=lines.files,
    )
    used = np.unique(lines.at[lines.at >= 0])
    # Symbols without lines are in the table too; others know more of these.
    used = used[(lines.file[used] >= 0) | (lines.caller[used] >= 0)]
    statement = np.full(len(lines.caller), -1, np.int32)
    forest, statement[used] = with_statements(
        forest, instance_of[used], lines.file[used], lines.line[used]
    )
    return forest, statement


def with_statements(
    forest: ScopeForest, scope: I64, file: I32, line: U32
) -> tuple[ScopeForest, I64]:
    """``forest`` with a statement in each of ``scope`` ``[k]`` for its ``file`` and ``line``, equal
    ones once, behind all other scopes; and ``int64[k]``: the numbers of the statements."""
    where = (file.astype(np.int64) + 1) << 32 | line
    wheres, number = np.unique(where, return_inverse=True)
    size = max(len(wheres), 1)
    keys, which = np.unique(scope * size + number, return_inverse=True)
    spot = wheres[keys % size] if len(wheres) else wheres
    nothing = np.zeros(len(keys), np.int64)
    larger = replace(
        forest,
        parent=np.concatenate([forest.parent, keys // size]).astype(np.int32),
        kind=np.concatenate([forest.kind, nothing + ScopeKind.STATEMENT]).astype(np.uint8),
        name=np.concatenate([forest.name, nothing - 1]).astype(np.int32),
        file=np.concatenate([forest.file, (spot >> 32) - 1]).astype(np.int32),
        line=np.concatenate([forest.line, spot & 0xFFFFFFFF]).astype(np.uint32),
        address=np.concatenate([forest.address, nothing.astype(np.uint64)]),
    )
    return larger, len(forest) + which


def _outermost(lines: SourceLineTable, places: I32) -> I32:
    """The place in the procedure itself that each place was inlined at, or it itself."""
    places = places.copy()
    inside = np.flatnonzero(places >= 0)
    while len(inside):
        above = lines.caller[places[inside]]
        inside, above = inside[above >= 0], above[above >= 0]
        places[inside] = above
    return places


def joined(forests: list[tuple[ScopeForest, I32]]) -> tuple[ScopeForest, list[I32]]:
    """Return several forests as one, and the given scopes of each by their numbers in it."""
    parents, names, files, scopes = [], [], [], []
    count = name_count = file_count = 0
    for forest, asked in forests:
        parents.append(np.where(forest.parent >= 0, forest.parent + count, -1))
        names.append(np.where(forest.name >= 0, forest.name + name_count, -1))
        files.append(np.where(forest.file >= 0, forest.file + file_count, -1))
        scopes.append(np.where(asked >= 0, asked + count, -1).astype(np.int32))
        count += len(forest)
        name_count += len(forest.names)
        file_count += len(forest.files)
    parts = [forest for forest, _ in forests]
    return (
        ScopeForest(
            np.concatenate(parents).astype(np.int32),
            np.concatenate([part.kind for part in parts]),
            np.concatenate(names).astype(np.int32),
            np.concatenate(files).astype(np.int32),
            np.concatenate([part.line for part in parts]),
            np.concatenate([part.address for part in parts]),
            Strings.joined([part.names for part in parts]),
            Strings.joined([part.linkage for part in parts]),
            Strings.joined([part.files for part in parts]),
        ),
        scopes,
    )


def procedures_forest(names: list[str], linkage: list[str], addresses: list[int]) -> ScopeForest:
    """A forest of procedures, for code without further information."""
    count = len(names)
    nowhere = np.full(count, -1, np.int32)
    return ScopeForest(
        parent=nowhere,
        kind=np.full(count, ScopeKind.PROCEDURE, np.uint8),
        name=np.arange(count, dtype=np.int32),
        file=nowhere,
        line=np.zeros(count, np.uint32),
        address=np.array(addresses, np.uint64),
        names=Strings.of(names),
        linkage=Strings.of(linkage),
        files=Strings.of([]),
    )
