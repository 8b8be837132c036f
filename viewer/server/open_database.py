"""An open database with what requests share: orders of lines, trees of views."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.answers.messages_in_view import Traffic
from hpcd.analysis.trace.pixel_samples import choose_lines
from hpcd.analysis.waits.lazy_graph import LazyGraph
from hpcd.analysis.waits.single_wait import WaitFinder
from hpcd.array_types import I64
from hpcd.errors import HpcdError
from hpcd.kept_answers import KeptAnswers
from hpcd.viewer.contexts import Trees
from hpcd.viewer.depth_slice import depth_choice
from hpcd.viewer.picture_tree import PictureTree
from hpcd.viewer.selected_costs import SUMS, SelectedCosts, profile
from hpcd.viewer.server.calls_api import CallViews
from hpcd.viewer.server.phases_api import PhaseViews
from hpcd.viewer.server.query_params import QueryParameters
from hpcd.viewer.server.selection import Choice, LineSelection
from hpcd.viewer.server.source_api import Sources

# About as large as a page's first picture, and made in pieces of _PIECE rows.
_FIRST_ROWS, _FIRST_COLUMNS, _PIECE = 1200, 2000, 100


class GoneError(HpcdError):
    """The requested revision has been replaced."""


class OpenDatabase:
    """An open database; ``revision`` counts the revisions of a recording being followed, from 1."""

    def __init__(self, db: Database, revision: int = 0) -> None:
        self.db = db
        self.revision = revision
        self.selection = LineSelection(db)
        self.trees = trees = Trees(db)
        self.sources = Sources(db, trees)
        self.traffic = KeptAnswers(lambda: Traffic(db))
        """Raises :class:`UsageError` where no calls of MPI were recorded."""
        self.graph = LazyGraph(db)
        self.waits = WaitFinder(db, self.graph)
        self.phases = PhaseViews(db)
        self.calls = CallViews(db, self.traffic, growing=revision > 0)
        self._native = KeptAnswers(lambda: OpenDatabase(Database(db.path, native=True), revision))
        self._picture = picture = KeptAnswers(lambda: PictureTree(db, trees.of("top-down")))
        self.depths = KeptAnswers(lambda: depth_choice(db, picture()))
        """The choice of call path depths; see :func:`depth_choice`."""
        self.drawn = False
        """Whether a picture has been requested: none is made before that any more."""

    def shown(self, *, native: bool) -> OpenDatabase:
        """Return this database, or with ``native`` the same one with the frames of interpreters."""
        if not native or self.db.native:
            return self
        return self._native()

    @property
    def picture(self) -> PictureTree:
        """The tree of call paths that pictures show. Made once."""
        return self._picture()

    def nodes_of(self, contexts: Sequence[int]) -> list[int]:
        """Return the tree's nodes of the database's ``contexts``; -1 for other numbers."""
        place = self.picture.place
        return [int(place[node]) if 0 <= node < len(place) else -1 for node in contexts]

    def prepare(self) -> None:
        """Make what every page requests first: while a browser loads the page there is time."""
        self.selection.order(Choice(fold=True))
        self.calls.groups()
        self.picture.at(1)
        self.depths()
        order = self.selection.order(Choice(fold=True))
        lines = order[choose_lines(None, _FIRST_ROWS, len(order))]
        if self.db.duration_ns > 0:
            # The page's first picture finds the files open and their data in memory.
            for begin in range(0, len(lines), _PIECE):
                if self.drawn:
                    break
                self.selection.sample(
                    lines[begin : begin + _PIECE], Choice(fold=True), 0, self.db.duration_ns,
                    _FIRST_COLUMNS,
                )  # fmt: skip

    def rows(self, parameters: QueryParameters) -> I64:
        """``int64[n]``: the lines ``l0`` to ``l1`` of a choice. Raises :class:`UsageError`."""
        order = self.selection.order(parameters.choice())
        l0, l1 = parameters.rows(len(order))
        return order[l0:l1]

    def all_lines(self, parameters: QueryParameters) -> I64:
        """``int64[n]``: as :meth:`rows`, with the lines that are folded into these rows."""
        return self.selection.with_folded(self.rows(parameters), parameters.choice())

    def profile(self, parameters: QueryParameters) -> SelectedCosts:
        """Return the contexts' costs in the requested window, and in the phases that are requested
        (times are those of pictures, of all time). Raises :class:`UsageError`."""
        t0, t1 = parameters.interval()
        times, phase = parameters.has("times"), parameters.text("phase")
        lines = self.own_rows(parameters) if times else self.all_lines(parameters)
        if phase and not times:
            return SelectedCosts(SUMS, 0, self.phases.profile(phase, lines, t0, t1))
        return profile(self.db, lines, t0, t1, times=times)

    def own_rows(self, parameters: QueryParameters) -> I64:
        """The program's own lines: times are those of what a picture is about, costs are complete.
        All where there are only others."""
        rows = self.rows(parameters)
        folded = np.array(self.selection.folded(rows.tolist(), parameters.choice()))
        rows = rows[folded == 0] if bool((folded == 0).any()) else rows
        return self.selection.with_shared(rows, parameters.choice())
