"""The facilities of this machine that hpcd uses, determined by trying each."""

from __future__ import annotations

import os
import platform
import struct
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpcd.bpf.kernel import libbpf, maps, syscalls
from hpcd.bpf.kernel.privileges import CAPABILITIES, missing_capabilities, privilege_remedy
from hpcd.bpf.loading.host_namespaces import (
    PID_REMEDY,
    TIME_REMEDY,
    has_hosts_clock,
    has_hosts_pids,
)
from hpcd.bpf.loading.kernel_facilities import (
    hides_addresses,
    lockdown_mode,
    require_memory_reads,
    require_user_registers,
)
from hpcd.bpf.loading.kernel_headers import kernel_headers
from hpcd.bpf.loading.kernel_layouts import count_members
from hpcd.bpf.loading.loader import chosen_loader, require_calls
from hpcd.bpf.loading.object_loader import object_path
from hpcd.bpf.loading.request_tracepoints import request_constants, submission_tracepoint
from hpcd.bpf.rings.ring import Ring
from hpcd.bpf.task_stacks import TaskStacks
from hpcd.cache_directory import cache_directory
from hpcd.errors import HpcdError, PlatformError, PrivilegeError, StorageError
from hpcd.kernels.library import open_library

_HW_CYCLES = 0
_PROG_TYPE_PERF_EVENT = 7


@dataclass(frozen=True, slots=True)
class Feature:
    """One facility a machine has or lacks.

    ``needed`` ones are required to record at all; ``remedy`` says what to do about a lack.
    """

    name: str
    available: bool
    detail: str
    remedy: str = ""
    needed: bool = False


def probe() -> list[Feature]:
    """All features, the necessary ones first. Takes a tenth of a second."""
    compiling = _compiles()
    version, flavour = platform.python_version(), platform.machine().replace("aarch64", "arm64")
    missing = [f"{name} ({CAPABILITIES[name][1]})" for name in missing_capabilities()]
    return [
        _test("root", os.geteuid() == 0, "running as root", f"running as uid {os.geteuid()}",
              privilege_remedy(), needed=True),
        _test("capabilities", not missing, ", ".join(CAPABILITIES), f"lacks {', '.join(missing)}",
              privilege_remedy(), needed=True),
        _test("process numbers", has_hosts_pids(), "those of the kernel",
              "those of a container, which the kernel has not", PID_REMEDY, needed=True),
        _test("clock", has_hosts_clock(), "the kernel's",
              "of a time namespace, which the kernel has not", TIME_REMEDY, needed=True),
        _attempt("kernel", _kernel, "Linux 5.15 or later on x86-64 or aarch64", needed=True),
        _exists("sysfs", "/sys/kernel", "mount -t sysfs sysfs /sys", needed=True),
        _attempt("BTF", lambda: f"/sys/kernel/btf/vmlinux; {count_members()} members known",
                 "a kernel built with CONFIG_DEBUG_INFO_BTF", needed=True),
        _attempt("no kernel lockdown", require_memory_reads,
                 "boot without lockdown=confidentiality", f"mode {lockdown_mode()}", needed=True),
        _test("Python", sys.base_prefix == "/usr", f"{sys.executable}, Debian's {version}",
              f"{sys.executable} {version}, built apart from Debian's bcc ({sys.base_prefix})",
              "make setup, then .venv/bin/hpcd"),
        _object(),
        _attempt("kernels", open_library, "make objects", needed=True),
        _bcc(needed=compiling),
        _attempt("kernel headers", kernel_headers,
                 f"apt-get install linux-headers-{flavour.replace('x86_64', 'amd64')}"
                 " (they need not match the running kernel)", needed=compiling),
        _attempt("BPF maps and rings", _bpf_maps, privilege_remedy(), needed=True),
        _attempt("BPF programs", _bpf_program, privilege_remedy(), needed=True),
        _attempt("stacks of sleeping threads", lambda: TaskStacks().close(),
                 "Linux 5.18 or later and make objects; hpcd stacks needs it",
                 "an iterator over threads was loaded"),
        _attempt("recorded calls", require_calls,
                 "Linux 5.17 or later and make objects; --io, --memory, --heap, --mpi and --probe"
                 " need it", "--io, --memory, --heap, --mpi and --probe can record"),
        _attempt("requests to io_uring", _requests,
                 "Linux 6.0 or later; --io records what else there is"),
        _attempt("cpu-clock sampling",
                 lambda: _open_event(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK),
                 privilege_remedy(), "perf_event_open works", needed=True),
        _attempt("hardware counters",
                 lambda: _open_event(syscalls.PERF_TYPE_HARDWARE, _HW_CYCLES),
                 "a machine, or VM, with a PMU exposed to it", "cycles can be counted"),
        _paranoid(),
        _attempt("BPF run time statistics", lambda: os.close(libbpf.enable_stats()),
                 privilege_remedy(), "the cost of hpcd's programs is measured"),
        _test("kernel symbols", not hides_addresses(), "/proc/kallsyms",
              "addresses are hidden (kptr_restrict)",
              "sysctl kernel.kptr_restrict=0, or run as root"),
        _attempt("cache", _cache, "set HPCD_CACHE to a directory of your own"),
        _exists("tracepoints through tracefs", "/sys/kernel/tracing/events",
                "mount -t tracefs tracefs /sys/kernel/tracing"),
        _exists("uprobes", "/sys/bus/event_source/devices/uprobe",
                "a kernel built with CONFIG_UPROBE_EVENTS"),
        _exists("kprobes", "/sys/bus/event_source/devices/kprobe",
                "a kernel built with CONFIG_KPROBE_EVENTS; hpcd does not need it"),
        _exists("cgroup v2", "/sys/fs/cgroup/cgroup.controllers",
                "boot with systemd.unified_cgroup_hierarchy=1"),
        _exists("systemd", "/run/systemd/system", "only hpcd's service needs it"),
    ]  # fmt: skip


