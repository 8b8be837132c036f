"""Probes in the files that targets map: found when a file is mapped, attached, and detached again.

A file is attached to for all processes at once, so that no call of later processes is
missed. A trap costs its process microseconds: if processes that are no targets make
many calls, or on demand, a file is attached to separately in each target. So it is in a recording
made for a user: there is no trap then in any other process.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcd.bpf.calls.uprobes import ProbedInstruction, Uprobes
from hpcd.bpf.wire import POINT_RETURN
from hpcd.daemon.access.file_status import FileStatus, status_of
from hpcd.daemon.access.target_files import (
    LAYERED,
    Pin,
    files_by_path,
    mapped_file,
    open_file,
)
from hpcd.daemon.probes.found_points import find_points
from hpcd.daemon.probes.heap_probes import allocator_code, has_allocator, is_of_allocator
from hpcd.daemon.probes.probe_rights import MOST_FILES, MOST_PROCESSES, ProbeRights
from hpcd.daemon.probes.probe_spec import ProbeSpec, library_matches
from hpcd.daemon.probes.probed_functions import ProbedFunctions
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.errors import FormatError, TargetError
from hpcd.model.region import Region
from hpcd.wording import counted

_FileKey = tuple[int, int, int]
_DELETED = " (deleted)"
MOST_FOREIGN = 1000
"""Calls a second of processes that are no targets: traps of 1 % of a CPU."""


@dataclass(slots=True)
class _ProbedFile:
    """A file with probes in it; ``everywhere`` when they are attached for all processes."""

    path: str
    file: io.FileIO
    places: list[ProbedInstruction]
    everywhere: bool
    allocator: bool = False
    """Whether it has an allocator in place of the C library's."""
    links: dict[int, dict[int, int]] = field(default_factory=dict)
    """Attachments by pid (0: all) and part: a function that may be dropped has a link of its own,
    numbered 1 + its number, so that it is detached without a gap in the others, part 0."""
    foreign: int = 0
    """Calls of others so far."""
    since: dict[int, int] = field(default_factory=dict)
    """When ``links`` were attached first (monotonic ns), by pid."""


@dataclass(slots=True)
class _ProbedProcess:
    """A target that has mapped ``files`` with probes; ``late`` if it began its program before
    probes of one file were attached."""

    files: set[_FileKey] = field(default_factory=set)
    late: bool = False


