"""Offsets in kernel structures, from the running kernel's own type information (BTF).

Headers may be those of another kernel; the offsets of ``task_struct`` differ between any two. The
look-up is libbpf's, which Debian's bcc depends on.
"""

from __future__ import annotations

import ctypes
from functools import cache

from hpcd.errors import PlatformError

_ARRAY, _STRUCT, _UNION, _TYPEDEF = 3, 4, 5, 8


class _Type(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("info", ctypes.c_uint32), ("size", ctypes.c_uint32))


class _Member(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("type", ctypes.c_uint32), ("offset", ctypes.c_uint32))


class KernelTypes:
    """The running kernel's structures. Raises :class:`PlatformError` when it has no BTF."""

    def __init__(self) -> None:
        try:
            lib = ctypes.CDLL("libbpf.so.1")
        except OSError:
            raise PlatformError("libbpf.so.1 is missing; apt-get install libbpf1") from None
        lib.libbpf_set_print(None)  # its own words on standard error would be a second line
        lib.btf__load_vmlinux_btf.restype = ctypes.c_void_p
        lib.btf__type_by_id.restype = ctypes.c_void_p
        lib.btf__type_by_id.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
        lib.btf__find_by_name_kind.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint32)
        lib.btf__name_by_offset.restype = ctypes.c_char_p
        lib.btf__name_by_offset.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
        lib.btf__free.argtypes = (ctypes.c_void_p,)
        handle = lib.btf__load_vmlinux_btf()
        if not handle:
            raise PlatformError(
                "this kernel has no BTF (/sys/kernel/btf/vmlinux); it needs CONFIG_DEBUG_INFO_BTF"
            )
        self._lib = lib
        self._btf = ctypes.c_void_p(handle)

    def close(self) -> None:
        """Free the type information (several MB)."""
        self._lib.btf__free(self._btf)

    def offset(self, struct: str, *path: str) -> int:
        """Byte offset of member ``path`` of ``struct``, through nested structures."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, struct.encode(), _STRUCT)
        total = 0
        for name in path:
            found = self._member(type_id, name) if type_id > 0 else None
            if found is None:
                raise PlatformError(f"this kernel's {struct} has no member {'.'.join(path)}")
            type_id, offset = found
            total += offset
        return total

    def bit(self, struct: str, member: str) -> tuple[int, int]:
        """(byte, bit within it) of a bit field's lowest bit."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, struct.encode(), _STRUCT)
        found = self._bits(type_id, member) if type_id > 0 else None
        if found is None:
            raise PlatformError(f"this kernel's {struct} has no member {member}")
        return found[1] // 8, found[1] % 8

    def tracepoint_arguments(self, name: str) -> int:
        """How many arguments raw tracepoint ``name`` has."""
        typedef = self._lib.btf__find_by_name_kind(
            self._btf, f"btf_trace_{name}".encode(), _TYPEDEF
        )
        if typedef <= 0:
            raise PlatformError(f"this kernel has no tracepoint {name}")
        # typedef -> pointer -> function prototype; `size` is `type` in all three
        pointer = _Type.from_address(self._lib.btf__type_by_id(self._btf, typedef)).size
        prototype = _Type.from_address(self._lib.btf__type_by_id(self._btf, pointer)).size
        info = _Type.from_address(self._lib.btf__type_by_id(self._btf, prototype)).info
        return int(info & 0xFFFF) - 1  # the first is the tracepoint's own data

    def array_length(self, struct: str, member: str) -> int:
        """Elements of an array member, 1 when it is no array."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, struct.encode(), _STRUCT)
        found = self._member(type_id, member) if type_id > 0 else None
        if found is None:
            raise PlatformError(f"this kernel's {struct} has no member {member}")
        address = self._lib.btf__type_by_id(self._btf, found[0])
        if _Type.from_address(address).info >> 24 & 31 != _ARRAY:
            return 1
        # struct btf_array follows: type, index_type, nelems
        return ctypes.c_uint32.from_address(address + ctypes.sizeof(_Type) + 8).value

    def _member(self, type_id: int, name: str) -> tuple[int, int] | None:
        found = self._bits(type_id, name)
        return (found[0], found[1] // 8) if found else None

    def _bits(self, type_id: int, name: str) -> tuple[int, int] | None:
        address = self._lib.btf__type_by_id(self._btf, type_id)
        kind = _Type.from_address(address)
        if kind.info >> 24 & 31 not in (_STRUCT, _UNION):
            return None
        members = (_Member * (kind.info & 0xFFFF)).from_address(address + ctypes.sizeof(_Type))
        for member in members:
            # With bit fields (kind_flag) the upper byte is the width.
            bits = member.offset & 0xFFFFFF if kind.info >> 31 else member.offset
            label = self._lib.btf__name_by_offset(self._btf, member.name)
            if label == name.encode():
                return member.type, bits
            if not label:  # an anonymous structure: its members count as the outer one's
                inner = self._bits(member.type, name)
                if inner:
                    return inner[0], inner[1] + bits
        return None


@cache
def task_offsets() -> dict[str, int]:
    """The compile-time constants the programs read ``task_struct`` with."""
    types = KernelTypes()
    try:
        waiting = types.bit("task_struct", "in_iowait")
        return {
            "OFFSET_TASK_STATE": types.offset("task_struct", "__state"),
            "OFFSET_TASK_IN_IOWAIT": waiting[0],
            "BIT_TASK_IN_IOWAIT": waiting[1],
            "SWITCH_HAS_STATE": int(types.tracepoint_arguments("sched_switch") >= 4),
            "OFFSET_TASK_PID": types.offset("task_struct", "pid"),
            "OFFSET_TASK_TGID": types.offset("task_struct", "tgid"),
            "OFFSET_TASK_FLAGS": types.offset("task_struct", "flags"),
            "OFFSET_TASK_COMM": types.offset("task_struct", "comm"),
            "OFFSET_TASK_START_TIME": types.offset("task_struct", "start_time"),
            "OFFSET_TASK_RUNTIME": types.offset("task_struct", "se", "sum_exec_runtime"),
            "OFFSET_TASK_CRED": types.offset("task_struct", "cred"),
            "OFFSET_CRED_USER": types.offset("cred", "euid"),
            "OFFSET_TASK_SIGNAL": types.offset("task_struct", "signal"),
            # Two contexts, for hardware and software events, became one in 6.2.
            "OFFSET_TASK_PERF_CONTEXT": types.offset("task_struct", "perf_event_ctxp"),
            "PERF_CONTEXTS": types.array_length("task_struct", "perf_event_ctxp"),
            "OFFSET_PERF_CONTEXT_EVENTS": types.offset("perf_event_context", "nr_events"),
            "OFFSET_SIGNAL_LIVE": types.offset("signal_struct", "live"),
        }
    finally:
        types.close()
