"""The structure of load modules: scopes of their addresses, from all that is known of a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hpcd.analysis.structure.code.function_bounds import FunctionBounds, functions_of
from hpcd.analysis.structure.code.loop_table import LoopTable
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.dwarf.debug_scopes import ModuleLines
from hpcd.analysis.structure.dwarf.line_table import Call
from hpcd.analysis.structure.reader_process import ReaderProcess
from hpcd.analysis.structure.scope_forest import ScopeForest, joined, procedures_forest
from hpcd.analysis.structure.scope_nesting import with_loops
from hpcd.analysis.structure.structure_cache import StructureCache
from hpcd.analysis.symbols.debug_files import debug_file
from hpcd.analysis.symbols.symbolization import SymbolAnswer, SymbolTask, symbolize
from hpcd.array_types import I32, U64
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from hpcd.model.identity import ModuleKind
from hpcd.model.scope import ScopeKind
from hpcd.processors import processor_count
from hpcd.sandbox.file_cache import writers_of

# Code analysed at once: enough to be worth a worker's while, little enough to keep its memory low.
_PIECE = 2 << 20


@dataclass(frozen=True)
class Structure:
    """Scopes of a module's addresses.

    ``scope`` ``int32[n]``: the innermost scope, of ``forest``, of each requested address: a
    statement if lines are known, else a loop or procedure. ``notes`` name missing data, with the
    reason.
    """

    forest: ScopeForest
    scope: I32
    notes: tuple[str, ...] = ()

    def chain(self, number: int) -> list[Call]:
        """The calls at the requested address ``number``, innermost first.

        The first call has the address's file and line, the others have their calls'.
        """
        forest = self.forest
        calls = []
        file, line = "", 0
        for scope in forest.path(int(self.scope[number])):
            kind = forest.kind[scope]
            if kind == ScopeKind.STATEMENT:
                file, line = forest.place(scope)
            elif kind != ScopeKind.LOOP:
                calls.append(Call(forest.label(scope), file, line))
                file, line = forest.place(scope)
        return calls


class StructureReader:
    """Reads the structure of modules, one at a time. A context manager.

    ``workers`` processes look for loops (None: one for each CPU), or the given ``readers``.
    """

    def __init__(
        self,
        cache: StructureCache | None = None,
        workers: int | None = None,
        readers: Sequence[ReaderProcess] = (),
    ) -> None:
        self.cache = cache or StructureCache()
        count = workers or processor_count()
        self.readers = list(readers) or [ReaderProcess() for _ in range(max(count, 1))]

    def __enter__(self) -> StructureReader:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self.readers:
            reader.close()

    def structure(
        self,
        path: Path,
        addresses: U64,
        build_id: str = "",
        *,
        loops: bool = True,
        symbols: SymbolAnswer | None = None,
    ) -> Structure:
        """The scopes of ``addresses`` (``uint64[n]``, ELF virtual ones, any order) of a module.

        ``loops``: look for loops, too, in the functions of the addresses; ``symbols``: the names
        of the addresses, where they are known already. Raises
        :class:`FormatError` for a file that is no ELF file or whose build id is not ``build_id``,
        :class:`OSError` for one that cannot be read. Damaged debug information or code only costs
        its own scopes.
        """
        module = AnalysedModule(self, path, build_id)
        return module.structure(addresses, module.functions if loops else None, symbols)

    def everything(self, path: Path) -> Structure:
        """The scopes of all code of a module. Raises as :meth:`structure` does."""
        module = AnalysedModule(self, path, "")
        lines = module.lines(None)
        table = module.loops(module.functions())
        starts = [lines.start[lines.scope >= 0], module.functions().start]
        addresses = np.unique(np.concatenate([*starts, table.start]))
        return module.structure(addresses, module.functions)

    def lines(self, path: Path, addresses: U64 | None) -> ModuleLines:
        """Return a file's lines for ``addresses`` at least, for all if None.

        Raises :class:`FormatError`, :class:`OSError`.
        """
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        arrays = {} if addresses is None else {"addresses": addresses}
        try:
            lines = self.readers[0].arrays(fd, path.name, arrays=arrays, want="lines")
        finally:
            os.close(fd)
        return ModuleLines.from_arrays(lines)

    def loops(self, path: Path, functions: FunctionBounds) -> tuple[LoopTable, list[str]]:
        """Return the loops of functions, and errors. All workers share the functions."""
        pieces = _pieces(functions)
        tables: list[LoopTable] = []
        notes: list[str] = []
        with ExitStack() as stack:
            # One for each: readers that share a descriptor share its place in the file.
            fds = []
            for _ in self.readers[: len(pieces)]:
                fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                stack.callback(os.close, fds[-1])
            for at in range(0, len(pieces), len(self.readers)):
                waiting = []
                for reader, fd, piece in zip(self.readers, fds, pieces[at:], strict=False):
                    try:
                        arrays = {"start": piece.start, "end": piece.end}
                        reader.ask(fd, path.name, arrays, want="loops")
                        waiting.append(reader)
                    except FormatError as error:
                        notes.append(str(error))
                for reader in waiting:
                    try:
                        tables.append(LoopTable.from_arrays(reader.result(path.name)))
                    except FormatError as error:
                        notes.append(str(error))
        return LoopTable.joined(tables), notes


class AnalysedModule:
    """A module whose structure is being read."""

    def __init__(self, reader: StructureReader, path: Path, build_id: str = "") -> None:
        self._reader = reader
        self._path = path
        self._notes: dict[str, None] = {}
        self._functions: FunctionBounds | None = None
        self._lines: ModuleLines | None = None
        self._table: LoopTable | None = None
        with ElfFile.open(path) as elf:
            self._build_id = elf.build_id()
        self._writers = writers_of(path)
        if build_id and build_id != self._build_id:
            raise FormatError(f"{path}: has another build id: {self._build_id}")
        self._debug: Path | None = None

    def functions(self) -> FunctionBounds:
        """All functions."""
        if self._functions is None:
            with ElfFile.open(self._path) as elf:
                self._functions = functions_of(elf, self._debug)
        return self._functions

    def structure(
        self,
        addresses: U64,
        functions: Callable[[], FunctionBounds] | None,
        symbols: SymbolAnswer | None = None,
    ) -> Structure:
        """The scopes of ``addresses``; with loops when it is known which functions there are.

        ``symbols`` names them, if that is known.
        """
        lines = self._look_for_lines(addresses)
        table = LoopTable.empty()
        witnesses: list[U64] = []
        if functions is not None:
            held = _holding(functions(), addresses)
            table = self.loops(held)
            inside = AddressRanges(*held)
            witnesses = [
                column[inside.holds(column)] for column in (table.start, table.last, table.exit)
            ]
        # Once for all of them: any request goes through most of the file.
        if not lines.known.is_everything:
            lines = self.lines(np.concatenate([addresses, *witnesses]))
        lines = lines.restricted([addresses, *witnesses])
        scope = lines.scope_of(addresses)
        forest = lines.forest
        unknown = np.flatnonzero(scope < 0)
        if len(unknown):
            if symbols is None:
                symbols = _named(self._path, self._build_id, addresses)
            named = _procedures(symbols), symbols.index[unknown].astype(np.int32)
            forest, (scope, procedure) = joined([(forest, scope), named])
            scope[unknown] = procedure
        forest, scope = with_loops(forest, scope, addresses, lines, table)
        forest, scope = forest.only(scope)
        return Structure(forest, scope, tuple(self._notes))

    def _look_for_lines(self, addresses: U64 | None) -> ModuleLines:
        """The kept lines; where others of ``addresses`` may be is known then.

        Where they are there may be more functions known.
        """
        lines = self._lines or self._kept_lines()
        everything = lines.known.is_everything
        if not everything and addresses is not None:
            everything = bool(lines.known.holds(addresses).all())
        if not everything and self._debug is None:
            why = "no debug information: no lines, no inlined procedures"
            try:
                self._debug = debug_file(self._path)
            except (FormatError, OSError) as error:
                why = str(error)
            if self._debug is None:
                self._notes[why] = None
                lines = replace(lines, known=AddressRanges.everything())
        self._lines = lines
        return lines

    def lines(self, addresses: U64 | None) -> ModuleLines:
        """Return the lines of ``addresses`` at least, of all if None: kept ones and newly read
        ones."""
        lines = self._look_for_lines(addresses)
        tried = False
        left = np.zeros(0, np.uint64) if addresses is None else np.unique(addresses)
        while self._debug is not None and not lines.known.is_everything:
            before = len(left)
            left = left[~lines.known.holds(left)]
            if addresses is not None and not len(left):
                break
            # A further reading may find addresses left out here; without progress all is read.
            stuck = addresses is None or (len(left) == before and tried)
            lines = self._new_lines(lines, self._debug, None if stuck else left)
            tried = True
        if tried and self._debug is not None:
            self._reader.cache.store(self._writers, self._build_id, "lines", lines.to_arrays())
        self._lines = lines
        return lines

    def _kept_lines(self) -> ModuleLines:
        kept = self._reader.cache.load(self._writers, self._build_id, "lines")
        if kept is not None:
            with suppress(FormatError):
                return ModuleLines.from_arrays(kept)
        return ModuleLines.nothing(AddressRanges.nothing())

    def _new_lines(self, before: ModuleLines, debug: Path, addresses: U64 | None) -> ModuleLines:
        """Return earlier lines together with the lines of ``addresses`` from the file ``debug``."""
        try:
            lines = self._reader.lines(debug, addresses)
        except (FormatError, OSError) as error:
            self._notes[str(error)] = None
            # A later attempt may succeed.
            self._debug = None
            return replace(before, known=AddressRanges.everything())
        # Lines read for the whole module include the earlier ones.
        return lines if lines.known.is_everything else before.with_others(lines)

    def loops(self, functions: FunctionBounds) -> LoopTable:
        """Return the loops of ``functions`` and cached ones; missing functions are analysed."""
        if self._table is None:
            self._table, self._known = self._kept_loops()
        new = ~np.isin(functions.start, self._known.start)
        if bool(new.any()):
            fresh = FunctionBounds(functions.start[new], functions.end[new])
            loops, notes = self._reader.loops(self._path, fresh)
            self._notes.update(dict.fromkeys(notes))
            self._table = LoopTable.joined([self._table, loops])
            self._known = FunctionBounds(
                np.concatenate([self._known.start, fresh.start]),
                np.concatenate([self._known.end, fresh.end]),
            )
            # A later attempt may succeed.
            if not notes:
                columns = {"known.start": self._known.start, "known.end": self._known.end}
                arrays = {**self._table.to_arrays(), **columns}
                self._reader.cache.store(self._writers, self._build_id, "loops", arrays)
        return self._table

    def _kept_loops(self) -> tuple[LoopTable, FunctionBounds]:
        """Return cached loops, and the functions they belong to."""
        cache = self._reader.cache
        kept = cache.load(self._writers, self._build_id, "loops")
        if kept is not None:
            with suppress(FormatError, KeyError):
                functions = FunctionBounds(kept["known.start"], kept["known.end"])
                return LoopTable.from_arrays(kept), functions
        return LoopTable.empty(), FunctionBounds(np.zeros(0, np.uint64), np.zeros(0, np.uint64))


def _holding(functions: FunctionBounds, addresses: U64) -> FunctionBounds:
    """Return the functions that contain any of ``addresses``."""
    if not len(functions.start):
        return functions
    at = np.searchsorted(functions.start, addresses, side="right") - 1
    at = np.unique(at[(at >= 0) & (addresses < functions.end[at])])
    return FunctionBounds(functions.start[at], functions.end[at])


def _pieces(functions: FunctionBounds) -> list[FunctionBounds]:
    """``functions`` in pieces of about the same amount of code."""
    size = np.cumsum(functions.end - functions.start)
    piece = (size // np.uint64(_PIECE)).astype(np.int64)
    cuts = np.flatnonzero(np.diff(piece)) + 1
    return [
        FunctionBounds(start, end)
        for start, end in zip(
            np.split(functions.start, cuts), np.split(functions.end, cuts), strict=True
        )
        if len(start)
    ]


def _named(path: Path, build_id: str, addresses: U64) -> SymbolAnswer:
    """The symbols of addresses in any order."""
    distinct, where = np.unique(addresses, return_inverse=True)
    answer = symbolize(SymbolTask(ModuleKind.ELF, str(path), build_id, None, distinct))
    return replace(answer, index=answer.index[where])


def _procedures(symbols: SymbolAnswer) -> ScopeForest:
    """Procedures nothing but the name is known of."""
    return procedures_forest(
        [procedure.name for procedure in symbols.procedures],
        [procedure.linkage_name or procedure.name for procedure in symbols.procedures],
        [procedure.address for procedure in symbols.procedures],
    )
