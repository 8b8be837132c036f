"""Places of a finding: call paths, procedures and libraries in words, by what was spent there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import PurePath

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import ContextUse
from hpcd.analysis.findings.phrase import Phrase
from hpcd.analysis.parallel.program_code import program_modules
from hpcd.analysis.parallel.tree_matching import innermost
from hpcd.analysis.profile.nameless import named_path, without_address
from hpcd.analysis.profile.python_modules import python_module
from hpcd.analysis.roles.role import NameRole
from hpcd.analysis.roles.role_table import role_table
from hpcd.analysis.symbols.short_names import short_names
from hpcd.array_types import F64, I64, U32, Mask
from hpcd.model.identity import SOURCE_KINDS, ModuleKind

# Call paths that are put into words; the others cost less.
_MOST_PATHS = 256
_INLINED = " [inlined]"


@dataclass(frozen=True)
class Place:
    """A call path: ``names`` of the program's procedures, inlined ones among them, and ``callee``,
    what it calls in a library, or empty; ``seconds`` spent there; ``procedure`` the number of its
    innermost own one, 0: none."""

    names: tuple[str, ...]
    callee: str
    seconds: float
    procedure: int

    @property
    def path(self) -> tuple[str, ...]:
        """All names, outermost first."""
        return self.phrase("").path

    def phrase(self, words: str, rank: int = 0) -> Phrase:
        """Return it after ``words``."""
        return Phrase(words, self.names, self.callee, rank)


def names_in_words(names: Sequence[str]) -> list[str]:
    """Return ``names`` shortened, of inlined procedures, too, as sentences have them."""
    return [name.removesuffix(_INLINED) for name in short_names(names)]


def without_runs(names: Sequence[str]) -> tuple[str, ...]:
    """Return ``names`` with each that follows itself left out: however deep a procedure calls
    itself, it is one place."""
    return tuple(name for name, _ in groupby(names))


def library_name(kind: str, path: str, *, own: bool) -> str:
    """Return what sentences call a load module that is the program's ``own`` or not: the file's
    name, or the package of Python or Java; empty of the C library and of what is no library."""
    if kind in SOURCE_KINDS and own:
        return ""
    if kind == ModuleKind.PYTHON:
        return python_module(path).partition(".")[0]
    if kind == ModuleKind.JAVA:
        return path.rpartition("/")[0].replace("/", ".")
    # The kernel's code in a process is no library, as [vdso].
    if path.startswith("[") or role_table().of_module(path) & NameRole.C_LIBRARY:
        return ""
    # An extension module of Python is called as it is imported.
    return PurePath(path).name.partition(".cpython-")[0].removesuffix(".abi3.so")


class Places:
    """Puts contexts into words: those of the program's procedures."""

    def __init__(self, db: Database, contexts: ContextUse) -> None:
        self._db, self._contexts = db, contexts
        shown = [without_address(label) for label in contexts.names.labels]
        self._shown, number = np.unique(np.array(shown, object), return_inverse=True)
        self._number: I64 = number[contexts.names.label[contexts.own]]

    def name(self, place: Place) -> str:
        """Return the display name of a place's innermost procedure."""
        return self._db.procedure_names[place.procedure]

    def ranked(self, seconds: F64, *, calls: bool = True) -> list[Place]:
        """Return the call paths of ``seconds`` ``float64[nodes]``, the costliest first; those that
        read alike are one. A path leads to the innermost procedure of the program itself and, for
        what a library did, with ``calls`` to the library's procedure that it called."""
        own, called = self._contexts.own, self._contexts.called * calls
        spent = np.flatnonzero(seconds > 0)
        key = own[spent] * len(own) + called[spent]
        pairs, group = np.unique(key, return_inverse=True)
        cost = sum_by(group, seconds[spent], len(pairs))
        by_names: dict[tuple[tuple[str, ...], str], list[float]] = {}
        for at in np.argsort(-cost, kind="stable")[:_MOST_PATHS].tolist():
            node, library = divmod(int(pairs[at]), len(own))
            number = self._db.procedure_of_node[library or node]
            place = by_names.setdefault(self._names(node, library), [0.0, number])
            place[0] += float(cost[at])
        ranked = sorted(by_names.items(), key=lambda item: -item[1][0])
        return [Place(*names, cost, int(number)) for names, (cost, number) in ranked]

    def path(self, node: int) -> Place:
        """Return the call path of a context as :meth:`ranked` does; empty if none is known."""
        own, called = int(self._contexts.own[node]), int(self._contexts.called[node])
        return Place(*self._names(own, called), 0.0, int(self._db.procedure_of_node[own]))

    def procedures(self, seconds: F64) -> list[Place]:
        """Return the program's procedures, inlined ones apart, by what was spent in them and the
        libraries and system calls they call, the costliest first. Those of a load module that have
        no names are one, ``[libfoo.so]``."""
        own, number = self._contexts.own, self._number
        cost = sum_by(number, np.where(own > 0, seconds, 0.0), len(self._shown))
        first = np.zeros(len(self._shown), np.int64)
        order = np.argsort(seconds, kind="stable")
        first[number[order]] = own[order]
        return [
            Place(
                (self._shown[at],),
                "",
                float(cost[at]),
                int(self._db.procedure_of_node[first[at]]),
            )
            for at in np.argsort(-cost, kind="stable").tolist()
            if cost[at] > 0
        ]

    def library(self, seconds: F64) -> tuple[str, float]:
        """Return the library (:func:`library_name`) in which most of ``seconds``
        ``float64[nodes]`` was spent, and how much; empty if nothing was."""
        db = self._db
        module = db.procedures.module[self._user_procedure]
        cost = sum_by(module, seconds, len(db.modules) + 1)
        own, by_name = program_modules(db), defaultdict[str, float](float)
        for number, row in enumerate(db.modules, 1):
            name = library_name(row.kind, row.path, own=bool(own[number]))
            by_name[name] += float(cost[number]) if name else 0.0
        return max(by_name.items(), key=itemgetter(1), default=("", 0.0))

    @property
    def own_files(self) -> set[str]:
        """File names of the program's own load modules."""
        own = program_modules(self._db)
        return {PurePath(row.path).name for at, row in enumerate(self._db.modules, 1) if own[at]}

    @cached_property
    def _user_procedure(self) -> U32:
        """``uint32[nodes]``: the procedure of each context, of the kernel's its caller's."""
        db = self._db
        user = ~db.procedures.kernel[db.procedure_of_node] & (np.arange(len(db.cct)) > 0)
        return db.procedure_of_node[innermost(db.cct, user)]

    @property
    def nameless(self) -> Mask:
        """``bool[nodes]``: contexts in code that has no names."""
        nameless = np.array([name.startswith("[") for name in self._db.procedures.name])
        mask: Mask = nameless[self._user_procedure]
        return mask

    @property
    def outside(self) -> Mask:
        """``bool[nodes]``: contexts without any procedure of the program on their call paths."""
        mask: Mask = self._contexts.own == 0
        return mask

    def module_of(self, place: Place) -> str:
        """Return the file name of the load module of a place's innermost procedure."""
        number = int(self._db.procedures.module[place.procedure])
        return PurePath(self._db.modules[number - 1].path).name if number else ""

    def inside(self, name: str) -> Mask:
        """``bool[nodes]``: contexts whose innermost procedure of the program is called ``name`` in
        :meth:`procedures`."""
        inside: Mask = self._shown[self._number] == name
        return inside

    def _names(self, node: int, called: int) -> tuple[tuple[str, ...], str]:
        """Return the names of ``node``'s path, and of the library's procedure, shortened."""
        if not node and not called:
            return (), ""
        names = names_in_words(self._path(node, called))
        callee = names.pop() if called else ""
        return without_runs(names), callee

    def _path(self, node: int, called: int) -> list[str]:
        db, path = self._db, list[int]()
        nodes = [at for at in db.cct.path(node).tolist() if self._contexts.own[at] == at]
        for at, callee in zip(nodes, [*nodes[1:], 0], strict=True):
            if self._contexts.interprets[at] and self._contexts.interprets[callee]:
                continue  # an interpreter's own calls are the same whatever it runs
            if self._contexts.region[self._contexts.names.label[at]]:
                path.clear()  # how a team's thread came to it is not the program's affair
            path.append(at)
        names = named_path(self._contexts.names.path(path))
        return [*names, db.procedure_names[db.procedure_of_node[called]]] if called else names
