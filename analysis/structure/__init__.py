"""Static structure of load modules: procedures, inlined calls, loops and lines of addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcd.analysis.structure.module_structure import Structure, StructureReader
    from hpcd.analysis.structure.scope_forest import ScopeForest
    from hpcd.model.scope import ScopeKind

__all__ = ["ScopeForest", "ScopeKind", "Structure", "StructureReader"]


def __getattr__(name: str) -> Any:
    # Processes that read one module each start often, and need no code of the requesting side.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hpcd.analysis.structure import module_structure

    return getattr(module_structure, name)
