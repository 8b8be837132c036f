"""The library of compiled kernels, called by the declarations of ``sources/kernels.h``.

``make objects`` compiles the library and translates its header, by cffi, into Python code that
every version of Python runs (cffi's out-of-line ABI mode). Kernels take arrays by their addresses,
need nothing but the C library and keep nothing: they run without Python's lock. The files' names
hold a digest of the sources, so that a library and sources that differ never meet.
"""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from hpcd.errors import PlatformError

if TYPE_CHECKING:
    import numpy as np

SOURCES = Path(__file__).parent / "sources"
"""The library's C sources."""
OBJECTS = Path(__file__).parent / "objects"
"""What ``make objects`` made of them."""

# What x86-64-v3 of the psABI has beyond -v2, as Linux calls it: processors since 2013 and 2015.
_V3 = {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}

_DTYPES = {
    "uint8_t": "u1", "uint16_t": "u2", "uint32_t": "u4", "uint64_t": "u8",
    "int16_t": "i2", "int32_t": "i4", "int64_t": "i8", "float": "f4", "double": "f8",
}  # fmt: skip


_FFI_LOCK = Lock()


class CStructure:
    """A C structure of pointers and numbers, and the arrays it points to, which it keeps."""

    __slots__ = ("_kept", "pointer")

    def __init__(self, pointer: Any, kept: object) -> None:
        self.pointer = pointer
        self._kept = kept


class Kernels:
    """The kernels, and the members of enumerations, by their names in ``kernels.h``.

    A pointer to numbers takes a contiguous array of exactly that type (of bytes also one of bool,
    or :class:`bytes`), of any shape, or None for a null pointer; a pointer to a structure takes a
    :class:`CStructure`, or an array of :func:`structure_dtype`. Another array
    raises :class:`TypeError`. What a kernel returns is a Python number.
    """

    def __init__(self, level: str | None = None) -> None:
        """Those compiled for the ``level`` of processors (see :func:`library_path`); None for that
        of this processor."""
        self._level = level

    def __getattr__(self, name: str) -> Any:
        ffi = _ffi()
        try:
            function = getattr(_library(_level() if self._level is None else self._level), name)
        except AttributeError:
            raise AttributeError(f"there is no kernel {name!r}") from None
        if isinstance(function, int):
            self.__dict__[name] = function
            return function
        takes = [_converter(ffi, kind) for kind in ffi.typeof(function).args]

        def call(*arguments: Any) -> Any:
            return function(*[
                argument if take is None else take(argument)
                for take, argument in zip(takes, arguments, strict=True)
            ])  # fmt: skip

        # Found without this method from now on.
        self.__dict__[name] = call
        return call


kernels = Kernels()


def structure(name: str, **fields: Any) -> CStructure:
    """A ``struct name`` of ``kernels.h``; ``fields`` are arrays and numbers, the others are 0.

    Raises :class:`KeyError` for a field that the structure does not have.
    """
    new, kind, takes = _structure(name)
    values = {
        field: value if (take := takes[field]) is None else take(value)
        for field, value in fields.items()
    }
    return CStructure(new(kind, values), values)


@cache
def structure_dtype(name: str) -> np.dtype[np.void]:
    """A ``struct name`` of ``kernels.h`` as numpy's type; a pointer is an address, ``int64``.

    Kernels take arrays of it in place of pointers to the structure.
    """
    import numpy as np

    fields = _ffi().typeof(f"struct {name}").fields
    kinds = [np.int64 if f.type.kind == "pointer" else _DTYPES[f.type.cname] for _, f in fields]
    dtype = np.dtype([(field, kind) for (field, _), kind in zip(fields, kinds, strict=True)])
    assert dtype.itemsize == _ffi().sizeof(f"struct {name}")  # without gaps
    return dtype


def address_of(array: Any, dtype: Any) -> int:
    """Address of ``array``, which must be contiguous and of ``dtype``, as a number for an array of
    :func:`structure_dtype`. Raises :class:`TypeError`."""
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise TypeError(f"{array.dtype} in place of a contiguous array of {dtype}")
    address: int = array.__array_interface__["data"][0]
    return address


def library_path(level: str = "") -> Path:
    """Path of the library made from the present sources for this processor, whether or not it is
    there; ``level`` is ``"_v3"`` of the one that needs x86-64-v3."""
    return OBJECTS / f"kernels-{platform.machine()}{level}-{_digest()}.so"


def declarations_path() -> Path:
    """Path of the code that cffi makes of the present ``kernels.h``."""
    return OBJECTS / f"declarations-{_digest()}.cffi"


