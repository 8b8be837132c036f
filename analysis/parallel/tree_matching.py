"""One tree over the contexts of several databases.

Addresses mean nothing across rebuilt programs, so contexts are matched by what their frames are
called: two are one if the (module, procedure) pairs on their paths are the same. Modules go by file
name, as libraries move; the ranks' executables are one module even if they are called differently.
What compilers append to names of specialised copies (``.constprop.0``) differs from build to build
and is left off.

Procedures with the same name are told apart by their files, where all of them are known, then by
their order in the module; where the module is the same build in every database, by address.
Functions without a name have nothing but their address: they match within one build only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from hpcd.analysis.arrays.scope_rows import scope_rows
from hpcd.analysis.database import Database
from hpcd.analysis.database.scopes import Scopes
from hpcd.analysis.parallel.procedure_keys import (
    PROGRAM,
    ProcedureCandidate,
    identify,
    list_candidates,
)
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.roles.role_table import role_table
from hpcd.analysis.structure import ScopeKind
from hpcd.analysis.symbols.bare_names import bare_name
from hpcd.array_types import I64, U32, U64, Mask
from hpcd.errors import UsageError, did_you_mean
from hpcd.model.cct import CCT
from hpcd.model.cct_union import union
from hpcd.model.scope import INLINED_ENDING, KERNEL_ENDING


class MatchedFrame(NamedTuple):
    """A frame of matched contexts. ``program`` is true in the program's own code
    (:mod:`hpcd.analysis.parallel.program_code`), ``executable`` in the ranks' executable.

    ``module`` is a file name, empty for what is in none; ``file`` and ``line`` those of the first
    database that knows them.
    """

    name: str
    module: str
    kernel: bool
    program: bool
    file: str
    line: int
    inlined: bool = False
    executable: bool = False

    @property
    def label(self) -> str:
        """The display name: kernel procedures end in ``[k]``, inlined ones in ``[inlined]``."""
        ending = KERNEL_ENDING if self.kernel else INLINED_ENDING if self.inlined else ""
        return self.name + ending

    def as_json(self) -> dict[str, object]:
        """Return what answers say of a frame."""
        return {"name": self.label, "module": self.module, "file": self.file, "line": self.line}


@dataclass(frozen=True)
class Matching:
    """Contexts of several databases as one tree.

    ``tree`` is numbered by levels with siblings adjacent; its frames are indices into ``places``,
    of which the first is the root's. ``node_of[i]`` ``uint32[nodes]`` says where each context of
    database ``i`` went. ``knows_waits``: the waits of all of them were recorded.
    """

    tree: CCT
    places: list[MatchedFrame]
    node_of: list[U32]
    knows_waits: bool

    @property
    def place_of(self) -> U32:
        """``uint32[n]``: index of each node's place."""
        return self.tree.frame.astype(np.uint32)

    @cached_property
    def roles(self) -> I64:
        """``int64[places]``: the :class:`~hpcd.analysis.roles.role.NameRole` of each."""
        return role_table().of_procedures(
            [place.name for place in self.places],
            [place.kernel for place in self.places],
            [place.module for place in self.places],
        )


