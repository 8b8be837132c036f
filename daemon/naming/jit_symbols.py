"""Names for code made at run time: /tmp/perf-PID.map and jitdump files.

Both are written by the target's own runtime, so they are bounded text of an untrusted user, read
only when they belong to the user who runs the process, or to root and all may read them, and a part
at a time: what a user has written costs that user's names. They are not opened here but read by a
process that can be left behind (:mod:`hpcd.daemon.access.target_reader`). Formats:
jit-interface.txt and jitdump-specification.txt in the kernel's tools/perf/Documentation.

A runtime uses addresses again, so a symbol holds from some time on: in jitdump that of its record,
in a map, which has no times, that of the write that was seen first to have brought its line.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import struct
import time
from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np

from hpcd.array_types import I64, U64
from hpcd.daemon.access import patience, target_reader
from hpcd.daemon.access.file_status import FileStatus, status_of
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.access.processes import executable_regions
from hpcd.daemon.access.target_files import Pin, open_root, pinned, require_pinned
from hpcd.distinct import are_among, distinct
from hpcd.process_status import status_field

Symbols = list[tuple[int, int, str, int]]
"""(address, size, name, monotonic ns since when it holds), any order."""


_MAX_BYTES = 64 << 20
# Read at a time, of all files of a user: a fifth of a second when its lines are as short as can be.
ROUND_BYTES = 1 << 20
# A line of a map that lies across the border of two parts is in both.
_OVERLAP = 2048
_MAX_NAME = 512
_MAX_HELD = 128
_MAX_DUMPS = 4
# Symbols of jitdump files that are kept, of all processes of a user.
_MAX_SYMBOLS = 200_000
_JITDUMP = re.compile(r"/jit-\d+\.dump$")
_MAGIC = 0x4A695444  # "JiTD"
_CODE_LOAD, _CODE_MOVE = 0, 1
# A flag of its header: times are the processor's, not CLOCK_MONOTONIC's.
_OWN_CLOCK = 1
# Growths of a file that are kept. Of more, every other one is forgotten.
_MAX_WRITES = 4096
# The head of a record and a name.
_MAX_RECORD = 64 + _MAX_NAME


def is_jitdump(path: str) -> bool:
    """Whether a file with this path is named as jitdump files are."""
    return bool(_JITDUMP.search(path))


class JitFiles:
    """The files in which runtimes name their code. They are kept pinned, because a Java machine
    writes its map when it ends, and the process can no longer be found then.

    Files of at most :data:`_MAX_HELD` processes, the least recently read ones are closed.
    """

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}
        self._allowances: dict[int, _Allowance] = {}
        self._limit = ROUND_BYTES

    def new_round(self, limit: int = ROUND_BYTES) -> None:
        """Allow each user's files ``limit`` bytes until the next round."""
        for allowance in self._allowances.values():
            allowance.left = limit
        self._limit = limit

    def hold(self, number: int, pid: int, uid: int) -> None:
        """Open the folder of a process's map, and its jitdump files: once the process has ended,
        :meth:`symbols` no longer finds them. Arguments as for :meth:`symbols`."""
        self._renew(number, pid, uid)

    def symbols(self, number: int, pid: int, uid: int, addresses: U64) -> Symbols:
        """Symbols that hold any of ``addresses`` (u64[n], ascending), as far as the runtime of a
        process has written them and they have been read: those that were not returned before for
        these addresses, and maybe some that were.

        ``number`` is the process's in the recording, which unlike ``pid`` is never reused; ``uid``
        is its user.
        """
        held = self._renew(number, pid, uid)
        with contextlib.suppress(WithheldError):
            return held.symbols(addresses)
        return []

    def _renew(self, number: int, pid: int, uid: int) -> _Held:
        """Open what a process has by now of these files, and return them."""
        allowance = self._allowances.get(uid)
        if allowance is None:
            allowance = self._allowances[uid] = _Allowance(self._limit)
        held = self._held.pop(number, None) or _Held(pid, uid, allowance)
        self._held[number] = held
        while len(self._held) > _MAX_HELD:
            self._held.pop(next(iter(self._held))).close()
        with contextlib.suppress(WithheldError):
            held.renew(patience.OWN.ask(pid, held.dumps))
        return held

    def close(self) -> None:
        """Close all files."""
        for held in self._held.values():
            held.close()
        self._held.clear()
        target_reader.OWN.close()


