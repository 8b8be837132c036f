"""Words of a process' memory: no thread is stopped, and no word is guessed.

Any word may lie in a page that a program of a user's has to bring, when that likes to: so all are
read by a process that can be left behind (:mod:`hpcd.daemon.access.target_reader`).
"""

from __future__ import annotations

from hpcd.daemon.access import target_reader
from hpcd.daemon.access.patience import WithheldError

# Of lists that system calls are given: a select() of every descriptor, a poll() of a thousand.
_MOST_BYTES = 1 << 14


class TargetMemory:
    """The memory of processes. Raises nothing: what cannot be read is None."""

    def read(self, pid: int, address: int, size: int) -> bytes | None:
        """``size`` bytes from ``address`` on, all or none."""
        if not 0 < address < 1 << 56 or not 0 < size <= _MOST_BYTES:
            return None
        data = _read(pid, address, size)
        return data if data and len(data) == size else None

    def read_some(self, pid: int, address: int, size: int) -> bytes:
        """Up to ``size`` bytes, a page at least as far as there is memory; else none."""
        return _read(pid, address, size) or b"" if 0 < address < 1 << 56 else b""

    def word(self, pid: int, address: int) -> int | None:
        """The 32-bit word at ``address``."""
        data = self.read(pid, address, 4)
        return None if data is None else int.from_bytes(data, "little")


def _read(pid: int, address: int, size: int) -> bytes | None:
    try:
        (data,) = target_reader.OWN.memory(pid, [(address, size)])
    except (OSError, WithheldError):
        return None
    return data
