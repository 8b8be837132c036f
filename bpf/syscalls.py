"""bpf(2) and perf_event_open(2), which the standard library does not have.

Numbers and layouts are those of ``include/uapi/linux/bpf.h`` and ``perf_event.h``.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import struct
from dataclasses import dataclass

from hpcd.errors import HpcdError, PlatformError, PrivilegeError, TargetError

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_NUMBERS = {"x86_64": (321, 298), "aarch64": (280, 241)}

MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, MAP_DELETE = 0, 1, 2, 3
OBJECT_INFO = 15
RAW_TRACEPOINT_OPEN = 17
MAP_UPDATE_BATCH = 26
ENABLE_STATS = 32

_ATTR_BYTES = 144

PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT = 0, 1, 2
SW_CPU_CLOCK, SW_TASK_CLOCK, SW_DUMMY = 0, 1, 9
_IOC_ENABLE, _IOC_PERIOD, _IOC_SET_BPF = 0x2400, 0x40082404, 0x40042408
_FLAG_CLOEXEC = 8

# Bits of struct perf_event_attr's flag word.
DISABLED, INHERIT, EXCLUDE_IDLE, FREQ = 1 << 0, 1 << 1, 1 << 7, 1 << 10
INHERIT_THREAD = 1 << 35


def _numbers() -> tuple[int, int]:
    try:
        return _NUMBERS[platform.machine()]
    except KeyError:
        raise PlatformError(f"processor {platform.machine()} is not supported") from None


class KernelRefusedError(HpcdError):
    """A system call failed; ``errno`` says how."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.errno = number


def bpf(command: int, attr: bytes, what: str) -> int:
    """Call bpf(2) with ``attr`` padded to the size kernels since 5.15 know.

    Raises :class:`PrivilegeError` on EPERM, :class:`KernelRefusedError` on anything else.
    """
    buffer = ctypes.create_string_buffer(attr.ljust(_ATTR_BYTES, b"\0"), _ATTR_BYTES)
    result: int = _LIBC.syscall(_numbers()[0], command, buffer, _ATTR_BYTES)
    if result < 0:
        number = ctypes.get_errno()
        if number == errno.EPERM:
            raise PrivilegeError(f"{what}: not permitted; run hpcd as root (sudo hpcd ...)")
        raise KernelRefusedError(what, number)
    return result


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """What to count and how often. ``frequency`` in Hz, or ``period`` in events; one is 0."""

    type: int
    config: int
    frequency: int = 0
    period: int = 0
    flags: int = 0
    sample_type: int = 0
    wakeup_events: int = 0
    clock_id: int = 0
    config1: int = 0
    config2: int = 0


def perf_event_open(event: PerfEvent, pid: int, cpu: int) -> int:
    """Open ``event`` on thread ``pid`` (-1: all) and ``cpu`` (-1: any); returns a descriptor.

    Raises :class:`TargetError` when the thread is gone, :class:`PrivilegeError` on EACCES or
    EPERM, :class:`PlatformError` when this machine has no such event.
    """
    flags = event.flags | (FREQ if event.frequency else 0)
    # type size config period sample_type read_format flags wakeup bp_type config1 config2
    # branch_sample_type regs_user stack_user clockid regs_intr aux sample_max_stack ...
    attr = struct.pack(
        "<IIQQQQQIIQQQQIiQIHHIIQ",
        event.type,
        136,
        event.config,
        event.frequency or event.period,
        event.sample_type,
        0,
        flags,
        event.wakeup_events,
        0,
        event.config1,
        event.config2,
        0,
        0,
        0,
        event.clock_id,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    )
    buffer = ctypes.create_string_buffer(attr.ljust(136, b"\0"), 136)
    fd: int = _LIBC.syscall(_numbers()[1], buffer, pid, cpu, -1, _FLAG_CLOEXEC)
    if fd >= 0:
        return fd
    number = ctypes.get_errno()
    if number == errno.ESRCH:
        raise TargetError(f"thread {pid} is gone")
    if number in (errno.EACCES, errno.EPERM):
        raise PrivilegeError("perf_event_open: not permitted; run hpcd as root (sudo hpcd ...)")
    if number in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        raise PlatformError("this machine does not offer the event")
    raise KernelRefusedError("perf_event_open", number)


def perf_enable(fd: int) -> None:
    """Start a perf event that was opened disabled."""
    fcntl.ioctl(fd, _IOC_ENABLE, 0)


def perf_set_period(fd: int, period: int) -> None:
    """Let perf event ``fd`` fire every ``period`` of what it counts; inherited ones keep theirs.

    The kernel has turned the frequency of clock events into a period in ns when they were opened
    (perf_swevent_init_hrtimer in kernel/events/core.c), so that is what theirs is given in.
    """
    fcntl.ioctl(fd, _IOC_PERIOD, struct.pack("<Q", period))


def perf_attach(fd: int, program: int) -> None:
    """Run ``program`` whenever the perf event ``fd`` fires, or one inherited from it."""
    try:
        fcntl.ioctl(fd, _IOC_SET_BPF, program)
    except OSError as error:
        raise KernelRefusedError("attaching the sampler to a thread", error.errno or 0) from None


def raw_tracepoint(name: str, program: int) -> int:
    """Run ``program`` at a tracepoint, without tracefs; returns a descriptor."""
    text = ctypes.create_string_buffer(name.encode())
    attr = struct.pack("<QI", ctypes.addressof(text), program)
    return bpf(RAW_TRACEPOINT_OPEN, attr, f"attaching to tracepoint {name}")


def enable_stats() -> int:
    """Have the kernel count BPF run time while the returned descriptor is open."""
    return bpf(ENABLE_STATS, struct.pack("<I", 0), "enabling BPF statistics")


@dataclass(frozen=True, slots=True)
class ProgramInfo:
    """Run statistics of a loaded program."""

    run_ns: int
    runs: int
    recursion_misses: int
    verified_instructions: int


def program_info(fd: int) -> ProgramInfo:
    """What the kernel knows of the program ``fd`` (``struct bpf_prog_info``)."""
    buffer = ctypes.create_string_buffer(232)
    attr = struct.pack("<IIQ", fd, 232, ctypes.addressof(buffer))
    bpf(OBJECT_INFO, attr, "reading program statistics")
    run_ns, runs, misses, verified = struct.unpack_from("<QQQI", buffer, 192)
    return ProgramInfo(run_ns, runs, misses, verified)
