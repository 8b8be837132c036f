"""Words of a process' memory, read through /proc: no thread is stopped, and no word is guessed."""

from __future__ import annotations

import os

from hpcd.daemon.targets import patience
from hpcd.daemon.targets.patience import WithheldError

# Of lists that system calls are given: a select() of every descriptor, a poll() of a thousand.
_MOST_BYTES = 1 << 14


class TargetMemory:
    """The memory of processes. Raises nothing: what cannot be read is None."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}

    def read(self, pid: int, address: int, size: int) -> bytes | None:
        """``size`` bytes from ``address`` on, all or none."""
        if not 0 < address < 1 << 56 or not 0 < size <= _MOST_BYTES:
            return None
        try:
            if pid in self._files:
                data = os.pread(self._files[pid], size, address)
            else:
                # Who answers once is not asked by way of a thread again: that takes 50 us.
                data = patience.ask(pid, lambda: os.pread(self._open(pid), size, address))
        except (OSError, WithheldError):
            return None
        return data if len(data) == size else None

    def read_some(self, pid: int, address: int, size: int) -> bytes:
        """Up to ``size`` bytes, a page at least as far as there is memory; else none."""
        try:
            if pid in self._files:
                return os.pread(self._files[pid], size, address)
            return patience.ask(pid, lambda: os.pread(self._open(pid), size, address))
        except (OSError, OverflowError, WithheldError):
            return b""

    def word(self, pid: int, address: int) -> int | None:
        """The 32-bit word at ``address``."""
        data = self.read(pid, address, 4)
        return None if data is None else int.from_bytes(data, "little")

    def _open(self, pid: int) -> int:
        self._files[pid] = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        return self._files[pid]

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
