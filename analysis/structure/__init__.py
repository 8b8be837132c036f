"""Static structure of load modules: procedures, inlined calls, loops and lines of addresses."""

from hpcd.analysis.structure.forest import Kind, ScopeForest
from hpcd.analysis.structure.module import Structure, StructureReader

__all__ = ["Kind", "ScopeForest", "Structure", "StructureReader"]
