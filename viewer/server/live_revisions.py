"""A measurement being written, as the viewer serves it: one revision of its database after another.

Two revisions are kept: the page learns of the newest within a second, and what it requests until
then is answered from the one it knows. Node and line numbers differ between revisions.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.live.live_merge import Following
from hpcd.array_types import I64
from hpcd.errors import HpcdError
from hpcd.viewer.server.open_database import GoneError, OpenDatabase

# Revisions whose lines can still be mapped to the newest; a page that slept for longer loses its
# crosshair.
_REMEMBERED = 64
_LOOK_SECONDS = 1.0


class LiveRevisions:
    """Follows a measurement in a thread of its own, from :meth:`start` to :meth:`close`."""

    def __init__(self, following: Following, first: Database) -> None:
        self._following = following
        self._opened: OrderedDict[int, OpenDatabase] = OrderedDict()
        # Of each revision the measurement's own numbers of its lines, which never change.
        self._sources: OrderedDict[int, I64] = OrderedDict()
        self._failure = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._take(first)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for a merge under way to be gone."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def state(self) -> dict[str, object]:
        """``revision`` is the newest; ``recording`` whether more may come; ``failure`` why the last
        update failed, or empty."""
        return {
            "revision": next(reversed(self._sources)),
            "recording": not self._following.ended,
            "failure": self._failure,
        }

    def at(self, revision: str) -> OpenDatabase:
        """The revision of that number, or the newest. Raises :class:`GoneError`."""
        opened = self._opened
        if not revision:
            return next(reversed(opened.values()))
        for number, database in opened.items():
            if str(number) == revision:
                return database
        raise GoneError("this state of the recording has been replaced by a newer one")

    def moved(self, revision: int, lines: Sequence[int]) -> list[int | None]:
        """Return the newest numbers of ``lines`` of ``revision``; None for those not known any
        more.
        """
        before = self._sources.get(revision)
        after = next(reversed(self._sources.values()))
        if before is None:
            return [None] * len(lines)
        line_of = {number: line for line, number in enumerate(after.tolist())}
        return [line_of.get(int(before[line])) if line < len(before) else None for line in lines]

    def _take(self, db: Database) -> None:
        number = next(reversed(self._sources), 0) + 1
        query = "SELECT measurement_line FROM thread ORDER BY trace_line"
        rows = db.rows(query)
        # Replaced whole, for others read them meanwhile.
        opened = OrderedDict([*self._opened.items(), (number, OpenDatabase(db, number))][-2:])
        source = np.array([row[0] for row in rows], np.int64)
        self._opened = opened
        self._sources = OrderedDict([*self._sources.items(), (number, source)][-_REMEMBERED:])

    def _follow(self) -> None:
        pause = _LOOK_SECONDS
        while not self._following.ended and not self._stop.wait(pause):
            try:
                db = self._following.update(self._stop)
            except HpcdError as error:
                # The disk may be full for a while: what there is stays in view.
                self._failure = str(error)
                pause *= 2
                continue
            self._failure = ""
            if db is not None:
                self._take(db)
            pause = self._following.pause if db is not None else _LOOK_SECONDS
