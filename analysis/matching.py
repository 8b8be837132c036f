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

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.database import Database
from hpcd.analysis.scopes import Scopes
from hpcd.analysis.structure import Kind
from hpcd.analysis.unfolding import becomes_node, unfold
from hpcd.analysis.union import union
from hpcd.errors import UsageError, did_you_mean
from hpcd.model.cct import CCT
from hpcd.model.identity import ModuleKind

I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]

_CLONE = re.compile(r"( \[clone )?\.(constprop|isra|lto_priv|llvm|clone)\.\d+\]?")
_NUMBER = re.compile(r"(?<=\.(?:part|cold))\.\d+")
_START_AND_END = re.compile(r"MPI_(Init|Init_thread|Finalize)|mpi_(init|init_thread|finalize)_+")
_KERNEL = (ModuleKind.KERNEL, ModuleKind.KERNEL_MODULE)
_PROGRAM = "\0program"


class Place(NamedTuple):
    """Where frames of matched contexts stand. ``program`` is true in the ranks' executable.

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

    @property
    def label(self) -> str:
        """The display name: kernel procedures end in ``[k]``, inlined ones in ``[inlined]``."""
        ending = " [k]" if self.kernel else " [inlined]" if self.inlined else ""
        return self.name + ending


@dataclass(frozen=True)
class Matching:
    """Contexts of several databases as one tree.

    ``tree`` is numbered by levels with siblings adjacent; its frames are indices into ``places``,
    of which the first is the root's. ``node_of[i]`` ``uint32[nodes]`` says where each context of
    database ``i`` went.
    """

    tree: CCT
    places: list[Place]
    node_of: list[U32]

    @property
    def place_of(self) -> U32:
        """``uint32[n]``: index of each node's place."""
        return self.tree.frame.astype(np.uint32)


def match(
    databases: Sequence[Database],
    executables: Sequence[Sequence[str]] | None = None,
    *,
    scopes: bool = False,
) -> Matching:
    """Match the contexts of ``databases``. O(n · log n) with n the sum of their sizes.

    ``executables`` has, per database, the paths of the programs of interest: if each has one, they
    are the same module. With ``scopes`` inlined calls and loops are contexts, too, where they are
    known: calls by the name of what was inlined, loops by file and line.
    """
    programs = [""] * len(databases)
    if executables is not None and all(len(each) == 1 for each in executables):
        programs = [each[0] for each in executables]
    columns = [_candidates(db, program) for db, program in zip(databases, programs, strict=True)]
    keys = _tell_apart(columns)
    places: list[Place] = [_place(columns[0][0])] if columns else []
    known: dict[tuple[object, ...], int] = {}
    loops = _Loops(databases if scopes else ())
    trees: list[CCT] = []
    moved: list[U32] = []
    for db, column, key in zip(databases, columns, keys, strict=True):
        label = np.zeros(len(column), np.uint64)
        for number, (candidate, identity) in enumerate(zip(column, key, strict=True)):
            if identity not in known:
                known[identity] = len(places)
                places.append(_place(candidate))
            label[number] = known[identity]
            place = places[known[identity]]
            if candidate.file and not place.file:
                places[known[identity]] = place._replace(file=candidate.file, line=candidate.line)
        frames = label[db.procedure_of_node]
        frames[0] = 0
        if not scopes:
            trees.append(CCT(db.cct.parent, frames))
            continue
        inside = np.zeros(len(db.scopes), np.uint64)
        for number in np.flatnonzero(becomes_node(db.scopes)).tolist():
            around = places[int(label[db.scopes.procedure[number]])]
            place, identity = loops.place(db.scopes, number, around)
            inside[number] = known.setdefault(identity, len(places))
            if inside[number] == len(places):
                places.append(place)
        tree, to = unfold(db.cct, frames, db.scopes, db.scope_of_node, inside)
        trees.append(tree)
        moved.append(to)
    tree, node_of = union(trees)
    if scopes:
        node_of = [ids[to] for ids, to in zip(node_of, moved, strict=True)]
    return Matching(tree, places, node_of)


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
            found: defaultdict[str, set[int]] = defaultdict(set)
            for number in np.flatnonzero(db.scopes.kind == Kind.LOOP).tolist():
                within = _procedure_around(db.scopes, number, db.procedures.name)
                found[within].add(_place_in_procedure(db.scopes, number))
            for within, lines in found.items():
                counts[within].add(len(lines))
            ordered = {within: sorted(lines) for within, lines in found.items()}
            self._of[id(db.scopes)] = (db.procedures.name, ordered)
        self._in_order = {within for within, several in counts.items() if len(several) == 1}

    def place(self, scopes: Scopes, number: int, around: Place) -> tuple[Place, tuple[object, ...]]:
        """The place of a scope in procedure ``around``, and what it is known by."""
        module = _PROGRAM if around.program else around.module
        file, line = scopes.file[number], int(scopes.line[number])
        if scopes.kind[number] != Kind.LOOP:
            name = scopes.name[number] or "[inlined]"
            place = Place(name, around.module, around.kernel, around.program, "", 0, inlined=True)
            return place, (module, name, Kind.INLINED)
        names, ordered = self._of[id(scopes)]
        within = _procedure_around(scopes, number, names)
        at = _place_in_procedure(scopes, number)
        which = ordered[within].index(at) if within in self._in_order else -at
        name = f"{PurePath(file).name}:{line}" if file else scopes.name[number]
        place = Place(f"loop at {name}", around.module, around.kernel, around.program, file, line)
        return place, (module, within, Kind.LOOP, which)


