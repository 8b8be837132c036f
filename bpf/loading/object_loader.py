"""Loading the programs compiled ahead, through libbpf: no compiler, no kernel headers.

``make objects`` compiles ``sampler.bpf.c`` once for all kernels. libbpf finds the members of the
kernel's structures (``kernel.h``) in its BTF; what a recording records is filled in as constants,
and the maps are those :mod:`hpcd.bpf.kernel.maps` has made. The file's name holds a digest of the
sources it was made from, so that an object and a source that differ never meet.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from hpcd.bpf.kernel.libbpf import library, silence
from hpcd.bpf.kernel.privileges import not_permitted
from hpcd.bpf.loading.captured_stderr import Stderr, first_error_line
from hpcd.bpf.loading.kernel_facilities import Helper, has_helper
from hpcd.errors import PlatformError
from hpcd.kernels.library import source_digest

# include/uapi/linux/btf.h: the kind of a section of variables.
_SECTION = 15
SOURCES = Path(__file__).parent.parent / "programs"
"""The C sources of the BPF programs."""


@cache
def object_path() -> Path:
    """Return the path of the object made from the present sources, if it was made."""
    return compiled_path("sampler", SOURCES.rglob("*.[ch]"))


def calls_object_path() -> Path:
    """Return the path of the object that has the programs that record calls, too."""
    path = object_path()
    return path.with_name(path.name.replace("sampler", "sampler_calls"))


def compiled_path(name: str, sources: Iterable[Path]) -> Path:
    """Return the path of the object ``name`` made from these sources as they are now."""
    return SOURCES.parent / "objects" / f"{name}-{platform.machine()}-{source_digest(sources)}.o"


class _NoText:
    """A stand-in for the messages of a native library where they are not captured."""

    def text(self) -> str:
        """Return the empty string: no message was captured."""
        return ""


@contextlib.contextmanager
def messages(*, background: bool) -> Iterator[Stderr | _NoText]:
    """Capture libbpf's messages while the block runs. In the ``background``, beside other threads,
    standard error is left alone, and there are none."""
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


def object_variables(handle: int) -> dict[str, tuple[int, int]]:
    """Return the offset in ``.rodata`` of each constant of an opened object and its size, from its
    BTF."""
    lib = library()
    btf = lib.bpf_object__btf(handle)
    section = lib.btf__type_by_id(btf, lib.btf__find_by_name_kind(btf, b".rodata", _SECTION))
    # A type's name, kind with number of entries, and size; then of each the variable, offset, size.
    head = (ctypes.c_uint32 * 3).from_address(section)
    entries = (ctypes.c_uint32 * (3 * (head[1] & 0xFFFF))).from_address(section + 12)
    places = {}
    for variable, *place in zip(entries[::3], entries[1::3], entries[2::3], strict=True):
        name = ctypes.c_uint32.from_address(lib.btf__type_by_id(btf, variable)).value
        places[lib.btf__name_by_offset(btf, name).decode()] = place[0], place[1]
    return places


class ObjectPrograms:
    """Programs from the object. They unload when it is closed.

    ``constants`` are those :class:`~hpcd.bpf.loading.loader.Programs` gets; ``FD_NAME`` are maps.
    With those of calls the object is that of :func:`calls_object_path`.
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
        self.path = calls_object_path() if "FD_CALLS" in constants else object_path()
        with messages(background=background) as stderr:
            self._object = open_object(self.path, stderr)
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
        self._set_constants(constants)
        variants = self._variants(names).values()
        program = None
        while program := self._library.bpf_object__next_program(self._object, program):
            name = self._library.bpf_program__name(program).decode()
            self._library.bpf_program__set_autoload(program, name in variants)
            if name in self._attach_types:
                kind = self._attach_types[name]
                self._library.bpf_program__set_expected_attach_type(program, kind)
        self._check(self._library.bpf_object__load(self._object), stderr)

    def _set_constants(self, constants: Mapping[str, int]) -> None:
        """Set the variables of ``.rodata``, by their names."""
        size = ctypes.c_size_t()
        memory = self._library.bpf_map__initial_value(self._map(".rodata"), ctypes.byref(size))
        for name, (offset, width) in object_variables(self._object).items():
            value = constants[name].to_bytes(width, sys.byteorder)
            ctypes.memmove(memory + offset, value, width)

    @staticmethod
    def _variants(names: list[str]) -> dict[str, str]:
        """Which program of the object is loaded for each of ``names``."""
        if not has_helper(Helper.LOOP):
            return {name: name for name in names}
        return {name: re.sub("^(walk_|(?=defer_))", "loop_", name) for name in names}

    def _map(self, name: str) -> int:
        handle: int | None = self._library.bpf_object__find_map_by_name(self._object, name.encode())
        if not handle:
            raise PlatformError(f"{self.path} has no map {name}; run make objects")
        return handle

    @staticmethod
    def _check(result: int, stderr: Stderr | _NoText) -> None:
        """Raise what ``result``, a negative errno of libbpf's, means; 0 is success."""
        if not result:
            return
        if result == -errno.EPERM:
            raise not_permitted("loading the BPF object")
        reason = first_error_line(stderr.text()) or os.strerror(-result)
        raise PlatformError(f"loading the BPF object: {reason}")

    def close(self) -> None:
        """Unload the programs."""
        for fd in self.fds.values():
            os.close(fd)
        self.fds.clear()
