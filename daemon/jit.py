"""Names for code made at run time: /tmp/perf-PID.map and jitdump files.

Both are written by the target's own runtime, so they are bounded text of an untrusted user, read
only when they belong to the user who runs the process. Formats: jit-interface.txt and
jitdump-specification.txt in the kernel's tools/perf/Documentation.
"""

from __future__ import annotations

import os
import re
import stat
import struct

import numpy as np
import numpy.typing as npt

from hpcd.daemon.processes import executable_regions

Symbols = list[tuple[int, int, str]]
"""(address, size, name), any order; of two at one address the later one holds."""

_MAX_BYTES = 64 << 20
_MAX_NAME = 512
_MAX_HELD = 128
_MAX_DUMPS = 4
_JITDUMP = re.compile(r"/jit-\d+\.dump$")
_MAGIC = 0x4A695444  # "JiTD"
_CODE_LOAD, _CODE_MOVE = 0, 1


class JitFiles:
    """The files in which runtimes name their code, held on to: a Java machine writes its map when
    it ends, and then nothing of the process is left to find it by.

    At most :data:`_MAX_HELD` processes; of more the one looked at least recently is let go.
    """

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def symbols(self, number: int, pid: int, uid: int) -> Symbols:
        """What the runtime of a process says of the code it made; may be empty. ``number`` is the
        process's in the recording, which unlike ``pid`` is never given again; ``uid`` runs it."""
        held = self._held.pop(number, None) or _Held(pid)
        self._held[number] = held
        while len(self._held) > _MAX_HELD:
            self._held.pop(next(iter(self._held))).close()
        return held.symbols(uid)

    def close(self) -> None:
        """Let go of all."""
        for held in self._held.values():
            held.close()
        self._held.clear()


class _Held:
    """One process's folder of maps and its jitdump files."""

    def __init__(self, pid: int) -> None:
        self._name = f"perf-{_inner_pid(pid)}.map"
        self._pid = pid
        self._dumps: dict[tuple[str, int], int] = {}
        try:
            self._folder = os.open(f"/proc/{pid}/root/tmp", os.O_PATH | os.O_CLOEXEC)
        except OSError:
            self._folder = -1

    def symbols(self, uid: int) -> Symbols:
        symbols: Symbols = []
        if self._folder >= 0:
            symbols += parse_perf_map(_read(self._name, uid, folder=self._folder))
        for region in executable_regions(self._pid):
            key = (region.device, region.inode)
            if _JITDUMP.search(region.path) and key not in self._dumps:
                path = f"/proc/{self._pid}/map_files/{region.start:x}-{region.end:x}"
                fd = _open(path, uid, follow=True) if len(self._dumps) < _MAX_DUMPS else -1
                if fd >= 0:
                    self._dumps[key] = fd
        for fd in self._dumps.values():
            symbols += parse_jitdump(os.pread(fd, _MAX_BYTES, 0))
        return symbols

    def close(self) -> None:
        for fd in (*self._dumps.values(), self._folder):
            if fd >= 0:
                os.close(fd)


def parse_perf_map(data: bytes) -> Symbols:
    """Lines of ``start size name``, hexadecimal; what is none is left out."""
    symbols: Symbols = []
    for line in data.split(b"\n"):
        parts = line.split(None, 2)
        if len(parts) < 3:
            continue
        try:
            start, size = int(parts[0], 16), int(parts[1], 16)
        except ValueError:
            continue
        if 0 <= start < 1 << 56 and 0 < size < 1 << 32:
            symbols.append((start, size, parts[2][:_MAX_NAME].decode(errors="replace").strip()))
    return symbols


def parse_jitdump(data: bytes) -> Symbols:
    """Code loads of a jitdump file, moves applied; ends at the first record that makes no sense."""
    if len(data) < 16:
        return []
    magic, _, header_size = struct.unpack_from("<III", data)
    if magic != _MAGIC or header_size < 40:
        return []
    by_index: dict[int, tuple[int, int, str]] = {}
    at = header_size
    while at + 16 <= len(data):
        kind, size, _ = struct.unpack_from("<IIQ", data, at)
        if size < 16 or at + size > len(data):
            break
        if kind == _CODE_LOAD and size >= 57:
            _, _, _, address, length, index = struct.unpack_from("<IIQQQQ", data, at + 16)
            end = data.find(b"\0", at + 56, min(at + size, at + 56 + _MAX_NAME))
            if end > 0 and address < 1 << 56 and 0 < length < 1 << 32:
                name = data[at + 56 : end].decode(errors="replace")
                by_index[index] = (address, length, name)
        elif kind == _CODE_MOVE and size >= 64:
            _, _, _, _, address, length, index = struct.unpack_from("<IIQQQQQ", data, at + 16)
            if index in by_index and address < 1 << 56 and 0 < length < 1 << 32:
                by_index[index] = (address, length, by_index[index][2])
        at += size
    return list(by_index.values())


def named(symbols: Symbols, addresses: npt.NDArray[np.uint64]) -> Symbols:
    """The symbols that hold any of ``addresses``, each once. O((n + m) log n)."""
    if not symbols or not len(addresses):
        return []
    latest = {start: (start, size, name) for start, size, name in symbols}
    ordered = [latest[start] for start in sorted(latest)]
    starts = np.array([start for start, _, _ in ordered], np.uint64)
    at = np.searchsorted(starts, addresses, "right").astype(np.int64) - 1
    found = []
    for index, address in zip(at.tolist(), addresses.tolist(), strict=True):
        if index >= 0 and address < ordered[index][0] + ordered[index][1]:
            found.append(index)
    return [ordered[index] for index in sorted(set(found))]


def _inner_pid(pid: int) -> int:
    """The pid the process knows itself by, which names its files."""
    try:
        with open(f"/proc/{pid}/status") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("NSpid:"):
                    return int(line.split()[-1])
    except (OSError, ValueError):
        pass
    return pid


def _open(path: str, uid: int, *, folder: int | None = None, follow: bool = False) -> int:
    """A regular file of ``uid`` or root, opened to read; -1 when it is anything else."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return -1
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid in (uid, 0):
        return fd
    os.close(fd)
    return -1


def _read(path: str, uid: int, *, folder: int) -> bytes:
    """At most 64 MiB of a file in a folder; empty when it is none of ``uid``'s."""
    fd = _open(path, uid, folder=folder)
    if fd < 0:
        return b""
    with os.fdopen(fd, "rb") as file:
        return file.read(_MAX_BYTES)