def open_library() -> Path:
    """Open the library for this processor, and return its path. Raises :class:`PlatformError` where
    there is none."""
    _library(_level())
    return library_path(_level())


def write_declarations(path: str) -> None:
    """Write the code that declares the kernels to ``path``. Needs cffi with pycparser."""
    from cffi import FFI

    headers = ("wire.h", "kernels.h")
    lines = [line for name in headers for line in (SOURCES / name).read_text().splitlines()]
    ffi = FFI()
    ffi.cdef("\n".join(line for line in lines if not line.startswith("#")))
    ffi.set_source("hpcd_kernels", None)
    ffi.emit_python_code(path)


def source_digest(sources: Iterable[Path]) -> str:
    """Tells what was compiled from these sources as they are now from what was compiled from
    others; it is no protection."""
    digest = 0
    for path in sorted(sources):
        digest = zlib.crc32(path.name.encode() + b"\0" + path.read_bytes(), digest)
    return f"{digest:08x}"


@cache
def _digest() -> str:
    return source_digest(SOURCES.glob("*.[ch]"))


@cache
def _level() -> str:
    """The level of this processor that there is a library of its own for."""
    # Under emulation /proc/cpuinfo is the host's, whose features a program of another has not.
    if platform.machine() != "x86_64":
        return ""
    with Path("/proc/cpuinfo").open("rb") as file:
        first = file.read(1 << 14).partition(b"\n\n")[0].decode("ascii", "replace")
    for line in first.splitlines():
        if line.startswith("flags") and set(line.split()) >= _V3:
            return "_v3"
    return ""


def _ffi() -> Any:
    """cffi's interface to the declared kernels. Raises :class:`PlatformError`."""
    # A cache alone lets two threads that are first make one each, whose types differ.
    with _FFI_LOCK:
        return _new_ffi()


@cache
def _new_ffi() -> Any:
    names: dict[str, object] = {}
    try:
        code = declarations_path().read_text()
    except OSError:
        raise _not_compiled() from None
    exec(compile(code, "hpcd_kernels", "exec"), names)
    return names["ffi"]


@cache
def _library(level: str) -> Any:
    """The opened library of a level. Raises :class:`PlatformError`."""
    try:
        return _ffi().dlopen(str(library_path(level)))
    except OSError:
        raise _not_compiled() from None


def _not_compiled() -> PlatformError:
    return PlatformError(
        f"hpcd's kernels are not compiled for this processor ({platform.machine()}):"
        " run `make objects` in its sources (needs clang, llvm and lld)"
    )


@cache
def _structure(name: str) -> tuple[Callable[..., Any], Any, dict[str, Callable[[Any], Any] | None]]:
    """Return cffi's function that makes a structure, the type of a pointer to it, and the
    converters of its fields, by name."""
    ffi = _ffi()
    fields = ffi.typeof(f"struct {name}").fields
    takes = {field: _converter(ffi, f.type) for field, f in fields}
    return ffi.new, ffi.typeof(f"struct {name} *"), takes


def _converter(ffi: Any, kind: Any) -> Callable[[Any], Any] | None:
    """Turns an argument into what cffi takes as a ``kind``; None for numbers, which it takes."""
    if kind.kind != "pointer":
        return None
    array_of = ffi.typeof(ffi.getctype(kind.item, "[]"))
    from_buffer = ffi.from_buffer
    item = kind.item
    while item.kind == "array":
        item = item.item
    if item.kind in ("struct", "pointer"):

        def take_structures(value: Any) -> Any:
            if isinstance(value, CStructure):
                return value.pointer
            return from_buffer(array_of, value)

        return take_structures
    # The library's path is requested where it is compiled, which may have no numpy yet.
    import numpy as np

    dtype = np.dtype(_DTYPES[item.cname])
    is_bytes = dtype.itemsize == 1

    def take_array(array: Any) -> Any:
        # Nearly always it is the same object: three times as fast as comparing them.
        try:
            own = array.dtype
        except AttributeError:
            if array is None:
                return ffi.NULL
            if is_bytes:
                return from_buffer(array_of, array)
            raise TypeError(f"{type(array).__name__} in place of an array of {dtype}") from None
        if own is not dtype and own != dtype and not (is_bytes and own == np.bool_):
            raise TypeError(f"{own} in place of an array of {dtype}")
        try:
            return from_buffer(array_of, array)
        except ValueError:
            raise TypeError("an array that is not contiguous") from None

    return take_array
