"""From measurements to answers: merging, symbols, and the database everything reads."""

from hpcd.analysis.database import Database, open

__all__ = ["Database", "open"]
