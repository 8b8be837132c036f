"""Taking copied stacks out of their ring while the recorder is busy otherwise.

Programs that start copy 100 to 200 MB/s until the unwind tables of their code are there, and just
then the recorder reads mappings and places tables: on a machine that is busy with those programs it
may not look at its rings for half a second.
"""

from __future__ import annotations

import threading

from hpcd.bpf.ring import Ring

# The ring fills in 0.2 s at most.
_IDLE_SECONDS = 0.1
_BUSY_SECONDS = 0.02
# Beyond that they stay in the ring, and are lost, and counted, when it is full.
_MAX_BYTES = 64 << 20


class CopyReader:
    """Reads the ring of copied stacks, by a thread of its own once it is started."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._lock = threading.Lock()
        self._taken: list[bytes] = []
        self._bytes = 0
        self._ended = threading.Event()
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
        seconds = _IDLE_SECONDS
        while not self._ended.wait(seconds):
            seconds = _IDLE_SECONDS
            with self._lock:
                waiting = self._ring.pending
                if waiting:
                    seconds = _BUSY_SECONDS
                if 16 * waiting > self._ring.size and self._bytes < _MAX_BYTES:
                    self._taken += self._ring.take_any()
                    self._bytes += waiting

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        if self._thread:
            self._thread.join()
