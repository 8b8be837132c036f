"""The running kernel's type information (BTF), read through libbpf."""

from __future__ import annotations

import ctypes

from hpcd.bpf.kernel.libbpf import library, silence
from hpcd.bpf.kernel.sysfs import require_sysfs
from hpcd.errors import PlatformError

_STRUCT, _UNION, _ENUM, _TYPEDEF, _SECTION = 4, 5, 6, 8, 15
_MODIFIERS = (_TYPEDEF, 9, 10, 11, 18)  # with volatile, const, restrict and type tags


class _Type(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("info", ctypes.c_uint32), ("size", ctypes.c_uint32))


class _Member(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("type", ctypes.c_uint32), ("offset", ctypes.c_uint32))


class KernelTypes:
    """The running kernel's types. Raises :class:`PlatformError` when it has no BTF."""

    def __init__(self) -> None:
        lib = library()
        # Its own messages on standard error would be a second line.
        with silence():
            handle = lib.btf__load_vmlinux_btf()
        if not handle:
            require_sysfs()
            raise PlatformError(
                "this kernel has no BTF (/sys/kernel/btf/vmlinux); it needs CONFIG_DEBUG_INFO_BTF"
            )
        self._lib = lib
        self._btf = ctypes.c_void_p(handle)

    def close(self) -> None:
        """Free the type information (several MB)."""
        self._lib.btf__free(self._btf)

    def member(self, struct: str, name: str) -> int | None:
        """Return the bit offset of ``name`` in ``struct`` or its anonymous members, or None."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, struct.encode(), _STRUCT)
        return self._member(type_id, name) if type_id > 0 else None

    def variable_places(self) -> dict[str, int]:
        """Return the place of each of the kernel's variables by CPU in a CPU's memory, bytes."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, b".data..percpu", _SECTION)
        if type_id <= 0:
            return {}
        address = self._lib.btf__type_by_id(self._btf, type_id)
        count = _Type.from_address(address).info & 0xFFFF
        entries = (ctypes.c_uint32 * (3 * count)).from_address(address + ctypes.sizeof(_Type))
        places = {}
        for variable, place in zip(entries[::3], entries[1::3], strict=True):
            name = _Type.from_address(self._lib.btf__type_by_id(self._btf, variable)).name
            places[self._lib.btf__name_by_offset(self._btf, name).decode()] = place
        return places

    def has_enumerator(self, enumeration: str, name: str) -> bool:
        """Return whether ``enumeration`` has ``name`` among its first 65,535."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, enumeration.encode(), _ENUM)
        if type_id <= 0:
            return False
        address = self._lib.btf__type_by_id(self._btf, type_id)
        count = _Type.from_address(address).info & 0xFFFF
        values = (ctypes.c_uint32 * (2 * count)).from_address(address + ctypes.sizeof(_Type))
        return any(
            self._lib.btf__name_by_offset(self._btf, values[2 * number]) == name.encode()
            for number in range(count)
        )

    def has_tracepoint(self, name: str) -> bool:
        """Return whether the kernel has raw tracepoint ``name``."""
        return self._tracepoint(name) > 0

    def tracepoint_arguments(self, name: str) -> int:
        """Return the number of arguments of raw tracepoint ``name``.

        Raises :class:`PlatformError` if the kernel does not have it.
        """
        typedef = self._tracepoint(name)
        if typedef <= 0:
            raise PlatformError(f"this kernel has no tracepoint {name}")
        # typedef -> pointer -> function prototype; `size` is `type` in all three
        pointer = _Type.from_address(self._lib.btf__type_by_id(self._btf, typedef)).size
        prototype = _Type.from_address(self._lib.btf__type_by_id(self._btf, pointer)).size
        info = _Type.from_address(self._lib.btf__type_by_id(self._btf, prototype)).info
        return int(info & 0xFFFF) - 1  # the first is the tracepoint's own data

    def _tracepoint(self, name: str) -> int:
        type_name = f"btf_trace_{name}".encode()
        number: int = self._lib.btf__find_by_name_kind(self._btf, type_name, _TYPEDEF)
        return number

    def _member(self, type_id: int, name: str) -> int | None:
        address = self._lib.btf__type_by_id(self._btf, type_id)
        kind = _Type.from_address(address)
        while kind.info >> 24 & 31 in _MODIFIERS:
            address = self._lib.btf__type_by_id(self._btf, kind.size)  # `size` is `type`
            kind = _Type.from_address(address)
        if kind.info >> 24 & 31 not in (_STRUCT, _UNION):
            return None
        members = (_Member * (kind.info & 0xFFFF)).from_address(address + ctypes.sizeof(_Type))
        for member in members:
            # With bit fields (kind_flag) the upper byte is the width.
            bits: int = member.offset & 0xFFFFFF if kind.info >> 31 else member.offset
            label = self._lib.btf__name_by_offset(self._btf, member.name)
            if label == name.encode():
                return bits
            if not label:  # an anonymous structure: its members count as the outer one's
                inner = self._member(member.type, name)
                if inner is not None:
                    return inner + bits
        return None
