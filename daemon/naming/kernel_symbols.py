"""The running kernel's own symbols, from /proc/kallsyms.

A measurement must not hold raw kernel addresses: they change with every boot. They become frames of
load modules (the kernel, each kernel module) relative to where those begin, with the names kept in
the measurement because nobody else has them.
"""

from __future__ import annotations

import os
import platform
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hpcd.array_types import I64, U32, U64
from hpcd.bpf.loading.kernel_facilities import hides_addresses
from hpcd.cache_directory import cache_directory
from hpcd.elf.elf_reader import gnu_build_id
from hpcd.sandbox.file_cache import FileStore

KERNEL_NAME = "[kernel]"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# The kind of file in the store, and its size: a kernel has 2 MB of symbols, and a machine may be
# started often.
_KIND, _LIMIT_BYTES = "symbols1", 16 << 20
_TEXT = np.isin(np.arange(256), np.frombuffer(b"tTwW", np.uint8))
# A line is an address of 16 digits, a letter and a name, and of a kernel module "\t[module]".
_DIGITS, _NAME_AT = 16, 19
_PIECE_BYTES = 1 << 20
_USUAL = Path("/proc/kallsyms")
# The service's copy, made before it gave up the right to see addresses there.
_COPY = Path("/run/hpcd/kallsyms")

# Labels at the ends of the kernel's own code: behind these are data and, far away, programs that
# the kernel compiled later.
_ENDS = {"_etext", "_einittext"}

# Before the packed symbols: how many there are, and bytes of names.
_HEAD = struct.Struct("<II")

# Of each the innermost first.
_SIGNAL_FUNCTIONS = {
    "x86_64": (
        ("restore_sigcontext", "__do_sys_rt_sigreturn"),
        ("x64_setup_rt_frame", "__setup_rt_frame", "arch_do_signal_or_restart"),  # first since 6.2
    ),
    "aarch64": (
        ("restore_sigframe", "__do_sys_rt_sigreturn"),
        ("setup_return", "setup_rt_frame", "do_signal"),
    ),
}


