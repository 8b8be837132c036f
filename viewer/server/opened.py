"""A database, and what of it has been asked for: orders of lines, trees of views."""

from __future__ import annotations

from hpcd.analysis import Database
from hpcd.errors import HpcdError
from hpcd.viewer.server.contexts import Trees
from hpcd.viewer.server.selection import Selection
from hpcd.viewer.server.source import Sources


class GoneError(HpcdError):
    """A revision that is asked for has been replaced."""


class Opened:
    """A database that is looked at; ``revision`` counts those of one that grows, from 1."""

    def __init__(self, db: Database, revision: int = 0) -> None:
        self.db = db
        self.revision = revision
        self.selection = Selection(db)
        self.trees = Trees(db)
        self.sources = Sources(db, self.trees)
