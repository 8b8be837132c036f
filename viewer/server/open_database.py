"""An open database with what requests share: orders of lines, trees of views."""

from __future__ import annotations

from hpcd.analysis import Database
from hpcd.array_types import I64
from hpcd.errors import HpcdError
from hpcd.viewer.server.contexts import Trees
from hpcd.viewer.server.profile_api import Profile, profile
from hpcd.viewer.server.query_params import QueryParameters
from hpcd.viewer.server.selection import Selection
from hpcd.viewer.server.source_api import Sources


class GoneError(HpcdError):
    """The requested revision has been replaced."""


class OpenDatabase:
    """An open database; ``revision`` counts the revisions of a recording being followed, from 1."""

    def __init__(self, db: Database, revision: int = 0) -> None:
        self.db = db
        self.revision = revision
        self.selection = Selection(db)
        self.trees = Trees(db)
        self.sources = Sources(db, self.trees)

    def rows(self, parameters: QueryParameters) -> I64:
        """``int64[n]``: the lines ``l0`` to ``l1`` of a choice. Raises :class:`UsageError`."""
        order = self.selection.order(parameters.choice())
        l0, l1 = parameters.rows(len(order))
        return order[l0:l1]

    def profile(self, parameters: QueryParameters) -> Profile:
        """What the contexts cost in the requested window. Raises :class:`UsageError`."""
        t0, t1 = parameters.interval()
        return profile(self.db, self.rows(parameters), t0, t1, times=parameters.has("times"))
