"""Entities that the nodes of a profile view represent: procedures, inlined calls, loops, source
lines.

A context of the database has an address; its scopes (``docs/structure.md``) say which inlined
calls, loops and line that is in. :func:`scoped_tree` puts those requested between a procedure and
what it calls.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

import numpy as np

from hpcd.analysis.arrays.scope_rows import scope_rows
from hpcd.analysis.database import Database
from hpcd.analysis.profile.nameless import module_rows, without_chains
from hpcd.array_types import U8, U32, Mask
from hpcd.masks import marked
from hpcd.model.cct import CCT
from hpcd.model.scope import INLINED_ENDING, ScopeKind


@dataclass(frozen=True)
class Entities:
    """Numbered things; the first are the database's procedures, with their numbers.

    ``kind`` ``uint8[n]`` (:class:`hpcd.model.scope.ScopeKind`); ``name`` of procedures and inlined
    ones, and of loops of unknown line where in their procedure they begin; ``procedure``
    ``uint32[n]``: the one it is in, or one of them; ``file`` and ``line`` where a procedure or
    loop begins, of a line; empty and 0 where unknown, and for inlined procedures, which may be
    called from several.
    ``of_procedure`` ``uint32[procedures]``: in whose row each is shown, itself unless it has no
    name; ``shared`` ``bool[n]``: rows of procedures without names; ``of_scope``
    ``uint32[scopes]``: what each scope of the database is.
    """

    kind: U8
    name: list[str]
    procedure: U32
    file: list[str]
    line: U32
    of_procedure: U32
    shared: Mask
    of_scope: U32

    def __len__(self) -> int:
        return len(self.kind)

    def label(self, number: int) -> str:
        """Return the name of an entity in a tree below its procedure."""
        kind = ScopeKind(int(self.kind[number]))
        if kind == ScopeKind.PROCEDURE:
            return self.name[number]
        if kind == ScopeKind.INLINED:
            return f"{self.name[number]}{INLINED_ENDING}"
        name = PurePath(self.file[number]).name
        where = f"{name}:{int(self.line[number])}" if name else self.name[number] or "unknown line"
        return f"loop at {where}" if kind == ScopeKind.LOOP else where

    @cached_property
    def is_procedure(self) -> Mask:
        """``bool[n]``."""
        listed: Mask = self.kind == ScopeKind.PROCEDURE
        return listed


def entities(db: Database, *, merged: bool = False, nameless: bool = True) -> Entities:
    """All entities of a database.

    ``merged``: an inlined procedure is the same as one of its name in the same module that is
    called. Without ``nameless`` procedures that have no names share rows
    (:func:`.nameless.module_rows`). O(procedures + scopes).
    """
    scopes, procedures = db.scopes, db.procedures
    kinds = [ScopeKind.PROCEDURE] * len(procedures)
    names = list(db.procedure_names)
    of_procedure: U32 = np.arange(len(names), dtype=np.uint32)
    modules_named: dict[int, str] = {}
    if not nameless:
        of_procedure, modules_named = module_rows(db)
        for at, name in modules_named.items():
            names[at] = name
    owner = list(range(len(procedures)))
    files = list(procedures.file)
    lines = procedures.line.tolist()
    number: dict[tuple[object, ...], int] = {}
    modules = procedures.module.tolist()
    if merged:
        for at, (module, name) in enumerate(zip(modules, procedures.name, strict=True)):
            number.setdefault((ScopeKind.INLINED, module, name), at)
    of_scope = np.zeros(len(scopes), np.uint32)
    columns = zip(
        scopes.kind.tolist(), scopes.procedure.tolist(), scopes.name, scopes.file,
        scopes.line.tolist(), strict=True,
    )  # fmt: skip
    for scope, (code, procedure, name, file, line) in enumerate(columns):
        if not scope:
            continue
        kind = ScopeKind(code)
        key: tuple[object, ...]
        if kind == ScopeKind.INLINED:
            key = (kind, modules[procedure], name)
            file, line = "", 0
        elif kind == ScopeKind.STATEMENT and file:
            key = (kind, file, line)
        else:
            # Loops whose place is unknown are not the same one, unless they begin alike.
            place = (modules[procedure], file, line) if file else (procedure, name or scope)
            key = (kind, place)
        if key not in number:
            number[key] = len(names)
            kinds.append(kind)
            names.append(name)
            owner.append(procedure)
            files.append(file)
            lines.append(line)
        of_scope[scope] = number[key]
    shared = marked(len(names), list(modules_named))
    return Entities(
        np.array(kinds, np.uint8),
        names,
        np.array(owner, np.uint32),
        files,
        np.array(lines, np.uint32),
        of_procedure,
        shared,
        of_scope,
    )


def scoped_tree(
    db: Database, all_entities: Entities, kinds: Collection[ScopeKind]
) -> tuple[CCT, U32]:
    """The calling contexts with scopes of ``kinds`` between them, outermost first.

    A tree whose frames are entities, and ``uint32[nodes]``: where each context's own cost belongs,
    its innermost scope. Siblings may be equal. O(its size).
    """
    scopes = db.scopes
    keep = np.isin(scopes.kind, list(kinds))
    # A line of an unknown file says nothing its procedure does not.
    keep &= ~((scopes.kind == ScopeKind.STATEMENT) & np.array([not file for file in scopes.file]))
    if ScopeKind.INLINED in kinds:
        # A loop at an address says as little as its procedure.
        owner = all_entities.of_procedure[scopes.procedure]
        keep &= ~((scopes.kind == ScopeKind.LOOP) & all_entities.shared[owner])
    rows = scope_rows(scopes.parent, keep, db.scope_of_node, db.cct.parent)
    tree = rows.tree(all_entities.of_procedure[db.procedure_of_node], all_entities.of_scope)
    return without_chains(tree, rows.last.astype(np.uint32), all_entities.shared)
