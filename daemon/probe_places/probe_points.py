"""Places for probes in a file: functions by name and static tracepoints. Runs in the decoder.

A request names functions (exact names or patterns) and tracepoints; the reply has each place's
address and offset in the file. Names of C++ are matched as they are in the symbol table, or where
the request has ``::`` in it, demangled and without parameters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Any, NamedTuple

import cxxfilt
import numpy as np

from hpcd.daemon.probe_places.debug_prototypes import debug_prototypes
from hpcd.daemon.probe_places.inlined_functions import NOT_KNOWN, inlined_places
from hpcd.daemon.probe_places.return_instructions import MOST_BYTES, emulated_start, exits_of
from hpcd.daemon.probe_places.static_tracepoints import tracepoint_notes
from hpcd.elf.elf_view import ElfView
from hpcd.errors import FormatError, did_you_mean
from hpcd.wording import counted

MOST_POINTS = 4096
_FUNCTION, _INDIRECT = 2, 10  # STT_FUNC, STT_GNU_IFUNC
_MOST_NAME = 1024
# A part of a function that it jumps to: on its stack is no return address where a call has it, and
# what a probe wrote there would destroy a variable.
_JUMPED_TO = re.compile(r"\.cold(\.\d+)?$")
_PATTERN = re.compile(r"[*?\[]")
# A library that exports both is an allocator.
_ALLOCATES = ("malloc", "free")
# Personality routines of code through which exceptions may be thrown.
_PERSONALITIES = (b"__gxx_personality_v0", b"rust_eh_personality", b"__gnat_personality_v0")


class FunctionSymbol(NamedTuple):
    """A function of a file."""

    name: str
    address: int
    size: int
    indirect: bool


def probe_points(elf: ElfView, request: bytes) -> bytes:
    """Return the places that ``request`` names, as JSON. Raises :class:`FormatError`."""
    try:
        queries = json.loads(request)
    except (ValueError, RecursionError):
        raise FormatError("the request for probes is damaged") from None
    exported = {name for name, *_ in elf.symbols_called(_ALLOCATES, (".dynsym",))}
    allocates = len(exported) == len(_ALLOCATES)
    wanted = [
        number for number, query in enumerate(queries) if allocates or not query.get("allocator")
    ]
    # Most libraries that a target maps are no allocators: their symbols are not read.
    symbols = _symbols(elf) if wanted else []
    by_name: dict[str, list[FunctionSymbol]] = {}
    for symbol in symbols:
        by_name.setdefault(symbol.name, []).append(symbol)
    notes = tracepoint_notes(elf) if any(query.get("provider") for query in queries) else []
    points: list[dict[str, object]] = []
    near: dict[int, str] = {}
    for number in wanted:
        query = queries[number]
        if query.get("provider"):
            points += _tracepoints(elf, notes, query, number)
        else:
            matches = list(_matching(query["function"], symbols, by_name))
            points += [_point(elf, symbol, number) for symbol in matches]
            if not matches and query.get("near"):
                near[number] = did_you_mean(query["function"], by_name)
        if len(points) > MOST_POINTS:
            raise FormatError(f"more than {MOST_POINTS} functions match")
    _add_prototypes(elf, points, queries)
    _add_inlined(elf, points, queries, near)
    reply = {
        "symbols": len(symbols),
        "machine": elf.machine,
        "thrown": _throws(elf),
        "near": near,
        "points": points,
    }
    return json.dumps(reply).encode()


def _add_prototypes(
    elf: ElfView, points: list[dict[str, Any]], queries: list[dict[str, object]]
) -> None:
    """Add prototypes from debug information for functions that are recorded by it."""
    wanted = {p["address"] for p in points if queries[p["query"]].get("debug") and "offset" in p}
    if not wanted:
        return
    prototypes = debug_prototypes(elf.data[:], wanted)
    for point in points:
        prototype = prototypes.get(point["address"])
        if prototype and point["address"] in wanted:
            point["parameters"] = prototype.parameters
            point["result"] = prototype.result


def _add_inlined(
    elf: ElfView, points: list[dict[str, Any]], queries: list[dict[str, Any]], near: dict[int, str]
) -> None:
    """Add whether calls of functions that were named were inlined, and in ``near`` whether all were
    of a function that is not there."""
    if ".debug_info" not in elf.sections:
        return
    # A clone (``.constprop.0``) is called as the function is in the source.
    symbols = {p["name"].partition(".")[0] for p in points if queries[p["query"]].get("near")}
    absent = {queries[number]["function"] for number in near}
    places = inlined_places(elf.data[:], symbols | absent)
    for point in points:
        count = places.get(point["name"].partition(".")[0], 0)
        if count and queries[point["query"]].get("near"):
            point["inlined"] = (
                "may be inlined elsewhere, in too much debug information to search: such calls are"
                " not recorded"
                if count == NOT_KNOWN
                else f"is inlined at {counted(count, 'place')}: calls there are not recorded"
            )
    for number in near:
        count = places.get(queries[number]["function"], 0)
        if count > 0:
            near[number] = f": it is inlined wherever it is called ({counted(count, 'place')})"


def _symbols(elf: ElfView) -> list[FunctionSymbol]:
    """Return functions defined in a file; .dynsym first, since its names are the public ones."""
    seen: dict[tuple[str, int], FunctionSymbol] = {}
    for text, table in elf.named_symbols((".dynsym", ".symtab")):
        kind = table["info"] & 15
        table = table[np.isin(kind, (_FUNCTION, _INDIRECT)) & (table["section"] != 0)]
        for row in table:
            start = int(row["name"])
            end = text.find(b"\0", start, start + _MOST_NAME)
            if end <= start:
                continue
            name = text[start:end].partition(b"@")[0].decode(errors="replace")
            if _JUMPED_TO.search(name):
                continue
            address = int(row["value"])
            indirect = int(row["info"]) & 15 == _INDIRECT
            seen.setdefault(
                (name, address), FunctionSymbol(name, address, int(row["size"]), indirect)
            )
    return list(seen.values())


def _matching(
    pattern: str, symbols: list[FunctionSymbol], by_name: dict[str, list[FunctionSymbol]]
) -> Iterable[FunctionSymbol]:
    """Return the functions that ``pattern`` names, each address once."""
    if "::" in pattern:
        accepts = re.compile(translate(pattern)).match
        matches = [symbol for symbol in symbols if accepts(_plain(symbol.name))]
    elif _PATTERN.search(pattern):
        accepts = re.compile(translate(pattern)).match
        matches = [symbol for symbol in symbols if accepts(symbol.name)]
    else:
        matches = by_name.get(pattern, [])
    return {symbol.address: symbol for symbol in reversed(matches)}.values()


def _plain(name: str) -> str:
    """A C++ name demangled, without parameters; another name as it is."""
    if not name.startswith("_Z"):
        return name
    try:
        return str(cxxfilt.demangle(name)).partition("(")[0]
    except (cxxfilt.InvalidName, cxxfilt.InternalError):
        # The second: it means more text than this process, which is confined, has memory for.
        return name


def _point(elf: ElfView, symbol: FunctionSymbol, query: int) -> dict[str, object]:
    point: dict[str, object] = {
        "query": query, "name": symbol.name, "address": symbol.address, "size": symbol.size,
    }  # fmt: skip
    offset = _code_offset(elf, symbol.address)
    if symbol.indirect:
        point["why"] = "its implementation is chosen when a program starts (IFUNC)"
        return point
    if offset is None:
        point["why"] = "it is outside of the code of the file"
        return point
    point["offset"] = offset
    size = min(symbol.size, MOST_BYTES + 1)
    code = bytes(elf.data[offset : offset + size])
    exits = exits_of(code, symbol.address, elf.machine)
    point["start"] = offset + emulated_start(code, elf.machine)
    point["returns"] = [offset + place - symbol.address for place in exits.returns]
    point["exits"] = exits.why
    point["recursive"] = exits.recursive
    return point


def _code_offset(elf: ElfView, address: int) -> int | None:
    for segment in elf.segments:
        if segment.executable and segment.vaddr <= address < segment.vaddr + segment.filesz:
            return segment.offset + address - segment.vaddr
    return None


def _tracepoints(
    elf: ElfView, notes: list[Any], query: dict[str, Any], number: int
) -> list[dict[str, object]]:
    provider = re.compile(translate(query["provider"])).match
    name = re.compile(translate(query["function"])).match
    points = []
    for note in notes:
        if not provider(note.provider) or not name(note.name):
            continue
        offset = _code_offset(elf, note.address)
        point: dict[str, object] = {
            "query": number, "name": f"{note.provider}:{note.name}", "address": note.address,
            "size": 0, "operands": note.operands,
            "semaphore": elf.file_offset(note.semaphore) or 0 if note.semaphore else 0,
        }  # fmt: skip
        if offset is None:
            point["why"] = "it is outside of the code of the file"
        else:
            point["offset"] = offset
        points.append(point)
    return points


def _throws(elf: ElfView) -> bool:
    """Whether exceptions may be thrown through the file's functions."""
    for name in (".dynstr", ".strtab"):
        section = elf.sections.get(name)
        if section is not None:
            text = elf.contents(section)
            if any(personality in text for personality in _PERSONALITIES):
                return True
    return False
