"""Java's methods and compiled code as HotSpot describes them.

All of it is memory of a target (:mod:`hpcd.daemon.runtimes.process_memory`), read for many methods
at a time. Sizes are bounded; what does not look like a method is not named.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcd.array_types import I32, U64
from hpcd.daemon.runtimes.java.hotspot_layouts import HotSpotLayout, Piece
from hpcd.daemon.runtimes.process_memory import ReadMemory, is_address

_SYMBOL_BYTES = 512
_BLOB_NAME_BYTES = 64
_TABLE_BYTES = 4096
# Of all scopes that are read at once; a method with what is inlined has 10 KB or so.
_MOST_SCOPES = 4 << 20
_MOST_INLINED = 64
_HAS_LINES = 1
# Classes made at run time have an address in their names.
_MADE = re.compile(r"[/+]0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class JavaMethod:
    """A method: its source file (by its package, or its class where no file is known), class and
    name, and the lines that begin at bytecodes, in order of these."""

    file: str
    name: str
    bytecodes: tuple[int, ...]
    lines: tuple[int, ...]
    identity: int

    @property
    def first_line(self) -> int:
        """The least line; 0: none is known."""
        return min(self.lines, default=0)

    def line(self, bytecode: int) -> int:
        """Return the line of a bytecode; 0 where it is not known."""
        at = bisect_right(self.bytecodes, bytecode) - 1
        return self.lines[max(at, 0)] if self.lines else 0


@dataclass(frozen=True, slots=True)
class CompiledCode:
    """A CodeBlob: the name of a stub, or an nmethod's method and scopes by the offset of code, in
    order."""

    name: str
    compile_id: int = 0
    method: int = 0
    places: I32 | None = None
    """i32[n, 2]: offset of code, place of its scope in ``data``; sorted."""
    data: bytes = b""
    metadata: U64 | None = None
    """u64[m]: what scopes refer to: Methods are among it."""

    @property
    def kept_bytes(self) -> int:
        """About how much memory it takes."""
        arrays = (self.places, self.metadata)
        return 256 + len(self.data) + sum(part.nbytes for part in arrays if part is not None)

    def frames(self, offset: int, zero_excluded: int) -> list[tuple[int, int]]:
        """Return method and bytecode of the code at ``offset`` and of what it is inlined in, the
        innermost first: those of the next place at or behind it that the compiler has described."""
        inlined: list[tuple[int, int]] = []
        scope = 0
        if self.places is not None and self.metadata is not None:
            at = int(np.searchsorted(self.places[:, 0], offset))
            scope = int(self.places[at, 1]) if at < len(self.places) else 0
        while 0 < scope < len(self.data) and len(inlined) < _MOST_INLINED:
            outer, place = read_number(self.data, scope, zero_excluded)
            number, place = read_number(self.data, place, zero_excluded)
            bytecode, _ = read_number(self.data, place, zero_excluded)
            if self.metadata is not None and 0 < number <= len(self.metadata):
                inlined.append((int(self.metadata[number - 1]), max(bytecode - 1, 0)))
            scope = outer if outer < scope else 0  # a caller's is written first
        return inlined or ([(self.method, 0)] if self.method else [])


def read_number(data: bytes, at: int, zero_excluded: int) -> tuple[int, int]:
    """Return the compressed number at ``at`` of ``data`` and where the next begins; what lies
    behind the end counts as 0 (``UNSIGNED5`` of HotSpot: numbers to the base 64, the low digits
    first; a byte below 192 is the last)."""
    low = 192 - zero_excluded
    value = 0
    for place in range(5):
        byte = data[at + place] if at + place < len(data) else 0
        digit = max(byte - zero_excluded, 0)
        value += digit << 6 * place
        if digit < low:
            return value & 0xFFFFFFFF, at + place + 1
    return value & 0xFFFFFFFF, at + 5


def read_blobs(
    read: ReadMemory, layout: HotSpotLayout, addresses: Sequence[int]
) -> dict[int, CompiledCode]:
    """Return, by address, the CodeBlobs at ``addresses`` that could be read. Raises what ``read``
    does."""
    heads = _pieces(read, {at: at for at in addresses}, layout.blob_bytes)
    texts = {at: _word(head, layout.blob_name) for at, head in heads.items()}
    names = {
        at: _text(text) for at, text in _pieces(read, texts, _BLOB_NAME_BYTES, partly=True).items()
    }
    blobs = {at: CompiledCode(name) for at, name in names.items() if name}
    room, parts = _MOST_SCOPES, {}
    for at, name in names.items():
        pieces = layout.scopes.pieces(at, heads[at]) if name.endswith("nmethod") else ()
        sizes = [size for _, size in pieces]
        if pieces and min(sizes) >= 0 and sum(sizes) <= room:
            room -= sum(sizes)
            parts[at] = pieces
    wanted = [piece for pieces in parts.values() for piece in pieces]
    contents = iter(_possible(read, wanted))
    for at in parts:
        metadata, data, places = (next(contents) for _ in range(3))
        blobs[at] = CompiledCode(
            names[at],
            _half(heads[at], layout.compile_id),
            _word(heads[at], layout.nmethod_method),
            _places(layout, places),
            data,
            np.frombuffer(metadata[: len(metadata) // 8 * 8], np.uint64),
        )
    return blobs


def _places(layout: HotSpotLayout, data: bytes) -> I32:
    """Offset of code and place of its scope i32[n, 2] of the PcDescs ``data``, sorted."""
    rows = data[: len(data) // layout.pc_bytes * layout.pc_bytes]
    places = np.frombuffer(rows, np.int32).reshape(-1, layout.pc_bytes // 4)[:, :2]
    places = places[(places[:, 0] >= 0) & (places[:, 1] >= 0)]
    return places[np.argsort(places[:, 0], kind="stable")]


def _possible(read: ReadMemory, pieces: Sequence[Piece]) -> list[bytes]:
    """Memory of ``pieces``, none where there can be none."""
    some = [piece for piece in pieces if piece[1] and is_address(piece[0])]
    contents = dict(zip(some, read(some), strict=True)) if some else {}
    return [contents.get(piece) or b"" for piece in pieces]


def read_methods(
    read: ReadMemory, layout: HotSpotLayout, addresses: Sequence[int]
) -> dict[int, JavaMethod]:
    """Return, by address, the Methods at ``addresses`` that could be read. Raises what ``read``
    does."""
    drafts = _words_at(read, {at: at + layout.method_constants for at in addresses})
    heads = _pieces(read, drafts, layout.constants_bytes)
    pools = {at: _word(head, layout.constants_pool) for at, head in heads.items()}
    pool_heads = _pieces(read, pools, layout.pool_bytes)
    klasses = {at: _word(head, layout.pool_holder) for at, head in pool_heads.items()}
    first = layout.pool_bytes
    names = _symbols(read, layout, {
        at: pools[at] + first + 8 * _quarter(heads[at], layout.name_index) for at in pool_heads
    })  # fmt: skip
    named = pool_heads
    if layout.file_of_class:
        named = _pieces(read, klasses, layout.source_file + 2)
    files = _symbols(read, layout, {
        at: pools[at] + first + 8 * index
        for at, head in named.items()
        if (index := _quarter(head, layout.source_file))
    })  # fmt: skip
    classes = _symbols(read, layout, {at: to + layout.class_name for at, to in klasses.items()})
    tables = _pieces(read, {
        at: drafts[at] + layout.constants_bytes + _quarter(head, layout.code_size)
        for at, head in heads.items()
        if _half(head, layout.flags) & _HAS_LINES
    }, _TABLE_BYTES, partly=True)  # fmt: skip
    methods = {}
    for at, name in names.items():
        if not name or not classes.get(at):
            continue
        owner = _MADE.sub("", classes[at])
        package = owner.rpartition("/")[0]
        file = files.get(at, "")
        file = f"{package}/{file}" if package and file else file or owner
        lines = read_lines(tables.get(at, b""), layout.zero_excluded)
        methods[at] = JavaMethod(
            file,
            f"{owner.replace('/', '.')}.{name}",
            tuple(row[0] for row in lines),
            tuple(row[1] for row in lines),
            drafts[at] >> 3 & 0xFFFFFFFF,
        )
    return methods


def read_lines(table: bytes, zero_excluded: int) -> list[tuple[int, int]]:
    """Return bytecode and line of the rows of a compressed line table, by bytecode."""
    rows: list[tuple[int, int]] = []
    at = bytecode = line = 0
    while at < len(table) and table[at]:
        byte = table[at]
        at += 1
        if byte == 0xFF:  # does not fit: two numbers with signs
            step, at = read_number(table, at, zero_excluded)
            more, at = read_number(table, at, zero_excluded)
            bytecode += step >> 1 ^ -(step & 1)
            line += more >> 1 ^ -(more & 1)
        else:
            bytecode += byte >> 3
            line += byte & 7
        if 0 < line < 1 << 16:
            rows.append((bytecode, line))
    return sorted(rows)


def _pieces(
    read: ReadMemory, places: dict[int, int], size: int, *, partly: bool = False
) -> dict[int, bytes]:
    """Memory at ``places``, as far as it can be read wholly, or ``partly``."""
    possible = {key: at for key, at in places.items() if is_address(at)}
    parts = read([(at, size) for at in possible.values()]) if possible else []
    return {
        key: part
        for key, part in zip(possible, parts, strict=True)
        if part and (partly or len(part) == size)
    }


def _words_at(read: ReadMemory, places: dict[int, int]) -> dict[int, int]:
    return {key: _word(part, 0) for key, part in _pieces(read, places, 8).items()}


def _symbols(read: ReadMemory, layout: HotSpotLayout, places: dict[int, int]) -> dict[int, str]:
    """The Symbols that the words at ``places`` lead to."""
    symbols = _pieces(read, _words_at(read, places), _SYMBOL_BYTES, partly=True)
    result = {}
    for key, part in symbols.items():
        if len(part) >= layout.symbol_body:
            length = _quarter(part, layout.symbol_length)
            text = part[layout.symbol_body : layout.symbol_body + length]
            result[key] = text.decode("utf-8", "replace")
    return result


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _quarter(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _text(data: bytes | None) -> str:
    return (data or b"").partition(b"\0")[0].decode("ascii", "replace")
