"""Kinds of static scopes that contain an instruction's address, and ends of display names."""

from __future__ import annotations

from enum import IntEnum

KERNEL_ENDING, INLINED_ENDING = " [k]", " [inlined]"
"""Display names of procedures of the kernel, and of inlined ones, end so."""


class ScopeKind(IntEnum):
    """The kind of a scope."""

    PROCEDURE = 0
    INLINED = 1
    LOOP = 2
    STATEMENT = 3