class _Allowance:
    """Time that is left of a round for the files of a user."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.symbols = 0

    def take(self, wanted: int) -> int:
        """Bytes that may be read, of those wanted."""
        size = max(min(wanted, self.left), 0)
        self.left -= size
        return size


class _Held:
    """One process's folder of maps and its jitdump files."""

    def __init__(self, pid: int, uid: int, allowance: _Allowance) -> None:
        # In its file system it has the pid that it knows itself by.
        inner = status_field(pid, "NSpid").split() or [str(pid)]
        self._name = f"perf-{inner[-1]}.map"
        self._label = f"names of code of process {pid}"
        self._pid, self._uid, self._allowance = pid, uid, allowance
        self._folder: Pin | None = None
        self._map: _PerfMap | None = None
        self._dumps: dict[tuple[str, int], _JitDump] = {}

    def dumps(self) -> list[tuple[tuple[str, int], Pin]]:
        """Return the jitdump files that are new. The process may hold its address space."""
        files: list[tuple[tuple[str, int], Pin]] = []
        for region in executable_regions(self._pid):
            key = (region.device, region.inode)
            if is_jitdump(region.path) and key not in self._dumps:
                path = f"/proc/{self._pid}/map_files/{region.start:x}-{region.end:x}"
                known = len(self._dumps) + len(files)
                if known <= _MAX_DUMPS:
                    with contextlib.suppress(OSError):
                        files.append((key, self._checked(pinned(path))))
        return files

    def renew(self, dumps: list[tuple[tuple[str, int], Pin]]) -> None:
        """Go on with the files there are now, ``dumps`` and the map."""
        for key, pin in dumps:
            self._dumps.setdefault(key, _JitDump(self._source(pin), self._allowance))
        try:
            if self._folder is None:
                self._folder = self._open_folder()
            folder = self._folder.fileno()
            pin = self._checked(self._open_in(folder, self._name), folder)
        except OSError:
            return
        if self._map is None or not self._map.is_same(pin):
            self._map = _PerfMap(self._source(pin), self._allowance)

    def _open_folder(self) -> Pin:
        root = Pin(open_root(self._pid))
        require_pinned(root.fileno(), self._pid)
        folder = self._open_in(root.fileno(), "tmp")
        require_pinned(folder.fileno(), self._pid)
        return folder

    def _open_in(self, folder: int, name: str) -> Pin:
        return Pin(target_reader.OWN.open_in(self._uid, self._label, folder, name))

    def _checked(self, pin: Pin, folder: int | None = None) -> Pin:
        """``pin`` if it is a regular file of the user's, or one of root's that all may read: who
        writes symbols must not learn by them what else is in a folder. Raises :class:`OSError`."""
        require_pinned(pin.fileno(), self._pid, folder)
        status = status_of(pin.fileno())
        owned = status.st_uid == self._uid or (
            status.st_uid == 0 and bool(status.st_mode & stat.S_IROTH)
        )
        if not owned or not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        return pin

    def _source(self, pin: Pin) -> _Source:
        return _Source(pin, self._uid, self._label)

    def symbols(self, addresses: U64) -> Symbols:
        symbols = self._map.symbols(addresses) if self._map else []
        for dump in self._dumps.values():
            symbols += dump.symbols(addresses)
        return symbols

    def close(self) -> None:
        self._folder = None
        self._map = None
        self._dumps.clear()


