"""Memory of processes: structures of their runtimes, names and lines of functions.

It may hold anything, and is read by a process that can be left behind
(:mod:`hpcd.daemon.access.target_reader`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from hpcd.daemon.access import target_reader
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.access.user_accounts import UserAccounts

_Entry = TypeVar("_Entry")
Pieces = Sequence[tuple[int, int]]
ReadMemory = Callable[[Pieces], list[bytes | None]]
"""Reads pieces (address, size) of a process's memory, each as far as it goes; None: not at all."""

AT_ONCE = 256
"""Functions or pieces of code that are read at a time, at most."""
_FIRST_ADDRESS, _END = 4096, 1 << 47


def is_address(value: int) -> bool:
    """Return whether a program can have memory at ``value``."""
    return _FIRST_ADDRESS <= value < _END


def read_memory(pid: int, pieces: Pieces) -> list[bytes | None]:
    """Read pieces of memory. Raises :class:`OSError`, :class:`WithheldError`."""
    return target_reader.OWN.memory(pid, pieces)


def reader_of(pid: int) -> ReadMemory:
    """Return :func:`read_memory` of one process."""
    return partial(read_memory, pid)


def read_in_batches(
    accounts: UserAccounts,
    user: int,
    addresses: Sequence[int],
    read_some: Callable[[Sequence[int]], _Entry],
) -> Iterator[_Entry]:
    """Yield what ``read_some`` returns for each :data:`AT_ONCE` of ``addresses``, until the memory
    cannot be read or the CPU time of ``user`` for reading is spent."""
    for first in range(0, len(addresses), AT_ONCE):
        if not accounts.may_read(user):
            return
        began = time.thread_time()
        try:
            entry = read_some(addresses[first : first + AT_ONCE])
        except (OSError, WithheldError):
            return
        finally:
            accounts.spend(user, time.thread_time() - began)
        yield entry
