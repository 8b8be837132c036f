"""The unwind rules of all modules of a recording, each once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from hpcd.bpf.map_sizes import MAX_RULES
from hpcd.daemon.unwind.unwind_rules import RULE_DTYPE, CfaKind


class InternedRules:
    """Unwind rules interned over all modules; the kernel's rows hold 16-bit indices of them."""

    def __init__(self) -> None:
        self._rows = np.zeros(2, dtype=RULE_DTYPE)
        self._rows["cfa_kind"] = CfaKind.NONE, CfaKind.UNSUPPORTED
        self._index = {row.tobytes(): i for i, row in enumerate(self._rows)}
        self._stored = 0

    def intern(
        self, rules: npt.NDArray[np.void], may_add: Callable[[], bool] = lambda: True
    ) -> npt.NDArray[np.uint16]:
        """Return the index of each of ``rules``, u16[n + 1]; the last is that of what lies before a
        module's first row.

        New ones beyond 65,536, or that ``may_add`` refuses, get the index of "unsupported".
        """
        fresh: list[bytes] = []
        result = np.ones(len(rules) + 1, dtype=np.uint16)
        result[-1] = 0
        for position, row in enumerate(rules):
            key = row.tobytes()
            index = self._index.get(key)
            if index is None and len(self._index) < MAX_RULES and may_add():
                index = self._index[key] = len(self._index)
                fresh.append(key)
            if index is not None:
                result[position] = index
        if fresh:
            added = np.frombuffer(b"".join(fresh), dtype=RULE_DTYPE)
            self._rows = np.concatenate([self._rows, added])
        return result

    def store(self, write: Callable[[int, npt.NDArray[np.void]], None]) -> None:
        """Write the rules not yet written, by ``write(index of the first, rules)``."""
        if self._stored < len(self._rows):
            write(self._stored, self._rows[self._stored :])
            self._stored = len(self._rows)
