"""Executable mappings of processes, present and past: the load module each one is of."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.bpf.table_memory import MAPPING
from hpcd.daemon.access import patience
from hpcd.daemon.access.file_status import FileStatus, status_of
from hpcd.daemon.access.patience import WithheldError, real_user
from hpcd.daemon.access.processes import file_regions
from hpcd.daemon.access.target_files import (
    MappedFile,
    files_by_path,
    mapped_file,
    mapped_files,
)
from hpcd.daemon.naming.jit_symbols import is_jitdump
from hpcd.daemon.naming.load_modules import Modules, key_of
from hpcd.daemon.naming.mapping_rows import PAGE, KnownModule, mapping_rows
from hpcd.daemon.naming.moved_text import as_text, beside
from hpcd.daemon.naming.path_cache import PathCache
from hpcd.model.frame import MODULE_SHIFT, module_frame
from hpcd.model.identity import ModuleKind
from hpcd.model.region import Region

_NOBODY = 65534
_JIT_SPAN = 1 << MODULE_SHIFT
# Mappings of anonymous memory that are remembered.
_MAX_MEMORY = 65_536


class MappedRuntime(NamedTuple):
    """A language's runtime in a mapping: the offset from addresses in its file (``bias``),
    the addresses there of its symbols (:mod:`hpcd.daemon.unwind.runtime_symbols`), and where the
    file's code begins."""

    bias: int
    symbols: dict[str, int]
    code: int


