"""From measurements to answers: merging, symbols, and the database everything reads.

The packages are the stages of the pipeline, lowest first; a module imports from its own package and
those above it in this list only (``pyproject.toml`` has the contracts):

- ``arrays``: column files, archives and sparse sums of numbers, whatever they mean;
- ``trace``: trace records in parts, their overviews, and the sampled picture;
- ``symbols``: names of addresses;
- ``structure``: procedures, inlined calls, loops and source lines of load modules;
- ``database``: reading a database;
- ``profile``: views, filters, formulas and costs of one database;
- ``calls``: totals of recorded calls;
- ``export``: databases in the formats of other tools;
- ``parallel``: ranks, imbalance, scaling loss, comparison, phases;
- ``merge``: measurements into a database;
- ``live``: measurements that are still being written.

:func:`open` and :class:`Database` are what programs that use hpcd need; the other names are tables
and trees for pandas, Arrow, Hatchet and Thicket (docs/python.md).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcd.analysis.database import Database, open
    from hpcd.analysis.export.data_frames import arrow_batches, arrow_table, pandas_frame
    from hpcd.analysis.export.graph_frames import graph_frame, thicket

__all__ = [
    "Database",
    "arrow_batches",
    "arrow_table",
    "graph_frame",
    "open",
    "pandas_frame",
    "thicket",
]

_MODULES = {
    "Database": "database",
    "open": "database",
    "arrow_batches": "export.data_frames",
    "arrow_table": "export.data_frames",
    "pandas_frame": "export.data_frames",
    "graph_frame": "export.graph_frames",
    "thicket": "export.graph_frames",
}


def __getattr__(name: str) -> Any:
    # Processes that read one module each start often, and need nothing of a database.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"hpcd.analysis.{_MODULES[name]}"), name)
