"""Programs that were recognised as CPython, in this recording or an earlier one: the BPF programs
take the Python frames of their processes from the exec on, before user space has seen them."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from hpcd.bpf import wire
from hpcd.bpf.wire import PythonAnchor
from hpcd.daemon.unwind.kept_tables import table_store, version_of
from hpcd.model.region import Region

_ADDRESS, _NO_USER = (1 << 64) - 1, (1 << 32) - 1
# Of the kernel's device numbers (include/linux/kdev_t.h).
_MINOR_BITS = 20
_MOST_KEPT = 64
# The kind of the file in the store; its name changes with the structure that is kept.
_KIND, _NAME = "pythons", f"{crc32(' '.join(wire.Python.NAMES).encode()):x}"


class PythonProgram(NamedTuple):
    """``key`` is its ``struct python_program``, ``entry`` its ``struct python`` with addresses from
    the begin of its code on; ``path`` is as its processes see it."""

    key: bytes
    entry: bytes
    path: str

    @classmethod
    def of(cls, region: Region, user: int, entry: wire.Python, code: int) -> PythonProgram:
        """Return the program whose code begins at ``code``, mapped at ``region`` by a process of
        ``user`` that has ``entry``."""
        major, minor = (int(part, 16) for part in region.device.split(":"))
        key = wire.PythonProgram(
            inode=region.inode, device=major << _MINOR_BITS | minor, user=user & _NO_USER
        )
        moved = ["interpreters"]
        if entry.anchor != PythonAnchor.COUNTED:  # else they are no addresses
            moved += ["unset_begin", "unset_end"]
        if entry.gil:
            moved.append("gil")
        relative = {name: getattr(entry, name) - code & _ADDRESS for name in moved}
        return cls(key.pack(), wire.Python.replaced(entry.pack(), **relative), region.path)

    @property
    def version(self) -> str:
        """Identifies the file in its present state, "" if the path leads to another file, as it may
        for who is in another container, or the entry is good for this recording only."""
        status = os.stat(self.path)  # noqa: PTH116
        device = os.major(status.st_dev) << _MINOR_BITS | os.minor(status.st_dev)
        key, entry = wire.PythonProgram.unpack(self.key), wire.Python.unpack(self.entry)
        same = (key.inode, key.device) == (status.st_ino, device)
        return version_of(status) if same and entry.anchor != PythonAnchor.COUNTED else ""


class KnownPythons:
    """The programs of earlier recordings whose files have not changed since."""

    def __init__(self, directory: Path | None = None) -> None:
        self._store = table_store(directory)

    def load(self) -> Iterator[PythonProgram]:
        """Read them; takes a millisecond."""
        kept = self._store.load(str(os.geteuid()), _NAME, _KIND)
        for line in os.fsdecode(kept or b"").split("\n")[:_MOST_KEPT]:
            with contextlib.suppress(OSError, ValueError, struct.error):
                version, key, entry, path = line.split(" ", 3)
                program = PythonProgram(bytes.fromhex(key), bytes.fromhex(entry), path)
                if version and version == program.version:
                    yield program

    def remember(self, programs: Iterable[PythonProgram]) -> None:
        """Add ``programs``."""
        known = {program.key: program for program in programs}
        before = {program.key: program for program in self.load()}
        if known.items() <= before.items():
            return
        known = known | {key: before[key] for key in before.keys() - known.keys()}
        lines = []
        for program in known.values():
            with contextlib.suppress(OSError, ValueError):
                version, name = program.version, program.path
                if version and "\n" not in name:
                    lines.append(f"{version} {program.key.hex()} {program.entry.hex()} {name}")
        text = "\n".join(lines[:_MOST_KEPT])
        self._store.store(str(os.geteuid()), _NAME, _KIND, os.fsencode(text))
