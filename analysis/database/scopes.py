"""Static scopes of a module's addresses, as a merge stores them beside their procedures.

The innermost scope of every address is known (:mod:`hpcd.analysis.structure`): of modules with
debug information the inlined calls, loops and source lines it is in, of others the loops.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from hpcd.array_types import U8, U32
from hpcd.model.scope import ScopeKind

# The name of a loop whose line is unknown.
_OFFSET = re.compile(r"(\+0x[0-9a-f]{1,16})?")


@dataclass(frozen=True)
class Scopes:
    """Scopes inside procedures, numbered from 1; entry 0 is none, what is known of a procedure.

    ``parent`` ``uint32[n]``: the scope around each, a smaller number, 0 when that is the procedure
    itself; ``kind`` ``uint8[n]`` (:class:`hpcd.model.scope.ScopeKind`, none a procedure);
    ``procedure`` ``uint32[n]``; ``name`` of inlined procedures, and of loops of unknown line how
    far into the procedure they begin, ``+0x1a0``, else empty; ``file`` and ``line`` ``uint32[n]``
    where an inlined procedure was called, of a loop's head, of a statement; empty and 0 where
    unknown.
    """

    parent: U32
    kind: U8
    procedure: U32
    name: list[str]
    file: list[str]
    line: U32

    def __len__(self) -> int:
        return len(self.parent)

    def has_sound_loops(self) -> bool:
        """Whether loops of unknown line have an offset for a name, or none."""
        unknown = np.flatnonzero((self.kind == ScopeKind.LOOP) & (self.line == 0))
        return all(_OFFSET.fullmatch(self.name[number]) for number in unknown.tolist())

    @staticmethod
    def none() -> Scopes:
        """Entry 0 alone."""
        return Scopes(
            np.zeros(1, np.uint32),
            np.full(1, ScopeKind.PROCEDURE, np.uint8),
            np.zeros(1, np.uint32),
            [""],
            [""],
            np.zeros(1, np.uint32),
        )

    @staticmethod
    def joined(parts: list[Scopes]) -> tuple[Scopes, list[int]]:
        """Several as one, and what to add to each one's numbers (0 stays 0)."""
        parts = [Scopes.none(), *parts]
        sizes = [len(part) - 1 for part in parts]
        starts = np.cumsum([0, *sizes])[:-1].tolist()
        tail = slice(1, None)
        parents = [
            np.where(part.parent[tail] > 0, part.parent[tail] + np.uint32(at), np.uint32(0))
            for part, at in zip(parts, starts, strict=True)
        ]
        none = parts[0]
        return (
            Scopes(
                np.concatenate([none.parent, *parents]).astype(np.uint32),
                np.concatenate([none.kind, *(part.kind[tail] for part in parts)]),
                np.concatenate([none.procedure, *(part.procedure[tail] for part in parts)]),
                ["", *(name for part in parts for name in part.name[tail])],
                ["", *(file for part in parts for file in part.file[tail])],
                np.concatenate([none.line, *(part.line[tail] for part in parts)]),
            ),
            starts[1:],
        )
