"""Parameters and result of a function by its debug information (DWARF). Runs in the decoder."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, NamedTuple

from elftools.common.exceptions import DWARFError, ELFError
from elftools.dwarf.descriptions import describe_form_class
from elftools.elf.elffile import ELFFile

_WRAPPERS = frozenset(
    f"DW_TAG_{name}_type" for name in ("const", "volatile", "restrict", "atomic", "immutable")
) | {"DW_TAG_typedef"}
_ADDRESSES = frozenset(
    f"DW_TAG_{name}_type"
    for name in ("pointer", "reference", "rvalue_reference", "array", "subroutine", "ptr_to_member")
)
_FLOATING, _SIGNED = (3, 4), (5, 6, 13)  # DW_ATE_*
# Exceptions of the reader for damaged files.
DAMAGED = (
    DWARFError, ELFError, LookupError, AttributeError, TypeError, ValueError, OverflowError,
    RecursionError, MemoryError, AssertionError, struct.error, zlib.error,
)  # fmt: skip
_MOST_WRAPPED = 32
_MOST_PARAMETERS = 64


class DeclaredType(NamedTuple):
    """``kind`` is signed, unsigned, address, floating, parts (passed in several) or void."""

    kind: str
    size: int


class Prototype(NamedTuple):
    """Names and types of parameters in their order, and the type of the result."""

    parameters: list[tuple[str, DeclaredType]]
    result: DeclaredType


def debug_prototypes(image: bytes | memoryview, addresses: set[int]) -> dict[int, Prototype]:
    """Return the prototypes of functions that begin at ``addresses``, as far as there are any."""
    prototypes: dict[int, Prototype] = {}
    try:
        elf = ELFFile(io.BytesIO(image))
        if not elf.has_dwarf_info():
            return prototypes
        for unit in elf.get_dwarf_info(follow_links=False).iter_CUs():
            if addresses <= prototypes.keys():
                break
            if _may_hold(unit, addresses):
                _look_through(unit, addresses, prototypes)
    except DAMAGED:
        pass  # prototypes read before the damage are used
    return prototypes


def _may_hold(unit: Any, addresses: set[int]) -> bool:
    """Whether a unit in one piece contains any of ``addresses``; True for a unit in pieces."""
    top = unit.get_top_DIE()
    low, high = _bounds(top)
    return high <= low or any(low <= address < high for address in addresses)


def _bounds(entry: Any) -> tuple[int, int]:
    low = entry.attributes.get("DW_AT_low_pc")
    high = entry.attributes.get("DW_AT_high_pc")
    if low is None or high is None:
        return 0, 0
    offset = describe_form_class(high.form) == "constant"
    return int(low.value), int(high.value) + (int(low.value) if offset else 0)


def _look_through(unit: Any, addresses: set[int], prototypes: dict[int, Prototype]) -> None:
    for entry in unit.iter_DIEs():
        if entry.tag != "DW_TAG_subprogram":
            continue
        low = entry.attributes.get("DW_AT_low_pc")
        if low is not None and int(low.value) in addresses:
            prototypes[int(low.value)] = _prototype(entry)


def _prototype(entry: Any) -> Prototype:
    parameters: list[tuple[str, DeclaredType]] = []
    for child in entry.iter_children():
        if child.tag == "DW_TAG_formal_parameter" and len(parameters) < _MOST_PARAMETERS:
            declared = declaration(child, "DW_AT_type")
            named = declaration(child, "DW_AT_name")
            name = named.attributes["DW_AT_name"].value.decode(errors="replace") if named else ""
            parameters.append((name, _type_of(declared)))
    return Prototype(parameters, _type_of(declaration(entry, "DW_AT_type")))


def declaration(entry: Any, attribute: str) -> Any:
    """Return the entry with ``attribute``: ``entry`` or its abstract origin or specification, or
    None."""
    for _ in range(_MOST_WRAPPED):
        if attribute in entry.attributes:
            return entry
        for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
            if link in entry.attributes:
                entry = entry.get_DIE_from_attribute(link)
                break
        else:
            return None
    return None


def _type_of(entry: Any) -> DeclaredType:
    """The type that ``entry`` declares."""
    if entry is None:
        return DeclaredType("void", 0)
    for _ in range(_MOST_WRAPPED):
        if "DW_AT_type" not in entry.attributes:
            return DeclaredType("void", 0)
        entry = entry.get_DIE_from_attribute("DW_AT_type")
        if entry.tag not in _WRAPPERS:
            break
    size = entry.attributes.get("DW_AT_byte_size")
    size = int(size.value) if size is not None else 0
    if entry.tag in _ADDRESSES:
        return DeclaredType("address", 8)
    if entry.tag == "DW_TAG_enumeration_type":
        return DeclaredType("unsigned", size or 4)
    if entry.tag == "DW_TAG_base_type":
        encoding = int(entry.attributes["DW_AT_encoding"].value)
        if encoding in _FLOATING:
            return DeclaredType("floating", size)
        if size in (1, 2, 4, 8):
            return DeclaredType("signed" if encoding in _SIGNED else "unsigned", size)
    return DeclaredType("parts", size)
