"""The library of loops over records that ``make objects`` compiles from C.

Its functions take arrays by their addresses, need nothing but the C library and keep nothing: they
run without Python's lock. Where it was not compiled, or ``HPCD_COMPILED`` is 0, there is none, and
numpy does the same in more passes. The file's name holds a digest of the sources, so that a library
and a source that differ never meet.
"""

from __future__ import annotations

import ctypes
import os
import platform
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

SOURCES = Path(__file__).parents[1] / "kernels/sources"
"""The library's C sources."""

Loops = TypeVar("Loops")

# What x86-64-v3 of the psABI has beyond -v2, as Linux calls it: processors since 2013 and 2015.
_V3 = {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}


@cache
def library_path(level: str = "") -> Path:
    """Where the library made from the present sources for this processor lies, if it was made;
    ``level`` is ``"_v3"`` of what needs x86-64-v3."""
    digest = source_digest(SOURCES.glob("*.[ch]"))
    return SOURCES.parent / "objects" / f"kernels-{platform.machine()}{level}-{digest}.so"


def source_digest(sources: Iterable[Path]) -> str:
    """Tells what was compiled from these sources as they are now from what was compiled from
    others; it is no protection."""
    digest = 0
    for path in sorted(sources):
        digest = zlib.crc32(path.name.encode() + b"\0" + path.read_bytes(), digest)
    return f"{digest:08x}"


@cache
def _level() -> str:
    """The level of this processor for which there is a library of its own."""
    # Under emulation /proc/cpuinfo is the host's, whose features a program of another has not.
    if platform.machine() != "x86_64":
        return ""
    with Path("/proc/cpuinfo").open("rb") as file:
        first = file.read(1 << 14).partition(b"\n\n")[0].decode("ascii", "replace")
    for line in first.splitlines():
        if line.startswith("flags") and set(line.split()) >= _V3:
            return "_v3"
    return ""


def native_library() -> ctypes.CDLL | None:
    """The library, or None where there is none for this processor and these sources."""
    return None if os.environ.get("HPCD_COMPILED") == "0" else library_of(_level())


@cache
def library_of(level: str) -> ctypes.CDLL | None:
    """The library of a level (see :func:`library_path`), or None."""
    try:
        return ctypes.CDLL(str(library_path(level)))
    except OSError:
        return None


def loops_in(kind: Callable[..., Loops], *arguments: Any) -> Loops | None:
    """What ``kind`` declares of the library, made once for the same ``arguments``; None where
    there is no library."""
    library = native_library()
    return None if library is None else _declared(kind, library, *arguments)


@cache
def _declared(kind: Callable[..., Any], library: ctypes.CDLL, *arguments: Any) -> Any:
    return kind(library, *arguments)


_byref, _byte_of = ctypes.byref, ctypes.c_char.from_buffer


@cache
def array_of(dtype: Any) -> Any:
    """The type of an argument that is an array of ``dtype``, contiguous, of any shape; the
    function gets its address. Another array raises :class:`ctypes.ArgumentError`."""
    kind = _numpy_type(dtype)

    class _Array:
        @staticmethod
        def from_param(array: Any) -> Any:
            if array.dtype is kind:
                # In an eighth of the time of asking for its address. It refuses those that are not
                # contiguous, are empty, or are not to be written to.
                try:
                    return _byref(_byte_of(array))
                except (TypeError, ValueError):
                    pass
            return ctypes.c_void_p(address_of(array, kind))

    return _Array


def _numpy_type(dtype: Any) -> Any:
    # The library's path is asked for where it is compiled, which may have no numpy yet.
    import numpy as np

    return np.dtype(dtype)


def _check(array: Any, kind: Any) -> None:
    # Nearly always it is the same object: three times as fast as comparing them.
    same = array.dtype is kind or array.dtype == kind
    if not same or not array.flags.c_contiguous:
        raise TypeError(f"{array.dtype} in place of a contiguous array of {kind}")


def address_of(array: Any, kind: Any) -> int:
    """Where ``array`` lies, which must be contiguous and of the type ``kind``. Raises
    :class:`TypeError`."""
    _check(array, kind)
    return _address(array)


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def struct_of(*types: Any) -> Callable[..., Any]:
    """Makes structs of C, to be given as ``ctypes.c_void_p``: a field is the address of an array of
    the type given, contiguous, which must stay as long, or, where that is ``int``, a number of 64
    bits."""

    def made(*fields: Any) -> Any:
        words = [
            field if kind is int else address_of(field, kind)
            for kind, field in zip(types, fields, strict=True)
        ]
        return (ctypes.c_uint64 * len(words))(*words)

    return made


def declare(
    library: ctypes.CDLL, name: str, arguments: tuple[Any, ...], result: Any = None
) -> Callable[..., Any]:
    """The function ``name`` of the library, with the types of its arguments and of its result."""
    function: Any = getattr(library, name)
    function.argtypes, function.restype = arguments, result
    return function  # type: ignore[no-any-return]