def _place_in_procedure(scopes: Scopes, number: int) -> int:
    """The line of a loop; without one how far into its procedure it begins."""
    return int(scopes.line[number]) or int(scopes.name[number] or "0", 16)


def _procedure_around(scopes: Scopes, number: int, procedures: Sequence[str]) -> str:
    """Name of the innermost inlined procedure around a scope, or of its procedure."""
    at = int(scopes.parent[number])
    while at:
        if scopes.kind[at] == Kind.INLINED:
            return scopes.name[at]
        at = int(scopes.parent[at])
    return _bare(procedures[int(scopes.procedure[number])])


def _bare(name: str) -> str:
    """A name without what compilers append for specialised copies."""
    return _NUMBER.sub("", _CLONE.sub("", name))


class _Candidate(NamedTuple):
    """A procedure of one database, as far as it can be recognised in another."""

    module: str
    name: str
    full_name: str
    shown_module: str
    build: str
    address: int
    file: str
    line: int
    kernel: bool


def _candidates(db: Database, program: str) -> list[_Candidate]:
    modules = [("", "", "", False)]
    for row in db.modules:
        kernel = row.kind in _KERNEL
        name = row.kind if row.kind in (ModuleKind.KERNEL, ModuleKind.VDSO, ModuleKind.JIT) else ""
        name = name or PurePath(row.path.removesuffix(" (deleted)")).name
        key = _PROGRAM if program and row.path == program else name
        modules.append((key, name, row.build_id, kernel))
    table = db.procedures
    return [
        _Candidate(
            modules[module][0],
            _bare(name),
            name,
            modules[module][1],
            modules[module][2],
            address,
            file,
            line,
            modules[module][3],
        )
        for name, module, address, file, line in zip(
            table.name,
            table.module.tolist(),
            table.address.tolist(),
            table.file,
            table.line.tolist(),
            strict=True,
        )
    ]


