"""Unwind tables on their way from the decoder into the kernel's table memory."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from hpcd.bpf.table_memory import UnwindTables
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.naming.mapping_rows import KnownModule
from hpcd.daemon.unwind.decode_queue import DecodeQueue
from hpcd.daemon.unwind.unwind_rules import InternedRules
from hpcd.elf.elf_reader import NOT_ELF
from hpcd.errors import HpcdError
from hpcd.model.identity import Module

# The rings are looked at between.
_STEP_SECONDS = 0.01
# Beyond that the decoder is stuck, or makes the table of a large file.
_DECODER_START_SECONDS = 5.0


class TableInstaller:
    """Has tables of modules made by ``queue``, and puts them into table memory.

    ``announce`` is called with each module whose file has been read.
    """

    def __init__(
        self, queue: DecodeQueue, accounts: UserAccounts, announce: Callable[[Module], None]
    ) -> None:
        self._queue = queue
        self._accounts = accounts
        self._announce = announce
        self._rules = InternedRules()
        self._waiting: list[KnownModule] = []
        self._tables: UnwindTables | None = None
        self._write_rules: Callable[[int, npt.NDArray[np.void]], None] = lambda *_: None
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Event descriptor, readable when a table has arrived that :meth:`install` has not taken
        yet."""
        self._closing = threading.Lock()

    def connect(
        self, tables: UnwindTables, write_rules: Callable[[int, npt.NDArray[np.void]], None]
    ) -> None:
        """Put tables into ``tables`` from now on, and their rules where ``write_rules`` does."""
        self._tables, self._write_rules = tables, write_rules

    def submit(self, entry: KnownModule, fd: int, path: str) -> None:
        """Request the table of a module, of the file open at ``fd``, which is closed then."""
        entry.future = self._queue.submit(entry.user, fd, path)
        entry.future.add_done_callback(lambda _: self._signal())
        self._waiting.append(entry)

    def _signal(self) -> None:
        with self._closing:  # a table may arrive until the queue is closed
            if self.ready >= 0:
                os.eventfd_write(self.ready, 1)

    @property
    def pending(self) -> int:
        """Number of files whose tables are not in table memory yet."""
        return len(self._waiting)

    @property
    def slow(self) -> int:
        """Number of modules whose tables are not kept from an earlier recording."""
        return self._queue.slow

    def install_within(self, seconds: float) -> None:
        """Install tables as the decoder finishes them, for up to ``seconds`` from the first on: on
        a busy machine the decoder itself takes a while to start."""
        self.install_next(_DECODER_START_SECONDS)
        end = time.monotonic() + seconds
        while self._waiting and (left := end - time.monotonic()) > 0:
            self.install_next(left)

    def install_kept(self, seconds: float) -> None:
        """Install tables for up to ``seconds``, but wait for none that must be made."""
        end = time.monotonic() + seconds
        while self.pending > self.slow and (left := end - time.monotonic()) > 0:
            self.install_next(left)

    def install_next(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the next table; False if none is being made, or none came."""
        pending = [entry.future for entry in self._waiting if entry.future]
        if not pending:
            return False
        wait(pending, seconds, FIRST_COMPLETED)
        return self.install()

    def install(self) -> bool:
        """Install finished tables; True if there were any. Of many some are left for the next call,
        :data:`_STEP_SECONDS` later."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.ready)
        done = [entry for entry in self._waiting if entry.future and entry.future.done()]
        end = time.monotonic() + _STEP_SECONDS
        for entry in done:
            if time.monotonic() > end:
                self._signal()
                break
            self._waiting.remove(entry)
            self._install(entry)
        return bool(done)

    def _install(self, entry: KnownModule) -> None:
        assert entry.future is not None and self._tables is not None
        try:
            table = entry.future.result()
        except HpcdError as error:
            entry.failure = str(error)
            entry.undecodable = not entry.failure.endswith(NOT_ELF)
            self._announce(entry.module)
            return
        finally:
            entry.future = None
        entry.module = replace(entry.module, build_id=table.build_id)
        self._announce(entry.module)
        if not self._accounts.take_blocks(entry.user, table.rows.blocks, "tables"):
            entry.failure = self._accounts.why(entry.user)
            entry.undecodable = True
            return
        entry.table = table.without_rows()
        rules = self._rules.intern(table.rules, partial(self._accounts.take_rule, entry.user))
        self._rules.store(self._write_rules)
        entry.placed = self._tables.add_module(table.rows, rules)

    def close(self) -> None:
        """Take no more tables."""
        with self._closing:
            ready, self.ready = self.ready, -1
        os.close(ready)
