"""Load modules: files mapped executable, identified once and shared by all processes.

A module's unwind table is made outside this process (:mod:`hpcd.daemon.unwind.decoder_process`)
and put into the kernel's table memory once, however many processes map it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from hpcd.array_types import U64
from hpcd.daemon.access import patience, target_reader
from hpcd.daemon.access.file_status import FileStatus, status_of
from hpcd.daemon.access.processes import executable_regions
from hpcd.daemon.access.target_reader import TargetReader, is_pin
from hpcd.daemon.access.user_accounts import UserAccounts
from hpcd.daemon.naming.mapping_rows import KnownModule
from hpcd.daemon.naming.table_installer import TableInstaller
from hpcd.daemon.unwind.decode_queue import DecodeQueue
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import HpcdError
from hpcd.model.frame import MODULE_MAX
from hpcd.model.identity import Module, ModuleKind

# Files kept open for their names; of more than that the path must do.
_MAX_IMAGES = 1024
# Bytes of files in memory that only a reader process may open.
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
        self.accounts = accounts or UserAccounts()
        self._announce = announce
        self._reader = TargetReader()
        """Reads files that may never be read; the decoder's threads wait for it."""
        self._queue = DecodeQueue(decoder, self._reader)
        self.installer = TableInstaller(self._queue, self.accounts, announce)
        """Puts the modules' tables into table memory."""
        self.jit_modules: list[Module] = []
        """Modules of code that processes make at run time, in the order they were added."""
        self.jit_files: list[int] = []
        """Numbers of the processes that mapped files with names of such code, one for each."""
        self._by_key: dict[object, KnownModule] = {}
        self._by_id: dict[int, KnownModule] = {}
        self.images = ModuleImages(self._reader)
        """The modules' files, kept open."""

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

    def prepare(self, paths: Sequence[Path]) -> list[KnownModule]:
        """Request analysis of files that a program of this process' user is about to map; return
        the modules of those that can be read."""
        prepared = []
        for path in paths:
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError:
                continue
            key = key_of(status_of(fd))
            if key in self._by_key:
                os.close(fd)
            else:
                prepared.append(self.decode(key, os.getuid(), fd, str(path)))
        return prepared

    def known(self, key: object) -> KnownModule | None:
        """Return the module that has this key."""
        return self._by_key.get(key)

    def jit(self, key: object, path: str, base: int, process: int) -> KnownModule:
        """Add a module of code that a process makes at run time, around ``base``; users see it as
        ``path``."""
        entry = self._add(key, ModuleKind.JIT, path, base=base, process=process)
        self.jit_modules.append(entry.module)
        self._announce(entry.module)
        return entry

    def python(self, path: str, user: int) -> int | None:
        """Return the id of the module of a Python source file, which a process of ``user`` runs;
        None: that user has too many modules."""
        return self._source(ModuleKind.PYTHON, path, user)

    def java(self, path: str, user: int) -> int | None:
        """Return the id of the module of a Java source file (:meth:`python`)."""
        return self._source(ModuleKind.JAVA, path, user)

    def _source(self, kind: ModuleKind, path: str, user: int) -> int | None:
        key = (kind.value, path)
        entry = self._by_key.get(key)
        if entry is None:
            if not self.accounts.take_module(user):
                return None
            entry = self._add(key, kind, path)
            self._announce(entry.module)
        return entry.module.id

    def unreadable(self, key: object, path: str, why: str) -> KnownModule:
        """Add a module that may not be read, ``why`` in words."""
        entry = self._add(key, ModuleKind.ELF, path)
        entry.failure = f"{path}: {why}"
        self._announce(entry.module)
        return entry

    def vdso(self) -> KnownModule:
        """Return the module of the kernel's shared object."""
        return self._by_key.get("vdso") or self.decode("vdso", 0, _vdso_file(), "[vdso]")

    def want(self, entry: KnownModule) -> None:
        """Request the table of a module before the tables of others."""
        if entry.future and not entry.wanted:
            entry.wanted = True
            self._queue.want(entry.future)

    def has_image(self, number: int) -> bool:
        """Whether the file of this module is open, and a table could be made of it."""
        return number in self.images and not self._by_id[number].failure

    def image(self, number: int) -> int | None:
        """Descriptor to read the file of this module by, None when it is not kept open. It stays
        ours."""
        entry = self._by_id[number]
        return self.images.readable(number, entry.user, entry.module.path)

    def decode(self, key: object, user: int, fd: int, path: str) -> KnownModule:
        """A new module, of the file open at ``fd`` that a process of ``user`` maps."""
        kind = ModuleKind.VDSO if key == "vdso" else ModuleKind.ELF
        entry = self._add(key, kind, path)
        entry.user = user
        if kind is ModuleKind.ELF:
            entry.contents = _contents_of(status_of(fd))
            self.images.keep(entry.module.id, fd)
        self.installer.submit(entry, fd, path)
        return entry

    @property
    def failures(self) -> dict[str, str]:
        """The reasons why modules (by their paths) and processes could not be analysed, or have to
        wait for that."""
        failed = (entry for entry in self._by_id.values() if entry.failure)
        return (
            self.accounts.refused
            | {entry.module.path: entry.failure for entry in failed}
            | self._queue.postponed()
            | {
                f"process {pid}": "does not let what it maps be read"
                for pid in patience.OWN.withheld
            }
            | target_reader.OWN.given_up
        )

    def symbols(self, number: int, offsets: U64) -> list[tuple[int, int, str]]:
        """(start, size, name) of the functions of a module that hold ``offsets``. No table is made
        any more. Raises :class:`HpcdError`, also for a file that has been written to meanwhile."""
        if not self._queue.stop(_STOP_SECONDS):
            raise HpcdError("the decoder is busy")
        entry = self._by_id[number]
        path, image = entry.module.path, self.images.descriptor(number)
        with self._reader.readable(entry.user, path, image) as file:
            rows = self._decoder.symbols(file, path, offsets)
        if not self.images.is_copy(number) and _contents_of(status_of(image)) != entry.contents:
            raise HpcdError(f"{path} has been written to since it was mapped")
        return rows

    def rest(self) -> None:
        """End the decoder while it has nothing to do."""
        self._decoder.rest()

    def close(self) -> None:
        """Stop the decoder."""
        self.images.close()
        self._queue.close()
        self._decoder.close()
        self._reader.close()
        self.installer.close()


