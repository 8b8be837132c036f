"""The protocol of objects that keep the names of functions of runtimes."""

from __future__ import annotations

from typing import Protocol


class SymbolSink(Protocol):
    """Keeps the names of functions."""

    def add_symbols(self, module: int, symbols: list[tuple[int, int, str]], /) -> None:
        """``module`` has these functions: start, size, name."""
