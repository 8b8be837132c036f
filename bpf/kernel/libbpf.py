"""The part of libbpf's interface that hpcd uses, called by ctypes.

libbpf is needed anyway, to load objects. It knows which form of each system call the running kernel
takes. ``docs/design/004-loading.md`` has the figures.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from hpcd.bpf.kernel.privileges import not_permitted
from hpcd.errors import HpcdError, PlatformError

_STATS_RUN_TIME = 0
_ALWAYS_COUNTED = Path("/proc/sys/kernel/bpf_stats_enabled")


class KernelRefusedError(HpcdError):
    """A system call failed; ``errno`` says how."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(f"{what}: {os.strerror(number)}")
        self.errno = number


class MapCreateOptions(ctypes.Structure):
    """``struct bpf_map_create_opts``; by ``sz`` libbpf sees which members there are."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("btf_fd", ctypes.c_uint32),
        ("btf_key_type_id", ctypes.c_uint32),
        ("btf_value_type_id", ctypes.c_uint32),
        ("btf_vmlinux_value_type_id", ctypes.c_uint32),
        ("inner_map_fd", ctypes.c_uint32),
        ("map_flags", ctypes.c_uint32),
        ("map_extra", ctypes.c_uint64),
        ("numa_node", ctypes.c_uint32),
        ("map_ifindex", ctypes.c_uint32),
    )


class ProgramInfo(ctypes.Structure):
    """``struct bpf_prog_info`` of include/uapi/linux/bpf.h, as far as hpcd reads it."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("tag", ctypes.c_uint8 * 8),
        ("jited_prog_len", ctypes.c_uint32),
        ("xlated_prog_len", ctypes.c_uint32),
        ("jited_prog_insns", ctypes.c_uint64),
        ("xlated_prog_insns", ctypes.c_uint64),
        ("load_time", ctypes.c_uint64),
        ("created_by_uid", ctypes.c_uint32),
        ("nr_map_ids", ctypes.c_uint32),
        ("map_ids", ctypes.c_uint64),
        ("name", ctypes.c_char * 16),
        ("ifindex", ctypes.c_uint32),
        ("gpl_compatible", ctypes.c_uint32),  # one bit of it
        ("netns_dev", ctypes.c_uint64),
        ("netns_ino", ctypes.c_uint64),
        ("nr_jited_ksyms", ctypes.c_uint32),
        ("nr_jited_func_lens", ctypes.c_uint32),
        ("jited_ksyms", ctypes.c_uint64),
        ("jited_func_lens", ctypes.c_uint64),
        ("btf_id", ctypes.c_uint32),
        ("func_info_rec_size", ctypes.c_uint32),
        ("func_info", ctypes.c_uint64),
        ("nr_func_info", ctypes.c_uint32),
        ("nr_line_info", ctypes.c_uint32),
        ("line_info", ctypes.c_uint64),
        ("jited_line_info", ctypes.c_uint64),
        ("nr_jited_line_info", ctypes.c_uint32),
        ("line_info_rec_size", ctypes.c_uint32),
        ("jited_line_info_rec_size", ctypes.c_uint32),
        ("nr_prog_tags", ctypes.c_uint32),
        ("prog_tags", ctypes.c_uint64),
        ("run_time_ns", ctypes.c_uint64),
        ("run_cnt", ctypes.c_uint64),
        ("recursion_misses", ctypes.c_uint64),
        ("verified_insns", ctypes.c_uint32),
    )


_INT, _U32, _U64 = ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64
_SIZE, _POINTER, _TEXT = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
# name: (result, arguments)
_FUNCTIONS: dict[str, tuple[object, tuple[object, ...]]] = {
    # system calls: the result, or -errno
    "bpf_map_create": (_INT, (_INT, _TEXT, _U32, _U32, _U32, _POINTER)),
    "bpf_map_lookup_elem": (_INT, (_INT, _POINTER, _POINTER)),
    "bpf_map_update_elem": (_INT, (_INT, _POINTER, _POINTER, _U64)),
    "bpf_map_delete_elem": (_INT, (_INT, _POINTER)),
    "bpf_map_get_next_key": (_INT, (_INT, _POINTER, _POINTER)),
    "bpf_map_update_batch": (_INT, (_INT, _POINTER, _POINTER, _POINTER, _POINTER)),
    "bpf_prog_load": (_INT, (_INT, _TEXT, _TEXT, _POINTER, _SIZE, _POINTER)),
    "bpf_raw_tracepoint_open": (_INT, (_TEXT, _INT)),
    "bpf_enable_stats": (_INT, (_INT,)),
    "bpf_prog_test_run_opts": (_INT, (_INT, _POINTER)),
    "bpf_obj_get_info_by_fd": (_INT, (_INT, _POINTER, _POINTER)),
    "libbpf_num_possible_cpus": (_INT, ()),
    "libbpf_probe_bpf_helper": (_INT, (_INT, _INT, _POINTER)),
    "libbpf_set_print": (_POINTER, (_POINTER,)),
    # the kernel's types
    "btf__load_vmlinux_btf": (_POINTER, ()),
    "btf__type_by_id": (_POINTER, (_POINTER, _U32)),
    "btf__find_by_name_kind": (_INT, (_POINTER, _TEXT, _U32)),
    "btf__name_by_offset": (_TEXT, (_POINTER, _U32)),
    "btf__free": (None, (_POINTER,)),
    # objects
    "bpf_object__open_file": (_POINTER, (_TEXT, _POINTER)),
    "bpf_object__find_map_by_name": (_POINTER, (_POINTER, _TEXT)),
    "bpf_map__reuse_fd": (_INT, (_POINTER, _INT)),
    "bpf_map__initial_value": (_POINTER, (_POINTER, _POINTER)),
    "bpf_object__btf": (_POINTER, (_POINTER,)),
    "bpf_object__next_program": (_POINTER, (_POINTER, _POINTER)),
    "bpf_program__name": (_TEXT, (_POINTER,)),
    "bpf_program__set_autoload": (_INT, (_POINTER, ctypes.c_bool)),
    "bpf_object__load": (_INT, (_POINTER,)),
    "bpf_object__find_program_by_name": (_POINTER, (_POINTER, _TEXT)),
    "bpf_program__set_expected_attach_type": (_INT, (_POINTER, _U32)),
    "bpf_program__fd": (_INT, (_POINTER,)),
    "bpf_program__attach_iter": (_POINTER, (_POINTER, _POINTER)),
    "bpf_link__fd": (_INT, (_POINTER,)),
    "bpf_link__destroy": (_INT, (_POINTER,)),
    "bpf_iter_create": (_INT, (_INT,)),
    "bpf_object__close": (None, (_POINTER,)),
}


