"""Records and map values of the BPF programs, field by field or as numpy arrays.

:mod:`hpcd.bpf.wire`, which is generated, has their layouts. No numpy at start: the programs begin
to load before it is imported.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

from hpcd.errors import PlatformError

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import ReadableBuffer

_CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i2": "h", "i4": "i", "i8": "q"}


def _code(kind: str) -> str:
    """The code of :mod:`struct` for a numpy ``kind``; an array (``6u8``) is one value of bytes."""
    if kind in _CODES:
        return _CODES[kind]
    count, width = re.findall(r"\d+", kind.replace("S", "1S"))
    return f"{int(count) * int(width)}s"


@dataclass_transform(kw_only_default=True)
class WireStructure:
    """The fields of a structure of the programs, little-endian, as attributes.

    What is not given is 0. A structure that ends in text or memory has the fields before it.
    """

    BYTES: ClassVar[int]
    """Size of the fields."""
    KINDS: ClassVar[tuple[str, ...]]
    """The type of each field, as numpy calls it; an array's with the number of its elements."""
    NAMES: ClassVar[tuple[str, ...]]
    _struct: ClassVar[Struct]

    def __init_subclass__(cls, kinds: str = "") -> None:
        if kinds:
            cls.KINDS = tuple(kinds.split())
            cls.NAMES = tuple(cls.__annotations__)
            cls._struct = Struct("<" + "".join(map(_code, cls.KINDS)))
            cls.BYTES = cls._struct.size

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    @classmethod
    def unpack(cls, record: ReadableBuffer, at: int = 0) -> Self:
        """Return the structure at offset ``at`` of ``record``."""
        fields = cls.__new__(cls)
        fields.__dict__.update(zip(cls.NAMES, cls._struct.unpack_from(record, at), strict=True))
        return fields

    def pack(self) -> bytes:
        """Return the structure as the programs have it."""
        return self._struct.pack(*[getattr(self, name) for name in self.NAMES])

    @classmethod
    def reader(cls, *names: str) -> Callable[[ReadableBuffer], tuple[Any, ...]]:
        """Return a function that reads these fields of a record, in the order of the structure; it
        takes a third of the time of :meth:`unpack`."""
        codes = [
            code if name in names else f"{Struct('<' + code).size}x"
            for name, code in zip(cls.NAMES, map(_code, cls.KINDS), strict=True)
        ]
        return Struct("<" + "".join(codes)).unpack_from

    @classmethod
    def replaced(cls, record: bytes, **fields: Any) -> bytes:
        """Return ``record``, which the structure begins, with other values of these fields."""
        changed = cls.unpack(record)
        changed.__dict__.update(fields)
        return changed.pack() + record[cls.BYTES :]

    @classmethod
    def offset_of(cls, name: str) -> int:
        """Return where a field begins."""
        codes = map(_code, cls.KINDS[: cls.NAMES.index(name)])
        return Struct("<" + "".join(codes)).size

    @classmethod
    @cache
    def dtype(cls) -> np.dtype[np.void]:
        """Return the structure as numpy's type."""
        import numpy as np

        fields = np.dtype(", ".join(cls.KINDS))
        return np.dtype([(name, fields[at]) for at, name in enumerate(cls.NAMES)])


def here(by_machine: Mapping[str, int]) -> int:
    """Return the number of this processor. Raises :class:`PlatformError` if there is none."""
    try:
        return by_machine[platform.machine()]
    except KeyError:
        raise PlatformError(f"processor {platform.machine()} is not supported") from None
