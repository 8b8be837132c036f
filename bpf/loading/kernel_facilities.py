"""Facilities of the running kernel that recording needs, each determined by trying it.

Distributions carry parts of later kernels into theirs: versions are never compared.
"""

from __future__ import annotations

import re
from contextlib import closing
from enum import IntEnum
from functools import cache
from pathlib import Path

from hpcd.bpf.kernel.libbpf import library
from hpcd.bpf.loading.kernel_types import KernelTypes
from hpcd.errors import PlatformError

_PROGRAM_TYPE_PERF_EVENT = 7  # include/uapi/linux/bpf.h
_LOCKDOWN = Path("/sys/kernel/security/lockdown")
_SYMBOLS = Path("/proc/kallsyms")
# The first are offsets of variables by CPU before Linux 6.15, some of which are 0.
_SYMBOLS_LOOKED_AT = 64


class Helper(IntEnum):
    """Functions of the kernel that BPF programs call: their numbers in include/uapi/linux/bpf.h."""

    READ_KERNEL = 113
    """bpf_probe_read_kernel(), Linux 5.5; none may call it under lockdown."""
    TASK_REGISTERS = 175
    """bpf_task_pt_regs(), Linux 5.15."""
    LOOP = 181
    """bpf_loop(), Linux 5.17."""


@cache
def has_helper(helper: Helper) -> bool:
    """Return whether programs of perf events may call ``helper``.

    Where this process may load no program it counts as present.
    """
    result = library().libbpf_probe_bpf_helper(_PROGRAM_TYPE_PERF_EVENT, helper, None)
    return bool(result == 1)


@cache
def has_fault_tracepoints() -> bool:
    """Return whether the kernel has tracepoints of page faults: on x86-64, not on aarch64."""
    with closing(KernelTypes()) as types:
        return types.has_tracepoint("page_fault_user")


def lockdown_mode() -> str:
    """Return the mode of the kernel's lockdown, ``none`` where it has no lockdown or hides it."""
    try:
        modes = _LOCKDOWN.read_text()
    except OSError:
        return "none"
    active = re.search(r"\[(\w+)\]", modes)
    return active[1] if active else "unknown"


def require_memory_reads() -> None:
    """Raise :class:`PlatformError` where BPF programs may not read memory."""
    # The milder mode, integrity, leaves reading to BPF programs.
    if lockdown_mode() == "confidentiality" or not has_helper(Helper.READ_KERNEL):
        raise PlatformError(
            "BPF programs may not read memory here (kernel lockdown); "
            "boot without lockdown=confidentiality"
        )


def require_user_registers() -> None:
    """Raise :class:`PlatformError` where BPF programs cannot read a thread's registers."""
    if not has_helper(Helper.TASK_REGISTERS):
        raise PlatformError(
            "this kernel does not tell BPF programs a thread's registers (bpf_task_pt_regs); "
            "hpcd needs Linux 5.15 or later"
        )


def require_loops() -> None:
    """Raise :class:`PlatformError` where BPF programs have no loops: calls cannot be recorded."""
    if not has_helper(Helper.LOOP):
        raise PlatformError(
            "this kernel has no loops for BPF programs (bpf_loop); "
            "--io, --memory, --heap, --mpi and --probe need Linux 5.17 or later"
        )


def hides_addresses(symbols: Path = _SYMBOLS) -> bool:
    """Return whether the kernel shows this process zeros for the addresses of its ``symbols``."""
    try:
        with symbols.open() as file:
            lines = (file.readline() for _ in range(_SYMBOLS_LOOKED_AT))
            return not any(int(line.split()[0], 16) for line in lines)
    except (OSError, IndexError, ValueError):
        return True
