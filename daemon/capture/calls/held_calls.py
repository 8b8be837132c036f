"""Calls whose call paths are not finished yet."""

from __future__ import annotations

import numpy as np

from hpcd.daemon.capture.paths.stand_ins import STAND_IN, StandIns
from hpcd.measurement.call_codec import Calls

# 80 MB of calls. More are written without a path.
_MOST_HELD = 1 << 20


class HeldCalls:
    """Holds calls until the mappings or tables that their paths wait for are there: until then
    their nodes are ``stand_ins``."""

    def __init__(self, stand_ins: StandIns, path_value: int | None = None) -> None:
        """``path_value`` is the number of the value that is a node, of calls that have one."""
        self._stand_ins, self._path_value = stand_ins, path_value
        self._held: list[Calls] = []
        self.without_path = 0
        """Calls that were written without a path."""

    def add(self, calls: Calls) -> None:
        """Hold ``calls``."""
        if len(calls):
            self._held.append(calls)

    def finished(self, *, last: bool = False) -> list[Calls]:
        """Return the calls whose paths are finished by now, and at the ``last`` time all."""
        ready: list[Calls] = []
        waiting: list[Calls] = []
        for calls in self._held:
            node, unfinished = self._stand_ins.translate(calls.node)
            calls = calls.with_nodes(node)
            if self._path_value is not None:
                paths = calls.value[:, self._path_value]
                other, unfinished_path = self._stand_ins.translate(paths.astype(np.uint32))
                paths[:] = other
                unfinished = unfinished | unfinished_path
            ready.append(calls[~unfinished])
            if unfinished.any():
                waiting.append(calls[unfinished])
        too_many = sum(map(len, waiting)) > _MOST_HELD
        if waiting and (last or too_many):
            self.without_path += sum(map(len, waiting))
            for calls in waiting:
                calls.node[calls.node >= STAND_IN] = 0
                if self._path_value is not None:
                    paths = calls.value[:, self._path_value]
                    paths[paths >= STAND_IN] = 0
            ready += waiting
            waiting = []
        self._held = waiting
        return [calls for calls in ready if len(calls)]
