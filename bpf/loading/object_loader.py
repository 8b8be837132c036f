"""Loading the programs compiled ahead, through libbpf: no compiler, no kernel headers.

``make objects`` compiles ``sampler.bpf.c`` once for all kernels. What differs from kernel to
kernel, the places of members in its structures, is looked up in its BTF and filled in as constants;
the maps are those :mod:`hpcd.bpf.maps` has made. The file's name holds a digest of the sources it
was made from, so that an object and a source that differ never meet.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from hpcd.bpf.libbpf import library, silence
from hpcd.bpf.loading.captured_stderr import Stderr, first_error_line
from hpcd.errors import PlatformError, PrivilegeError
from hpcd.kernels.library import source_digest

# include/uapi/linux/bpf.h; bpf_loop() came with 5.17.
_PROGRAM_TYPE_PERF_EVENT = 7
_HELPER_LOOP = 181
SOURCES = Path(__file__).parent.parent / "programs"
"""The C sources of the BPF programs."""
CONSTANTS = (
    "FOLLOW_CHILDREN",
    "EVERYTHING",
    "SELECTING",
    "WAITING",
    "ONLY_USER",
    "OFFSET_TASK_STATE",
    "OFFSET_TASK_IN_IOWAIT",
    "BIT_TASK_IN_IOWAIT",
    "SWITCH_HAS_STATE",
    "OFFSET_TASK_PID",
    "OFFSET_TASK_TGID",
    "OFFSET_TASK_FLAGS",
    "OFFSET_TASK_COMM",
    "OFFSET_TASK_START_TIME",
    "OFFSET_TASK_RUNTIME",
    "OFFSET_TASK_CRED",
    "OFFSET_CRED_IDS",
    "OFFSET_TASK_SIGNAL",
    "OFFSET_SIGNAL_LIVE",
    "OFFSET_CRED_PERMITTED",
    "OFFSET_CRED_NAMESPACE",
    "OFFSET_NAMESPACE_OWNER",
    "OFFSET_TASK_MM",
    "OFFSET_MM_FLAGS",
    "OFFSET_TASK_THREAD_POINTER",
    "OFFSET_TASK_EXECS",
    "OFFSET_MM_START_STACK",
    "SAVED_STACK",
    "OFFSET_TASK_IN_EXECVE",
    "BIT_TASK_IN_EXECVE",
    "CALL_CPUS",
    "OFFSET_TASK_FILES",
    "OFFSET_FILES_FDT",
    "OFFSET_FDTABLE_MAX",
    "OFFSET_FDTABLE_FD",
    "OFFSET_FILE_INODE",
    "OFFSET_FILE_MOUNT",
    "OFFSET_FILE_DENTRY",
    "OFFSET_FILE_PRIVATE",
    "OFFSET_FILE_POSITION",
    "OFFSET_INODE_MODE",
    "OFFSET_INODE_NUMBER",
    "OFFSET_INODE_SUPER",
    "OFFSET_INODE_GENERATION",
    "OFFSET_INODE_DEVICE",
    "OFFSET_SUPER_DEVICE",
    "OFFSET_SUPER_TYPE",
    "OFFSET_SUPER_MAGIC",
    "OFFSET_FS_TYPE_NAME",
    "OFFSET_DENTRY_PARENT",
    "OFFSET_DENTRY_NAME",
    "OFFSET_DENTRY_HASHED",
    "OFFSET_VFSMOUNT_ROOT",
    "OFFSET_MOUNT_VFSMOUNT",
    "OFFSET_MOUNT_PARENT",
    "OFFSET_MOUNT_POINT",
    "OFFSET_MOUNT_ID",
    "OFFSET_SOCKET_SOCK",
    "OFFSET_SOCK_FAMILY",
    "OFFSET_SOCK_PEER",
    "OFFSET_SOCK_LOCAL",
    "OFFSET_SOCK_PEER_PORT",
    "OFFSET_SOCK_LOCAL_PORT",
    "OFFSET_SOCK_PEER6",
    "OFFSET_SOCK_LOCAL6",
    "OFFSET_SOCK_TYPE",
    "OFFSET_SOCK_PROTOCOL",
    "OFFSET_UNIX_ADDRESS",
    "OFFSET_UNIX_PEER",
    "OFFSET_UNIX_LENGTH",
    "OFFSET_UNIX_NAME",
    "OFFSET_THREAD_STATUS",
    "PROBING",
    "OFFSET_TASK_UTASK",
    "OFFSET_UTASK_RETURNS",
    "OFFSET_RETURN_STACK",
    "OFFSET_RETURN_ADDRESS",
    "OFFSET_RETURN_NEXT",
    "OFFSET_MM_XOL_AREA",
    "OFFSET_XOL_ADDRESS",
    "OFFSET_UTASK_ADDRESS",
    "OFFSET_MM_BREAK",
    "TOUCHED_FUNCTION",
    "OFFSET_REQUEST_FILE",
    "OFFSET_REQUEST_OPCODE",
    "OFFSET_REQUEST_FLAGS",
    "OFFSET_REQUEST_RESULT",
    "OFFSET_REQUEST_NUMBER",
    "OFFSET_REQUEST_RING",
    "OFFSET_TRANSFER_LENGTH",
    "OFFSET_TRANSFER_POSITION",
    "OFFSET_MESSAGE_LENGTH",
    "COMPLETION_IS_ENTRY",
    "OFFSET_ENTRY_RESULT",
    "OFFSET_PAGE_FLAGS",
    "PAGE_NODE_SHIFT",
    "PAGE_NODE_MASK",
    "OFFSET_SPLICE_LENGTH",
    "OFFSET_SPLICE_DESCRIPTOR",
    "OFFSET_SPLICE_FLAGS",
    "OFFSET_OPEN_PLACE",
    "OFFSET_ACCEPT_PLACE",
    "OFFSET_SOCKET_PLACE",
    "OFFSET_TASK_PARENT",
    "OFFSET_MM_ARGUMENTS",
    "OFFSET_MM_ARGUMENTS_END",
    "OFFSET_MM_ENVIRONMENT_END",
    "HAS_CONTROL_GROUPS",
    "ON_DEMAND",
)
"""The constants of ``object.h``, in their order."""


@cache
def object_path() -> Path:
    """Where the object made from the present sources lies, if it was made."""
    return compiled_path("sampler", [*SOURCES.glob("*.[ch]"), *SOURCES.glob("stack/*.h")])


def compiled_path(name: str, sources: Iterable[Path]) -> Path:
    """Where the object ``name`` lies that was made from these sources as they are now."""
    return SOURCES.parent / "objects" / f"{name}-{platform.machine()}-{source_digest(sources)}.o"


class _NoText:
    """In place of what a native library has written."""

    def text(self) -> str:
        """Nothing is known of it."""
        return ""


@contextlib.contextmanager
def messages(*, background: bool) -> Iterator[Stderr | _NoText]:
    """What libbpf says while the block runs: in the ``background``, beside other threads, standard
    error is left alone and nothing is said."""
    if not background:
        with Stderr() as stderr:
            yield stderr
        return
    with silence():
        yield _NoText()


def open_object(path: Path, stderr: Stderr | _NoText) -> int:
    """libbpf's handle of the object file at ``path``. Raises :class:`PlatformError`."""
    handle: int | None = library().bpf_object__open_file(str(path).encode(), None)
    if not handle:
        reason = first_error_line(stderr.text()) or "libbpf cannot open it"
        raise PlatformError(f"{path}: {reason}")
    return handle


