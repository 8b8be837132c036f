"""The structure of load modules: scopes of their addresses, from all that is known of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.analysis.elf import ElfFile
from hpcd.analysis.structure.debugfiles import debug_file
from hpcd.analysis.structure.forest import Kind, ScopeForest, joined, procedures_forest
from hpcd.analysis.structure.functions import functions_of
from hpcd.analysis.structure.lines import ModuleLines
from hpcd.analysis.structure.linetable import I32, U64, Call, LineTable
from hpcd.analysis.structure.reader import Reader
from hpcd.analysis.symbols import SymbolTask, symbolize
from hpcd.errors import FormatError
from hpcd.model.identity import ModuleKind


@dataclass(frozen=True)
class Structure:
    """Scopes of a module's addresses.

    ``scope`` ``int32[n]``: the innermost scope, of ``forest``, of each address asked for: a
    statement where lines are known, else a loop or procedure. ``notes`` say what is missing, and
    why.
    """

    forest: ScopeForest
    scope: I32
    notes: tuple[str, ...] = ()

    def chain(self, number: int) -> list[Call]:
        """The calls at the address asked for as ``number``, innermost first.

        The first one's file and line are those of the address, the others' those of the calls.
        """
        forest = self.forest
        calls = []
        file, line = "", 0
        for scope in forest.path(int(self.scope[number])):
            kind = forest.kind[scope]
            if kind == Kind.STATEMENT:
                file, line = forest.place(scope)
            elif kind != Kind.LOOP:
                calls.append(Call(forest.label(scope), file, line))
                file, line = forest.place(scope)
        return calls


class StructureReader:
    """Reads the structure of modules, one after another. A context manager."""

    def __init__(self) -> None:
        self._reader = Reader()

    def __enter__(self) -> StructureReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def structure(self, path: Path, addresses: U64, build_id: str = "") -> Structure:
        """The scopes of ``addresses`` (``uint64[n]``, ELF virtual ones, any order) of a module.

        Raises :class:`FormatError` for a file that is no ELF file or whose build id is not
        ``build_id``, :class:`OSError` for one that cannot be read. Damaged debug information only
        costs what it would have said.
        """
        notes: list[str] = []
        with ElfFile.open(path) as elf:
            identity = elf.build_id()
        if build_id and build_id != identity:
            raise FormatError(f"{path}: has another build id: {identity}")
        lines = self._lines(path, notes)
        scope = lines.scope_of(addresses)
        forest, scope = lines.forest.only(scope)
        unknown = np.flatnonzero(scope < 0)
        if len(unknown):
            named = _named(path, identity, addresses[unknown])
            forest, (scope, others) = joined([(forest, scope), named])
            scope[unknown] = others
        return Structure(forest, scope, tuple(notes))

    def everything(self, path: Path) -> Structure:
        """The scopes of all code of a module. Raises as :meth:`structure` does."""
        with ElfFile.open(path) as elf:
            functions = functions_of(elf, debug_file(path))
        lines = self._lines(path, [])
        return self.structure(
            path, np.unique(np.concatenate([lines.start[lines.scope >= 0], functions.start]))
        )

    def _lines(self, path: Path, notes: list[str]) -> ModuleLines:
        nothing = ModuleLines.of(LineTable.empty())
        source = debug_file(path)
        if source is None:
            notes.append("no debug information: no lines, no inlined procedures")
            return nothing
        fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return ModuleLines.from_arrays(self._reader.arrays(fd, source.name, want="lines"))
        except FormatError as error:
            notes.append(str(error))
            return nothing
        finally:
            os.close(fd)


def _named(path: Path, build_id: str, addresses: U64) -> tuple[ScopeForest, I32]:
    """Procedures of addresses without debug information, by symbols."""
    distinct, where = np.unique(addresses, return_inverse=True)
    answer = symbolize(SymbolTask(ModuleKind.ELF, str(path), build_id, None, distinct))
    forest = procedures_forest(
        [each.name for each in answer.procedures],
        [each.linkage_name or each.name for each in answer.procedures],
        [each.address for each in answer.procedures],
    )
    return forest, answer.index[where].astype(np.int32)
