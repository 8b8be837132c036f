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
from hpcd.daemon.access.file_status import cached_status
from hpcd.daemon.unwind.kept_tables import table_store, version_of
from hpcd.model.region import Region

_ADDRESS, _NO_USER = (1 << 64) - 1, (1 << 32) - 1
_BETWEEN = "\0"
# Of the kernel's device numbers (include/linux/kdev_t.h).
_MINOR_BITS = 20
_MOST_KEPT = 64
# The kind of the file in the store; its name changes with the structure that is kept.
_KIND, _NAME = "pythons", f"{crc32(' '.join(wire.Python.NAMES).encode()):x}"


class PythonProgram(NamedTuple):
    """``key`` is its ``struct python_program``, ``entry`` its ``struct python`` with addresses from
    the begin of the program's code on, or of the interpreter's library; ``paths`` are those of the
    program and of the library, as its processes see them."""

    key: bytes
    entry: bytes
    paths: tuple[str, ...]

    @classmethod
    def of(
        cls, program: Region, user: int, entry: wire.Python, region: Region, code: int
    ) -> PythonProgram:
        """Return the program that a process of ``user``, which has ``entry``, has mapped at
        ``program``; its interpreter's code is mapped at ``region``, and begins at ``code``."""
        shared = (program.device, program.inode) != (region.device, region.inode)
        base = region.start - region.offset if shared else code
        key = wire.PythonProgram(
            inode=program.inode, device=_number_of(program.device), user=user & _NO_USER
        )
        moved = ["interpreters"]
        if entry.anchor != PythonAnchor.COUNTED:  # else they are no addresses
            moved += ["unset_begin", "unset_end"]
        if entry.gil:
            moved.append("gil")
        fields = {name: getattr(entry, name) - base & _ADDRESS for name in moved}
        if shared:
            fields |= {"library": region.inode, "library_device": _number_of(region.device)}
        paths = (program.path, region.path) if shared else (program.path,)
        return cls(key.pack(), wire.Python.replaced(entry.pack(), **fields), paths)

    @property
    def version(self) -> str:
        """Identifies the files in their present state, "" if a path leads to another file, as it
        may for processes of a container, or the entry is good for this recording only. Raises
        :class:`OSError` where a path has not been looked up lately."""
        key, entry = wire.PythonProgram.unpack(self.key), wire.Python.unpack(self.entry)
        files = [(key.inode, key.device), (entry.library, entry.library_device)]
        versions = []
        for path, file in zip(self.paths, files, strict=False):
            status = cached_status(path)
            device = os.major(status.st_dev) << _MINOR_BITS | os.minor(status.st_dev)
            if file != (status.st_ino, device) or entry.anchor == PythonAnchor.COUNTED:
                return ""
            versions.append(version_of(status))
        return "+".join(versions)


def _number_of(device: str) -> int:
    """The kernel's number of a device as a mapping has it."""
    major, minor = (int(part, 16) for part in device.split(":"))
    return major << _MINOR_BITS | minor


class KnownPythons:
    """The programs of earlier recordings whose files have not changed since."""

    def __init__(self, directory: Path | None = None) -> None:
        self._store = table_store(directory)

    def load(self) -> Iterator[PythonProgram]:
        """Read them; takes a millisecond."""
        kept = self._store.load(str(os.geteuid()), _NAME, _KIND)
        for line in os.fsdecode(kept or b"").split("\n")[:_MOST_KEPT]:
            with contextlib.suppress(OSError, ValueError, struct.error):
                version, key, entry, paths = line.split(" ", 3)
                names = tuple(paths.split(_BETWEEN))
                program = PythonProgram(bytes.fromhex(key), bytes.fromhex(entry), names)
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
                version, paths = program.version, _BETWEEN.join(program.paths)
                if version and "\n" not in paths:
                    lines.append(f"{version} {program.key.hex()} {program.entry.hex()} {paths}")
        text = "\n".join(lines[:_MOST_KEPT])
        self._store.store(str(os.geteuid()), _NAME, _KIND, os.fsencode(text))
