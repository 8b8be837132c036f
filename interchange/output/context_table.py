"""The calling contexts of a database as other tools have them: a tree of frames with names.

A procedure's inlined calls are frames of their own, below the procedure's. Frames differ by address
(:attr:`Detail.PLACE`), by procedure wherever it is called from (:attr:`Detail.PROCEDURE`), or by
the procedure's name (:attr:`Detail.NAME`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath

import numpy as np

from hpcd.analysis.arrays.scope_rows import scope_rows
from hpcd.analysis.database import Database
from hpcd.analysis.profile.entities import entities
from hpcd.array_types import F64, I64, U32, U64, Mask
from hpcd.distinct import begins_run
from hpcd.masks import positions
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.cct_union import collapse
from hpcd.model.scope import ScopeKind


class Detail(Enum):
    """The property that distinguishes two calls from one context."""

    PLACE = "place"
    PROCEDURE = "procedure"
    NAME = "name"


@dataclass(frozen=True)
class Frames:
    """The distinct frames of a table of contexts, one entry each; the root's is frame 0.

    ``name`` is the procedure's display name; ``module`` uint32[n] its load module's id or 0;
    ``procedure`` uint32[n], the one around it for inlined calls; ``inlined`` bool[n]; ``address``
    uint64[n] in the module, 0 for none; ``file`` and ``line`` uint32[n] the executed source line
    (0 if only the file is known) with :attr:`Detail.PLACE`, else the line where the
    procedure begins; empty and 0 if unknown.
    """

    name: list[str]
    module: U32
    procedure: U32
    inlined: Mask
    address: U64
    file: list[str]
    line: U32

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class ContextTable:
    """A tree of ``n`` contexts: 0 is the root, parents precede children.

    ``parent`` and ``frame`` (into ``frames``) are uint32[n]; ``of_node`` uint32[nodes] is the
    context of each CCT node of the database.
    """

    parent: U32
    frame: U32
    frames: Frames
    of_node: U32

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def tree(self) -> CCT:
        """The contexts as a tree of frame numbers."""
        return CCT(self.parent, self.frame.astype(np.uint64))

    def depth(self) -> U32:
        """Return uint32[n]: the number of frames from the root to each context."""
        return self.tree.depth()

    def inclusive(self, cost: F64) -> F64:
        """Return the inclusive costs float64[metrics, n] of the exclusive ones ``cost``."""
        return self.tree.inclusive(cost)


def path_maker(table: ContextTable) -> Callable[[int], list[int]]:
    """A function that returns the frames of a context of ``table``, innermost first; the root's has
    its frame 0."""
    parent, frame = table.parent.tolist(), table.frame.tolist()

    def path(context: int) -> list[int]:
        frames = []
        while context:
            frames.append(frame[context])
            context = parent[context]
        return frames or [0]

    return path


def build_context_table(db: Database, detail: Detail, depth: int | None) -> ContextTable:
    """Return the contexts of ``db``; costs below ``depth`` frames count for the context above."""
    unfolded = _unfold(db)
    if detail is Detail.PLACE:
        frames, label = _frames_by_place(db, unfolded)
    else:
        frames, label = _frames_by_procedure(db, unfolded, by_name=detail is Detail.NAME)
    # Label 0 is the root's; no other node may have it.
    tree, into = collapse(CCT(unfolded.parent, label), label + np.uint64(1))
    number = np.maximum(tree.frame, 1) - np.uint64(1)
    table = ContextTable(
        tree.parent, number.astype(np.uint32), frames, into[unfolded.last].astype(np.uint32)
    )
    return table if depth is None else _cut(table, depth)


def _cut(table: ContextTable, depth: int) -> ContextTable:
    """Return the contexts of at most ``depth`` frames."""
    kept = table.depth() <= depth
    tree, to = table.tree.keep(kept)
    return ContextTable(tree.parent, table.frame[kept], table.frames, to[table.of_node])


@dataclass(frozen=True)
class _Unfolded:
    """The CCT with a row for each inlined call.

    Row ``i`` belongs to CCT node ``node[i]``, in its procedure (``scope[i]`` 0) or in the inlined
    call ``scope[i]``, and executes the line of scope ``site[i]`` (0: unknown). ``last[n]`` is the
    innermost row of node ``n``.
    """

    parent: U32
    node: I64
    scope: I64
    site: I64
    last: I64


def _unfold(db: Database) -> _Unfolded:
    scopes = db.scopes
    inlined = scopes.kind == ScopeKind.INLINED
    rows = scope_rows(scopes.parent, inlined, db.scope_of_node, db.cct.parent)
    last = rows.last
    node = np.repeat(np.arange(len(last)), last - rows.first + 1)
    scope = np.zeros(len(node), np.int64)
    # The innermost row executes the innermost statement; each row around it, the call inlined next.
    site = np.zeros(len(node), np.int64)
    lined = (scopes.kind == ScopeKind.STATEMENT) | (scopes.kind == ScopeKind.LOOP)
    site[last] = np.where(lined[db.scope_of_node], db.scope_of_node, 0)
    for row, around in rows.scopes():
        scope[row] = around
        site[row - 1] = around
    return _Unfolded(rows.parent.astype(np.uint32), node, scope, site, last)


def _frames_by_place(db: Database, rows: _Unfolded) -> tuple[Frames, U64]:
    """Return frames by address and inlined call, and each row's frame. O(rows · log rows)."""
    code = db.cct.frame[rows.node]
    order = np.lexsort((rows.scope, code))
    new = begins_run(rows.scope[order], code[order])
    label = np.empty(len(order), np.uint64)
    label[order] = (np.cumsum(new) - 1).astype(np.uint64)
    rows_of = order[new]
    node, scope, site = rows.node[rows_of], rows.scope[rows_of], rows.site[rows_of]
    procedures, scopes = db.procedures, db.scopes
    procedure = db.procedure_of_node[node]
    own = scope == 0
    # If the line is unknown, the procedure's file is known at least, unless it is inlined.
    where = [
        (scopes.file[s], int(scopes.line[s]))
        if s and scopes.file[s]
        else (procedures.file[p] if o else "", 0)
        for s, p, o in zip(site.tolist(), procedure.tolist(), own.tolist(), strict=True)
    ]
    names = db.procedure_names
    places = db.cct.frame[node]
    frames = Frames(
        name=[scopes.name[s] if s else names[p]
              for s, p in zip(scope.tolist(), procedure.tolist(), strict=True)],
        module=frame.module_of(places),
        procedure=procedure,
        inlined=~own,
        address=np.where(frame.is_module(places), frame.offset_of(places), np.uint64(0)),
        file=[file for file, _ in where],
        line=np.array([line for _, line in where], np.uint32),
    )  # fmt: skip
    return frames, label