class ProbedFiles:
    """Attaches the probes of ``specs`` to the files that targets map.

    With ``rights`` it is for a user: files are attached to separately in each of the user's
    processes, never for all. ``problem`` takes a line about each failure; others are attached.
    """

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        functions: ProbedFunctions,
        uprobes: Uprobes,
        decoder: Decoder,
        problem: Callable[[str], None],
        *,
        rights: ProbeRights | None = None,
    ) -> None:
        self._specs = list(specs)
        self._libraries = sorted({spec.library for spec in specs})
        self._functions = functions
        self._uprobes = uprobes
        self._decoder = decoder
        self._problem = problem
        self._rights = rights
        self._files: dict[_FileKey, _ProbedFile | None] = {}
        self._by_region: dict[tuple[str, int], _FileKey] = {}
        self._attached: dict[int, set[_FileKey]] = {}
        self._meant: dict[_FileKey, list[int]] = {}
        """Which probes are meant for a file."""
        self._met: set[int] = set()
        """Probes whose library some target has mapped."""
        self._processes: dict[int, _ProbedProcess] = {}
        self._ended, self._late = 0, 0
        """Processes with probed files that have ended, and how many of them were late."""
        self._judged = 0.0
        # Attachments postponed because they have used up the user's share of time for now.
        self._postponed: dict[tuple[_FileKey, int], None] = {}

    # --- what happens ---

    def on_mapped(
        self, pid: int, regions: Iterable[Region], began: int = 0, *, ended: bool = False
    ) -> None:
        """A target has these executable mappings, or had them when it ``ended``. It began its
        program at ``began`` (monotonic ns), at 0 before it was a target."""
        for region in regions:
            if not region.file_backed or not region.inode:
                continue
            known = self._by_region.get((region.device, region.inode))
            if known is None:
                path = region.path.removesuffix(_DELETED)
                if not self._is_wanted(path):
                    continue
                known = self._meet(pid, region, path, ended=ended)
            if known is not None:
                self._met.update(self._meant.get(known, ()))
                self._attach(known, pid, ended=ended)
                self._judge(known, pid, began)

    def _judge(self, key: _FileKey, pid: int, began: int) -> None:
        """Note whether the probes of a file that ``pid`` has mapped were there when it began."""
        probed = self._files.get(key)
        if probed is None:
            return
        process = self._processes.setdefault(pid, _ProbedProcess())
        if key not in process.files:
            process.files.add(key)
            since = probed.since.get(0 if probed.everywhere else pid)
            process.late |= began > 0 and (since is None or since > began)

    def _is_wanted(self, path: str) -> bool:
        # Hundreds of functions are of a few libraries.
        return any(library_matches(library, path) for library in self._libraries)

    def on_fork(self, parent: int, child: int) -> None:
        """A target has started a process, which has its mappings."""
        for key in self._attached.get(parent, ()):
            self._attach(key, child)

    def on_exit(self, pid: int) -> None:
        """A target has ended, or is no longer a target."""
        if process := self._processes.pop(pid, None):
            self._ended += 1
            self._late += process.late
        for key in self._attached.pop(pid, ()):
            self._postponed.pop((key, pid), None)
            probed = self._files.get(key)
            if probed:
                probed.since.pop(pid, None)
            self._detach_later(*(probed.links.pop(pid, None) or {}).values() if probed else ())

    def named_by_path(self) -> list[Path]:
        """The files that probes for all processes name by a path from here."""
        texts = {spec.library for spec in self._specs if not (self._rights or spec.per_target)}
        named = (Path(text) for text in sorted(texts) if "/" in text)
        return [path.resolve() for path in named if path.is_file()]

    def prepare(self, paths: Iterable[Path], pid: int) -> None:
        """Attach to files that process ``pid`` is about to map: its first call is recorded too.

        If it is 0, attach to the files that are probed in all processes.
        """
        for path in paths:
            text = str(path)
            if not self._is_wanted(text):
                continue
            try:
                file = open_file(text, os.getpid())
                status = status_of(file.fileno())
            except OSError:
                continue
            key = _key(status)
            if key not in self._files:
                self._files[key] = self._probe(text, file, key)
            probed = self._files[key]
            if pid or (probed and probed.everywhere):
                self._attach(key, pid)

    def close(self) -> None:
        """Detach everything, close the files."""
        self._uprobes.close()
        for probed in self._files.values():
            if probed:
                probed.file.close()
        self._files.clear()

    def probed_late(self) -> list[str]:
        """A line on processes that began before their probes were there, if there were any."""
        late = self._late + sum(process.late for process in self._processes.values())
        if not late:
            return []
        probed = counted(self._ended + len(self._processes), "process", "processes")
        return [
            f"{late:,} of {probed} with probed files began before the probes were attached: calls"
            " of the first milliseconds, or of a shorter process all, are not recorded"
        ]

    def unmet(self) -> list[str]:
        """A line for each probe whose library no target has mapped."""
        return [
            f"{spec.text}: no target has mapped {spec.library}"
            for number, spec in enumerate(self._specs)
            if number not in self._met and not spec.optional
        ]

    # --- finding ---

    def _meet(self, pid: int, region: Region, path: str, *, ended: bool) -> _FileKey | None:
        """The file of a mapping that is seen for the first time. If the process has ended, it is
        located by its path, for other processes that will map it."""

        def is_known(status: FileStatus) -> bool:
            return _key(status) in self._files

        mapped = mapped_file(pid, region, is_known)
        if mapped.status is None and ended and not self._rights:
            (mapped,) = files_by_path(pid, [region], is_known)
        if mapped.status is None:
            return None
        key = _key(mapped.status)
        if isinstance(mapped.file, Pin):
            mapped.file.close()
            self._problem(f"{path} is not probed: {LAYERED}")
            self._files[key] = None
        elif mapped.file is not None:
            if region.path.endswith(_DELETED):
                self._problem(f"{path} was replaced on disk: the file that is mapped is probed")
            self._files[key] = self._probe_allowed(path, mapped.file, key)
        elif mapped.refused:
            self._problem(f"{path} is not probed: {mapped.refused}")
            self._files[key] = None
        self._by_region[region.device, region.inode] = key
        return key

    def _probe_allowed(self, path: str, file: io.FileIO, key: _FileKey) -> _ProbedFile | None:
        """Find the probes' places in a file, by :meth:`_probe`.

        None also when the user may not read it, or limits are reached.
        """
        if not self._rights:
            return self._probe(path, file, key)
        if not self._rights.may_read(file.fileno()):
            self._problem(f"{path} is not probed: its user may not read it")
            return None
        if sum(probed is not None for probed in self._files.values()) >= MOST_FILES:
            self._problem(f"{path} and further files are not probed: more than {MOST_FILES}")
            return None
        if not self._rights.spend_reading(0.0):
            self._problem(f"{path} is not probed: reading files has taken too long")
            return None
        began = time.monotonic()
        probed = self._probe(path, file, key)
        self._rights.spend_reading(time.monotonic() - began)
        return probed

    def _probe(self, path: str, file: io.FileIO, key: _FileKey) -> _ProbedFile | None:
        """Find the probes' places in a file; None if there are no places."""
        numbers = [n for n, spec in enumerate(self._specs) if spec.applies_to(path)]
        self._meant[key] = numbers
        specs = [self._specs[number] for number in numbers]
        try:
            located = find_points(self._decoder, file.fileno(), path, specs)
        except FormatError as error:
            self._problem(f"{error}: it is not probed")
            return None
        places: list[ProbedInstruction] = []
        inner = allocator_code(specs, located.points, os.fstat(file.fileno()).st_size)
        seen: set[int] = set()
        counted = [0] * len(specs)
        for point in located.points:
            counted[point.query] += 1
            spec = specs[point.query]
            if not is_of_allocator(spec, point.offset, inner(spec)):
                continue
            if point.why:
                self._problem(f"{path}: {point.name} is not probed: {point.why}")
            elif point.offset not in seen:
                seen.add(point.offset)
                if point.inlined:
                    self._problem(f"{path}: {point.name} {point.inlined}")
                places += self._functions.add(
                    spec, point, path, thrown=located.thrown, inner=inner(spec)
                )
        for number, (spec, count) in enumerate(zip(specs, counted, strict=True)):
            if not count and not spec.optional:
                self._problem(
                    self._missing(path, spec, located.symbols, located.near.get(number, ""))
                )
        if not places:
            return None
        per_target = self._rights is not None or any(spec.per_target for spec in specs)
        allocator = has_allocator([specs[point.query] for point in located.points])
        return _ProbedFile(path, file, places, not per_target, allocator)

    @staticmethod
    def _missing(path: str, spec: ProbeSpec, symbols: int, near: str) -> str:
        if spec.provider:
            return f"{path} has no static tracepoint {spec.provider}:{spec.function}"
        if not symbols:
            return f"{path} names no functions (it is stripped): {spec.function} is not probed"
        return f"{path} has no function {spec.function}{near}"

    # --- attaching ---

    def let_go(self, index: int) -> None:
        """Detach function number ``index``, and do not attach it again."""
        for probed in self._files.values():
            if probed is None:
                continue
            kept = [place for place in probed.places if place.cookie & ~POINT_RETURN != index]
            if len(kept) == len(probed.places):
                continue
            probed.places = kept
            path = f"/proc/self/fd/{probed.file.fileno()}"
            part = self._part(index)
            rest = [place for place in kept if self._part(place.cookie) == part]
            # Two links at a time would count each call of the rest twice.
            detach = self._detach if rest else self._detach_later
            for pid, links in probed.links.items():
                if part in links:
                    detach(links.pop(part))
                if rest:
                    with contextlib.suppress(TargetError):
                        links[part], _ = self._attach_places(path, rest, pid)

    def spare_others(self, now: float) -> None:
        """Attach to each target apart where others run into the probes of a file too often. Call
        now and then, at ``now`` (seconds)."""
        seconds, self._judged = now - self._judged, now
        for key, probed in self._files.items():
            if probed is None or not probed.everywhere:
                continue
            indices = {place.cookie & ~POINT_RETURN for place in probed.places}
            foreign = self._functions.foreign_calls(indices)
            more, probed.foreign = foreign - probed.foreign, foreign
            if more <= MOST_FOREIGN * seconds:
                continue
            probed.everywhere = False
            for pid in [pid for pid, keys in self._attached.items() if key in keys]:
                self._attach(key, pid)
            for link in probed.links.pop(0, {}).values():
                self._detach(link)
            self._problem(
                f"{probed.path}: other processes make {more / seconds:,.0f} of the calls a second:"
                " probed in each target apart, a new process from when it is seen"
            )

    def _part(self, cookie: int) -> int:
        """Which of a file's links has a place."""
        index = cookie & ~POINT_RETURN
        return 1 + index if self._functions.all[index].spec.expendable else 0

    def _attach(self, key: _FileKey, pid: int, *, ended: bool = False) -> None:
        probed = self._files.get(key)
        if probed is None or (ended and not probed.everywhere):
            return
        self._attached.setdefault(pid, set()).add(key)
        if probed.allocator:
            self._functions.note_allocator(pid)
        process = 0 if probed.everywhere else pid
        if process in probed.links or not self._may_attach(probed, key, process):
            return
        path = f"/proc/self/fd/{probed.file.fileno()}"
        parts: dict[int, list[ProbedInstruction]] = {}
        for place in probed.places:
            parts.setdefault(self._part(place.cookie), []).append(place)
        links: dict[int, int] = {}
        refused: list[tuple[ProbedInstruction, str]] = []
        with contextlib.suppress(TargetError):  # it has ended
            for part, places in parts.items():
                links[part], failed = self._attach_places(path, places, process)
                refused += failed
        # Asked again: the pid may be another process' by now, or it may have gained rights.
        if self._rights and not self._rights.may_probe(process):
            for link in links.values():
                self._detach(link)
            return
        if links:
            probed.links[process] = links
            probed.since.setdefault(process, time.monotonic_ns())
        for place, reason in refused:
            name = self._functions.all[place.cookie & ~POINT_RETURN].name
            self._problem(f"{probed.path}: {name} is not probed: {reason}")
        if refused:
            gone = {place for place, _ in refused}
            probed.places = [place for place in probed.places if place not in gone]

    def _may_attach(self, probed: _ProbedFile, key: _FileKey, pid: int) -> bool:
        """Whether the user's process ``pid`` may be attached to, and now."""
        if not self._rights:
            return True
        if not self._rights.may_probe(pid):
            return False
        if len(probed.links) >= MOST_PROCESSES:
            self._problem(f"{probed.path}: probed in {MOST_PROCESSES} processes, and in no more")
            return False
        if self._rights.may_attach:
            return True
        self._problem(
            f"{probed.path}: processes begin faster than probes may be attached: some are probed"
            " late or not at all"
        )
        self._postponed[key, pid] = None
        return False

    def attach_postponed(self) -> None:
        """Attach postponed files as far as the user's share allows. Call now and then."""
        for key, pid in list(self._postponed):
            if not self._rights or not self._rights.may_attach:
                return
            del self._postponed[key, pid]
            self._attach(key, pid)

    def _attach_places(
        self, path: str, places: Sequence[ProbedInstruction], pid: int
    ) -> tuple[int, list[tuple[ProbedInstruction, str]]]:
        began = time.monotonic()
        try:
            return self._uprobes.attach(path, places, pid)
        finally:
            self._spend(began)

    def _detach(self, link: int) -> None:
        began = time.monotonic()
        self._uprobes.detach(link)
        self._spend(began)

    def _detach_later(self, *links: int) -> None:
        """Detach probes that will see no recorded calls. A user's recorder waits for it,
        which is counted: else processes that begin and end would be attached to faster than the
        kernel detaches from them."""
        if self._rights:
            for link in links:
                self._detach(link)
        elif links:
            self._uprobes.detach_later(*links)

    def _spend(self, began: float) -> None:
        if self._rights:
            self._rights.spend_attaching(time.monotonic() - began)


def _key(status: FileStatus) -> _FileKey:
    return status.st_dev, status.st_ino, status.st_mtime_ns
