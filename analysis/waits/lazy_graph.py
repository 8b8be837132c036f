"""The graph of a database's waits, kept for repeated questions about waits and paths."""

from __future__ import annotations

from threading import Lock

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.waits.wait_chains import WaitGraph, path_graph, read_graph


class LazyGraph:
    """A database's waits and what all lines did between theirs, read when it is first needed."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = Lock()
        self._graph: WaitGraph | None = None
        self._path: WaitGraph | None = None

    def get(self) -> WaitGraph:
        """Return :func:`~hpcd.analysis.waits.wait_chains.read_graph` of all lines. Raises
        :class:`FormatError`."""
        with self._lock:  # a second request waits instead of doing the same
            return self._read()

    def of_paths(self) -> WaitGraph:
        """Return :func:`~hpcd.analysis.waits.wait_chains.path_graph`. Raises
        :class:`FormatError`."""
        with self._lock:
            if self._path is None:
                self._path = path_graph(self._db, self._read())
            return self._path

    def _read(self) -> WaitGraph:
        if self._graph is None:
            self._graph = read_graph(self._db, np.arange(len(self._db.lines)))
        return self._graph