class KernelSymbols:
    """Text symbols by address. About 0.1 s, half of it the kernel's, and 5 MB to read.

    ``modules`` are the names modules are known by (:data:`KERNEL_NAME` first); ``available`` is
    False where the kernel hides its addresses (``kptr_restrict``): then everything is one module.
    ``whole`` is False of those that are the kernel's own alone, without what it has loaded. Where
    these are known (``core``) the others alone are taken apart, in half the time.
    """

    def __init__(self, path: Path | None = None, core: KernelSymbols | None = None) -> None:
        path = path or (_COPY if hides_addresses(_USUAL) and _ours(_COPY) else _USUAL)
        addresses: list[U64] = [np.zeros(0, np.uint64)]
        owners, starts = [np.zeros(0, np.uint32)], [np.zeros(0, np.uint32)]
        names = bytearray()
        index = {KERNEL_NAME.encode(): 0}
        try:
            # In pieces: read whole, it would stay with the process as 20 MB.
            with path.open("rb") as file:
                rest = b""
                while piece := file.read(_PIECE_BYTES):
                    lines, newline, rest = (rest + piece).rpartition(b"\n")
                    if core and b"\t[" not in lines:
                        continue
                    address, owner, length, text = _parse(lines + newline, index)
                    starts.append((len(names) + np.cumsum(length) - length).astype(np.uint32))
                    addresses.append(address)
                    owners.append(owner)
                    names += text
        except (OSError, ValueError):
            pass  # what has been read up to there is right
        address, owner = np.concatenate(addresses), np.concatenate(owners)
        start = np.concatenate(starts)
        if core:
            loaded = (owner != 0) & (address != 0)
            start += np.uint32(len(core._names))
            names[:0] = core._names
            address = np.append(core._address, address[loaded])
            owner = np.append(core._owner, owner[loaded])
            start = np.append(core._start, start[loaded])
        order = np.argsort(address, kind="stable")
        self.whole = True
        self.modules = [name.decode(errors="replace") for name in index]
        self._set(address[order], owner[order], start[order], bytes(names))

    def _set(self, address: U64, owner: U32, start: U32, names: bytes) -> None:
        """Take symbols in order of their address; ``start`` is where in ``names`` each one's is."""
        self._address, self._owner, self._start, self._names = address, owner, start, names
        self.available = bool(len(self._address)) and bool(self._address[-1])
        # The kernel starts at _text; a module at its lowest symbol.
        self.base: U64 = np.zeros(len(self.modules), dtype=np.uint64)
        if self.available:
            self.base[:] = np.iinfo(np.uint64).max
            np.minimum.at(self.base, self._owner, self._address)
            first = self._at(b"_text")
            if first is not None:
                self.base[0] = self._address[first]
        else:
            self.base[0] = np.uint64(0xFFFFFFFF80000000)

    def packed_core(self) -> bytes:
        """The kernel's own symbols, for :meth:`from_packed_core`: until the machine starts again
        they stay what they are. Nothing where they are not known."""
        own = self._owner == 0
        if not self.available or not own.any():
            return b""
        address, start = self._address[own], self._start[own]
        names = self._names[: self._names.index(b"\0", int(start.max())) + 1]
        head = _HEAD.pack(len(address), len(names))
        return b"".join((head, address.tobytes(), start.tobytes(), names))

    @classmethod
    def from_packed_core(cls, packed: bytes) -> KernelSymbols | None:
        """Return symbols packed by :meth:`packed_core`; None if ``packed`` is anything else."""
        if len(packed) < _HEAD.size:
            return None
        count, size = _HEAD.unpack_from(packed)
        names_at = _HEAD.size + 12 * count
        if not count or len(packed) != names_at + size:
            return None
        symbols = cls.__new__(cls)
        symbols.whole = False
        symbols.modules = [KERNEL_NAME]
        # Copies: else all of ``packed`` would stay, with the names in it once more.
        symbols._set(
            np.frombuffer(packed, np.uint64, count, _HEAD.size).copy(),
            np.zeros(count, np.uint32),
            np.frombuffer(packed, np.uint32, count, _HEAD.size + 8 * count).copy(),
            packed[names_at:],
        )
        return symbols

    def knows(self, address: U64) -> bool:
        """Whether it can tell of all of these where they lie."""
        inside = (address >= self.base[0]) & (address < self._address[-1:].max(initial=0))
        return self.whole or bool(inside.all())

    def _name(self, at: int) -> str:
        start = int(self._start[at])
        return self._names[start : self._names.index(b"\0", start)].decode(errors="replace")

    def _at(self, name: bytes) -> int | None:
        """Index of the first symbol called ``name``."""
        wanted = b"\0" + name + b"\0"
        start = 0 if self._names.startswith(wanted[1:]) else self._names.find(wanted) + 1
        if not start and not self._names.startswith(wanted[1:]):
            return None
        return int(np.flatnonzero(self._start == start)[0])

    def locate(self, address: U64) -> tuple[U32, U64]:
        """Return the module that contains each address (index into ``modules``) and the offset
        there."""
        if not self.available:
            return np.zeros(len(address), np.uint32), address - self.base[0]
        at = np.searchsorted(self._address, address, "right").astype(np.int64) - 1
        owner = np.where(at >= 0, self._owner[np.maximum(at, 0)], np.uint32(0)).astype(np.uint32)
        return owner, address - self.base[owner]

    def range_of(self, name: str) -> tuple[np.uint64, np.uint64]:
        """Return where the kernel function ``name`` begins and ends, (0, 0) if unknown."""
        at = self._at(name.encode()) if self.available else None
        if at is None:
            return np.uint64(0), np.uint64(0)
        start = self._address[at]
        after = int(np.searchsorted(self._address, start, "right"))
        return start, self._address[min(after, len(self._address) - 1)]

    def signal_ranges(self) -> list[tuple[np.uint64, np.uint64]]:
        """The functions that give a thread a signal handler's user registers, or its own again.

        They write them one by one: a clock that fires in between finds those of two places. Where a
        compiler has put such a function into its caller, that is taken. From
        arch/x86/kernel/signal*.c and arch/arm64/kernel/signal.c.
        """
        innermost = []
        for names in _SIGNAL_FUNCTIONS.get(platform.machine(), ()):
            ranges = [self.range_of(name) for name in names]
            innermost += [(start, end) for start, end in ranges if start < end][:1]
        return innermost

    def entry_text(self) -> tuple[np.uint64, np.uint64]:
        """Return where interrupts and system calls enter the kernel, (0, 0) if unknown."""
        start, end = (self.range_of(f"__entry_text_{edge}")[0] for edge in ("start", "end"))
        return start, end

    def addresses(self, places: Sequence[str]) -> U64:
        """Addresses of places such as ``futex_wait+0x68``; places in unknown ones are left out.

        Of functions with one name (static ones) the first is taken.
        """
        addresses = []
        for location in places:
            name, _, offset = location.partition("+")
            start, end = self.range_of(name)
            if start < end:
                addresses.append(int(start) + int(offset, 16))
        return np.array(addresses, np.uint64)

    def symbol(self, module: int, offset: int) -> tuple[int, int, str] | None:
        """(start offset, size, name) of the function that holds ``offset`` of ``module``."""
        if not self.available:
            return None
        address = np.uint64(int(self.base[module]) + offset)
        at = int(np.searchsorted(self._address, address, "right")) - 1
        if at < 0 or int(self._owner[at]) != module:
            return None
        start, name = int(self._address[at]), self._name(at)
        if name in _ENDS:
            return None
        after = int(np.searchsorted(self._address, np.uint64(start), "right"))
        end = int(self._address[after]) if after < len(self._address) else start + 4096
        return start - int(self.base[module]), end - start, name


