"""Offsets in kernel structures, from the running kernel's own type information (BTF).

Headers may be those of another kernel; the offsets of ``task_struct`` differ between any two. The
look-up is libbpf's.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from functools import cache

from hpcd.bpf.libbpf import library, silence
from hpcd.errors import PlatformError

_ARRAY, _STRUCT, _UNION, _ENUM, _TYPEDEF = 3, 4, 5, 6, 8
_MODIFIERS = (_TYPEDEF, 9, 10, 11, 18)  # with volatile, const, restrict and type tags


class _Type(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("info", ctypes.c_uint32), ("size", ctypes.c_uint32))


class _Member(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("type", ctypes.c_uint32), ("offset", ctypes.c_uint32))


class KernelTypes:
    """The running kernel's structures. Raises :class:`PlatformError` when it has no BTF."""

    def __init__(self) -> None:
        lib = library()
        # Its own messages on standard error would be a second line.
        with silence():
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
            member = self._member(type_id, name) if type_id > 0 else None
            if member is None:
                raise PlatformError(f"this kernel's {struct} has no member {'.'.join(path)}")
            type_id, offset = member
            total += offset
        return total

    def has_member(self, struct: str, member: str) -> bool:
        """Whether ``struct`` has ``member`` in this kernel."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, struct.encode(), _STRUCT)
        return type_id > 0 and self._member(type_id, member) is not None

    def bit(self, struct: str, member: str) -> tuple[int, int]:
        """(byte, bit within it) of a bit field's lowest bit."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, struct.encode(), _STRUCT)
        field = self._bits(type_id, member) if type_id > 0 else None
        if field is None:
            raise PlatformError(f"this kernel's {struct} has no member {member}")
        return field[1] // 8, field[1] % 8

    def length(self, struct: str, member: str) -> int:
        """How many elements ``member`` of ``struct``, an array, has."""
        type_id = self._lib.btf__find_by_name_kind(self._btf, struct.encode(), _STRUCT)
        found = self._member(type_id, member) if type_id > 0 else None
        address = self._lib.btf__type_by_id(self._btf, found[0]) if found else None
        if not address or _Type.from_address(address).info >> 24 & 31 != _ARRAY:
            raise PlatformError(f"this kernel's {struct} has no array {member}")
        # After the type itself: that of the elements, that of the index, their number.
        return int((ctypes.c_uint32 * 3).from_address(address + ctypes.sizeof(_Type))[2])

    def has_enumerator(self, enumeration: str, name: str) -> bool:
        """Whether the kernel's ``enumeration`` has ``name`` among its first 65,535."""
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

    def _member(self, type_id: int, name: str) -> tuple[int, int] | None:
        field = self._bits(type_id, name)
        return (field[0], field[1] // 8) if field else None

    def _bits(self, type_id: int, name: str) -> tuple[int, int] | None:
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
            bits = member.offset & 0xFFFFFF if kind.info >> 31 else member.offset
            label = self._lib.btf__name_by_offset(self._btf, member.name)
            if label == name.encode():
                return member.type, bits
            if not label:  # an anonymous structure: its members count as the outer one's
                inner = self._bits(member.type, name)
                if inner:
                    return inner[0], inner[1] + bits
        return None


_looking_up = threading.Lock()


def task_offsets() -> dict[str, int]:
    """The compile-time constants the programs read ``task_struct`` with.

    Who asks while another thread looks them up waits for that.
    """
    with _looking_up:
        return _task_offsets()


@cache
def _task_offsets() -> dict[str, int]:
    types = KernelTypes()
    try:
        waiting = types.bit("task_struct", "in_iowait")
        try:
            executing = types.bit("task_struct", "in_execve")
        except PlatformError:
            executing = 0, 8  # no bit of a byte
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
            "OFFSET_CRED_IDS": _ids(types),
            "OFFSET_TASK_SIGNAL": types.offset("task_struct", "signal"),
            "OFFSET_SIGNAL_LIVE": types.offset("signal_struct", "live"),
            "OFFSET_CRED_PERMITTED": types.offset("cred", "cap_permitted"),
            "OFFSET_CRED_NAMESPACE": types.offset("cred", "user_ns"),
            "OFFSET_NAMESPACE_OWNER": types.offset("user_namespace", "owner"),
            "OFFSET_TASK_MM": types.offset("task_struct", "mm"),
            "OFFSET_MM_FLAGS": types.offset("mm_struct", "flags"),
            # Of use on x86-64 alone, where Go keeps its goroutine there.
            "OFFSET_TASK_THREAD_POINTER": types.offset("task_struct", "thread", "fsbase")
            if platform.machine() == "x86_64"
            else 0,
            "OFFSET_TASK_EXECS": types.offset("task_struct", "self_exec_id"),
            "OFFSET_TASK_IN_EXECVE": executing[0],
            "BIT_TASK_IN_EXECVE": executing[1],
            "OFFSET_MM_START_STACK": types.offset("mm_struct", "start_stack"),
            "OFFSET_TASK_PARENT": types.offset("task_struct", "real_parent"),
            "OFFSET_MM_ARGUMENTS": types.offset("mm_struct", "arg_start"),
            "OFFSET_MM_ARGUMENTS_END": types.offset("mm_struct", "arg_end"),
            "OFFSET_MM_ENVIRONMENT_END": types.offset("mm_struct", "env_end"),
            # A kernel without has no helper that tells them.
            "HAS_CONTROL_GROUPS": int(types.has_member("task_struct", "cgroups")),
        }
    finally:
        types.close()


