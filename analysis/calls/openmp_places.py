"""Places of OpenMP's regions and other constructs in the source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from hpcd.analysis.database import Database
from hpcd.analysis.symbols.short_names import short_names
from hpcd.model.scope import ScopeKind

# As in "solve._omp_fn.0", "solve(int) [clone ._omp_fn.0]", "solve.omp_outlined", or without the
# procedure ".omp_outlined..3", ".omp_task_entry.".
_OUTLINED = re.compile(r"(.*?)(?: \[clone )?\.(?:_omp_fn\.|omp_outlined|omp_task_entry)")


@dataclass(frozen=True, slots=True)
class DirectivePlace:
    """A ``procedure``, and a ``line`` of source ``file``; 0 and empty if they are not known.
    Without a line ``symbol`` is what the compiler added to the procedure's name, if it did."""

    procedure: str
    file: str
    line: int
    symbol: str = ""

    def __str__(self) -> str:
        if self.line:
            line = f"{PurePath(self.file).name}:{self.line}"
            return f"{self.procedure} at {line}" if self.procedure else line
        return f"{self.procedure} ({self.symbol})" if self.symbol else self.procedure


def with_short_names(places: Sequence[DirectivePlace]) -> list[DirectivePlace]:
    """Return ``places`` with short names of procedures."""
    names = short_names([place.procedure for place in places])
    return [replace(place, procedure=name) for place, name in zip(places, names, strict=True)]


def region_place(db: Database, call: int, body: int) -> DirectivePlace:
    """Return the place of a region that is begun by a ``call`` of the runtime, and whose body is
    ``body`` (0: not known), both contexts.

    The call may have the line of an instruction before it: GCC gives it none.
    """
    caller, module = call, _module(db, call)
    while caller and _module(db, caller) == module:
        caller = int(db.cct.parent[caller])
    outside = _place(db, caller)
    return body_place(db, body, outside.procedure) if body else outside


def body_place(db: Database, body: int, procedure: str) -> DirectivePlace:
    """Return the place of the directive whose body is the context ``body``: in ``procedure`` unless
    the body's name tells it (that of LLVM before 17 does not)."""
    number = int(db.procedure_of_node[body])
    name, line = db.procedure_names[number], int(db.procedures.line[number])
    own = _own_procedure(name, procedure)
    if line:
        return DirectivePlace(own, db.procedures.file[number], line)
    return DirectivePlace(
        own, "", 0, name.removeprefix(own).removeprefix(" [clone ").removesuffix("]")
    )


def construct_place(
    db: Database, call: int, region: DirectivePlace, *, inlined: bool
) -> DirectivePlace:
    """Return the place of a construct whose runtime function is called in the context ``call``, in
    the region at ``region``.

    It is the region's where a body ends in a jump to the runtime, which leaves no frame of it; and
    unless ``inlined`` for calls that seem to be in code inlined into a body: GCC gives no line to
    calls that hand out iterations.
    """
    caller = int(db.cct.parent[call])
    place = _place(db, caller)
    body = db.procedure_names[int(db.procedure_of_node[caller])]
    inside = not inlined and _OUTLINED.match(body) and not _OUTLINED.match(place.procedure)
    if inside or _module(db, caller) == _module(db, call):
        return region
    return replace(place, procedure=_own_procedure(place.procedure, region.procedure))


def _module(db: Database, node: int) -> int:
    return int(db.procedures.module[db.procedure_of_node[node]])


def _place(db: Database, node: int) -> DirectivePlace:
    """The procedure that a context is in, an inlined one by its own name, and its line."""
    scopes, at = db.scopes, int(db.scope_of_node[node])
    file, line = "", 0
    while at and scopes.kind[at] != ScopeKind.INLINED:
        if scopes.kind[at] == ScopeKind.STATEMENT:
            file, line = scopes.file[at], int(scopes.line[at])
        at = int(scopes.parent[at])
    procedure = scopes.name[at] if at else db.procedure_names[db.procedure_of_node[node]]
    return DirectivePlace(procedure, file, line)


def _own_procedure(name: str, otherwise: str) -> str:
    """The procedure in the source of one called ``name``, which the compiler may have made."""
    outlined = _OUTLINED.match(name)
    return outlined[1] or otherwise if outlined else name