def key_of(status: FileStatus) -> tuple[int, ...]:
    """Identity of a file and of its contents: changes when it is written to. A file that gets the
    inode number of a removed one has another: no user can set the time of its last change."""
    return (*_contents_of(status), status.st_ctime_ns)


def _contents_of(status: FileStatus) -> tuple[int, ...]:
    """Identity of the contents of a file that is kept open, also when it is renamed or removed."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _vdso_file() -> int:
    """A descriptor of the kernel's shared object, which every 64-bit process maps alike."""
    fd = os.memfd_create("vdso", os.MFD_CLOEXEC)
    os.fchmod(fd, 0o600)  # no other user writes it: its table is kept for the next recording
    for region in executable_regions(os.getpid()):
        if region.path == "[vdso]":
            os.write(fd, ctypes.string_at(region.start, region.end - region.start))
    return fd


class ModuleImages:
    """Descriptors of modules' files by the modules' ids, kept open as another process may not be
    able to open them; ``reader`` copies what may not be read."""

    def __init__(self, reader: TargetReader) -> None:
        self._reader = reader
        self._descriptors: dict[int, int] = {}
        self._copies: set[int] = set()
        self._copied = 0
        """Bytes of the modules that are copies in memory."""

    def __contains__(self, number: int) -> bool:
        return number in self._descriptors

    def keep(self, number: int, fd: int) -> None:
        """Keep the file at ``fd`` open, unless too many are."""
        if len(self._descriptors) < _MAX_IMAGES:
            with contextlib.suppress(OSError):
                self._descriptors[number] = os.dup(fd)

    def is_open(self, number: int) -> bool:
        """Whether the file itself is kept open, and not a copy: until it is closed, no other file
        of its file system has its inode number."""
        return number in self._descriptors and number not in self._copies

    def descriptor(self, number: int) -> int:
        """Return the descriptor of a file that is kept, which may only be for a reader."""
        return self._descriptors[number]

    def is_copy(self, number: int) -> bool:
        """Whether the descriptor is of a copy in memory."""
        return number in self._copies

    def readable(self, number: int, user: int, path: str) -> int | None:
        """Return a descriptor by which this process may read the file; None if there is none."""
        image = self._descriptors.get(number)
        if image is None or not is_pin(image):
            return image
        try:
            with self._reader.readable(user, path, image) as copy:
                self._copied += os.fstat(copy).st_size
                if self._copied > _MAX_COPIED:
                    return None
                os.dup2(copy, image, inheritable=False)
                self._copies.add(number)
        except HpcdError:
            return None
        return image

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
