"""Loading the programs compiled ahead, through libbpf: no compiler, no kernel headers.

``make bpf-object`` compiles ``sampler.bpf.c`` once for all kernels. What differs from kernel to
kernel, the places of members in its structures, is looked up in its BTF and filled in as constants;
the maps are those :mod:`hpcd.bpf.maps` has made. The file's name holds a digest of the sources it
was made from, so that an object and a source that differ never meet.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from hpcd.bpf.stderr import Stderr, told
from hpcd.errors import PlatformError

SOURCES = Path(__file__).parent
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
    "OFFSET_CRED_USER",
    "OFFSET_TASK_SIGNAL",
    "OFFSET_TASK_PERF_CONTEXT",
    "PERF_CONTEXTS",
    "OFFSET_PERF_CONTEXT_EVENTS",
    "OFFSET_SIGNAL_LIVE",
)
"""The constants of ``object.h``, in their order."""


@cache
def object_path() -> Path:
    """Where the object made from the present sources lies, if it was made."""
    digest = 0  # tells an old object from a new one; nobody's trust rests on it
    for path in sorted([*SOURCES.glob("*.[ch]"), *SOURCES.glob("stack/*.h")]):
        digest = zlib.crc32(path.name.encode() + b"\0" + path.read_bytes(), digest)
    return SOURCES / "objects" / f"sampler-{platform.machine()}-{digest:08x}.o"


class ObjectPrograms:
    """Programs from the object. They unload when it is closed.

    ``constants`` are those :class:`hpcd.bpf.loader.Programs` gets; ``FD_NAME`` are maps. Loading
    takes as long as the kernel's verifier, 0.1 to 0.3 s. Raises :class:`PlatformError`.
    """

    def __init__(self, constants: Mapping[str, int], names: list[str]) -> None:
        library = _library()
        self._library = library
        path = object_path()
        with Stderr() as stderr:
            self._object = library.bpf_object__open_file(str(path).encode(), None)
            if not self._object:
                raise PlatformError(f"{path}: {told(stderr.text()) or 'libbpf cannot open it'}")
            for name, fd in constants.items():
                if name.startswith("FD_"):
                    self._check(library.bpf_map__reuse_fd(self._map(f"map_{name[3:]}"), fd), stderr)
            values = struct.pack(f"<{len(CONSTANTS)}I", *(constants[name] for name in CONSTANTS))
            rodata = self._map(".rodata")
            self._check(library.bpf_map__set_initial_value(rodata, values, len(values)), stderr)
            program = None
            while program := library.bpf_object__next_program(self._object, program):
                wanted = library.bpf_program__name(program).decode() in names
                library.bpf_program__set_autoload(program, wanted)
            self._check(library.bpf_object__load(self._object), stderr)
        self.fds = {
            name: library.bpf_program__fd(
                library.bpf_object__find_program_by_name(self._object, name.encode())
            )
            for name in names
        }

    def _map(self, name: str) -> int:
        found: int | None = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        if not found:
            raise PlatformError(f"{object_path()} has no map {name}; run make bpf-object")
        return found

    def _check(self, result: int, stderr: Stderr) -> None:
        if result:
            said = told(stderr.text()) or os.strerror(-result)
            self.close()
            if -result == errno.EPERM and "prog" not in said:
                said = "not permitted; run hpcd as root (sudo hpcd ...)"
            raise PlatformError(f"loading the BPF object: {said}")

    def close(self) -> None:
        """Unload the programs."""
        if self._object:
            self._library.bpf_object__close(self._object)
            self._object = None


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        raise PlatformError("libbpf is missing; apt-get install libbpf1") from None
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("bpf_object__open_file", pointer, [text, pointer]),
        ("bpf_object__find_map_by_name", pointer, [pointer, text]),
        ("bpf_map__reuse_fd", number, [pointer, number]),
        ("bpf_map__set_initial_value", number, [pointer, text, ctypes.c_size_t]),
        ("bpf_object__next_program", pointer, [pointer, pointer]),
        ("bpf_program__name", text, [pointer]),
        ("bpf_program__set_autoload", number, [pointer, ctypes.c_bool]),
        ("bpf_object__load", number, [pointer]),
        ("bpf_object__find_program_by_name", pointer, [pointer, text]),
        ("bpf_program__fd", number, [pointer]),
        ("bpf_object__close", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
