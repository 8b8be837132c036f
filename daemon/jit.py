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
_JITDUMP = re.compile(r"/jit-\d+\.dump$")
_MAGIC = 0x4A695444  # "JiTD"
_CODE_LOAD, _CODE_MOVE = 0, 1


def jit_symbols(pid: int, uid: int) -> Symbols:
    """What the runtime of ``pid`` (run by ``uid``) says of the code it made; may be empty."""
    symbols: Symbols = []
    text = _read(f"/proc/{pid}/root/tmp/perf-{_inner_pid(pid)}.map", uid)
    if text:
        symbols += parse_perf_map(text)
    for region in executable_regions(pid):
        if _JITDUMP.search(region.path):
            path = f"/proc/{pid}/map_files/{region.start:x}-{region.end:x}"
            symbols += parse_jitdump(_read(path, uid, follow=True))
    return symbols


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


def _read(path: str, uid: int, *, follow: bool = False) -> bytes:
    """A regular file of ``uid`` or root, at most 64 MiB of it; empty when it is anything else."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (uid, 0):
            return b""
        return file.read(_MAX_BYTES)
