"""Calls whose call paths are not finished yet."""

from __future__ import annotations

import numpy as np

from hpcd.daemon.capture.paths.stand_ins import StandIns
from hpcd.measurement.call_codec import Calls

# 80 MB of calls. More are written without a path.
_MOST_HELD = 1 << 20


class HeldCalls:
    """Holds calls until the mappings or tables that their paths wait for are there: until then
    their nodes are ``stand_ins``."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins
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
            ready.append(calls[~unfinished])
            if unfinished.any():
                waiting.append(calls[unfinished])
        too_many = sum(map(len, waiting)) > _MOST_HELD
        if waiting and (last or too_many):
            self.without_path += sum(map(len, waiting))
            ready += [calls.with_nodes(np.zeros(len(calls), np.uint32)) for calls in waiting]
            waiting = []
        self._held = waiting
        return [calls for calls in ready if len(calls)]
