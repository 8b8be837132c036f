"""When selected processes end: known at once, not at the next look into the rings."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

# Those of a recording of some processes; of thousands one more drain makes no difference.
_MOST = 64


class ProcessEnds:
    """A descriptor of each of ``pids``, readable once its process has ended (pidfd_open(2))."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._open: set[int] = set()
        for pid in list(pids)[:_MOST]:
            with contextlib.suppress(OSError):  # gone already, or Linux before 5.3
                self._open.add(os.pidfd_open(pid))

    @property
    def descriptors(self) -> frozenset[int]:
        """Of the processes that have not ended, as far as is known."""
        return frozenset(self._open)

    def take(self, readable: Iterable[int]) -> bool:
        """Whether one of the processes is among what is ``readable``: forget those."""
        ended = self._open.intersection(readable)
        self._open -= ended
        for descriptor in ended:
            os.close(descriptor)
        return bool(ended)

    def close(self) -> None:
        """Forget all."""
        self.take(self._open)
