"""Attaching programs to instructions of files: uprobes.

From Linux 6.13 on one link serves many functions of a file, and its program both ends of a call
(``BPF_TRACE_UPROBE_SESSION``); on 6.12 one link serves their entries and one their returns; before,
each function is a perf event of its own, and another where it returns. Whatever is attached goes
with its descriptors, however the process ends.
Source: include/uapi/linux/bpf.h, kernel/trace/bpf_trace.c.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hpcd.bpf.kernel import syscalls
from hpcd.bpf.kernel.libbpf import KernelRefusedError
from hpcd.bpf.kernel.privileges import not_permitted
from hpcd.bpf.loading.kernel_types import KernelTypes
from hpcd.errors import HpcdError, PlatformError, PrivilegeError, TargetError

ATTACH_MULTI, ATTACH_SESSION = 48, 57
"""BPF_TRACE_UPROBE_MULTI, BPF_TRACE_UPROBE_SESSION."""
_ATTACH_PERF_EVENT = 41
_MULTI_RETURN = 1  # BPF_F_UPROBE_MULTI_RETURN
_LINK_CREATE = 28
_SYSTEM_CALL = {"x86_64": 321, "aarch64": 280}
_PMU = Path("/sys/bus/event_source/devices/uprobe/type")
_REFERENCE_COUNT_SHIFT = 32
_LIBC = ctypes.CDLL(None, use_errno=True)
# Of union bpf_attr (include/uapi/linux/bpf.h): program, target, type and flags of a link; then of
# uprobes path, offsets, counters, cookies, their count, flags and the process, of a perf event the
# cookie.
_UPROBE_LINK = struct.Struct("<4I4Q4I")
_EVENT_LINK = struct.Struct("<4IQ")


@dataclass(frozen=True, slots=True)
class ProbedInstruction:
    """An instruction to probe: its ``offset`` in the file, what the program gets as ``cookie``, the
    file offset of the counter that switches a static tracepoint on (0: it has none), and whether
    the return of the function that begins there is to be seen too."""

    offset: int
    cookie: int
    reference_count: int = 0
    returns: bool = False


def way_to_attach() -> str:
    """``session``, ``multi`` or ``perf``: the first of them that this kernel has, or the one that
    the environment names."""
    ways = _ways()
    named = os.environ.get("HPCD_UPROBES", "")
    return named if named in ways else ways[0]


@cache
def _ways() -> tuple[str, ...]:
    with closing(KernelTypes()) as types:
        if types.has_enumerator("bpf_attach_type", "BPF_TRACE_UPROBE_SESSION"):
            return "session", "multi", "perf"
        # Links are older (6.6), but those of one process did not see all of its threads, and each
        # of their functions was detached by itself.
        if types.member("uprobe_consumer", "cons_node") is not None:
            return "multi", "perf"
    return ("perf",)


PROBE_PROGRAMS = ("on_probe", "on_probe_entry", "on_probe_return")
"""The programs that run at probes."""


def program_attach_types() -> dict[str, int]:
    """The programs that serve probes here, each with what it is attached as (0: a perf event)."""
    way = way_to_attach()
    if way == "session":
        return {"on_probe": ATTACH_SESSION, "on_probe_entry": ATTACH_MULTI}
    link = ATTACH_MULTI if way == "multi" else 0
    return {"on_probe_entry": link, "on_probe_return": link}


def require_uprobes() -> None:
    """Raise :class:`PlatformError` where the kernel has no uprobes."""
    if not _PMU.exists():
        raise PlatformError("this kernel has no uprobes (CONFIG_UPROBE_EVENTS)")


def attach_multi(
    program: int,
    attach_type: int,
    path: str,
    places: Sequence[ProbedInstruction],
    pid: int,
    *,
    at_return: bool = False,
) -> list[int]:
    """Run ``program``, loaded for ``attach_type`` (:data:`ATTACH_SESSION`: also at the returns), at
    ``places`` of the file at ``path`` (``at_return``: where their functions return), in process
    ``pid`` or any (0); returns the descriptor of the link, none of no places. In other processes
    nothing traps.

    Nothing is attached when the kernel refuses one of the places. Raises
    :class:`KernelRefusedError` or :class:`PrivilegeError`.
    """
    if not places:
        return []
    count = len(places)
    words = ctypes.c_uint64 * count
    offsets = words(*(place.offset for place in places))
    cookies = words(*(place.cookie for place in places))
    counters = words(*(place.reference_count for place in places))
    text = ctypes.create_string_buffer(os.fsencode(path))
    link = _create_link(
        _UPROBE_LINK.pack(
            program, 0, attach_type, 0,
            ctypes.addressof(text), ctypes.addressof(offsets),
            ctypes.addressof(counters) if any(counters) else 0, ctypes.addressof(cookies),
            count, _MULTI_RETURN if at_return else 0, pid, 0,
        )
    )  # fmt: skip
    return [link]


def attach_event(
    program: int, path: str, place: ProbedInstruction, pid: int, *, at_return: bool
) -> list[int]:
    """Run ``program`` at one place and one end of the call, by a perf event; returns its descriptor
    and the link's. Raises what :func:`attach_multi` does."""
    text = ctypes.create_string_buffer(os.fsencode(path))
    event = syscalls.PerfEvent(
        int(_PMU.read_text()),
        int(at_return) | place.reference_count << _REFERENCE_COUNT_SHIFT,
        period=1,
        config1=ctypes.addressof(text),
        config2=place.offset,
    )
    fd = syscalls.perf_event_open(event, pid or -1, -1 if pid else 0)
    try:
        link = _create_link(_EVENT_LINK.pack(program, fd, _ATTACH_PERF_EVENT, 0, place.cookie))
    except BaseException:
        os.close(fd)
        raise
    return [link, fd]