def match(
    databases: Sequence[Database],
    executables: Sequence[Sequence[str]] | None = None,
    *,
    scopes: Collection[ScopeKind] = (),
    regions: bool = False,
) -> Matching:
    """Match the contexts of ``databases``. O(n · log n) with n the sum of their sizes.

    ``executables`` has, per database, the paths of the programs of interest: if each has one, they
    are the same module. Scopes of these kinds are contexts, too, where they are known: inlined
    calls by the name of what was inlined, loops by file and line. With ``regions`` the path of an
    outlined region of OpenMP begins with it: the team's master has called it from the program, the
    others from where threads begin.
    """
    programs = [""] * len(databases)
    if executables is not None and all(len(paths) == 1 for paths in executables):
        programs = [paths[0] for paths in executables]
    columns = [
        list_candidates(db, program) for db, program in zip(databases, programs, strict=True)
    ]
    frames = _Frames([_frame(columns[0][0])] if columns else [])
    loops = _Loops(databases if scopes else ())
    trees: list[CCT] = []
    moved: list[U32] = []
    for db, column, keys in zip(databases, columns, identify(columns), strict=True):
        of_procedure = frames.of_procedures(column, keys)
        of_node = of_procedure[db.procedure_of_node]
        of_node[0] = 0
        cct = db.cct
        if regions:
            outlined = have(db.roles, NameRole.REGION)[db.procedure_of_node]
            cct = CCT(np.where(outlined, np.uint32(0), cct.parent), cct.frame)
        if not scopes:
            trees.append(CCT(cct.parent, of_node))
            continue
        of_scope = frames.of_scopes(db.scopes, loops, of_procedure, scopes)
        kept = np.isin(db.scopes.kind, list(scopes))
        rows = scope_rows(db.scopes.parent, kept, db.scope_of_node, cct.parent)
        trees.append(rows.tree(of_node, of_scope))
        moved.append(rows.last.astype(np.uint32))
    tree, node_of = union(trees)
    if scopes:
        node_of = [ids[to] for ids, to in zip(node_of, moved, strict=True)]
    knows_waits = all(db.metrics.knows_waits for db in databases)
    return Matching(tree, frames.places, node_of, knows_waits)


class _Frames:
    """The frames of all databases, each once, numbered as they appear."""

    def __init__(self, places: list[MatchedFrame]) -> None:
        """``places`` has the root's frame alone."""
        self.places = places
        self._numbers: dict[tuple[object, ...], int] = {}

    def of_procedures(
        self, column: Sequence[ProcedureCandidate], keys: Sequence[tuple[object, ...]]
    ) -> U64:
        """``uint64[procedures]``: the frame of each procedure of a database, by its key."""
        numbers = np.zeros(len(column), np.uint64)
        for procedure, (candidate, key) in enumerate(zip(column, keys, strict=True)):
            number = self._number(key, _frame(candidate))
            numbers[procedure] = number
            if candidate.file and not self.places[number].file:
                self.places[number] = self.places[number]._replace(
                    file=candidate.file, line=candidate.line
                )
        return numbers

    def of_scopes(
        self, scopes: Scopes, loops: _Loops, of_procedure: U64, kinds: Collection[ScopeKind]
    ) -> U64:
        """``uint64[scopes]``: the frame of each scope of these kinds of a database, else 0."""
        numbers = np.zeros(len(scopes), np.uint64)
        for scope in np.flatnonzero(np.isin(scopes.kind, list(kinds))).tolist():
            around = self.places[int(of_procedure[scopes.procedure[scope]])]
            frame, key = loops.place(scopes, scope, around)
            numbers[scope] = self._number(key, frame)
        return numbers

    def _number(self, key: tuple[object, ...], frame: MatchedFrame) -> int:
        """The number of the frame known by ``key``; ``frame`` where it is a new one."""
        number = self._numbers.setdefault(key, len(self.places))
        if number == len(self.places):
            self.places.append(frame)
        return number


