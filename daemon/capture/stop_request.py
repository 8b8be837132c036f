"""The request to end a recording, which wakes whoever waits for descriptors."""

from __future__ import annotations

import contextlib
import os
import threading


class StopRequest:
    """As :class:`threading.Event`, with a descriptor that is readable while it is set. Safe in
    signal handlers and threads."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable while the request stands."""

    def set(self) -> None:
        """Ask for the end."""
        self._event.set()
        os.eventfd_write(self.descriptor, 1)

    def is_set(self) -> bool:
        """Whether the end is requested."""
        return self._event.is_set()

    def clear(self) -> None:
        """Forget the request."""
        self._event.clear()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def wait(self, seconds: float) -> bool:
        """Whether it is set, after at most ``seconds``."""
        return self._event.wait(seconds)

    def __del__(self) -> None:
        os.close(self.descriptor)
