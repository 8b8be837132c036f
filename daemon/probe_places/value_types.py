"""Types that arguments and return values are declared with: their sizes in C on 64-bit Linux."""

from __future__ import annotations

import re
from typing import NamedTuple

from hpcd.errors import UsageError, did_you_mean


class ValueType(NamedTuple):
    """A type as it is recorded: ``size`` bytes, 1 to 8; ``address`` of pointers."""

    size: int
    signed: bool
    address: bool = False


ADDRESS = ValueType(8, False, True)
WORD = ValueType(8, False)

_SIZES = {
    "char": 1, "short": 2, "int": 4, "long": 8, "long long": 8,
    "size_t": -8, "ssize_t": 8, "ptrdiff_t": 8, "off_t": 8, "intptr_t": 8, "uintptr_t": -8,
    "bool": -1, "_Bool": -1, "pid_t": 4, "enum": -4, "pthread_t": -8,
    **{f"{sign}{8 * size}": size * way for size in (1, 2, 4, 8)
       for sign, way in (("u", -1), ("s", 1), ("i", 1))},
    **{f"{sign}int{8 * size}_t": size * way for size in (1, 2, 4, 8)
       for sign, way in (("u", -1), ("", 1))},
}  # fmt: skip
"""Bytes by name; negative without a sign."""
_FLOATING = ("float", "double", "long double", "_Float16", "_Float128", "__float128", "complex")
_IGNORED = re.compile(r"\b(const|volatile|restrict|__restrict|register|extern|static|inline)\b")


def type_called(text: str, names: dict[str, str] | None = None) -> ValueType | None:
    """The type that ``text`` names in C; None for ``void``.

    ``names`` are further names and their definitions. Raises :class:`UsageError` for a type
    of unknown size, and for floating point: such arguments are in registers that the
    kernel does not show to probes.
    """
    plain = " ".join(_IGNORED.sub(" ", text).split())
    if "*" in plain or "[" in plain or "(" in plain:
        return ADDRESS
    words = plain.split()
    if not words or words == ["void"]:
        return None
    if words[0] in ("enum", "struct", "union"):
        if words[0] == "enum":
            return ValueType(4, False)
        raise UsageError(f"{plain} is passed in parts: declare a pointer to it, or leave it out")
    if plain in _FLOATING or words[0] in ("float", "double", "complex", "_Complex"):
        raise UsageError(
            f"{plain} is in a register that the kernel does not show to probes; leave it unnamed"
        )
    if names and plain in names and names[plain] != plain:
        return type_called(names[plain], names)
    return _integer(words, plain, names or {})


def _integer(words: list[str], plain: str, names: dict[str, str]) -> ValueType:
    unsigned = "unsigned" in words
    base = [word for word in words if word not in ("unsigned", "signed")]
    if len(base) > 1 and base[-1] == "int":
        base.pop()
    size = _SIZES.get(" ".join(base) or "int", 0)
    if not size:
        near = did_you_mean(plain, [*_SIZES, *names])
        raise UsageError(f"unknown type {plain!r}{near or '; u64 or s32 say its size'}")
    return ValueType(abs(size), size > 0 and not unsigned)