class _Source:
    """A file that is not opened, and read by the reader process."""

    def __init__(self, pin: Pin, uid: int, label: str) -> None:
        self._pin, self._uid, self._label = pin, uid, label

    def status(self) -> FileStatus:
        return status_of(self._pin.fileno())

    def read(self, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on; none if it cannot be read. Raises
        :class:`WithheldError`."""
        pin = self._pin.fileno()
        try:
            return target_reader.OWN.part(self._uid, self._label, pin, offset, size)
        except OSError:
            return b""


class _WriteTimes:
    """When the bytes of a file that grows were written, as far as looking at it now and then tells:
    those that one look finds new count as written when the file was written to last."""

    def __init__(self, file: _Source) -> None:
        self._file = file
        self._sizes: list[int] = []
        self._times: list[int] = []
        self._modified = -1
        self.looked = 0
        """When the file was last looked at and had changed, in monotonic ns."""

    def look(self) -> bool:
        """Look at the file. Returns whether it was written anew since, not only added to."""
        status = self._file.status()
        size = min(status.st_size, _MAX_BYTES)
        if status.st_mtime_ns == self._modified and size == self.size:
            return False
        now = time.monotonic_ns()
        earliest = self._times[-1] if self._times else 0
        # The owner of a file may set its time.
        written = min(max(status.st_mtime_ns - time.time_ns() + now, earliest), now)
        anew = size <= self.size and self._modified != -1
        if anew:
            self._sizes, self._times = [], []
        elif len(self._sizes) >= _MAX_WRITES:
            self._sizes, self._times = self._sizes[1::2], self._times[1::2]
        self._modified, self.looked = status.st_mtime_ns, now
        self._sizes.append(size)
        self._times.append(written)
        return anew

    @property
    def size(self) -> int:
        """The bytes of the file at the last look."""
        return self._sizes[-1] if self._sizes else 0

    def at(self, offset: int) -> int:
        """When the byte at ``offset`` was written, in monotonic ns."""
        return self._times[min(bisect_right(self._sizes, offset), len(self._times) - 1)]


class _PerfMap:
    """A map that a runtime writes. None of it is kept: it is read backwards, as the latest line
    holds, and again when there is more of it or other addresses are requested."""

    def __init__(self, file: _Source, allowance: _Allowance) -> None:
        self._file, self._allowance = file, allowance
        self._written = _WriteTimes(file)
        self._begin = self._end = 0
        """What lies between is still to be read."""
        self._read = 0
        """What lies before was read, for the addresses that were requested by then."""
        self._requested = np.zeros(0, np.uint64)
        self._since = -1
        self._open = self._requested
        """Addresses that no line written at this time holds, as far as it is read."""

    def is_same(self, pin: Pin) -> bool:
        status, other = self._file.status(), status_of(pin.fileno())
        return (status.st_dev, status.st_ino) == (other.st_dev, other.st_ino)

    def symbols(self, addresses: U64) -> Symbols:
        if self._written.look():
            self._begin = self._end = self._read = 0
        if self._begin == self._end:
            known = bool(are_among(addresses, self._requested).all())
            self._begin, self._end = self._read if known else 0, self._written.size
            self._read, self._requested, self._since = self._end, addresses, -1
        symbols: Symbols = []
        while part := self._allowance.take(min(self._end - self._begin, ROUND_BYTES)):
            self._end -= part
            at = max(self._end - _OVERLAP, 0)
            data = self._file.read(self._end + part - at, at)
            if at:
                first = data.find(b"\n") + 1
                data, at = data[first:], at + first
            timed = [
                (start, size, name, self._written.at(at + offset))
                for start, size, name, offset in parse_perf_map(data)
            ]
            for since, lines in groupby(reversed(timed), itemgetter(3)):
                symbols += self._latest(list(lines)[::-1], since)
        return symbols

    def _latest(self, symbols: Symbols, since: int) -> Symbols:
        """Return those of ``symbols``, written at one time before those of the last call, that are
        the latest of that time at any of the requested addresses."""
        if since != self._since:
            self._since, self._open = since, self._requested
        holder = holders(symbols, self._open)
        self._open = self._open[holder < 0]
        return [symbols[index] for index in distinct(holder[holder >= 0]).tolist()]


class _JitDump:
    """A jitdump file. Its symbols are kept: records refer to earlier ones."""

    def __init__(self, file: _Source, allowance: _Allowance) -> None:
        self._file, self._allowance = file, allowance
        self._written = _WriteTimes(file)
        self._own_clock = False
        self._at = 0
        self._size = 0
        """Of the file, when there was nothing more in it that could be read."""
        self._by_index: dict[int, tuple[int, int, str]] = {}
        self._symbols: Symbols = []
        self._requested = np.zeros(0, np.uint64)

    def symbols(self, addresses: U64) -> Symbols:
        known = len(self._symbols)
        self._read()
        new = addresses[~are_among(addresses, self._requested)]
        self._requested = addresses
        return holding(self._symbols[known:], addresses) + holding(self._symbols[:known], new)

    def _read(self) -> None:
        self._written.look()
        size = self._written.size
        room = _MAX_SYMBOLS - self._allowance.symbols if size != self._size else 0
        while room > 0 and (part := self._allowance.take(min(size - self._at, ROUND_BYTES))):
            data = self._file.read(part, self._at)
            if not self._at:
                self._at = start = _header_size(data)
                if not start:
                    self._size = size
                    break
                self._own_clock = bool(struct.unpack_from("<Q", data, 32)[0] & _OWN_CLOCK)
                data = data[start:]
            before = len(self._symbols)
            done = read_records(data, self._by_index, self._symbols)
            self._at += done
            written, now = self._written.at(self._at - 1), self._written.looked
            self._symbols[before:] = [
                (start, size, name, written if self._own_clock or since > now else since)
                for start, size, name, since in self._symbols[before:]
            ]
            self._allowance.symbols += len(self._symbols) - before
            room -= len(self._symbols) - before
            if not done:
                self._size = size  # cut off, or makes no sense
                break


def parse_perf_map(data: bytes) -> list[tuple[int, int, str, int]]:
    """Lines of ``start size name``, hexadecimal, with their offsets; other lines are left out."""
    symbols = []
    end = 0
    for line in data.split(b"\n"):
        at, end = end, end + len(line) + 1
        parts = line.split(None, 2)
        if len(parts) < 3:
            continue
        try:
            start, size = int(parts[0], 16), int(parts[1], 16)
        except ValueError:
            continue
        if 0 <= start < 1 << 56 and 0 < size < 1 << 32:
            name = parts[2][:_MAX_NAME].decode(errors="replace").strip()
            symbols.append((start, size, name, at))
    return symbols


def _header_size(data: bytes) -> int:
    """Return the offset of the first record; 0 if this is no jitdump file."""
    if len(data) < 40:
        return 0
    magic, _, size = struct.unpack_from("<III", data)
    return size if magic == _MAGIC and size >= 40 else 0


def read_records(data: bytes, by_index: dict[int, tuple[int, int, str]], symbols: Symbols) -> int:
    """Append the code that whole records of a jitdump file tell of to ``symbols``, with the time of
    the record, and put it into ``by_index``, by the number the runtime gave it; how many bytes
    these were."""
    at = 0
    while at + 16 <= len(data):
        kind, size, since = struct.unpack_from("<IIQ", data, at)
        # What matters of a long record is at its beginning.
        if size < 16 or at + min(size, _MAX_RECORD) > len(data):
            break
        address = length = index = 0
        name = ""
        if kind == _CODE_LOAD and size >= 57:
            _, _, _, address, length, index = struct.unpack_from("<IIQQQQ", data, at + 16)
            end = data.find(b"\0", at + 56, min(at + size, at + 56 + _MAX_NAME))
            name = data[at + 56 : max(end, 0)].decode(errors="replace")
        elif kind == _CODE_MOVE and size >= 64:
            _, _, _, _, address, length, index = struct.unpack_from("<IIQQQQQ", data, at + 16)
            name = by_index.get(index, (0, 0, ""))[2]
        if name and address < 1 << 56 and 0 < length < 1 << 32:
            by_index[index] = (address, length, name)
            symbols.append((address, length, name, since))
        at += size
    return at


def holders(symbols: Symbols, addresses: U64) -> I64:
    """Return the place of the last of ``symbols`` that holds each of ``addresses`` (u64[n],
    ascending), int64[n]; -1 where none does."""
    holder = np.full(len(addresses), -1, np.int64)
    for index, low, high in _spans(symbols, addresses):
        holder[low:high] = index
    return holder


def holding(symbols: Symbols, addresses: U64) -> Symbols:
    """Return those of ``symbols`` that hold any of ``addresses`` (u64[n], ascending)."""
    return [symbols[index] for index, _, _ in _spans(symbols, addresses)]


def _spans(symbols: Symbols, addresses: U64) -> Iterator[tuple[int, int, int]]:
    """Yield the place of each symbol that holds any of ``addresses``, and the bounds of the part of
    ``addresses`` that it holds."""
    if not symbols or not len(addresses):
        return iter(())
    start = np.array([symbol[0] for symbol in symbols], np.uint64)
    size = np.array([symbol[1] for symbol in symbols], np.uint64)
    low, high = np.searchsorted(addresses, start), np.searchsorted(addresses, start + size)
    (some,) = np.nonzero(low < high)
    return zip(some.tolist(), low[some].tolist(), high[some].tolist(), strict=True)