class ModuleMappings:
    """Mappings of processes as the walker reads them; modules met for the first time are added."""

    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        # By device and inode as /proc and the kernel's events write them, which need not be those
        # that stat() returns for the file.
        self._by_inode: dict[tuple[str, int], KnownModule] = {}
        self._own_space = _mount_namespace(os.getpid())
        self._paths = PathCache(self._own_space, self._is_open, self._is_unchanged)
        self._memory: set[tuple[int, int]] = set()
        """Starts of anonymous memory that is no file's text, by the process's number."""
        self._jitdumps: set[tuple[int, str, int]] = set()
        """Files with names of code that processes, by their numbers, were seen to map."""

    def find(self, pid: int, process: int, mapped: MappedFile) -> KnownModule | None:
        """Return the module mapped by ``pid``, number ``process``; None if it cannot be identified.

        A module seen for the first time is handed to the decoder.
        """
        region = mapped.region
        if region.path == "[vdso]":
            return self._modules.vdso()
        if not region.file_backed:
            return self._jit(pid, process, region, "[jit]")
        if is_jitdump(region.path):
            self._note_jitdump(process, region)
        return None if mapped.status is None else self._of_file(pid, mapped, mapped.status)

    def _note_jitdump(self, process: int, region: Region) -> None:
        file = process, region.device, region.inode
        if process and file not in self._jitdumps and len(self._jitdumps) < _MAX_MEMORY:
            self._jitdumps.add(file)
            self._modules.jit_files.append(process)

    def _jit(self, pid: int, process: int, region: Region, path: str) -> KnownModule | None:
        base = region.start & ~(_JIT_SPAN - 1)
        key = ("jit", process, base, path)
        entry = self._modules.known(key)
        if entry is None and self._modules.accounts.take_module(_user(pid)):
            entry = self._modules.jit(key, path, base, process)
        return entry

    def _rows(
        self, pid: int, process: int, region: Region, entry: KnownModule | None
    ) -> list[tuple[int, ...]]:
        """Return the rows of ``region``, which is of the module ``entry``."""
        if entry and process and entry.module.kind is ModuleKind.ELF and entry.table is None:
            if entry.failure and not entry.undecodable:
                # No ELF file: a runtime keeps the code in it that it makes, or has made.
                path = "[jit]" if region.in_memory else region.path.removesuffix(" (deleted)")
                entry = self._jit(pid, process, region, path)
            elif region.in_memory and not entry.failure:
                # It may be a runtime's code: its names are found only while the process lives.
                self._jit(pid, process, region, "[jit]")
        return mapping_rows(region, entry) if entry else []

    def _moved_text(
        self, pid: int, process: int, region: Region
    ) -> tuple[Region, KnownModule] | None:
        """Return a region in memory as the mapping of a file whose text it is, and its module; None
        of other memory. Raises :class:`WithheldError`."""
        key = process, region.start
        if key in self._memory:
            return None
        files = patience.OWN.ask(pid, lambda: list(file_regions(pid)))
        for other in beside(region, files):
            mapped = patience.OWN.ask(pid, partial(mapped_file, pid, other, self._knows))
            entry = self.find(pid, process, mapped)
            if entry is None or entry.failure:
                continue
            if entry.table is None:
                return region, entry
            text = as_text(region, other, entry.table.segments)
            if text:
                return text, entry
        if len(self._memory) >= _MAX_MEMORY:
            self._memory.clear()
        self._memory.add(key)
        return None

    def _of_file(self, pid: int, mapped: MappedFile, status: FileStatus) -> KnownModule | None:
        region, key = mapped.region, key_of(status)
        entry = self._modules.known(key)
        if entry is None:
            path = region.path.removesuffix(" (deleted)")
            user = _user(pid)
            if not (mapped.file or mapped.refused) or not self._modules.accounts.take_module(user):
                return None
            if mapped.file is not None:
                with mapped.file as file:
                    entry = self._modules.decode(key, user, os.dup(file.fileno()), path)
            else:
                entry = self._modules.unreadable(key, path, mapped.refused)
        self._by_inode[region.device, region.inode] = entry
        return entry

    def mappings(self, pid: int, process: int) -> tuple[list[Region], npt.NDArray[np.void]]:
        """The executable mappings of ``pid``, and as the walker reads them (:data:`MAPPING` rows).

        Raises :class:`WithheldError`.
        """
        rows = []
        now = time.monotonic()
        space = _mount_namespace(pid)
        is_recent = partial(self._paths.is_recent, space, now)
        files = patience.OWN.ask(pid, partial(mapped_files, pid, self._knows, is_recent))
        regions = []
        for mapped in files:
            region = mapped.region
            in_memory = region.in_memory and region.path != "[vdso]"
            moved = self._moved_text(pid, process, region) if in_memory else None
            region, entry = moved or (region, self._paths.module(space, region))
            if entry is None or (mapped.status is not None and not moved):
                entry = self.find(pid, process, mapped)
                if space and region.file_backed and region.path != "[vdso]" and entry:
                    self._paths.note(space, region, entry, now)
            rows += self._rows(pid, process, region, entry)
            regions.append(region)
        return regions, np.array(rows, dtype=MAPPING)

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
            rows += self._rows(pid, process, region, entry)
        return np.array(rows, dtype=MAPPING)

    def mappings_of(
        self, pid: int, process: int, regions: Sequence[Region]
    ) -> npt.NDArray[np.void]:
        """Return the :data:`MAPPING` rows of ``regions`` that ``pid``, number ``process``, had at
        some time; the number is 0 if the process has ended."""
        now = time.monotonic()
        entry_of: dict[Region, KnownModule | None] = {}
        unknown = []
        for region in regions:
            if region.file_backed and region.path != "[vdso]":
                known = self._paths.at(0, region, now)
                # A process that has ended had its files in this one's namespace, as far as they
                # are found.
                if known is None and _mount_namespace(pid) in (0, self._own_space):
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
            rows += self._rows(pid, process, region, entry)
        return np.array(rows, dtype=MAPPING)

    def _find_past(
        self, pid: int, regions: Sequence[Region], now: float,
        entry_of: dict[Region, KnownModule | None],
    ) -> None:  # fmt: skip
        """Look up the modules that ``pid`` had mapped at ``regions``, by their paths."""
        try:
            files = patience.OWN.ask(pid, partial(files_by_path, pid, regions, self._knows))
        except WithheldError:
            files = [MappedFile(region) for region in regions]
        for mapped in files:
            region = mapped.region
            # A module that has moved or is gone was seen if a process still had it.
            entry = self._kept(region)
            if mapped.status is not None:
                entry = self._of_file(pid, mapped, mapped.status)
            entry_of[region] = entry
            self._paths.note(0, region, entry, now)

    def runtime_in(self, region: Region) -> MappedRuntime | None:
        """Return the language's runtime in the module of the mapping ``region``; None where there
        is none, or the module has not been analysed."""
        entry = self._by_inode.get((region.device, region.inode))
        if entry is None or entry.table is None or not entry.table.runtime or not entry.placed:
            return None
        rows = mapping_rows(region, entry)
        if not rows:
            return None
        code = min(segment.vaddr for segment in entry.table.segments if segment.executable)
        return MappedRuntime(rows[0][1], entry.table.runtime, code)

    def is_analysed(self, device: str, inode: int) -> bool:
        """Whether nothing is to be waited for: the file's table is there, will not be, or it is not
        known."""
        entry = self._by_inode.get((device, inode))
        return entry is None or entry.table is not None or bool(entry.failure)

    def want(self, device: str, inode: int) -> None:
        """A call path waits for the file's table: it is made before others'."""
        entry = self._by_inode.get((device, inode))
        if entry:
            self._modules.want(entry)

    def frame_in(self, pid: int, region: Region, address: int) -> int | None:
        """The module frame of ``address`` in a mapping of ``pid``, both of which may be gone by
        now; None while its file is not known.

        A file that was never seen mapped is opened by its path, if that still is the file.
        """
        if region.path == "[vdso]":
            entry = self._modules.known("vdso")
        elif region.file_backed:
            entry = self._kept(region) or self._past(pid, region)
        else:
            entry = None
        if entry is None or entry.table is None:
            return None
        for start, bias, pages, *_ in mapping_rows(region, entry):
            if start <= address < start + pages * PAGE:
                return module_frame(entry.module.id, address - bias)
        return None

    def _kept(self, region: Region) -> KnownModule | None:
        """Return the module of the file with this inode number, if that is kept open; when the file
        is closed and removed, its number may become another user's file's."""
        entry = self._by_inode.get((region.device, region.inode))
        return entry if entry and self._is_open(entry) else None

    def _past(self, pid: int, region: Region) -> KnownModule | None:
        """Return the module that ``pid`` had mapped at ``region``; None if it is not known."""
        now = time.monotonic()
        known = self._paths.at(0, region, now)
        if known:
            return known.entry
        entry_of: dict[Region, KnownModule | None] = {}
        self._find_past(pid, [region], now, entry_of)
        return entry_of[region]

    def _is_open(self, entry: KnownModule) -> bool:
        return self._modules.images.is_open(entry.module.id)

    def _is_unchanged(self, entry: KnownModule) -> bool:
        """Whether the file that is kept open for a module is unchanged."""
        image = self._modules.images.descriptor(entry.module.id)
        try:
            return self._modules.known(key_of(status_of(image))) is entry
        except OSError:
            return False

    def _knows(self, status: FileStatus) -> bool:
        return self._modules.known(key_of(status)) is not None


def _mount_namespace(pid: int) -> int:
    """A number of the mount namespace of ``pid``, 0 when that cannot be told."""
    try:
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino  # noqa: PTH116
    except OSError:
        return 0


def _user(pid: int) -> int:
    """Return the user whom files of ``pid`` count for; nobody's uid if it has ended."""
    user = real_user(pid)
    return _NOBODY if user < 0 else user