class _Loops:
    """Recognises inlined calls and loops in several databases.

    Calls by what was inlined: where it was called changes with every edit. Loops by the procedure
    or inlined procedure they are in and, if it has as many in every database, their order by line,
    in machine code alone by address; else by line or address.
    """

    def __init__(self, databases: Sequence[Database]) -> None:
        self._of: dict[int, tuple[list[str], dict[str, list[int]]]] = {}
        counts: defaultdict[str, set[int]] = defaultdict(set)
        for db in databases:
            modules: defaultdict[str, set[int]] = defaultdict(set)
            for number in np.flatnonzero(db.scopes.kind == ScopeKind.LOOP).tolist():
                within = _procedure_around(db.scopes, number, db.procedures.name)
                modules[within].add(_place_in_procedure(db.scopes, number))
            for within, lines in modules.items():
                counts[within].add(len(lines))
            ordered = {within: sorted(lines) for within, lines in modules.items()}
            self._of[id(db.scopes)] = (db.procedures.name, ordered)
        self._in_order = {within for within, several in counts.items() if len(several) == 1}

    def place(
        self, scopes: Scopes, number: int, around: MatchedFrame
    ) -> tuple[MatchedFrame, tuple[object, ...]]:
        """The place of a scope in procedure ``around``, and what it is known by."""
        module = PROGRAM if around.executable else around.module
        file, line = scopes.file[number], int(scopes.line[number])
        if scopes.kind[number] != ScopeKind.LOOP:
            name = scopes.name[number] or "[inlined]"
            place = around._replace(name=name, file="", line=0, inlined=True)
            return place, (module, name, ScopeKind.INLINED)
        names, ordered = self._of[id(scopes)]
        within = _procedure_around(scopes, number, names)
        at = _place_in_procedure(scopes, number)
        which = ordered[within].index(at) if within in self._in_order else -at
        name = f"{PurePath(file).name}:{line}" if file else scopes.name[number]
        place = around._replace(name=f"loop at {name}", file=file, line=line)
        return place, (module, within, ScopeKind.LOOP, which)


def _place_in_procedure(scopes: Scopes, number: int) -> int:
    """The line of a loop; without one how far into its procedure it begins."""
    return int(scopes.line[number]) or int(scopes.name[number] or "0", 16)


def _procedure_around(scopes: Scopes, number: int, procedures: Sequence[str]) -> str:
    """Name of the innermost inlined procedure around a scope, or of its procedure."""
    at = int(scopes.parent[number])
    while at:
        if scopes.kind[at] == ScopeKind.INLINED:
            return scopes.name[at]
        at = int(scopes.parent[at])
    return bare_name(procedures[int(scopes.procedure[number])])


def _frame(procedure: ProcedureCandidate) -> MatchedFrame:
    return MatchedFrame(
        name=procedure.name,
        module=procedure.shown_module,
        kernel=procedure.kernel,
        program=procedure.program,
        file=procedure.file,
        line=procedure.line,
        executable=procedure.module == PROGRAM,
    )


def owners(matching: Matching) -> I64:
    """``int64[n]``: the innermost node of the program on the way to each, or the root.

    MPI's start and end count as the program's: they are not their caller's doing.
    """
    program = _own(matching)
    if not any(place.program for place in matching.places):
        program = np.array([not place.kernel for place in matching.places])
    return innermost(matching.tree, program[matching.place_of])


def _own(matching: Matching) -> Mask:
    """``bool[places]``: the program's own. A stub that leads into a library is that library's
    affair, and so is communication, whatever its library is called."""
    own = np.array([place.program for place in matching.places])
    # A language's library is part of each program, and works for the program's code.
    library = NameRole.STUB | NameRole.COMMUNICATION | NameRole.HEADER
    own &= ~have(matching.roles, library)
    return own | have(matching.roles, NameRole.STARTUP)


def within(matching: Matching, procedure: str) -> Mask:
    """``bool[n]``: which nodes are frames of ``procedure``, or below one.

    Raises :class:`UsageError` when there is none.
    """
    named = np.array([procedure in (place.name, place.label) for place in matching.places])
    named[0] = False
    inside = named[matching.place_of]
    if not bool(inside.any()):
        near = did_you_mean(procedure, (place.name for place in matching.places[1:]))
        raise UsageError(f"no procedure {procedure} was seen{near}")
    below: Mask = innermost(matching.tree, inside) > 0
    return below


def innermost(tree: CCT, chosen: Mask) -> I64:
    """``int64[n]``: the innermost ``chosen`` node on the way to each, itself included, or 0."""
    return tree.innermost(chosen).astype(np.int64)


def path_labels(matching: Matching, node: int) -> list[str]:
    """Names on the way to ``node``: the program's own frames, or all where it has none."""
    own, path = _own(matching), [int(matching.tree.frame[at]) for at in matching.tree.path(node)]
    inside = [place for place in path if own[place]]
    return [matching.places[place].label for place in inside or path]
