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
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hpcd.bpf.table_memory import MAPPING
from hpcd.daemon.naming.mapping_rows import PAGE, KnownModule, mapping_rows
from hpcd.daemon.naming.path_cache import PathCache
from hpcd.daemon.naming.table_installer import TableInstaller
from hpcd.daemon.targets import patience, target_reader
from hpcd.daemon.targets.file_status import FileStatus, status_of
from hpcd.daemon.targets.patience import WithheldError, real_user
from hpcd.daemon.targets.processes import executable_regions
from hpcd.daemon.targets.target_files import MappedFile, file_of_region, files_by_path, mapped_files
from hpcd.daemon.targets.target_reader import Reader, is_pin
from hpcd.daemon.targets.user_accounts import UserAccounts
from hpcd.daemon.unwind.decode_queue import DecodeQueue
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import HpcdError
from hpcd.model.frame import MODULE_MAX, MODULE_SHIFT, module_frame
from hpcd.model.identity import Module, ModuleKind
from hpcd.model.region import Region

_NOBODY = 65534
_JIT_SPAN = 1 << MODULE_SHIFT
# Files kept open for their names; of more than that the path must do.
_MAX_IMAGES = 1024
# Bytes of files in memory, of those that only a reader may open.
_MAX_COPIED = 512 << 20
_STOP_SECONDS = 0.5


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
        self._reader = Reader()
        """Reads files that may never be read; the decoder's threads wait for it."""
        self._queue = DecodeQueue(decoder, self._reader)
        self.installer = TableInstaller(self._queue, self._accounts, announce)
        """Puts the modules' tables into table memory."""
        self.any_jit = False
        """Whether there is a module of code made at run time."""
        self._by_key: dict[object, KnownModule] = {}
        self._by_id: dict[int, KnownModule] = {}
        # By device and inode as /proc and the kernel's events write them, which need not be those
        # stat() tells of the file.
        self._by_inode: dict[tuple[str, int], KnownModule | None] = {}
        self._own_space = _mount_namespace(os.getpid())
        self._paths = PathCache(self._own_space, self._is_unchanged)
        self._images: dict[int, int] = {}
        """Descriptors of modules' files, by id: another process may not be able to open them."""
        self._copied = 0
        """Bytes of those that are copies in memory."""

    # --- identity ---

    def kernel(self, name: str, build_id: str) -> int:
        """Return the id of the kernel or of a kernel module."""
        kind = ModuleKind.KERNEL if name == "[kernel]" else ModuleKind.KERNEL_MODULE
        entry = self._by_key.get(("kernel", name)) or self._add(
            ("kernel", name), kind, name, build_id=build_id
        )
        self._announce(entry.module)
        return entry.module.id

    def name(self, number: int) -> str:
        """Return a module's path, as users see it."""
        entry = self._by_id.get(number)
        return entry.module.path if entry else "unknown"

    def get(self, number: int) -> Module | None:
        """Return the module of this id."""
        entry = self._by_id.get(number)
        return entry.module if entry else None

    def find(self, pid: int, process: int, mapped: MappedFile) -> KnownModule | None:
        """Return the module mapped by ``pid``, number ``process``; None if it cannot be identified.

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
                self._announce(entry.module)
        self._by_inode[region.device, region.inode] = entry
        return entry

    def mappings_of(
        self, pid: int, process: int, regions: Sequence[Region]
    ) -> npt.NDArray[np.void]:
        """Return the :data:`MAPPING` rows of ``regions`` that ``pid``, number ``process``, had at
        some time; the number is 0 if the process has ended."""
        now = time.monotonic()
        # A process that has ended had its files in this one's namespace, as far as they are found.
        here = _mount_namespace(pid) in (0, self._own_space)
        entry_of: dict[Region, KnownModule | None] = {}
        unknown = []
        for region in regions:
            if region.file_backed and region.path != "[vdso]":
                known = self._paths.at(0, region, now)
                if known is None and here:
                    known = self._paths.at(self._own_space, region, now)
                if known is None:
                    unknown.append(region)
                else:
                    entry_of[region] = known.entry
        if unknown:
            self._find_past(pid, unknown, now, entry_of)
        rows = []
        for region in regions:
            if region.file_backed and region.path != "[vdso]":
                entry = entry_of[region]
            elif process or region.path == "[vdso]":
                entry = self.find(pid, process, MappedFile(region))
            else:
                continue
            if entry:
                rows += mapping_rows(region, entry)
        return np.array(rows, dtype=MAPPING)

    def _find_past(
        self, pid: int, regions: Sequence[Region], now: float,
        entry_of: dict[Region, KnownModule | None],
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
            entry_of[region] = entry
            self._paths.note(0, region, entry, now)

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
        for start, bias, pages, *_ in mapping_rows(region, entry):
            if start <= address < start + pages * PAGE:
                return module_frame(entry.module.id, address - bias)
        return None

    def _find_by_path(self, pid: int, region: Region) -> KnownModule | None:
        for root in (pid, os.getpid()):
            look = partial(file_of_region, root, region, self._knows)
            try:
                status, file = patience.ask(root, look)
            except (OSError, ValueError, WithheldError):
                continue
            return self._of_file(pid, MappedFile(region, status, file), status)
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
        """Request analysis of files that a program of this process' user is about to map."""
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

    def _jit(self, key: object, path: str, base: int, process: int) -> KnownModule:
        self.any_jit = True
        entry = self._add(key, ModuleKind.JIT, path, base=base, process=process)
        self._announce(entry.module)
        return entry

    def _decode(self, key: object, user: int, fd: int, path: str) -> KnownModule:
        """A new module, of the file open at ``fd`` that a process of ``user`` maps."""
        kind = ModuleKind.VDSO if key == "vdso" else ModuleKind.ELF
        entry = self._add(key, kind, path)
        entry.user = user
        if kind is ModuleKind.ELF and len(self._images) < _MAX_IMAGES:
            with contextlib.suppress(OSError):
                self._images[entry.module.id] = os.dup(fd)
        self.installer.submit(entry, fd, path)
        return entry

    @property
    def failures(self) -> dict[str, str]:
        """The reasons why modules (by their paths) and processes could not be analysed, or have to
        wait for that."""
        failed = (entry for entry in self._by_id.values() if entry.failure)
        return (
            self._accounts.refused
            | {entry.module.path: entry.failure for entry in failed}
            | self._queue.postponed()
            | {f"process {pid}": "does not let what it maps be read" for pid in patience.withheld()}
            | target_reader.OWN.given_up
        )

    def mappings(self, pid: int, process: int) -> tuple[list[Region], npt.NDArray[np.void]]:
        """The executable mappings of ``pid``, and as the walker reads them (:data:`MAPPING` rows).

        Raises :class:`WithheldError`.
        """
        rows = []
        now = time.monotonic()
        space = _mount_namespace(pid)
        is_recent = partial(self._paths.is_recent, space, now)
        files = patience.ask(pid, partial(mapped_files, pid, self._knows, is_recent))
        for mapped in files:
            region = mapped.region
            entry = self._paths.module(space, region)
            if entry is None or mapped.status is not None:
                entry = self.find(pid, process, mapped)
                if space and region.file_backed and region.path != "[vdso]" and entry:
                    self._paths.note(space, region, entry, now)
            if entry:
                rows += mapping_rows(region, entry)
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
                known = self._paths.at(space, region, now) if space else None
                if known is None or known.entry is None:
                    return None
                entry: KnownModule | None = known.entry
            else:
                entry = self.find(pid, process, MappedFile(region))
            if entry:
                rows += mapping_rows(region, entry)
        return np.array(rows, dtype=MAPPING)

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
        """Descriptor to read the file of this module by, None when it is not kept open. It stays
        ours."""
        image = self._images.get(number)
        if image is None or not is_pin(image):
            return image
        entry = self._by_id[number]
        try:
            with self._reader.readable(entry.user, entry.module.path, image) as copy:
                self._copied += os.fstat(copy).st_size
                if self._copied > _MAX_COPIED:
                    return None
                os.dup2(copy, image, inheritable=False)
        except HpcdError:
            return None
        return image

    def symbols(self, number: int, offsets: npt.NDArray[np.uint64]) -> list[tuple[int, int, str]]:
        """(start, size, name) of the functions of a module that hold ``offsets``. No table is made
        any more. Raises :class:`HpcdError`."""
        if not self._queue.stop(_STOP_SECONDS):
            raise HpcdError("the decoder is busy")
        name = self.name(number)
        user = self._by_id[number].user
        with self._reader.readable(user, name, self._images[number]) as file:
            return self._decoder.symbols(file, name, offsets)

    def close(self) -> None:
        """Stop the decoder."""
        for image in self._images.values():
            os.close(image)
        self._images.clear()
        self._queue.close()
        self._decoder.close()
        self._reader.close()
        self.installer.close()


def _mount_namespace(pid: int) -> int:
    """A number of the mount namespace of ``pid``, 0 when that cannot be told."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino  # noqa: PTH116
    except OSError:
        return 0


def _user(pid: int) -> int:
    """Return the user whose files those of ``pid`` count as; nobody if it is gone."""
    user = real_user(pid)
    return _NOBODY if user < 0 else user


def _key_of(status: FileStatus) -> tuple[int, ...]:
    """Identity of a file and of its contents: changes when it is written to."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _vdso_file() -> int:
    """A descriptor of the kernel's shared object, which every 64-bit process maps alike."""
    fd = os.memfd_create("vdso", os.MFD_CLOEXEC)
    os.fchmod(fd, 0o600)  # no other user writes it: its table is kept for the next recording
    for region in executable_regions(os.getpid()):
        if region.path == "[vdso]":
            os.write(fd, ctypes.string_at(region.start, region.end - region.start))
    return fd
