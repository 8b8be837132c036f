"""The kernel's own symbols, kept from one recording to the next until the machine starts again.

To read them all takes 0.1 s, for which a recording of a short program would wait at its end.
"""

from __future__ import annotations

import os
from pathlib import Path

from hpcd.bpf.loading.cache_directory import cache_directory
from hpcd.daemon.naming.kernel_symbols import KernelSymbols
from hpcd.sandbox.file_cache import FileStore

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_KIND = "symbols1"
# A kernel has 2 MB of them, and a machine may be started often.
_LIMIT_BYTES = 16 << 20


class KernelSymbolStore:
    """Where they are kept: a file a boot, in ``directory`` (default: the cache's)."""

    def __init__(self, directory: Path | None = None) -> None:
        self._files = FileStore((directory or cache_directory()) / "kernel", _LIMIT_BYTES)
        self._boot = _BOOT.read_text(encoding="ascii").strip()
        self._user = str(os.geteuid())

    def load(self) -> KernelSymbols | None:
        """What is kept, without what the kernel has loaded; None when there is nothing."""
        packed = self._files.load(self._user, self._boot, _KIND)
        return KernelSymbols.from_packed_core(packed) if packed else None

    def read(self) -> KernelSymbols:
        """All that the kernel has now. Its own are kept."""
        core = self.load()
        symbols = KernelSymbols(core=core)
        if core is None and (packed := symbols.packed_core()):
            self._files.store(self._user, self._boot, _KIND, packed)
        return symbols
