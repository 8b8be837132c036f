"""Load modules: what is mapped executable, identified once and shared by all processes.

A module's unwind table is made outside this process (:mod:`hpcd.daemon.unwind.decoder`) and put
into the kernel's table memory once, however many processes map it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hpcd.bpf.tables import FRAME_POINTER, MAPPING, MAX_RULES, PAGE_BITS, ModuleTables, Tables
from hpcd.daemon.processes import Region, executable_regions
from hpcd.daemon.unwind.decoder import Decoder
from hpcd.daemon.unwind.rules import RULE_DTYPE, CfaKind
from hpcd.daemon.unwind.table import ModuleTable
from hpcd.errors import HpcdError
from hpcd.model.frame import MODULE_MAX, MODULE_SHIFT, module_frame
from hpcd.model.identity import Module, ModuleKind

_PAGE = 4096
_JIT_SPAN = 1 << MODULE_SHIFT


@dataclass
class KnownModule:
    """A module and how far its unwind table has come."""

    module: Module
    table: ModuleTable | None = None
    placed: ModuleTables | None = None
    failure: str = ""
    future: Future[ModuleTable] | None = field(default=None, repr=False)


class Rules:
    """Unwind rules interned over all modules; the kernel's rows hold 16-bit indices of them."""

    def __init__(self) -> None:
        self._rows = np.zeros(2, dtype=RULE_DTYPE)
        self._rows["cfa_kind"] = CfaKind.NONE, CfaKind.UNSUPPORTED
        self._index = {row.tobytes(): i for i, row in enumerate(self._rows)}
        self._stored = 0

    def intern(self, rules: npt.NDArray[np.void]) -> npt.NDArray[np.uint16]:
        """The index of each of ``rules``. Beyond 65,536 distinct ones, that of "unsupported"."""
        fresh: list[bytes] = []
        result = np.ones(len(rules), dtype=np.uint16)
        for place, row in enumerate(rules):
            key = row.tobytes()
            index = self._index.get(key)
            if index is None and len(self._index) < MAX_RULES:
                index = self._index[key] = len(self._index)
                fresh.append(key)
            if index is not None:
                result[place] = index
        if fresh:
            added = np.frombuffer(b"".join(fresh), dtype=RULE_DTYPE)
            self._rows = np.concatenate([self._rows, added])
        return result

    def store(self, write: Callable[[int, npt.NDArray[np.void]], None]) -> None:
        """Write the rules not yet written."""
        if self._stored < len(self._rows):
            write(self._stored, self._rows[self._stored :])
            self._stored = len(self._rows)


