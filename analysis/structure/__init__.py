"""Static structure of load modules: procedures, inlined calls, loops and lines of addresses."""

from hpcd.analysis.structure.forest import ScopeForest
from hpcd.analysis.structure.module import Structure, StructureReader
from hpcd.model.scope import Kind

__all__ = ["Kind", "ScopeForest", "Structure", "StructureReader"]
