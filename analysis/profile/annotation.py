"""The code of procedures with its costs, by source line or by instruction.

A line costs what was spent in it and, inclusively, in the calls made from it; code inlined from
elsewhere is under its own file and line. Costs are those of all contexts the procedure ran in,
calls of itself within itself counted once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.profile.views import View, outermost
from hpcd.analysis.symbols.changed_file import FileChangedError, check_build_id
from hpcd.array_types import F64, I64, U64, Mask
from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import X86_64
from hpcd.errors import FormatError
from hpcd.model import frame
from hpcd.model.identity import ModuleKind
from hpcd.model.scope import ScopeKind

# The biggest functions compilers make; a symbol may claim any size.
_MAX_CODE = 1 << 20
# What a call or sample of unknown procedure bounds still shows around itself.
_AROUND = 64


@dataclass(frozen=True)
class Annotated:
    """Places and their costs: lines of a file, or instructions of a procedure.

    ``name`` is a file or procedure; ``place`` ``int64[n]`` ascending: line numbers or addresses.
    ``costs`` has the whole profile as node 0 and ``place[i]`` as node ``i + 1``.
    """

    name: str
    place: I64
    costs: View


@dataclass(frozen=True)
class InstructionListing:
    """A procedure's instructions: the costs of some, and the text of all.

    ``text`` (address, instruction), empty when the code cannot be shown: ``note`` says why.
    """

    costs: Annotated
    module: str
    text: list[tuple[int, str]]
    note: str = ""


@dataclass(frozen=True)
class Annotation:
    """Costs of procedures: ``procedures`` their names, ``whole`` their cost as node 1.

    ``lines`` by file and ``unplaced`` (contexts whose line is unknown, by procedure), costliest
    first.
    """

    procedures: list[str]
    whole: Annotated
    lines: list[Annotated]
    unplaced: list[Annotated]


class Annotator:
    """Costs of the code that the contexts of ``inside`` (``bool[nodes]``) are in.

    ``exclusive`` ``float64[metrics, nodes]`` is the profile, or a part of it.
    """

    def __init__(self, db: Database, inside: Mask, exclusive: F64) -> None:
        self._db = db
        self._exclusive = exclusive
        self._inclusive = db.cct.inclusive(exclusive)
        self._begin, self._end = db.cct.preorder()
        nodes = np.flatnonzero(inside)
        self._nodes = nodes[self._inclusive[:, nodes].any(axis=0)]

    def lines(self) -> Annotation:
        """The costs by source line."""
        db, nodes = self._db, self._nodes
        scopes = db.scopes
        scope = db.scope_of_node[nodes]
        located = np.array(
            [int(kind) == ScopeKind.STATEMENT and bool(file)
             for kind, file in zip(scopes.kind, scopes.file, strict=True)]
        )[scope]  # fmt: skip
        by_file: dict[str, list[int]] = {}
        for at in np.flatnonzero(located).tolist():
            by_file.setdefault(scopes.file[int(scope[at])], []).append(at)
        lines = [
            self._annotated(file, nodes[at], scopes.line[scope[at]].astype(np.int64))
            for file, at in by_file.items()
        ]
        rest = nodes[~located]
        names = db.procedure_names
        unplaced = [
            self._annotated(names[number], mine, np.zeros(len(mine), np.int64))
            for number, mine in _by_procedure(db, rest)
        ]
        procedures = dict.fromkeys(names[number] for number in db.procedure_of_node[nodes].tolist())
        whole = self._annotated("", nodes, np.zeros(len(nodes), np.int64))
        return Annotation(
            list(procedures), whole, sorted(lines, key=_cost), sorted(unplaced, key=_cost)
        )

    def code(self, most: int = _MAX_CODE) -> list[InstructionListing]:
        """The costs by instruction, costliest procedure first.

        The text of at most ``most`` bytes of each procedure's code is shown.
        """
        annotated = []
        for number, nodes in _by_procedure(self._db, self._nodes):
            offsets = frame.offset_of(self._db.cct.frame[nodes])
            annotated.append(self._code(number, nodes, offsets, min(most, _MAX_CODE)))
        return sorted(annotated, key=lambda listing: _cost(listing.costs))

    def _code(self, number: int, nodes: I64, offsets: U64, most: int) -> InstructionListing:
        procedures = self._db.procedures
        module = int(procedures.module[number])
        row = self._db.modules[module - 1] if module else None
        text: list[tuple[int, str]] = []
        note = "not in a file"
        if row is not None and row.kind == ModuleKind.ELF:
            start, size = int(procedures.address[number]), int(procedures.size[number])
            low, high = int(offsets.min()), int(offsets.max())
            if not start <= low <= high < start + size:
                start, size = low, high - low + _AROUND
            note = ""
            try:
                text = disassemble(Path(row.path), row.build_id, start, min(size, most))
            except FileChangedError as error:
                note = f"{error}; its instructions are not shown"
            except (FormatError, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                note = reason or str(error)
        place = offsets.astype(np.int64)
        if text:
            # Frames of callers point into the call, not at it.
            starts = np.array([address for address, _ in text], np.int64)
            begin = starts[np.maximum(np.searchsorted(starts, place, side="right") - 1, 0)]
            place = np.where(place < start + most, begin, place)
        name = self._db.procedure_names[number]
        costs = self._annotated(name, nodes, place)
        return InstructionListing(costs, row.path if row else "", text, note)

    def _annotated(self, name: str, nodes: I64, place: I64) -> Annotated:
        order = np.lexsort((self._begin[nodes], place))
        nodes, place = nodes[order], place[order]
        places, group = np.unique(place, return_inverse=True)
        counted = outermost(group, self._begin[nodes], self._end[nodes])
        total = self._inclusive[:, :1]
        own = sum_by(group, self._exclusive[:, nodes], len(places))
        whole = sum_by(group[counted], self._inclusive[:, nodes[counted]], len(places))
        nothing = np.zeros(len(places) + 1, np.uint32)
        return Annotated(
            name,
            places,
            View(
                "lines", nothing, nothing,
                np.concatenate([total * 0, own], axis=1),
                np.concatenate([total, whole], axis=1),
            ),
        )  # fmt: skip


def _by_procedure(db: Database, nodes: I64) -> Iterator[tuple[int, I64]]:
    procedure = db.procedure_of_node[nodes]
    for number in np.unique(procedure).tolist():
        yield number, nodes[procedure == number]


def _cost(annotated: Annotated) -> tuple[float, str]:
    # By what is spent there; metrics of one database are alike enough for an order of sections.
    share = annotated.costs.exclusive.sum(axis=1) / np.maximum(annotated.costs.total, 1e-300)
    return -float(share.max(initial=0)), annotated.name


def disassemble(path: Path, build_id: str, start: int, size: int) -> list[tuple[int, str]]:
    """(address, instruction) of ``size`` bytes of code from the ELF virtual address ``start`` on.

    Raises :class:`OSError`, :class:`FileChangedError` when the file is another than ``build_id``,
    :class:`FormatError` when it has no such code, or its instructions are not x86-64's.
    """
    # Only this needs a disassembler.
    from iced_x86 import Decoder, Formatter, FormatterSyntax

    with ElfFile.open(path) as elf:
        check_build_id(elf, path, build_id)
        if elf.machine != X86_64:
            raise FormatError("its instructions are not x86-64's")
        data = elf.code(start, size)
    formatter = Formatter(FormatterSyntax.GAS)
    formatter.space_after_operand_separator = True
    formatter.branch_leading_zeros = False
    return [
        (instruction.ip, formatter.format(instruction))
        for instruction in Decoder(64, data, ip=start)
    ]
