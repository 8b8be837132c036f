"""Procedures and static scopes of a load module's sampled addresses."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hpcd.analysis.database.scopes import Scopes
from hpcd.analysis.symbols.symbolization import Procedure, SymbolAnswer, SymbolTask, symbolize
from hpcd.array_types import I64, U32
from hpcd.errors import FormatError
from hpcd.model.identity import SOURCE_KINDS, ModuleKind
from hpcd.model.python_place import MOST_JAVA_LINE, MOST_LINE, first_lines_of, lines_of
from hpcd.model.scope import ScopeKind

if TYPE_CHECKING:
    from hpcd.analysis.structure import Structure
    from hpcd.analysis.structure.reader_process import ReaderProcess

# Plain numbers: looking a member of an enumeration up takes longer than all else done by scope.
_INLINED, _LOOP = int(ScopeKind.INLINED), int(ScopeKind.LOOP)


@dataclass(frozen=True)
class ModuleNames:
    """Procedures of a module's addresses, and the scopes inside these.

    ``scope`` ``uint32[n]``: the innermost one of each address, 0 where none is known.
    """

    symbols: SymbolAnswer
    scopes: Scopes = field(default_factory=Scopes.none)
    scope: U32 = field(default_factory=lambda: np.zeros(0, np.uint32))


def describe(task: SymbolTask) -> ModuleNames:
    """Name the addresses of ``task`` with all that is known of them.

    Nothing here raises for a bad file: it costs that module its names or its lines.
    """
    # Imported here: readers of databases need no disassembler, and should not wait for its import.
    from hpcd.analysis.structure import StructureReader

    has_code = task.kind is ModuleKind.ELF and len(task.offsets) > 0
    answer = symbolize(task)
    if task.kind in SOURCE_KINDS:
        return _source_lines(task, answer)
    nothing = ModuleNames(answer, scope=np.zeros(len(task.offsets), np.uint32))
    if answer.warning or answer.recorded or not has_code:
        return nothing
    try:
        # The tasks are spread over the processors already.
        structure = StructureReader(readers=[_reader()]).structure(
            Path(task.path), task.offsets, task.build_id, symbols=answer
        )
    except (FormatError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        note = f"{answer.note} (no lines: {reason or error})"
        return replace(nothing, symbols=replace(answer, note=note))
    return _with_scopes(answer, structure)


def _source_lines(task: SymbolTask, answer: SymbolAnswer) -> ModuleNames:
    """The lines of a source file, whose offsets say which they are."""
    line = lines_of(task.offsets)
    most = MOST_LINE if task.kind is ModuleKind.PYTHON else MOST_JAVA_LINE
    keys, scope = np.unique(
        answer.index * (MOST_LINE + 1) + line.astype(np.int64), return_inverse=True
    )
    count = len(keys)
    procedures = [
        replace(procedure, file=task.path, line=first if first <= most else 0)
        for procedure, first in zip(
            answer.procedures,
            first_lines_of(
                np.array([procedure.address for procedure in answer.procedures], np.uint64)
            ).tolist(),
            strict=True,
        )
    ]
    scopes = Scopes(
        np.zeros(count + 1, np.uint32),
        np.full(count + 1, ScopeKind.STATEMENT, np.uint8),
        np.append(0, keys // (MOST_LINE + 1)).astype(np.uint32),
        [""] * (count + 1),
        ["", *[task.path] * count],
        np.append(0, keys % (MOST_LINE + 1)).astype(np.uint32),
    )
    scopes.kind[0] = ScopeKind.PROCEDURE
    symbols = replace(answer, procedures=procedures, note=f"{answer.note}, lines")
    return ModuleNames(symbols, scopes, (scope.ravel() + 1).astype(np.uint32))


_readers: dict[tuple[int, int], ReaderProcess] = {}


# Started and not yet asked anything.
_ready: list[ReaderProcess] = []


def start_readers(modules: Iterable[tuple[str, str]], most: int) -> None:
    """Start up to ``most`` readers, as many as ``modules`` (path, build id) may need one each.

    Starting takes a while, during which other work goes ahead. Modules in the cache need none.
    """
    from hpcd.analysis.structure.reader_process import ReaderProcess
    from hpcd.analysis.structure.structure_cache import StructureCache

    cache = StructureCache()
    missing = (build_id for path, build_id in modules if not cache.has(Path(path), build_id))
    for _ in islice(missing, most):
        reader = ReaderProcess()
        with contextlib.suppress(OSError):
            reader.start()
            _ready.append(reader)


def _reader() -> ReaderProcess:
    """The reader of this process and thread: its start costs more than a small module does."""
    from hpcd.analysis.structure.reader_process import ReaderProcess

    key = os.getpid(), threading.get_ident()
    if key not in _readers:
        try:
            _readers[key] = _ready.pop(0)
        except IndexError:
            _readers[key] = ReaderProcess()
    return _readers[key]


def close_readers() -> None:
    """End the readers of this process, as far as they have been started."""
    while _ready:
        _ready.pop().close()
    for process, thread in list(_readers):
        reader = _readers.pop((process, thread))
        if process == os.getpid():
            reader.close()


def _with_scopes(answer: SymbolAnswer, structure: Structure) -> ModuleNames:
    """Scopes by procedure: a part with a symbol of its own (``.cold``) has its own scopes.

    In order of procedure, then as the forest has them, so parents come first.
    """
    forest = structure.forest
    count = max(len(forest), 1)
    scoped = structure.scope >= 0
    # A scope of the database is a procedure and a scope of the forest, as one number.
    fresh = np.unique(answer.index[scoped] * count + structure.scope[scoped])
    every = [fresh]
    while len(fresh):
        above = forest.parent[fresh % count].astype(np.int64)
        fresh = np.unique((fresh // count * count + above)[above >= 0])
        every.append(fresh)
    keys = np.unique(np.concatenate(every))
    inside = forest.kind[keys % count] != ScopeKind.PROCEDURE if len(keys) else np.zeros(0, bool)
    roots, keys = keys[~inside], keys[inside]
    number = keys % count
    procedure = keys // count

    def numbers(procedures: I64, scopes: I64) -> U32:
        """Numbers from 1, 0 for roots and the unknown."""
        key = procedures * count + scopes
        at = np.minimum(np.searchsorted(keys, key), max(len(keys) - 1, 0))
        hit = (scopes >= 0) & (keys[at] == key if len(keys) else False)
        numbered: U32 = np.where(hit, at + 1, 0).astype(np.uint32)
        return numbered

    files = ["", *(str(file) for file in forest.files)]
    parent = numbers(procedure, forest.parent[number].astype(np.int64))
    scopes = Scopes(
        np.concatenate([[0], parent]).astype(np.uint32),
        np.concatenate([[ScopeKind.PROCEDURE], forest.kind[number]]).astype(np.uint8),
        np.concatenate([[0], procedure]).astype(np.uint32),
        ["", *_scope_names(answer, structure, number, procedure)],
        ["", *(files[file_number + 1] for file_number in forest.file[number].tolist())],
        np.concatenate([[0], forest.line[number]]).astype(np.uint32),
    )
    scope = numbers(answer.index, structure.scope.astype(np.int64))
    procedures = _placed(answer.procedures, roots // count, roots % count, structure)
    lined = bool((forest.kind == ScopeKind.STATEMENT).any())
    note = f"{answer.note}, lines" if lined else answer.note
    return ModuleNames(replace(answer, procedures=procedures, note=note), scopes, scope)


def _scope_names(
    answer: SymbolAnswer, structure: Structure, number: I64, procedure: I64
) -> Iterator[str]:
    """Names of scopes ``number`` of the forest, in these procedures."""
    forest = structure.forest
    names = [str(text) for text in forest.names]
    columns = (forest.kind, forest.name, forest.line, forest.address)
    for kind, name, line, address, inside in zip(
        *(column[number].tolist() for column in columns), procedure.tolist(), strict=True
    ):
        if kind == _INLINED:
            yield names[name]
        elif kind == _LOOP and not line:
            yield f"{address - answer.procedures[inside].address:+#x}"
        else:
            yield ""


def _placed(
    procedures: list[Procedure], number: I64, roots: I64, structure: Structure
) -> list[Procedure]:
    """``procedures`` with file and line where the forest knows them."""
    placed = list(procedures)
    for at, root in zip(number.tolist(), roots.tolist(), strict=True):
        file, line = structure.forest.place(root)
        # Among several roots of a procedure, the root that begins at its address is the right one.
        exact = int(structure.forest.address[root]) == placed[at].address
        if file and (exact or not placed[at].file):
            placed[at] = replace(placed[at], file=file, line=line)
    return placed