def _frames_by_procedure(db: Database, rows: _Unfolded, *, by_name: bool) -> tuple[Frames, U64]:
    """Return frames by procedure, inlined or called, and each row's frame."""
    known = entities(db, merged=True)
    number = np.where(
        rows.scope > 0, known.of_scope[rows.scope], db.procedure_of_node[rows.node]
    ).astype(np.int64)
    # The root is row 0; its frame is the first.
    used, first, label = np.unique(number, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    place = positions(len(order), order)
    used, label = used[order], place[label]
    names = [known.name[n] for n in used.tolist()]
    if by_name:
        # As py-spy writes them: many files have a main().
        for at, number in enumerate(used.tolist()):
            if number < len(db.procedures) and db.is_python[number]:
                file = PurePath(known.file[number]).name
                names[at] += f" ({file}:{int(known.line[number])})"
        numbers = {name: n for n, name in enumerate(dict.fromkeys(names))}
        same = np.array([numbers[name] for name in names], np.int64)
        label = same[label]
        used = used[np.unique(same, return_index=True)[1]]
        names = list(numbers)
    procedures = db.procedures
    procedure = known.procedure[used].astype(np.uint32)
    own = known.is_procedure[used]
    frames = Frames(
        name=names,
        module=procedures.module[procedure],
        procedure=procedure,
        inlined=~own,
        address=np.where(own, procedures.address[procedure], np.uint64(0)),
        file=[known.file[n] for n in used.tolist()],
        line=known.line[used],
    )
    return frames, label.astype(np.uint64)
