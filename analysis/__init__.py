"""From measurements to answers: merging, symbols, and the database everything reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpcd.analysis.database import Database, open

__all__ = ["Database", "open"]


def __getattr__(name: str) -> Any:
    # Processes that read one module each start often, and need nothing of a database.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from hpcd.analysis import database

    return getattr(database, name)