def _parse(lines: bytes, index: dict[bytes, int]) -> tuple[U64, U32, I64, bytes]:
    """Address, owner and length of the name, with the 0 behind it, of each text symbol in whole
    ``lines``, and their names, one after another; ``index`` numbers the owners.

    One pass of numpy over the bytes: a line at a time takes 0.3 s of the interpreter, which other
    threads wait for.
    """
    data = np.frombuffer(lines, np.uint8)
    end = np.flatnonzero(data == ord("\n"))
    start = np.concatenate([np.zeros(1, np.int64), end[:-1] + 1])[: len(end)]
    whole = end - start > _NAME_AT
    start, end = start[whole], end[whole]
    text = _TEXT[data[start + _DIGITS + 1]] & (data[start + _DIGITS] == ord(" "))
    start, end = start[text], end[text]
    digits = data[start[:, None] + np.arange(_DIGITS)].tobytes()
    address = np.frombuffer(bytes.fromhex(digits.decode("ascii")), ">u8").astype(np.uint64)
    name_end, owner = end.copy(), np.zeros(len(start), np.uint32)
    tabs = np.flatnonzero(data == ord("\t"))
    at = np.searchsorted(tabs, start)
    if len(tabs):
        tab = tabs[np.minimum(at, len(tabs) - 1)]
        owned = np.flatnonzero((tab > start) & (tab < end))
        name_end[owned] = tab[owned]
        for row in owned.tolist():
            name = lines[tab[row] + 1 : end[row]]
            owner[row] = index.setdefault(name, len(index))
    edges = np.zeros(len(data) + 1, np.int8)
    edges[start + _NAME_AT] = 1
    edges[name_end + 1] -= 1
    ended = data.copy()
    ended[name_end] = 0
    names = ended[np.cumsum(edges[:-1], dtype=np.int8).view(bool)]
    return address, owner, name_end + 1 - start - _NAME_AT, names.tobytes()


def _ours(path: Path) -> bool:
    """Whether root alone can have written ``path``."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == 0 and not status.st_mode & 0o022


def kernel_build_id() -> str:
    """Build-id of the running kernel, or "" when it has none."""
    try:
        return gnu_build_id(Path("/sys/kernel/notes").read_bytes())
    except OSError:
        return ""


class KernelSymbolStore:
    """Keeps the kernel's own symbols from one recording to the next until the machine restarts.

    To read them all takes 0.1 s, for which a recording of a short program would wait at its end.
    They are a file a boot, in ``directory`` (default: the cache's).
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._files = FileStore((directory or cache_directory()) / "kernel", _LIMIT_BYTES)
        self._boot = _BOOT.read_text(encoding="ascii").strip()
        self._user = str(os.geteuid())

    def load(self) -> KernelSymbols | None:
        """Return the symbols that are kept, without those of kernel modules, or None."""
        packed = self._files.load(self._user, self._boot, _KIND)
        return KernelSymbols.from_packed_core(packed) if packed else None

    def read(self) -> KernelSymbols:
        """Read and return all symbols that the kernel has now; keep its own."""
        core = self.load()
        symbols = KernelSymbols(core=core)
        if core is None and (packed := symbols.packed_core()):
            self._files.store(self._user, self._boot, _KIND, packed)
        return symbols