class ObjectPrograms:
    """Programs from the object. They unload when it is closed.

    ``constants`` are those :class:`hpcd.bpf.loading.loader.Programs` gets; ``FD_NAME`` are maps.
    Loading takes as long as the kernel's verifier, 0.1 to 0.3 s.

    Raises :class:`PrivilegeError` where the kernel permits no BPF, else :class:`PlatformError`.
    """

    def __init__(
        self,
        constants: Mapping[str, int],
        names: list[str],
        attach_types: Mapping[str, int] | None = None,
        *,
        background: bool = False,
    ) -> None:
        """``attach_types`` are those of programs that are loaded for a certain one.

        In the ``background`` standard error is left alone: what libbpf says of errors is lost.
        """
        self._attach_types = attach_types or {}
        self._library = library()
        self.fds: dict[str, int] = {}
        path = object_path()
        with messages(background=background) as stderr:
            self._object = open_object(path, stderr)
            try:
                self._load(constants, names, stderr)
                for name, variant in self._variants(names).items():
                    program = self._library.bpf_object__find_program_by_name(
                        self._object, variant.encode()
                    )
                    # Of its own: libbpf's picture of the object takes megabytes.
                    self.fds[name] = os.dup(self._library.bpf_program__fd(program))
            except BaseException:
                self.close()
                raise
            finally:
                self._library.bpf_object__close(self._object)

    def _load(
        self, constants: Mapping[str, int], names: list[str], stderr: Stderr | _NoText
    ) -> None:
        """Fill in maps and constants, and load the programs called ``names``."""
        for name, fd in constants.items():
            if name.startswith("FD_"):
                self._check(
                    self._library.bpf_map__reuse_fd(self._map(f"map_{name[3:]}"), fd), stderr
                )
        # What only calls need is 0 without them.
        values = struct.pack(f"<{len(CONSTANTS)}I", *(constants.get(name, 0) for name in CONSTANTS))
        rodata = self._map(".rodata")
        self._check(self._library.bpf_map__set_initial_value(rodata, values, len(values)), stderr)
        variants = self._variants(names).values()
        program = None
        while program := self._library.bpf_object__next_program(self._object, program):
            name = self._library.bpf_program__name(program).decode()
            self._library.bpf_program__set_autoload(program, name in variants)
            if name in self._attach_types:
                kind = self._attach_types[name]
                self._library.bpf_program__set_expected_attach_type(program, kind)
        self._check(self._library.bpf_object__load(self._object), stderr)

    @staticmethod
    @cache
    def has_loops() -> bool:
        """Whether the kernel has bpf_loop()."""
        probe = library().libbpf_probe_bpf_helper
        return bool(probe(_PROGRAM_TYPE_PERF_EVENT, _HELPER_LOOP, None) == 1)

    def _variants(self, names: list[str]) -> dict[str, str]:
        """Which program of the object is loaded for each of ``names``."""
        if not self.has_loops():
            return {name: name for name in names}
        return {name: re.sub("^walk_", "loop_", name) for name in names}

    def _map(self, name: str) -> int:
        handle: int | None = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        if not handle:
            raise PlatformError(f"{object_path()} has no map {name}; run make objects")
        return handle

    @staticmethod
    def _check(result: int, stderr: Stderr | _NoText) -> None:
        """Raise what ``result``, a negative errno of libbpf's, means; 0 is success."""
        if not result:
            return
        if result == -errno.EPERM:
            raise PrivilegeError(
                "loading the BPF object: not permitted; run hpcd as root (sudo hpcd ...)"
            )
        reason = first_error_line(stderr.text()) or os.strerror(-result)
        raise PlatformError(f"loading the BPF object: {reason}")

    def close(self) -> None:
        """Unload the programs."""
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()