_FILE_MEMBERS = {
    "OFFSET_MM_BREAK": ("mm_struct", "brk"),
    "OFFSET_TASK_FILES": ("task_struct", "files"),
    "OFFSET_FILES_FDT": ("files_struct", "fdt"),
    "OFFSET_FDTABLE_MAX": ("fdtable", "max_fds"),
    "OFFSET_FDTABLE_FD": ("fdtable", "fd"),
    "OFFSET_FILE_INODE": ("file", "f_inode"),
    "OFFSET_FILE_MOUNT": ("file", "f_path", "mnt"),
    "OFFSET_FILE_DENTRY": ("file", "f_path", "dentry"),
    "OFFSET_FILE_PRIVATE": ("file", "private_data"),
    "OFFSET_FILE_POSITION": ("file", "f_pos"),
    "OFFSET_INODE_MODE": ("inode", "i_mode"),
    "OFFSET_INODE_NUMBER": ("inode", "i_ino"),
    "OFFSET_INODE_SUPER": ("inode", "i_sb"),
    "OFFSET_INODE_GENERATION": ("inode", "i_generation"),
    "OFFSET_INODE_DEVICE": ("inode", "i_rdev"),
    "OFFSET_SUPER_DEVICE": ("super_block", "s_dev"),
    "OFFSET_SUPER_TYPE": ("super_block", "s_type"),
    "OFFSET_SUPER_MAGIC": ("super_block", "s_magic"),
    "OFFSET_FS_TYPE_NAME": ("file_system_type", "name"),
    "OFFSET_DENTRY_PARENT": ("dentry", "d_parent"),
    "OFFSET_DENTRY_NAME": ("dentry", "d_name", "name"),
    "OFFSET_DENTRY_HASHED": ("dentry", "d_hash", "pprev"),
    "OFFSET_VFSMOUNT_ROOT": ("vfsmount", "mnt_root"),
    "OFFSET_MOUNT_VFSMOUNT": ("mount", "mnt"),
    "OFFSET_MOUNT_PARENT": ("mount", "mnt_parent"),
    "OFFSET_MOUNT_POINT": ("mount", "mnt_mountpoint"),
    "OFFSET_MOUNT_ID": ("mount", "mnt_id"),
    "OFFSET_SOCKET_SOCK": ("socket", "sk"),
    "OFFSET_SOCK_FAMILY": ("sock", "__sk_common", "skc_family"),
    "OFFSET_SOCK_PEER": ("sock", "__sk_common", "skc_daddr"),
    "OFFSET_SOCK_LOCAL": ("sock", "__sk_common", "skc_rcv_saddr"),
    "OFFSET_SOCK_PEER_PORT": ("sock", "__sk_common", "skc_dport"),
    "OFFSET_SOCK_LOCAL_PORT": ("sock", "__sk_common", "skc_num"),
    "OFFSET_SOCK_TYPE": ("sock", "sk_type"),
    "OFFSET_SOCK_PROTOCOL": ("sock", "sk_protocol"),
}
# Of what a kernel may be built without, or have as a module: 0 then.
_OPTIONAL_FILE_MEMBERS = {
    "OFFSET_SOCK_PEER6": ("sock", "__sk_common", "skc_v6_daddr"),
    "OFFSET_SOCK_LOCAL6": ("sock", "__sk_common", "skc_v6_rcv_saddr"),
    "OFFSET_UNIX_ADDRESS": ("unix_sock", "addr"),
    "OFFSET_UNIX_PEER": ("unix_sock", "peer"),
    "OFFSET_UNIX_LENGTH": ("unix_address", "len"),
    "OFFSET_UNIX_NAME": ("unix_address", "name"),
    "OFFSET_THREAD_STATUS": ("task_struct", "thread_info", "status"),
}


@cache
def return_offsets() -> dict[str, int]:
    """The constants the programs find replaced return addresses with."""
    types = KernelTypes()
    try:
        return {
            "OFFSET_TASK_UTASK": types.offset("task_struct", "utask"),
            "OFFSET_UTASK_RETURNS": types.offset("uprobe_task", "return_instances"),
            "OFFSET_RETURN_STACK": types.offset("return_instance", "stack"),
            "OFFSET_RETURN_ADDRESS": types.offset("return_instance", "orig_ret_vaddr"),
            "OFFSET_RETURN_NEXT": types.offset("return_instance", "next"),
            "OFFSET_MM_XOL_AREA": types.offset("mm_struct", "uprobes_state", "xol_area"),
            "OFFSET_XOL_ADDRESS": types.offset("xol_area", "vaddr"),
            "OFFSET_UTASK_ADDRESS": types.offset("uprobe_task", "vaddr"),
        }
    finally:
        types.close()


@cache
def file_offsets() -> dict[str, int]:
    """The constants the programs read files, mounts and sockets with.

    Raises :class:`PlatformError`.
    """
    types = KernelTypes()
    try:
        found = {name: types.offset(*path) for name, path in _FILE_MEMBERS.items()}
        for name, path in _OPTIONAL_FILE_MEMBERS.items():
            try:
                found[name] = types.offset(*path)
            except PlatformError:
                found[name] = 0
        return found
    finally:
        types.close()


def _ids(types: KernelTypes) -> int:
    """Where ``cred`` has the six ids that the programs read at once."""
    names = ("uid", "gid", "suid", "sgid", "euid", "egid")
    offsets = [types.offset("cred", name) for name in names]
    if offsets != [offsets[0] + 4 * number for number in range(len(names))]:
        raise PlatformError(f"this kernel's cred has {', '.join(names)} in another order")
    return offsets[0]
