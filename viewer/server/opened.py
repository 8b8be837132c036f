"""A database, and what of it has been asked for: orders of lines, trees of views."""

from __future__ import annotations

from hpcd.analysis import Database
from hpcd.errors import HpcdError
from hpcd.viewer.server.asked import Asked
from hpcd.viewer.server.contexts import Trees
from hpcd.viewer.server.profile import Profile, profile
from hpcd.viewer.server.selection import I64, Selection
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

    def rows(self, asked: Asked) -> I64:
        """``int64[n]``: the lines ``l0`` to ``l1`` of a choice. Raises :class:`UsageError`."""
        order = self.selection.order(asked.choice())
        l0, l1 = asked.rows(len(order))
        return order[l0:l1]

    def profile(self, asked: Asked) -> Profile:
        """What the contexts cost in the window asked for. Raises :class:`UsageError`."""
        t0, t1 = asked.interval()
        return profile(self.db, self.rows(asked), t0, t1, times=asked.has("times"))
