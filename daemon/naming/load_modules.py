"""Load modules: what is mapped executable, identified once and shared by all processes.

A module's unwind table is made outside this process (:mod:`hpcd.daemon.unwind.decoder_process`)
and put into the kernel's table memory once, however many processes map it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.bpf.map_sizes import MAX_RULES
from hpcd.bpf.table_memory import FRAME_POINTER, MAPPING, ModuleTables, Tables
from hpcd.daemon.targets import patience
from hpcd.daemon.targets.patience import WithheldError, real_user
from hpcd.daemon.targets.processes import executable_regions
from hpcd.daemon.targets.target_files import (
    FileStatus,
    MappedFile,
    files_by_path,
    mapped_files,
    open_file,
    open_folder,
    status_of,
)
from hpcd.daemon.targets.user_accounts import UserAccounts
from hpcd.daemon.unwind.decode_queue import DecodeQueue
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.daemon.unwind.packed_table import PackedTable
from hpcd.daemon.unwind.unwind_rules import RULE_DTYPE, CfaKind
from hpcd.elf.elf_reader import NOT_ELF
from hpcd.errors import HpcdError
from hpcd.model.frame import MODULE_MAX, MODULE_SHIFT, module_frame
from hpcd.model.identity import Module, ModuleKind
from hpcd.model.region import Region

_PAGE = 4096
_NOBODY = 65534
# How long it is relied on that a file at a path is what it was. A file that is written to meanwhile
# has another identity only after this.
_BY_PATH_SECONDS = 0.5
_MAX_PATHS = 8192
_JIT_SPAN = 1 << MODULE_SHIFT
# Programs map a file in one way, or two.
_MAX_KNOWN_ROWS = 16
# Files kept open for their names; of more than that the path must do.
_MAX_IMAGES = 1024
_STOP_SECONDS = 0.5
# The rings are looked at between.
_STEP_SECONDS = 0.01
# Beyond that it is stuck, or makes the table of a large file.
_DECODER_START_SECONDS = 5.0


# Mount namespace, device, inode and path.
_PathKey = tuple[int, str, int, str]


@dataclass
class KnownModule:
    """A module and how far its unwind table has come."""

    module: Module
    table: PackedTable | None = None
    placed: ModuleTables | None = None
    failure: str = ""
    undecodable: bool = False
    """It is an ELF file whose frames nothing is known of; another may hold a compiler's code."""
    user: int = 0
    """Whose process mapped it first."""
    wanted: bool = False
    """A call path has waited for its table."""
    future: Future[PackedTable] | None = field(default=None, repr=False)
    rows: dict[tuple[int, int], list[tuple[int, ...]]] = field(default_factory=dict, repr=False)
    """Of mappings from an offset and of a length: their rows, as if they began at 0."""


class _AtPath(NamedTuple):
    """The module of a file, None where none is known, and until when that is relied on."""

    entry: KnownModule | None
    until: float