class Modules:
    """All load modules of a recording. Ids are given in order of appearance and never reused."""

    def __init__(self, decoder: Decoder, announce: Callable[[Module], None]) -> None:
        self._decoder = decoder
        self._announce = announce
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="decoder")
        self._executor.submit(decoder.start)
        self.news = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable when a table has arrived that :meth:`install` has not taken yet."""
        self._by_key: dict[object, KnownModule] = {}
        self._by_id: dict[int, KnownModule] = {}
        # By device and inode as /proc and the kernel's events write them, which need not be those
        # stat() tells of the file.
        self._by_inode: dict[tuple[str, int], KnownModule | None] = {}
        self._pending: list[KnownModule] = []
        self._rules = Rules()

    # --- identity ---

    def kernel(self, name: str, build_id: str) -> int:
        """Id of the kernel or of a kernel module."""
        kind = ModuleKind.KERNEL if name == "[kernel]" else ModuleKind.KERNEL_MODULE
        known = self._by_key.get(("kernel", name)) or self._add(
            ("kernel", name), kind, name, build_id=build_id
        )
        self._say(known)
        return known.module.id

    def name(self, number: int) -> str:
        """A module's path, for people."""
        known = self._by_id.get(number)
        return known.module.path if known else "unknown"

    def get(self, number: int) -> Module | None:
        """The module of this id."""
        known = self._by_id.get(number)
        return known.module if known else None

    def find(self, pid: int, process: int, region: Region) -> KnownModule | None:
        """The module mapped at ``region`` of ``pid``; None when it cannot be identified.

        A module seen for the first time is handed to the decoder.
        """
        if region.path == "[vdso]":
            return self._by_key.get("vdso") or self._decode("vdso", _vdso_file(), "[vdso]")
        if not region.file_backed:
            base = region.start & ~(_JIT_SPAN - 1)
            key = ("jit", process, base)
            return self._by_key.get(key) or self._jit(key, "[jit]", base, process)
        try:
            path, status = _mapped_file(pid, region)
            known = self._by_key.get(_key_of(status))
            if known is None:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
                known = self._decode(_key_of(status), fd, region.path.removesuffix(" (deleted)"))
        except OSError:
            return None
        self._by_inode[region.device, region.inode] = known
        return known

    def frame_in(self, pid: int, region: Region, address: int) -> int | None:
        """The module frame of ``address`` in a mapping of ``pid``, both of which may be gone by
        now; None while its file is not known.

        A file that was never seen mapped is opened by its path, if that still is the file.
        """
        if region.path == "[vdso]":
            known = self._by_key.get("vdso")
        else:
            key = (region.device, region.inode)
            if key not in self._by_inode and region.file_backed:
                self._by_inode[key] = self._find_by_path(pid, region)
            known = self._by_inode.get(key)
        if known is None or known.table is None:
            return None
        for start, bias, pages, *_ in _rows(region, known):
            if start <= address < start + pages * _PAGE:
                return module_frame(known.module.id, address - bias)
        return None

    def _find_by_path(self, pid: int, region: Region) -> KnownModule | None:
        for root in (f"/proc/{pid}/root", ""):
            try:
                fd = os.open(root + region.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except (OSError, ValueError):
                continue
            status = os.fstat(fd)
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
            if (device, status.st_ino) == (region.device, region.inode):
                known = self._by_key.get(_key_of(status))
                if known is None and stat.S_ISREG(status.st_mode):
                    return self._decode(_key_of(status), fd, region.path)
                os.close(fd)
                return known
            os.close(fd)
        return None

    def _add(
        self, key: object, kind: ModuleKind, path: str, *, build_id: str = "", base: int = 0,
        process: int = 0,
    ) -> KnownModule:  # fmt: skip
        number = len(self._by_id) + 1
        if number > MODULE_MAX:
            raise HpcdError("more than 4 million load modules in one recording")
        known = KnownModule(Module(number, kind, path, build_id, base, process))
        self._by_key[key] = self._by_id[number] = known
        return known

    def _say(self, known: KnownModule) -> None:
        self._announce(known.module)

    def _jit(self, key: object, path: str, base: int, process: int) -> KnownModule:
        known = self._add(key, ModuleKind.JIT, path, base=base, process=process)
        self._say(known)
        return known

    def _decode(self, key: object, fd: int, path: str) -> KnownModule:
        kind = ModuleKind.VDSO if key == "vdso" else ModuleKind.ELF
        known = self._add(key, kind, path)

        def work() -> ModuleTable:
            try:
                return self._decoder.table(fd, path)
            finally:
                os.close(fd)

        known.future = self._executor.submit(work)
        known.future.add_done_callback(lambda _: self._signal())
        self._pending.append(known)
        return known

    def _signal(self) -> None:
        if self.news >= 0:
            os.eventfd_write(self.news, 1)

    # --- tables ---

    def install_within(
        self,
        seconds: float,
        tables: Tables,
        write_rules: Callable[[int, npt.NDArray[np.void]], None],
    ) -> None:
        """Put tables into table memory as the decoder finishes them, for up to ``seconds``."""
        end = time.monotonic() + seconds
        while self._pending and (left := end - time.monotonic()) > 0:
            wait([each.future for each in self._pending if each.future], left, FIRST_COMPLETED)
            self.install(tables, write_rules)

    def install(
        self, tables: Tables, write_rules: Callable[[int, npt.NDArray[np.void]], None]
    ) -> bool:
        """Put finished tables into table memory; True when there were any."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.news)
        done = [known for known in self._pending if known.future and known.future.done()]
        for known in done:
            self._pending.remove(known)
            assert known.future is not None
            try:
                table = known.future.result()
            except HpcdError as error:
                known.failure = str(error)
                self._say(known)
                continue
            finally:
                known.future = None
            known.table = table.without_rows()
            module = known.module
            known.module = Module(
                module.id, module.kind, module.path, table.build_id, module.base, module.process
            )
            self._by_id[module.id] = known
            self._say(known)
            rule = self._rules.intern(table.rules)[table.rule]
            self._rules.store(write_rules)
            known.placed = tables.add_module(table.pc, rule, _pages(table))
        return bool(done)

    @property
    def failures(self) -> dict[str, str]:
        """Modules that could not be analysed, and why."""
        return {known.module.path: known.failure for known in self._by_id.values() if known.failure}

    def mappings(self, pid: int, process: int) -> npt.NDArray[np.void]:
        """The executable mappings of ``pid`` as the walker reads them (:data:`MAPPING` rows)."""
        rows = []
        for region in executable_regions(pid):
            known = self.find(pid, process, region)
            if known:
                rows += _rows(region, known)
        return np.array(rows, dtype=MAPPING)

    def close(self) -> None:
        """Stop the decoder."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._decoder.close()
        news, self.news = self.news, -1
        os.close(news)


def _pages(table: ModuleTable) -> int:
    end = max(
        (segment.vaddr + segment.filesz for segment in table.segments if segment.executable),
        default=table.base,
    )
    return ((end - table.base) >> PAGE_BITS) + 1


def _rows(region: Region, known: KnownModule) -> list[tuple[int, int, int, int, int, int]]:
    """``region`` as (start, bias, pages, base, directory, module), clipped to what tables cover."""
    pages = (region.end - region.start) // _PAGE
    module = known.module
    if module.kind is ModuleKind.JIT:
        return [(region.start, module.base, pages, 0, 0, module.id | FRAME_POINTER)]
    if known.failure:
        # Not an ELF file: code a JIT compiler keeps in one, which has frame pointers if anything.
        return [
            (region.start, region.start - region.offset, pages, 0, 0, module.id | FRAME_POINTER)
        ]
    if known.table is None or known.placed is None:
        return [(region.start, region.start, pages, 0, 0, 0)]
    rows = []
    for segment in known.table.segments:
        # The kernel maps whole pages, so a segment's mapping begins on the page it begins in.
        file_start = segment.offset & ~(_PAGE - 1)
        file_end = (segment.offset + segment.filesz + _PAGE - 1) & ~(_PAGE - 1)
        low = max(region.offset, file_start)
        high = min(region.offset + region.end - region.start, file_end)
        if not segment.executable or low >= high:
            continue
        start = region.start + low - region.offset
        bias = start - low + segment.offset - segment.vaddr
        rows.append(
            (
                start,
                bias & 0xFFFFFFFFFFFFFFFF,
                (high - low) // _PAGE,
                known.table.base >> 12,
                known.placed.directory,
                module.id,
            )
        )
    return rows


def _mapped_file(pid: int, region: Region) -> tuple[str, os.stat_result]:
    """The mapped file itself, deleted or in another mount namespace though it may be: a path that
    opens it, and what it is."""
    path = f"/proc/{pid}/map_files/{region.start:x}-{region.end:x}"
    status = os.stat(path)  # noqa: PTH116
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    return path, status


def _key_of(status: os.stat_result) -> tuple[int, ...]:
    """What tells a file from others, and from what it was before it was written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _vdso_file() -> int:
    """A descriptor of the kernel's shared object, which every 64-bit process maps alike."""
    fd = os.memfd_create("vdso", os.MFD_CLOEXEC)
    for region in executable_regions(os.getpid()):
        if region.path == "[vdso]":
            os.write(fd, ctypes.string_at(region.start, region.end - region.start))
    return fd
