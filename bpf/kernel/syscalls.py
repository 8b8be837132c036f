"""perf_event_open(2), what is done with its descriptors, and membarrier(2); the standard library
lacks them.

Numbers and layouts are those of ``include/uapi/linux/perf_event.h``.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import platform
from dataclasses import dataclass

from hpcd.bpf.kernel.libbpf import KernelRefusedError
from hpcd.bpf.kernel.privileges import not_permitted
from hpcd.errors import PlatformError, TargetError

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
_MEMBARRIER_CMD_GLOBAL = 1

PERF_TYPE_HARDWARE, PERF_TYPE_SOFTWARE, PERF_TYPE_TRACEPOINT = 0, 1, 2
SW_CPU_CLOCK, SW_TASK_CLOCK, SW_PAGE_FAULTS, SW_DUMMY = 0, 1, 2, 9
SW_CLOCKS = (SW_CPU_CLOCK, SW_TASK_CLOCK)
_IOC_ENABLE, _IOC_DISABLE, _IOC_SET_BPF = 0x2400, 0x2401, 0x40042408
_FLAG_CLOEXEC = 8

# Bits of struct perf_event_attr's flag word.
DISABLED, FREQ = 1 << 0, 1 << 10


class PerfEventAttr(ctypes.Structure):
    """``struct perf_event_attr`` up to version 8 (kernel 6.3); older kernels accept it as long as
    what they do not know is 0."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),  # or a frequency, with FREQ
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),  # bit fields
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("config1", ctypes.c_uint64),
        ("config2", ctypes.c_uint64),
        ("branch_sample_type", ctypes.c_uint64),
        ("sample_regs_user", ctypes.c_uint64),
        ("sample_stack_user", ctypes.c_uint32),
        ("clockid", ctypes.c_int32),
        ("sample_regs_intr", ctypes.c_uint64),
        ("aux_watermark", ctypes.c_uint32),
        ("sample_max_stack", ctypes.c_uint16),
        ("reserved_2", ctypes.c_uint16),
        ("aux_sample_size", ctypes.c_uint32),
        ("reserved_3", ctypes.c_uint32),
        ("sig_data", ctypes.c_uint64),
        ("config3", ctypes.c_uint64),
    )


@dataclass(frozen=True, slots=True)
class PerfEvent:
    """An event to count, and how often: ``frequency`` in Hz, or ``period`` in events; one is 0."""

    type: int
    config: int
    frequency: int = 0
    period: int = 0
    flags: int = 0
    wakeup_events: int = 0
    config1: int = 0
    config2: int = 0
    sample_type: int = 0
    clock: int = 0

    @property
    def clock_period_ns(self) -> int:
        """Time between two firings of a clock of the kernel; 0 for any other event."""
        if self.type != PERF_TYPE_SOFTWARE or self.config not in SW_CLOCKS:
            return 0
        return self.period or 1_000_000_000 // self.frequency

    @property
    def pace_ns(self) -> int:
        """Time between two samples of an event that the kernel itself counts, such as page faults,
        where a frequency is requested: it fires each time, and the programs keep to the pace. 0 of
        any other event."""
        counted = self.type == PERF_TYPE_SOFTWARE and self.config not in SW_CLOCKS
        return 1_000_000_000 // self.frequency if counted and self.frequency else 0


def perf_event_open(event: PerfEvent, pid: int, cpu: int) -> int:
    """Open ``event`` on thread ``pid`` (-1: all) and ``cpu`` (-1: any); returns a descriptor.

    Raises :class:`TargetError` when the thread is gone, :class:`PrivilegeError` on EACCES or
    EPERM, :class:`PlatformError` when this machine has no such event.
    """
    try:
        number = _PERF_EVENT_OPEN[platform.machine()]
    except KeyError:
        raise PlatformError(f"processor {platform.machine()} is not supported") from None
    attr = PerfEventAttr(
        type=event.type,
        size=ctypes.sizeof(PerfEventAttr),
        config=event.config,
        sample_period=event.frequency or event.period,
        flags=event.flags | (FREQ if event.frequency else 0),
        wakeup_events=event.wakeup_events,
        config1=event.config1,
        config2=event.config2,
        sample_type=event.sample_type,
        clockid=event.clock,
    )
    fd: int = _LIBC.syscall(number, ctypes.byref(attr), pid, cpu, -1, _FLAG_CLOEXEC)
    if fd >= 0:
        return fd
    reason = ctypes.get_errno()
    if reason == errno.ESRCH:
        raise TargetError(f"thread {pid} is gone")
    if reason in (errno.EACCES, errno.EPERM):
        raise not_permitted("perf_event_open")
    if reason in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        raise PlatformError("this machine does not offer the event")
    raise KernelRefusedError("perf_event_open", reason)


def perf_enable(fd: int) -> None:
    """Start a perf event that was opened disabled."""
    fcntl.ioctl(fd, _IOC_ENABLE, 0)


def perf_disable(fd: int) -> None:
    """Stop a perf event. Closing it takes 16 ms on real-time kernels (6.1), where it waits for all
    readers of what it frees."""
    fcntl.ioctl(fd, _IOC_DISABLE, 0)


def perf_attach(fd: int, program: int) -> None:
    """Run ``program`` whenever the perf event ``fd`` fires."""
    try:
        fcntl.ioctl(fd, _IOC_SET_BPF, program)
    except OSError as error:
        raise KernelRefusedError("attaching the sampler to an event", error.errno or 0) from None


def wait_for_running_programs() -> None:
    """Wait until the BPF programs that run on any CPU have ended: for a grace period of RCU, which
    membarrier(2) waits for. Not on kernels whose CPUs are without ticks (``nohz_full``)."""
    _LIBC.syscall(_MEMBARRIER[platform.machine()], _MEMBARRIER_CMD_GLOBAL, 0, 0)
