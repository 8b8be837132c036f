"""Names of frames in code made at run time, of a process that has ended."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hpcd.daemon.naming.jit_naming import JitNaming
from hpcd.daemon.naming.load_modules import Modules
from hpcd.daemon.naming.module_mappings import ModuleMappings
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.daemon.unwind.table_cache import TableCache
from hpcd.model.frame import module_frame

_EXECUTABLE = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC


def _jitdump(address: int, name: str) -> bytes:
    """A file that says that there are 16 bytes of a function at ``address``."""
    body = struct.pack("<IIQQQQ", 1, 1, address, address, 16, 1) + name.encode() + bytes(17)
    header = struct.pack("<IIIIIIQQ", 0x4A695444, 1, 40, 62, 0, 1, 0, 0)
    return header + struct.pack("<IIQ", 0, 16 + len(body), 7) + body


def test_a_jitdump_file_that_is_mapped_after_code_was_seen_names_it(tmp_path: Path) -> None:
    """A compiler maps its code first: the process may be looked at between both."""
    dump = tmp_path / "jit-1.dump"
    modules = Modules(Decoder(TableCache(tmp_path)), lambda module: None)
    mappings = ModuleMappings(modules)
    named: list[tuple[int, int, str]] = []
    writer: Any = SimpleNamespace(add_symbols=lambda module, rows, since: named.extend(rows))
    naming = JitNaming(modules, lambda number: (os.getpid(), os.getuid()), writer)
    try:
        with mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE, _EXECUTABLE) as code:
            start = np.frombuffer(code, np.uint8).ctypes.data
            mappings.mappings(os.getpid(), 1)
            naming.hold_files()
            dump.write_bytes(_jitdump(start, "made"))
            with dump.open() as file:
                flags, protection = mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC
                with mmap.mmap(file.fileno(), dump.stat().st_size, flags, protection):
                    mappings.mappings(os.getpid(), 1)
                    naming.hold_files()
        # Neither is mapped any more, as of a process that has ended.
        module = next(m for m in modules.jit_modules if 0 <= start - m.base < 1 << 40)
        naming.name_frames(np.array([0, module_frame(module.id, start - module.base)], np.uint64))
        assert named == [(start - module.base, 16, "made")]
    finally:
        naming.close()
        modules.close()
