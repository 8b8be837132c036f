"""Copied stacks are taken from their ring as far as there is room, the rest stays in it."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from hpcd.bpf.rings import copy_reader
from hpcd.bpf.rings.copy_reader import CopyReader

PIECE = 1000


class FilledRing:
    """Stands for a ring whose programs always have another copy."""

    def __init__(self) -> None:
        self.urgent_descriptor = os.eventfd(1)
        self.pending = self.size = PIECE
        self.taken = 0
        self.full = threading.Event()

    def take_any(self) -> list[bytes]:
        """Return one more copy."""
        self.taken += 1
        if self.taken == 100:
            self.full.set()
        return [bytes(PIECE)]


def test_copies_beyond_the_room_stay_in_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_reader, "_MAX_BYTES", 10 * PIECE)
    ring: Any = FilledRing()
    waited = threading.Event()
    monkeypatch.setattr(copy_reader, "_BUSY_SECONDS", 0.001)
    reader = CopyReader(ring)
    end = reader._ended.wait

    def wait(seconds: float) -> bool:
        waited.set()
        return end(seconds)

    monkeypatch.setattr(reader._ended, "wait", wait)
    reader.start()
    try:
        while not waited.wait(0.01):
            assert not ring.full.is_set(), "copies are taken without a bound"
        assert ring.taken == 10 and reader.pending == 11 * PIECE
        assert len(reader.take()) == 11
    finally:
        reader.close()
        os.close(ring.urgent_descriptor)
