"""The request to end a recording, which wakes the loop from its wait for descriptors."""

from __future__ import annotations

import contextlib
import os

from hpcd.daemon.capture.loop.descriptors import readable


class StopRequest:
    """An event like :class:`threading.Event`, with a descriptor that is readable while it is set.
    Safe in signal handlers, which may interrupt its other methods (an Event's lock would be held
    then), and in threads."""

    def __init__(self) -> None:
        self._is_set = False
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable while the request stands."""

    def set(self) -> None:
        """Ask for the end."""
        self._is_set = True
        os.eventfd_write(self.descriptor, 1)

    def is_set(self) -> bool:
        """Whether the end is requested."""
        return self._is_set

    def clear(self) -> None:
        """Forget the request."""
        self._is_set = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def wait(self, seconds: float) -> bool:
        """Whether it is set, after at most ``seconds``."""
        readable([self.descriptor], seconds)
        return self._is_set

    def __del__(self) -> None:
        os.close(self.descriptor)
