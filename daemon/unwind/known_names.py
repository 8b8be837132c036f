"""Names of functions that were found in a module by earlier recordings: the decoder, which would
have to look them up again, takes longer to start than many programs run."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence

import numpy as np

from hpcd.array_types import U64
from hpcd.daemon.unwind.symbol_names import FoundSymbol, SymbolRow

# Bound on names of one module; further ones are not added.
_MOST = 20_000


class KnownNames:
    """Functions by address, and addresses outside all of them."""

    def __init__(self, data: bytes = b"") -> None:
        """Restore the result of :meth:`pack`; damaged data are ignored."""
        self._found: dict[int, FoundSymbol] = {}
        self._nameless: set[int] = set()
        try:
            kept = json.loads(data or b"[[], []]")
            for start, size, name, alone in kept[0]:
                self._found[int(start)] = int(start), int(size), str(name), int(alone)
            self._nameless.update(int(address) for address in kept[1])
        except (ValueError, TypeError, LookupError, RecursionError):
            self._found.clear()
            self._nameless.clear()

    def find(self, addresses: U64) -> tuple[list[SymbolRow], U64]:
        """The functions that hold ``addresses`` u64[n], sorted, and the addresses that have yet to
        be requested."""
        starts = sorted(self._found)
        rows: dict[int, SymbolRow] = {}
        missing = []
        for address in addresses.tolist():
            at = bisect.bisect_right(starts, address) - 1
            symbol = self._found[starts[at]] if at >= 0 else None
            if symbol and address - symbol[0] < symbol[3]:
                rows[symbol[0]] = symbol[:3]
            elif address not in self._nameless:
                missing.append(address)
        return [rows[start] for start in sorted(rows)], np.array(missing, np.uint64)

    def add(self, addresses: U64, symbols: Sequence[FoundSymbol]) -> bool:
        """Take the ``symbols`` found for ``addresses``; return False when there is no room."""
        if len(self._found) + len(self._nameless) + len(addresses) > _MOST:
            return False
        self._found |= {symbol[0]: symbol for symbol in symbols}
        named = KnownNames()
        named._found = {symbol[0]: (*symbol[:3], symbol[1]) for symbol in symbols}
        self._nameless.update(named.find(addresses)[1].tolist())
        return True

    def pack(self) -> bytes:
        """As bytes."""
        return json.dumps([list(self._found.values()), sorted(self._nameless)]).encode()
