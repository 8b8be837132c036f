"""Formats of other tools: measurements read from them, databases written in them.

:func:`pandas_frame`, :func:`arrow_table`, :func:`arrow_batches`, :func:`graph_frame` and
:func:`thicket` return a database's tables and trees to Python's libraries (docs/python.md). Another
format is a module here and a line in ``formats.FORMATS`` or ``importing.FORMATS``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcd.interchange.tables.data_frames import arrow_batches, arrow_table, pandas_frame
    from hpcd.interchange.tables.hatchet import graph_frame, thicket

__all__ = ["arrow_batches", "arrow_table", "graph_frame", "pandas_frame", "thicket"]

_MODULES = {
    "arrow_batches": "tables.data_frames",
    "arrow_table": "tables.data_frames",
    "pandas_frame": "tables.data_frames",
    "graph_frame": "tables.hatchet",
    "thicket": "tables.hatchet",
}


def __getattr__(name: str) -> Any:
    # Imported when first used: a command that reads one format needs none of the others.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"hpcd.interchange.{_MODULES[name]}"), name)