def _create_link(attributes: bytes) -> int:
    number = _SYSTEM_CALL[platform.machine()]
    fd: int = _LIBC.syscall(number, _LINK_CREATE, attributes, len(attributes))
    if fd >= 0:
        return fd
    reason = ctypes.get_errno()
    if reason in (errno.EPERM, errno.EACCES):
        raise not_permitted("attaching probes")
    if reason == errno.ESRCH:
        raise TargetError("the process to probe is gone")
    raise KernelRefusedError("attaching a probe", reason)


class Uprobes:
    """The places of files that are probed, in groups that are attached and detached at once.

    ``programs`` are descriptors by name, those of :func:`program_attach_types`.
    """

    def __init__(self, programs: dict[str, int]) -> None:
        self._programs = programs
        self._way = way_to_attach()
        self._held: dict[int, list[int]] = {}
        self._count = 0
        self._detached: list[int] = []
        """Descriptors to be closed when the child that closes others has ended."""
        self._closing = 0
        """The process id of that child; 0: there is none."""

    def attach(
        self, path: str, places: Sequence[ProbedInstruction], pid: int = 0
    ) -> tuple[int, list[tuple[ProbedInstruction, str]]]:
        """Attach to ``places`` of a file; returns a number for :meth:`detach`, and the places that
        the kernel refuses, each with the reason. Raises :class:`TargetError` when process ``pid``
        is gone."""
        refused: list[tuple[ProbedInstruction, str]] = []
        held = self._attach(path, list(places), pid, refused)
        self._count += 1
        self._held[self._count] = held
        return self._count, refused

    def _attach(
        self,
        path: str,
        places: list[ProbedInstruction],
        pid: int,
        refused: list[tuple[ProbedInstruction, str]],
    ) -> list[int]:
        """Descriptors of what could be attached; halves are tried where the kernel refuses all."""
        if not places:
            return []
        try:
            return self._attach_all(path, places, pid)
        except (PrivilegeError, TargetError):
            raise
        except HpcdError as error:
            if len(places) == 1:
                refused.append((places[0], _reason(error)))
                return []
        middle = len(places) // 2
        return [
            *self._attach(path, places[:middle], pid, refused),
            *self._attach(path, places[middle:], pid, refused),
        ]

    def _attach_all(self, path: str, places: list[ProbedInstruction], pid: int) -> list[int]:
        entry = self._programs["on_probe_entry"]
        ended = [place for place in places if place.returns]
        held: list[int] = []
        try:
            if self._way == "perf":
                end = self._programs["on_probe_return"]
                for place in places:
                    if place.returns:
                        held += attach_event(end, path, place, pid, at_return=True)
                    held += attach_event(entry, path, place, pid, at_return=False)
            elif self._way == "multi":
                # Returns first: each call that is seen to begin is seen to end.
                end = self._programs["on_probe_return"]
                held += attach_multi(end, ATTACH_MULTI, path, ended, pid, at_return=True)
                held += attach_multi(entry, ATTACH_MULTI, path, places, pid)
            else:
                # Of a session in another process, too, the kernel traps the return when a call
                # comes to this place: there must be none where returns must not be replaced.
                session = self._programs["on_probe"]
                entries = [place for place in places if not place.returns]
                held += attach_multi(session, ATTACH_SESSION, path, ended, pid)
                held += attach_multi(entry, ATTACH_MULTI, path, entries, pid)
        except BaseException:
            _close(held)
            raise
        return held

    def detach(self, number: int) -> None:
        """Detach what :meth:`attach` attached; its program runs no more after this."""
        _close(self._held.pop(number, []))

    def detach_later(self, *numbers: int) -> None:
        """Detach what :meth:`attach` attached, without waiting: its program may still run, until
        the next call if what was detached before has not been closed yet."""
        self._detached += [fd for number in numbers for fd in self._held.pop(number, [])]
        if not self._closing or has_ended(self._closing):
            self._close_detached()

    def close(self) -> None:
        """Detach everything, without waiting."""
        self._detached += [fd for held in self._held.values() for fd in held]
        self._held.clear()
        self._close_detached()

    def _close_detached(self) -> None:
        self._closing = 0
        if self._detached:
            with contextlib.suppress(OSError):  # no process more: it takes its time here
                self._closing = close_in_child(self._detached)
        _close(self._detached)
        self._detached.clear()


def _close(descriptors: list[int]) -> None:
    for fd in descriptors:
        os.close(fd)


def close_in_child(descriptors: list[int]) -> int:
    """Fork a child that keeps nothing but ``descriptors`` open, and ends; returns its process id.
    The caller closes its own copies: the child's are the last then. Raises OSError.

    The kernel takes 50 to 90 ms for each event, one after another
    (``tracepoint_synchronize_unregister`` with ``event_mutex`` held): for the 113 functions of MPI
    20 s, for the links of them 1 to 2 s (6.18).
    """
    child = os.fork()
    if child == 0:
        try:
            # Nothing else is to stay open until these are closed.
            first = 0
            for fd in sorted(descriptors):
                os.closerange(first, fd)
                first = fd + 1
            os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        finally:
            os._exit(0)
    return child


def has_ended(child: int) -> bool:
    """Whether a child of this process has ended; it is reaped then."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:  # reaped by the kernel: the process that started hpcd ignores SIGCHLD
        return True


def _reason(error: HpcdError) -> str:
    number = getattr(error, "errno", 0)
    if number in (errno.EOPNOTSUPP, 524):  # ENOTSUPP, the kernel's own
        return "its first instruction is one that cannot be probed"
    if number == errno.EINVAL:
        return "the kernel finds no instruction there that it can probe"
    return str(error)
