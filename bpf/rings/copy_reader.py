"""Taking copied stacks out of their ring while the recorder is busy otherwise.

Programs that start copy 100 to 200 MB/s until the unwind tables of their code are there, and just
then the recorder reads mappings and places tables: on a machine that is busy with those programs it
may not look at its rings for half a second.
"""

from __future__ import annotations

import os
import select
import threading

from hpcd.bpf.rings.ring import Ring

# While there is no room for more.
_BUSY_SECONDS = 0.02
# Beyond that they stay in the ring, and are lost, and counted, when it is full.
_MAX_BYTES = 64 << 20


class CopyReader:
    """Reads the ring of copied stacks, by a thread of its own once it is started, which the
    programs wake when a sixteenth of the ring is full
    (``bpf/programs/paths/copies.h:copy_stack``)."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.size = ring.size
        """Bytes of the ring."""
        self._lock = threading.Lock()
        self._taken: list[bytes] = []
        self._bytes = 0
        self._ended = threading.Event()
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Read ahead, until closed."""
        self._thread = threading.Thread(target=self._run, name="copied stacks", daemon=True)
        self._thread.start()

    def take(self) -> list[bytes]:
        """All that has come."""
        with self._lock:
            taken, self._taken, self._bytes = self._taken, [], 0
            taken += self._ring.take_any()
        return taken

    @property
    def pending(self) -> int:
        """Bytes waiting."""
        return self._bytes + self._ring.pending

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._ring.urgent_descriptor, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while True:
            poll.poll()
            if self._ended.is_set():
                return
            with self._lock:
                waiting, room = self._ring.pending, self._bytes < _MAX_BYTES
                if room:
                    self._taken += self._ring.take_any()
                    self._bytes += waiting
            if not room:
                self._ended.wait(_BUSY_SECONDS)

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        os.eventfd_write(self._end, 1)
        if self._thread:
            self._thread.join()
        os.close(self._end)