@cache
def library() -> ctypes.CDLL:
    """libbpf with its functions declared. Raises :class:`PlatformError` when it is missing."""
    try:
        loaded = ctypes.CDLL("libbpf.so.1")
    except OSError:
        raise PlatformError("libbpf.so.1 is missing; apt-get install libbpf1") from None
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


_silencing = threading.Lock()
_silenced: list[object] = []


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep libbpf from printing, while any thread is in such a block."""
    with _silencing:
        _silenced.append(library().libbpf_set_print(None) if not _silenced else _silenced[0])
    try:
        yield
    finally:
        with _silencing:
            printing = _silenced.pop()
            if not _silenced:
                library().libbpf_set_print(printing)


def checked(result: int, what: str) -> int:
    """``result`` of a system call that did ``what``.

    Raises :class:`PrivilegeError` on EPERM, :class:`KernelRefusedError` on another -errno.
    """
    if result == -errno.EPERM:
        raise not_permitted(what)
    if result < 0:
        raise KernelRefusedError(what, -result)
    return result


def raw_tracepoint(name: str, program: int) -> int:
    """Run ``program`` at a tracepoint, without tracefs; returns a descriptor.

    Raises :class:`PlatformError` where the kernel has no such tracepoint, else as :func:`checked`.
    """
    descriptor = library().bpf_raw_tracepoint_open(name.encode(), program)
    if descriptor == -errno.ENOENT:
        raise PlatformError(f"this kernel has no tracepoint {name}")
    return checked(descriptor, f"attaching to tracepoint {name}")


class TestRunOptions(ctypes.Structure):
    """``struct bpf_test_run_opts``."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data_in", ctypes.c_void_p),
        ("data_out", ctypes.c_void_p),
        ("data_size_in", ctypes.c_uint32),
        ("data_size_out", ctypes.c_uint32),
        ("ctx_in", ctypes.c_void_p),
        ("ctx_out", ctypes.c_void_p),
        ("ctx_size_in", ctypes.c_uint32),
        ("ctx_size_out", ctypes.c_uint32),
        ("retval", ctypes.c_uint32),
        ("repeat", ctypes.c_int),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


def run_program(program: int) -> None:
    """Run a raw tracepoint's program, here and now (kernel 5.10)."""
    options = TestRunOptions.from_buffer_copy(_RUN_ONCE)
    result = library().bpf_prog_test_run_opts(program, ctypes.byref(options))
    checked(result, "running a BPF program")


_RUN_ONCE = bytes(TestRunOptions(sz=ctypes.sizeof(TestRunOptions)))


def enable_stats() -> int:
    """Make the kernel count BPF run time while the returned descriptor is open.

    That takes CAP_SYS_ADMIN, which the service is not given: its unit has the kernel count always
    (kernel.bpf_stats_enabled), and then there is nothing to enable.
    """
    result: int = library().bpf_enable_stats(_STATS_RUN_TIME)
    if result == -errno.EPERM:
        with contextlib.suppress(OSError):
            if _ALWAYS_COUNTED.read_text().strip() == "1":
                return os.open(_ALWAYS_COUNTED, os.O_RDONLY | os.O_CLOEXEC)
    return checked(result, "enabling BPF statistics")


def program_info(fd: int) -> ProgramInfo:
    """Return what the kernel knows of the program ``fd``, its run statistics among it."""
    info = ProgramInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    result = library().bpf_obj_get_info_by_fd(fd, ctypes.byref(info), ctypes.byref(size))
    checked(result, "reading program statistics")
    return info


def program_functions(fd: int) -> list[tuple[int, int, str]]:
    """(address, size, name) of the machine code of the functions of program ``fd``, its main one
    first; none where this process may not see addresses. All have the name by which the kernel
    lists the main one."""
    info = ProgramInfo()
    size = ctypes.c_uint32(ctypes.sizeof(info))
    get = library().bpf_obj_get_info_by_fd
    checked(get(fd, ctypes.byref(info), ctypes.byref(size)), "reading a program's address")
    count = min(info.nr_jited_ksyms, info.nr_jited_func_lens)
    name = f"bpf_prog_{bytes(info.tag).hex()}_{info.name.decode(errors='replace')}"
    starts, lengths = (ctypes.c_uint64 * count)(), (ctypes.c_uint32 * count)()
    info = ProgramInfo(
        nr_jited_ksyms=count,
        jited_ksyms=ctypes.addressof(starts),
        nr_jited_func_lens=count,
        jited_func_lens=ctypes.addressof(lengths),
    )
    checked(get(fd, ctypes.byref(info), ctypes.byref(size)), "reading a program's address")
    return [(start, length, name) for start, length in zip(starts, lengths, strict=True) if start]
