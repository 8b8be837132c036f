"""Accounts of what each user's programs take of a recording: they cost no other user anything."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable

from hpcd.bpf.wire import BLOCK_BYTES
from hpcd.daemon.access.token_bucket import TokenBucket

TABLE_BYTES = 512 << 20
"""Table memory of one user's load modules and mappings. All programs of a busy node take 100 MB."""
# Load modules of one user's processes, each kept and announced for good.
_MOST_MODULES = 20_000
# Unwind rules that no module had before, of the 65,536 there are: chromium has 717.
_MOST_RULES = 1 << 14
# CPU time that reading one user's mappings may take: this share, and at most this time saved up. A
# process of 65,530 mappings takes 0.3 s each time it maps something; one of 100 takes 1 ms.
_READING_SHARE = 1 / 4
_READING_BURST = 5.0


class UserAccounts:
    """Limits by user (uid) of the work for their processes. Root has none."""

    def __init__(
        self, table_bytes: int = TABLE_BYTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table_bytes = table_bytes
        self._clock = clock
        self._blocks: Counter[int] = Counter()
        self._modules: Counter[int] = Counter()
        self._rules: Counter[int] = Counter()
        self._reading: defaultdict[int, TokenBucket] = defaultdict(
            lambda: TokenBucket(_READING_SHARE, _READING_BURST / _READING_SHARE, clock())
        )
        self.refused: dict[str, str] = {}
        """Refused work: of which user, and why."""

    def take_blocks(self, user: int, count: int, what: str) -> bool:
        """Count ``count`` blocks of table memory for ``what`` as taken; False: there is no room."""
        if user and (self._blocks[user] + count) * BLOCK_BYTES > self._table_bytes:
            self.refused[f"{what} of user {user}"] = self.why(user)
            return False
        self._blocks[user] += count
        return True

    def give_blocks(self, user: int, count: int) -> None:
        """Count ``count`` blocks of table memory as free again."""
        self._blocks[user] -= count

    def why(self, user: int) -> str:
        """Return why table memory was refused."""
        return f"the programs of user {user} take more than {self._table_bytes >> 20} MiB of tables"

    def take_module(self, user: int) -> bool:
        """Count one more load module; False: it stays unknown."""
        return self._take(self._modules, user, _MOST_MODULES, "load modules")

    def take_rule(self, user: int) -> bool:
        """Count one more unwind rule; False: it counts as unsupported."""
        return self._take(self._rules, user, _MOST_RULES, "unwind rules")

    def _take(self, taken: Counter[int], user: int, most: int, what: str) -> bool:
        if user and taken[user] >= most:
            self.refused[f"{what} of user {user}"] = f"more than {most:,}"
            return False
        taken[user] += 1
        return True

    def may_read(self, user: int) -> bool:
        """Whether mappings of a process of ``user`` may be read now; later they may."""
        return not user or self._reading[user].delay(self._clock()) <= 0

    def spend(self, user: int, cpu_seconds: float) -> None:
        """Reading such mappings took this long."""
        if user:
            self._reading[user].spend(self._clock(), cpu_seconds)
