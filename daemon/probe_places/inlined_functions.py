"""Functions that a compiler has made part of their callers, by debug information (DWARF).

Probes are at a function's own code, where inlined calls do not come. Runs in the decoder.
"""

from __future__ import annotations

import io
import re
import struct
import time
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from elftools.elf.elffile import ELFFile

from hpcd.daemon.probe_places.debug_prototypes import DAMAGED, declaration

# A unit of 100,000 entries takes some 2 s. The decoder has 20 s at least for a file.
_MOST_SECONDS = 4.0
_CODE = {"DW_AT_low_pc", "DW_AT_ranges"}
NOT_KNOWN = -1
"""In place of a number: there is too much debug information to search."""


def inlined_places(image: bytes | memoryview, names: set[str]) -> dict[str, int]:
    """Return the number of places at which each of the functions ``names`` (of the symbol table) is
    inlined, or :data:`NOT_KNOWN`; functions that are not inlined are left out."""
    try:
        elf = ELFFile(io.BytesIO(image))
        if not names or not elf.has_dwarf_info():
            return {}
        search = _Search(elf.get_dwarf_info(follow_links=False), names)
    except DAMAGED:
        return {}
    try:
        search.run()
    except TimeoutError:
        return dict.fromkeys(names, NOT_KNOWN) | search.places()
    except DAMAGED:
        pass  # places read before the damage are used
    return search.places()


class _Search:
    """The search for ``names`` in the units that mention them."""

    def __init__(self, dwarf: Any, names: set[str]) -> None:
        self._dwarf = dwarf
        self._names = names
        self._info: bytes = dwarf.debug_info_sec.stream.getvalue()
        self._units = list(dwarf.iter_CUs())
        self._starts = [unit.cu_offset for unit in self._units]
        self._searched: set[int] = set()
        self._end = time.process_time() + _MOST_SECONDS
        self._name_of: dict[int, str] = {}
        """Names of functions by the offsets of their entries."""
        self._origins: list[int] = []
        """Offsets of the entries of functions, one for each inlined call."""

    def run(self) -> None:
        """Search. Raises :class:`TimeoutError`, and the reader's exceptions for damaged files."""
        if self._dwarf.debug_str_offsets_sec is not None:
            self._search(range(len(self._units)))  # names may be numbers in a table
            return
        section = self._dwarf.debug_str_sec
        strings = section.stream.getvalue() if section else b""
        texts = [name.encode() + b"\0" for name in self._names]
        # A name may be the end of a longer one.
        places = [at for text in texts for at in _occurrences(text, strings)]
        self._search(self._units_with([*texts, *(struct.pack("<I", at) for at in places)]))
        # Code that was optimised when it was linked is in units of its own, which refer to these.
        self._search(self._units_with([struct.pack("<I", at) for at in self._name_of]))

    def places(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for origin in self._origins:
            if name := self._name_of.get(origin):
                places[name] = places.get(name, 0) + 1
        return places

    def _units_with(self, patterns: Iterable[bytes]) -> list[int]:
        numbers = {
            bisect_right(self._starts, at) - 1
            for pattern in patterns
            for at in _occurrences(pattern, self._info)
        }
        return sorted(numbers - self._searched - {-1})

    def _search(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._searched.add(number)
            unit = self._units[number]
            for count, entry in enumerate(unit.iter_DIEs()):
                if count % 256 == 0 and time.process_time() > self._end:
                    raise TimeoutError
                if entry.tag == "DW_TAG_inlined_subroutine" and _CODE & entry.attributes.keys():
                    origin = entry.attributes["DW_AT_abstract_origin"]
                    base = 0 if origin.form == "DW_FORM_ref_addr" else unit.cu_offset
                    self._origins.append(origin.value + base)
                elif (
                    entry.tag == "DW_TAG_subprogram" and (name := _symbol_of(entry)) in self._names
                ):
                    self._name_of[entry.offset] = name


def _occurrences(text: bytes, data: bytes) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(text), data)]


def _symbol_of(entry: Any) -> str:
    for attribute in ("DW_AT_linkage_name", "DW_AT_name"):
        named = declaration(entry, attribute)
        if named is not None:
            return str(named.attributes[attribute].value.decode(errors="replace"))
    return ""
