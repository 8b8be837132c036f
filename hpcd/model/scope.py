"""Kinds of static scopes that contain an instruction's address."""

from __future__ import annotations

from enum import IntEnum


class ScopeKind(IntEnum):
    """The kind of a scope."""

    PROCEDURE = 0
    INLINED = 1
    LOOP = 2
    STATEMENT = 3