def _tell_apart(columns: Sequence[Sequence[_Candidate]]) -> list[list[tuple[object, ...]]]:
    """Keys that are equal where procedures of different databases are the same one."""
    builds: defaultdict[str, set[str]] = defaultdict(set)
    groups: defaultdict[tuple[str, str], list[_Candidate]] = defaultdict(list)
    for column in columns:
        for each in column:
            builds[each.module].add(each.build)
            groups[each.module, each.name].append(each)
    # Without a build id there is no telling whether two are one build.
    one_build = {module for module, known in builds.items() if len(known) == 1 and "" not in known}
    # A file may be renamed: it matters only where one database has the name in several.
    several = {(each.module, each.name) for column in columns for each in _in_several_files(column)}
    by_file = {key for key in several if all(each.file for each in groups[key])}
    result = []
    for column in columns:
        order = sorted(
            range(len(column)),
            key=lambda at, of=column: (of[at].file, of[at].line, of[at].address),  # type: ignore[misc]
        )
        keys: list[tuple[object, ...]] = [()] * len(column)
        seen: defaultdict[tuple[object, ...], int] = defaultdict(int)
        for at in order:
            each = column[at]
            key: tuple[object, ...] = (each.module, each.name)
            if each.module in one_build:
                keys[at] = (*key, each.address)
                continue
            if _unnamed(each):
                key = (*key, each.build)
            elif (each.module, each.name) in by_file:
                key = (*key, PurePath(each.file).name)
            # Copies of one procedure differ in what was left off, procedures of one name do not.
            copy = (*key, each.full_name)
            keys[at] = (*key, seen[copy])
            seen[copy] += 1
        result.append(keys)
    return result


def _in_several_files(column: Sequence[_Candidate]) -> list[_Candidate]:
    files: dict[tuple[str, str], str] = {}
    return [
        each
        for each in column
        if files.setdefault((each.module, each.name), each.file) != each.file
    ]


def _unnamed(each: _Candidate) -> bool:
    """Whether the name holds an address: ``[libfoo.so+0x1234]``."""
    return each.name.startswith("[") and "+0x" in each.name


def _place(each: _Candidate) -> Place:
    return Place(
        each.name, each.shown_module, each.kernel, each.module == _PROGRAM, each.file, each.line
    )


def owners(matching: Matching) -> I64:
    """``int64[n]``: the innermost node of the program on the way to each, or the root.

    MPI's start and end count as the program's: they are not their caller's doing.
    """
    program = np.array([_own(place) for place in matching.places])
    if not any(place.program for place in matching.places):
        program = np.array([not place.kernel for place in matching.places])
    return innermost(matching.tree, program[matching.place_of])


def _own(place: Place) -> bool:
    # A stub that leads into a library is that library's affair.
    inside = place.program and not place.name.endswith("@plt")
    return inside or _START_AND_END.fullmatch(place.name) is not None


def within(matching: Matching, procedure: str) -> npt.NDArray[np.bool_]:
    """``bool[n]``: which nodes are frames of ``procedure``, or below one.

    Raises :class:`UsageError` when there is none.
    """
    named = np.array([procedure in (place.name, place.label) for place in matching.places])
    named[0] = False
    inside = named[matching.place_of]
    if not bool(inside.any()):
        near = did_you_mean(procedure, (place.name for place in matching.places[1:]))
        raise UsageError(f"no procedure {procedure} was seen{near}")
    below: npt.NDArray[np.bool_] = innermost(matching.tree, inside) > 0
    return below


def innermost(tree: CCT, chosen: npt.NDArray[np.bool_]) -> I64:
    """``int64[n]``: the innermost ``chosen`` node on the way to each, itself included, or 0."""
    at = np.where(chosen, np.arange(len(tree)), tree.parent)
    stop = chosen.copy()
    stop[0] = True
    while not bool(stop[at].all()):
        at = at[at]
    return at.astype(np.int64)


def path_labels(matching: Matching, node: int) -> list[str]:
    """Names on the way to ``node``: the program's own frames, or all where it has none."""
    places = [matching.places[int(matching.tree.frame[at])] for at in matching.tree.path(node)]
    inside = [place.label for place in places if _own(place)]
    return inside or [place.label for place in places]