class Rules:
    """Unwind rules interned over all modules; the kernel's rows hold 16-bit indices of them."""

    def __init__(self) -> None:
        self._rows = np.zeros(2, dtype=RULE_DTYPE)
        self._rows["cfa_kind"] = CfaKind.NONE, CfaKind.UNSUPPORTED
        self._index = {row.tobytes(): i for i, row in enumerate(self._rows)}
        self._stored = 0

    def intern(
        self, rules: npt.NDArray[np.void], may_add: Callable[[], bool] = lambda: True
    ) -> npt.NDArray[np.uint16]:
        """The index of each of ``rules``, and of what lies before a module's first row. Of new ones
        beyond 65,536, or that ``may_add`` refuses, that of "unsupported"."""
        fresh: list[bytes] = []
        result = np.ones(len(rules) + 1, dtype=np.uint16)
        result[-1] = 0
        for position, row in enumerate(rules):
            key = row.tobytes()
            index = self._index.get(key)
            if index is None and len(self._index) < MAX_RULES and may_add():
                index = self._index[key] = len(self._index)
                fresh.append(key)
            if index is not None:
                result[position] = index
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

    def __init__(
        self,
        decoder: Decoder,
        announce: Callable[[Module], None],
        accounts: UserAccounts | None = None,
    ) -> None:
        self._decoder = decoder
        self._accounts = accounts or UserAccounts()
        self._announce = announce
        self._queue = DecodeQueue(decoder)
        self.tables_ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Event descriptor, readable when a table has arrived that :meth:`install` has not
        taken yet."""
        self.any_jit = False
        """Whether there is a module of code made at run time."""
        self._by_key: dict[object, KnownModule] = {}
        self._by_id: dict[int, KnownModule] = {}
        # By device and inode as /proc and the kernel's events write them, which need not be those
        # stat() tells of the file.
        self._by_inode: dict[tuple[str, int], KnownModule | None] = {}
        # What files at these paths were last time, by mount namespace (0: not known any more), by
        # device and inode: many paths through new code come from few processes. Device and inode
        # are not enough: a user's own subvolume (Btrfs) may have those of a library, and in a
        # namespace of its own also the path.
        self._by_path: dict[_PathKey, _AtPath] = {}
        self._own_space = _mount_namespace(os.getpid())
        self._pending: list[KnownModule] = []
        self._rules = Rules()
        self._images: dict[int, int] = {}
        """Descriptors of modules' files, by id: nobody else may be able to open them again."""

    # --- identity ---

    def kernel(self, name: str, build_id: str) -> int:
        """Id of the kernel or of a kernel module."""
        kind = ModuleKind.KERNEL if name == "[kernel]" else ModuleKind.KERNEL_MODULE
        entry = self._by_key.get(("kernel", name)) or self._add(
            ("kernel", name), kind, name, build_id=build_id
        )
        self._announce_entry(entry)
        return entry.module.id

    def name(self, number: int) -> str:
        """A module's path, for people."""
        entry = self._by_id.get(number)
        return entry.module.path if entry else "unknown"

    def get(self, number: int) -> Module | None:
        """The module of this id."""
        entry = self._by_id.get(number)
        return entry.module if entry else None

    def find(self, pid: int, process: int, mapped: MappedFile) -> KnownModule | None:
        """The module mapped by ``pid``, number ``process``; None when it cannot be identified.

        A module seen for the first time is handed to the decoder.
        """
        region = mapped.region
        if region.path == "[vdso]":
            return self._by_key.get("vdso") or self._decode("vdso", 0, _vdso_file(), "[vdso]")
        if not region.file_backed:
            base = region.start & ~(_JIT_SPAN - 1)
            key = ("jit", process, base)
            entry = self._by_key.get(key)
            if entry is None and self._accounts.take_module(_user(pid)):
                entry = self._jit(key, "[jit]", base, process)
            return entry
        return None if mapped.status is None else self._of_file(pid, mapped, mapped.status)

    def _of_file(self, pid: int, mapped: MappedFile, status: FileStatus) -> KnownModule | None:
        region, key = mapped.region, _key_of(status)
        entry = self._by_key.get(key)
        if entry is None:
            path = region.path.removesuffix(" (deleted)")
            user = _user(pid)
            if not (mapped.file or mapped.refused) or not self._accounts.take_module(user):
                return None
            if mapped.file is not None:
                with mapped.file as file:
                    entry = self._decode(key, user, os.dup(file.fileno()), path)
            else:
                entry = self._add(key, ModuleKind.ELF, path)
                entry.failure = f"{path}: {mapped.refused}"
                self._announce_entry(entry)
        self._by_inode[region.device, region.inode] = entry
        return entry

    def mappings_of(
        self, pid: int, process: int, regions: Sequence[Region]
    ) -> npt.NDArray[np.void]:
        """The rows of regions that ``pid``, number ``process``, had at some time; it may have
        ended, and is 0 then."""
        now = time.monotonic()
        # Who has ended had its files in this process's namespace as far as they are found now.
        here = _mount_namespace(pid) in (0, self._own_space)
        found: dict[Region, KnownModule | None] = {}
        unknown = []
        for region in regions:
            if region.file_backed and region.path != "[vdso]":
                known = self._known_at(0, region, now)
                if known is None and here:
                    known = self._known_at(self._own_space, region, now)
                if known is None:
                    unknown.append(region)
                else:
                    found[region] = known.entry
        if unknown:
            self._find_past(pid, unknown, now, found)
        rows = []
        for region in regions:
            if region.file_backed and region.path != "[vdso]":
                entry = found[region]
            elif process or region.path == "[vdso]":
                entry = self.find(pid, process, MappedFile(region))
            else:
                continue
            if entry:
                rows += _rows(region, entry)
        return np.array(rows, dtype=MAPPING)

    def _find_past(
        self, pid: int, regions: Sequence[Region], now: float,
        found: dict[Region, KnownModule | None],
    ) -> None:  # fmt: skip
        """Look up the modules that ``pid`` had mapped at ``regions``, by their paths."""
        try:
            files = patience.ask(pid, partial(files_by_path, pid, regions, self._knows))
        except WithheldError:
            files = [MappedFile(region) for region in regions]
        for mapped in files:
            region = mapped.region
            # One that lies elsewhere by now, or is gone, was seen if a process still had it.
            entry = self._by_inode.get((region.device, region.inode))
            if mapped.status is not None:
                entry = self._of_file(pid, mapped, mapped.status)
            found[region] = entry
            self._note_at(0, region, entry, now)

    def is_analysed(self, device: str, inode: int) -> bool:
        """Whether nothing is to be waited for: the file's table is there, will not be, or it is not
        known."""
        entry = self._by_inode.get((device, inode))
        return entry is None or entry.table is not None or bool(entry.failure)

    def want(self, device: str, inode: int) -> None:
        """A call path waits for the file's table: it is made before others'."""
        entry = self._by_inode.get((device, inode))
        if entry and entry.future and not entry.wanted:
            entry.wanted = True
            self._queue.want(entry.future)

    def frame_in(self, pid: int, region: Region, address: int) -> int | None:
        """The module frame of ``address`` in a mapping of ``pid``, both of which may be gone by
        now; None while its file is not known.

        A file that was never seen mapped is opened by its path, if that still is the file.
        """
        if region.path == "[vdso]":
            entry = self._by_key.get("vdso")
        else:
            key = (region.device, region.inode)
            if key not in self._by_inode and region.file_backed:
                self._by_inode[key] = self._find_by_path(pid, region)
            entry = self._by_inode.get(key)
        if entry is None or entry.table is None:
            return None
        for start, bias, pages, *_ in _rows(region, entry):
            if start <= address < start + pages * _PAGE:
                return module_frame(entry.module.id, address - bias)
        return None

    def _find_by_path(self, pid: int, region: Region) -> KnownModule | None:
        for root in (pid, os.getpid()):
            try:
                mapped = patience.ask(root, partial(_file_by_path, root, region))
            except (OSError, ValueError, WithheldError):
                continue
            assert mapped.status is not None
            device = f"{os.major(mapped.status.st_dev):02x}:{os.minor(mapped.status.st_dev):02x}"
            if (device, mapped.status.st_ino) == (region.device, region.inode):
                return self._of_file(pid, mapped, mapped.status)
        return None

    def _add(
        self, key: object, kind: ModuleKind, path: str, *, build_id: str = "", base: int = 0,
        process: int = 0,
    ) -> KnownModule:  # fmt: skip
        number = len(self._by_id) + 1
        if number > MODULE_MAX:
            raise HpcdError("more than 4 million load modules in one recording")
        entry = KnownModule(Module(number, kind, path, build_id, base, process))
        self._by_key[key] = self._by_id[number] = entry
        return entry

    def prepare(self, paths: Sequence[Path]) -> None:
        """Have files analysed that a program of this process' own user is about to map."""
        for path in paths:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue
            key = _key_of(status_of("", fd))
            if key in self._by_key:
                os.close(fd)
            else:
                self._decode(key, os.getuid(), fd, str(path))

    def _announce_entry(self, entry: KnownModule) -> None:
        self._announce(entry.module)

    def _jit(self, key: object, path: str, base: int, process: int) -> KnownModule:
        self.any_jit = True
        entry = self._add(key, ModuleKind.JIT, path, base=base, process=process)
        self._announce_entry(entry)
        return entry

    def _decode(self, key: object, user: int, fd: int, path: str) -> KnownModule:
        """A new module, of the file open at ``fd`` that a process of ``user`` maps."""
        kind = ModuleKind.VDSO if key == "vdso" else ModuleKind.ELF
        entry = self._add(key, kind, path)
        entry.user = user
        if kind is ModuleKind.ELF and len(self._images) < _MAX_IMAGES:
            with contextlib.suppress(OSError):
                self._images[entry.module.id] = os.dup(fd)
        entry.future = self._queue.submit(user, fd, path)
        entry.future.add_done_callback(lambda _: self._signal_table())
        self._pending.append(entry)
        return entry

    def _signal_table(self) -> None:
        if self.tables_ready >= 0:
            os.eventfd_write(self.tables_ready, 1)

    # --- tables ---

    @property
    def pending(self) -> int:
        """Files whose tables are not in table memory yet."""
        return len(self._pending)

    @property
    def slow(self) -> int:
        """Of those, the ones whose tables are not kept from an earlier recording."""
        return self._queue.slow

    def install_within(
        self,
        seconds: float,
        tables: Tables,
        write_rules: Callable[[int, npt.NDArray[np.void]], None],
    ) -> None:
        """Put tables into table memory as the decoder finishes them, for up to ``seconds`` from the
        first on: on a busy machine the decoder itself takes a while to start."""
        self.install_next(_DECODER_START_SECONDS, tables, write_rules)
        end = time.monotonic() + seconds
        while self._pending and (left := end - time.monotonic()) > 0:
            self.install_next(left, tables, write_rules)

    def install_kept(
        self,
        seconds: float,
        tables: Tables,
        write_rules: Callable[[int, npt.NDArray[np.void]], None],
    ) -> None:
        """As :meth:`install_within`, from now on, but wait for no table that is to be made."""
        end = time.monotonic() + seconds
        while self.pending > self.slow and (left := end - time.monotonic()) > 0:
            self.install_next(left, tables, write_rules)

    def install_next(
        self,
        seconds: float,
        tables: Tables,
        write_rules: Callable[[int, npt.NDArray[np.void]], None],
    ) -> bool:
        """Wait up to ``seconds`` for the next table; False when none is made, or none came."""
        pending = [entry.future for entry in self._pending if entry.future]
        if not pending:
            return False
        wait(pending, seconds, FIRST_COMPLETED)
        return self.install(tables, write_rules)

    def install(
        self, tables: Tables, write_rules: Callable[[int, npt.NDArray[np.void]], None]
    ) -> bool:
        """Put finished tables into table memory; True when there were any. Of many some are left
        for the next call, :data:`_STEP_SECONDS` later."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.tables_ready)
        done = [entry for entry in self._pending if entry.future and entry.future.done()]
        end = time.monotonic() + _STEP_SECONDS
        for entry in done:
            if time.monotonic() > end:
                self._signal_table()
                break
            self._pending.remove(entry)
            assert entry.future is not None
            try:
                table = entry.future.result()
            except HpcdError as error:
                entry.failure = str(error)
                entry.undecodable = not entry.failure.endswith(NOT_ELF)
                self._announce_entry(entry)
                continue
            finally:
                entry.future = None
            module = entry.module
            entry.module = Module(
                module.id, module.kind, module.path, table.build_id, module.base, module.process
            )
            self._by_id[module.id] = entry
            self._announce_entry(entry)
            if not self._accounts.take_blocks(entry.user, table.rows.blocks, "tables"):
                entry.failure = self._accounts.why(entry.user)
                entry.undecodable = True
                continue
            entry.table = table.without_rows()
            may_add = partial(self._accounts.take_rule, entry.user)
            rules = self._rules.intern(table.rules, may_add)
            self._rules.store(write_rules)
            entry.placed = tables.add_module(table.rows, rules)
        return bool(done)

    @property
    def failures(self) -> dict[str, str]:
        """What could not be analysed, or has to wait for that, and why: modules by their paths,
        and processes."""
        failed = (entry for entry in self._by_id.values() if entry.failure)
        return (
            self._accounts.refused
            | {entry.module.path: entry.failure for entry in failed}
            | self._queue.postponed()
            | {f"process {pid}": "does not let what it maps be read" for pid in patience.withheld()}
        )

    def mappings(self, pid: int, process: int) -> tuple[list[Region], npt.NDArray[np.void]]:
        """The executable mappings of ``pid``, and as the walker reads them (:data:`MAPPING` rows).

        Raises :class:`WithheldError`.
        """
        rows = []
        now = time.monotonic()
        space = _mount_namespace(pid)
        is_recent = partial(self._is_recent, space, now)
        files = patience.ask(pid, partial(mapped_files, pid, self._knows, is_recent))
        for mapped in files:
            region = mapped.region
            known = self._by_path.get((space, region.device, region.inode, region.path))
            entry = known.entry if known else None
            if entry is None or mapped.status is not None:
                entry = self.find(pid, process, mapped)
                if space and region.file_backed and region.path != "[vdso]" and entry:
                    self._note_at(space, region, entry, now)
            if entry:
                rows += _rows(region, entry)
        return [mapped.region for mapped in files], np.array(rows, dtype=MAPPING)

    def recent_mappings(
        self, pid: int, process: int, regions: Sequence[Region]
    ) -> npt.NDArray[np.void] | None:
        """The rows of ``regions``, which ``pid`` has mapped, without reading /proc; None where one
        is of a file that was not looked up a moment ago, and may have changed since."""
        now = time.monotonic()
        space = _mount_namespace(pid)
        rows = []
        for region in regions:
            if region.file_backed and region.path != "[vdso]":
                known = self._known_at(space, region, now) if space else None
                if known is None or known.entry is None:
                    return None
                entry: KnownModule | None = known.entry
            else:
                entry = self.find(pid, process, MappedFile(region))
            if entry:
                rows += _rows(region, entry)
        return np.array(rows, dtype=MAPPING)

    def _is_recent(self, space: int, now: float, region: Region) -> bool:
        """Whether the module of this mapping was looked up a moment ago, of a process of the same
        mount namespace: new processes map what others do."""
        known = self._by_path.get((space, region.device, region.inode, region.path))
        return bool(space) and known is not None and known.entry is not None and now < known.until

    def _known_at(self, space: int, region: Region, now: float) -> _AtPath | None:
        """What the file of ``region`` was a moment ago, or is still; None where it is to be looked
        up.

        In this process's mount namespace, where no user mounts what it likes, a file whose device,
        inode and path are reported is the one that is kept open: its number is not given again.
        What remains is whether it was written to.
        """
        key = (space, region.device, region.inode, region.path)
        known = self._by_path.get(key)
        if known is None or now < known.until:
            return known
        if space == self._own_space and known.entry and self._is_unchanged(known.entry):
            return self._note_at(space, region, known.entry, now)
        del self._by_path[key]
        return None

    def _note_at(
        self, space: int, region: Region, entry: KnownModule | None, now: float
    ) -> _AtPath:
        if len(self._by_path) >= _MAX_PATHS:
            self._by_path.clear()
        known = _AtPath(entry, now + _BY_PATH_SECONDS)
        self._by_path[space, region.device, region.inode, region.path] = known
        return known

    def _is_unchanged(self, entry: KnownModule) -> bool:
        """Whether the file that is kept open for a module is what it was."""
        image = self._images.get(entry.module.id)
        try:
            return image is not None and self._by_key.get(_key_of(status_of("", image))) is entry
        except OSError:
            return False

    def _knows(self, status: FileStatus) -> bool:
        return _key_of(status) in self._by_key

    # --- names ---

    def has_image(self, number: int) -> bool:
        """Whether the file of this module is open, and a table could be made of it."""
        return number in self._images and not self._by_id[number].failure

    def image(self, number: int) -> int | None:
        """Descriptor of the file of this module, None when it is not kept open. It stays ours."""
        return self._images.get(number)

    def symbols(self, number: int, offsets: npt.NDArray[np.uint64]) -> list[tuple[int, int, str]]:
        """(start, size, name) of the functions of a module that hold ``offsets``. No table is made
        any more. Raises :class:`HpcdError`."""
        if not self._queue.stop(_STOP_SECONDS):
            raise HpcdError("the decoder is busy")
        return self._decoder.symbols(self._images[number], self.name(number), offsets)

    def close(self) -> None:
        """Stop the decoder."""
        for image in self._images.values():
            os.close(image)
        self._images.clear()
        self._queue.close()
        self._decoder.close()
        tables_ready, self.tables_ready = self.tables_ready, -1
        os.close(tables_ready)


def _rows(region: Region, entry: KnownModule) -> list[tuple[int, ...]]:
    """``region`` as (start, bias, pages, base, directory, module), clipped to what tables cover."""
    pages = (region.end - region.start) // _PAGE
    module = entry.module
    if module.kind is ModuleKind.JIT:
        return [(region.start, module.base, pages, 0, 0, module.id | FRAME_POINTER)]
    if entry.undecodable:
        return [(region.start, region.start - region.offset, pages, 0, 0, module.id)]
    if entry.failure:
        # Not an ELF file: code a JIT compiler keeps in one, which has frame pointers if anything.
        return [
            (region.start, region.start - region.offset, pages, 0, 0, module.id | FRAME_POINTER)
        ]
    if entry.table is None or entry.placed is None:
        return [(region.start, region.start, pages, 0, 0, 0)]
    length = region.end - region.start
    known = entry.rows.get((region.offset, length))
    if known is None:
        known = _rows_from(entry, entry.table, entry.placed, region.offset, length)
        if len(entry.rows) < _MAX_KNOWN_ROWS:
            entry.rows[region.offset, length] = known
    begin = region.start
    return [
        (begin + start, begin + bias & 0xFFFFFFFFFFFFFFFF, *rest) for start, bias, *rest in known
    ]


def _rows_from(
    entry: KnownModule, table: PackedTable, placed: ModuleTables, offset: int, length: int
) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    for segment in table.segments:
        # The kernel maps whole pages, so a segment's mapping begins on the page it begins in.
        file_start = segment.offset & ~(_PAGE - 1)
        file_end = (segment.offset + segment.filesz + _PAGE - 1) & ~(_PAGE - 1)
        low = max(offset, file_start)
        high = min(offset + length, file_end)
        if not segment.executable or low >= high:
            continue
        rows.append(
            (
                low - offset,
                segment.offset - segment.vaddr - offset,
                (high - low) // _PAGE,
                table.base >> 12,
                placed.directory,
                entry.module.id,
            )
        )
    return rows


def _file_by_path(pid: int, region: Region) -> MappedFile:
    """The file at the path of ``region`` as process ``pid`` sees it. Raises :class:`OSError`."""
    path, _, name = region.path.rpartition("/")
    folder = open_folder(pid, path)
    try:
        file = open_file(name, pid, folder=folder, follow=False)
    finally:
        os.close(folder)
    return MappedFile(region, status_of("", file.fileno()), file)


def _mount_namespace(pid: int) -> int:
    """A number of the mount namespace of ``pid``, 0 when that cannot be told."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino  # noqa: PTH116
    except OSError:
        return 0


def _user(pid: int) -> int:
    """Whose files those of ``pid`` count as; nobody's when it is gone."""
    user = real_user(pid)
    return _NOBODY if user < 0 else user


def _key_of(status: FileStatus) -> tuple[int, ...]:
    """Identity of a file and of its contents: changes when it is written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _vdso_file() -> int:
    """A descriptor of the kernel's shared object, which every 64-bit process maps alike."""
    fd = os.memfd_create("vdso", os.MFD_CLOEXEC)
    os.fchmod(fd, 0o600)  # nobody else writes it: its table is kept for the next recording
    for region in executable_regions(os.getpid()):
        if region.path == "[vdso]":
            os.write(fd, ctypes.string_at(region.start, region.end - region.start))
    return fd