def _test(
    name: str, available: bool, detail: str, lack: str, remedy: str, *, needed: bool = False
) -> Feature:
    if available:
        return Feature(name, True, detail, needed=needed)
    return Feature(name, False, lack, remedy, needed)


def _attempt(
    name: str, try_it: Callable[[], object], remedy: str, detail: str = "", *, needed: bool = False
) -> Feature:
    """The feature that works if ``try_it`` does, described by ``detail`` or its result."""
    try:
        result = try_it()
        return Feature(name, True, detail or str(result), needed=needed)
    except PrivilegeError as error:
        detail = str(error).partition(";")[0]
        return Feature(name, False, detail, privilege_remedy(), needed)
    except (StorageError, PermissionError) as error:
        remedy = "set HPCD_CACHE to a directory of your own with room in it"
        return Feature(name, False, str(error), remedy, needed)
    except (HpcdError, OSError) as error:
        return Feature(name, False, str(error), remedy, needed)


def _exists(name: str, path: str, remedy: str, *, needed: bool = False) -> Feature:
    # An unmounted tracefs is an empty directory, not a missing one.
    try:
        if Path(path).exists():
            return Feature(name, True, path, needed=needed)
    except OSError as error:
        reason = f"{path}: {error.strerror}"
        return Feature(name, False, reason, privilege_remedy(), needed)
    return Feature(name, False, f"{path} does not exist", remedy, needed)


def _kernel() -> str:
    if platform.machine() not in ("x86_64", "aarch64"):
        raise PlatformError(f"{platform.machine()} is no processor hpcd knows")
    require_user_registers()
    return f"{platform.release()} on {platform.machine()}"


def _compiles() -> bool:
    """Whether hpcd would compile its programs here: bcc and kernel headers are needed then."""
    try:
        return chosen_loader() == "bcc"
    except PlatformError:
        return False


def _object() -> Feature:
    name = "BPF object"
    try:
        loader = chosen_loader()
    except PlatformError as error:  # demanded by HPCD_LOADER
        return Feature(name, False, str(error), "make objects", True)
    if object_path().is_file():
        unused = "" if loader == "object" else "; not used, as HPCD_LOADER says"
        return Feature(name, True, f"{object_path()}{unused}")
    return Feature(name, False, "hpcd compiles its programs with bcc", "make objects")


def _bcc(*, needed: bool) -> Feature:
    remedy = "apt-get install python3-bpfcc (it serves /usr/bin/python3 only)"
    try:
        import bcc
    except ImportError:
        return Feature("bcc", False, f"{sys.executable} cannot import it", remedy, needed)
    if not hasattr(bcc, "BPF"):
        return Feature("bcc", False, "an unrelated package of that name", remedy, needed)
    version = getattr(bcc, "__version__", "unknown")
    return Feature("bcc", True, f"version {version}", needed=needed)


def _bpf_maps() -> str:
    maps.Map("probe", maps.ARRAY, 4, 8, 1).close()
    Ring("probe", 4096).close()
    return "array map and ring buffer created"


def _bpf_program() -> str:
    code = struct.pack("<BBhiBBhi", 0xB7, 0, 0, 0, 0x95, 0, 0, 0)  # r0 = 0; exit
    descriptor = libbpf.library().bpf_prog_load(
        _PROG_TYPE_PERF_EVENT, b"probe", b"GPL", code, len(code) // 8, None
    )
    os.close(libbpf.checked(descriptor, "loading a BPF program"))
    return "a perf event program was loaded"


def _requests() -> str:
    request_constants()
    return f"recorded with --io, at {submission_tracepoint()}"


def _paranoid() -> Feature:
    name = "perf_event_paranoid"
    try:
        value = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return Feature(name, False, "cannot be read", "only sampling without root would need it")
    if value <= 1 or os.geteuid() == 0:
        return Feature(name, True, f"{value}{'; does not bind root' if value > 1 else ''}")
    return Feature(name, False, f"{value} keeps users from kernel frames", privilege_remedy())


def _cache() -> str:
    directory = cache_directory()
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory):
        return str(directory)


def _open_event(kind: int, config: int) -> None:
    event = syscalls.PerfEvent(kind, config, frequency=99, flags=syscalls.DISABLED)
    os.close(syscalls.perf_event_open(event, 0, -1))
