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
- ``parallel``: ranks, imbalance, scaling loss, comparison, phases;
- ``merge``: measurements into a database;
- ``live``: measurements that are still being written;
- ``answers``: the answers to questions, which the command line, the page and Python render.

:func:`open` and :class:`Database` are what programs that use hpcd need; :mod:`hpcd.interchange` has
tables and trees for pandas, Arrow, Hatchet and Thicket (docs/python.md).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcd.analysis.database import Database, open

__all__ = ["Database", "open"]


def __getattr__(name: str) -> Any:
    # Processes that read one module each start often, and need nothing of a database.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("hpcd.analysis.database"), name)
