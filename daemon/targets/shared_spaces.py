"""Address spaces in table memory that several processes are walked in."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hpcd.bpf.table_memory import Space, UnwindTables, space_blocks
from hpcd.daemon.access.user_accounts import UserAccounts

# A thousand times what a walk takes; a hypervisor may hold its CPU up for some of it.
_RETIREMENT_SECONDS = 0.05


@dataclass
class SharedSpace:
    """An address space in table memory; a forked child uses its parent's until it changes."""

    space: Space
    owner: int
    """The user whose account it is on."""
    users: int = 1
    """Number of processes that are walked in it."""


class SharedSpaces:
    """Puts address spaces into table memory, and frees spaces that no process uses any more.

    A walk that began before its process got another space may still read the old one, which
    therefore lives on for :data:`_RETIREMENT_SECONDS` at least.
    """

    def __init__(self, tables: UnwindTables, accounts: UserAccounts) -> None:
        self._tables = tables
        self._accounts = accounts
        self._freed_at = time.monotonic()
        self._retired: list[SharedSpace] = []
        self._retiring: list[SharedSpace] = []

    def add(self, mappings: npt.NDArray[np.void], owner: int) -> SharedSpace | None:
        """Write a space with these :data:`hpcd.bpf.table_memory.MAPPING` rows for one process; None
        if its ``owner`` may have no more."""
        if not self._accounts.take_blocks(owner, space_blocks(len(mappings)), "mappings"):
            return None
        return SharedSpace(self._tables.add_space(mappings), owner)

    def release(self, shared: SharedSpace | None) -> None:
        """A process uses this space no longer."""
        if shared:
            shared.users -= 1
            if not shared.users:
                self._retired.append(shared)

    def free_retired(self) -> None:
        """Free the spaces that no walk can be reading any more. Called once a round."""
        now = time.monotonic()
        if now - self._freed_at < _RETIREMENT_SECONDS:
            return
        self._freed_at = now
        for shared in self._retiring:
            self._tables.blocks.give(shared.space.start, shared.space.blocks)
            self._accounts.give_blocks(shared.owner, shared.space.blocks)
        self._retiring, self._retired = self._retired, []
