"""A module's unwind table in the walker's layout, and as bytes, for the decoder's reply and the
cache.

The decoder packs the rows, once: for a browser's 3.5 million it takes 0.2 s, during which the
recorder could not keep up with copied stacks. Packed rows take a third of the bytes, too:
within their pages many functions look alike.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.bpf.table_memory import PackedRows, pack_rows
from hpcd.bpf.wire import BLOCK_WORDS, MAX_RULES, PAGE_BITS
from hpcd.daemon.unwind.kept_tables import VERSION
from hpcd.daemon.unwind.runtime_symbols import RUNTIME_SYMBOLS
from hpcd.daemon.unwind.unwind_rules import RULE_DTYPE
from hpcd.daemon.unwind.unwind_table import MACHINES, MAX_SPAN, ModuleTable
from hpcd.elf.elf_view import Segment
from hpcd.errors import FormatError

HEAD = struct.Struct("<8sIIQIIIIIIIII")
_MAGIC = b"HPCDUNW\n"
_SEGMENT = struct.Struct("<QQQQ")
_RUNTIME_SYMBOL = struct.Struct("<IQ")
_MAX_WORDS = 1 << 27
_MAX_BUILD_ID = 128


@dataclass(slots=True)
class PackedTable:
    """Packed unwind rows of one module.

    ``rows`` are rows of as many pages (:data:`~hpcd.bpf.table_memory.PAGE_BITS`) from ``base`` on
    as hold code, by numbers of ``rules`` (RULE_DTYPE); one further number is for addresses before
    the first row. All else is as in :class:`~hpcd.daemon.unwind.unwind_table.ModuleTable`.
    """

    build_id: str
    machine: str
    base: int
    segments: list[Segment]
    rows: PackedRows
    rules: npt.NDArray[np.void]
    functions: int = 0
    bad: int = 0
    analysed: int = 0
    runtime: dict[str, int] = field(default_factory=dict)

    def without_rows(self) -> PackedTable:
        """Return the table without rows and rules (empty copies, as a view would keep them all)."""
        none = np.zeros(0, np.uint32)
        return replace(self, rows=PackedRows(none, none), rules=self.rules[:0].copy())


def packed(table: ModuleTable) -> PackedTable:
    """``table``, packed: O(rows + pages)."""
    pages = _pages(table.base, table.segments)
    return PackedTable(
        table.build_id,
        table.machine,
        table.base,
        table.segments,
        pack_rows(table.pc, table.rule, pages, before=len(table.rules)),
        table.rules,
        table.functions,
        table.bad,
        table.analysed,
        table.runtime,
    )


def to_bytes(table: PackedTable) -> bytes:
    """A table as bytes: header with checksum, then one zstd frame of its columns."""
    columns = b"".join(
        [
            table.rows.words.astype("<u4").tobytes(),
            table.rows.group.astype("<u4").tobytes(),
            table.rules.tobytes(),
            *(
                _SEGMENT.pack(s.offset, s.vaddr, s.filesz, int(s.executable))
                for s in table.segments
            ),
            *(
                _RUNTIME_SYMBOL.pack(RUNTIME_SYMBOLS.index(name), address)
                for name, address in sorted(table.runtime.items())
            ),
            table.build_id.encode(),
        ]
    )
    body = zstandard.ZstdCompressor(level=1).compress(columns)
    head = (
        _MAGIC,
        VERSION,
        zlib.crc32(body),
        table.base,
        len(table.rows.words),
        len(table.rules),
        len(table.segments),
        len(table.build_id.encode()),
        MACHINES.index(table.machine),
        table.functions,
        table.bad,
        table.analysed & 0xFFFFFFFF,
        len(table.runtime),
    )
    return HEAD.pack(*head) + body


def from_bytes(data: bytes) -> PackedTable:
    """The inverse of :func:`to_bytes`, checked: :class:`FormatError` on anything unsound."""
    if len(data) < HEAD.size:
        raise FormatError("unwind table is too short")
    (magic, version, crc, base, word_count, rule_count, segment_count, id_size, machine, functions,
     bad, analysed, symbol_count) = HEAD.unpack_from(data)  # fmt: skip
    if magic != _MAGIC or version != VERSION:
        raise FormatError("not an unwind table of this version")
    if (
        word_count > _MAX_WORDS
        or rule_count >= MAX_RULES
        or segment_count > 65535
        or id_size > _MAX_BUILD_ID
        or symbol_count > len(RUNTIME_SYMBOLS)
    ):
        raise FormatError("unwind table has an impossible size")
    if zlib.crc32(memoryview(data)[HEAD.size :]) != crc or machine >= len(MACHINES):
        raise FormatError("unwind table is damaged")
    fixed = (
        4 * word_count
        + RULE_DTYPE.itemsize * rule_count
        + _SEGMENT.size * segment_count
        + _RUNTIME_SYMBOL.size * symbol_count
        + id_size
    )
    body = _decompressed(data[HEAD.size :], fixed)
    pages = (len(body) - fixed) // 4
    words = np.frombuffer(body, "<u4", word_count)
    group = np.frombuffer(body, "<u4", pages, words.nbytes)
    rules = np.frombuffer(body, RULE_DTYPE, rule_count, words.nbytes + group.nbytes)
    at = words.nbytes + group.nbytes + rules.nbytes
    segments = []
    for _ in range(segment_count):
        offset, vaddr, filesz, flags = _SEGMENT.unpack_from(body, at)
        segments.append(Segment(offset, vaddr, filesz, bool(flags & 1)))
        at += _SEGMENT.size
    rows = PackedRows(words, group)
    runtime = {}
    for _ in range(symbol_count):
        number, address = _RUNTIME_SYMBOL.unpack_from(body, at)
        if number >= len(RUNTIME_SYMBOLS):
            raise FormatError("unwind table has a symbol that is none of a runtime's")
        runtime[RUNTIME_SYMBOLS[number]] = address
        at += _RUNTIME_SYMBOL.size
    _check_ranges(base, segments, rows, rule_count)
    build_id = body[at:].decode("ascii", errors="replace")
    if not build_id.replace("hash-", "").isalnum():
        raise FormatError("unwind table has no proper build-id")
    return PackedTable(
        build_id, MACHINES[machine], base, segments, rows, rules, functions, bad, analysed, runtime
    )


def _pages(base: int, segments: list[Segment]) -> int:
    end = max(
        (segment.vaddr + segment.filesz for segment in segments if segment.executable), default=base
    )
    return ((end - base) >> PAGE_BITS) + 1


def _decompressed(frame: bytes, fixed: int) -> bytes:
    """The bytes of ``frame``: ``fixed`` ones and the groups of pages.
    :class:`FormatError` when they cannot be that many."""
    try:
        # The frame names its own size, and zstd allocates that in spite of the limit given.
        size = zstandard.frame_content_size(frame)
        if not fixed < size <= fixed + 4 * (MAX_SPAN >> PAGE_BITS) + 4 or (size - fixed) % 4:
            raise FormatError("unwind table has another length than it says")
        body = zstandard.ZstdDecompressor().decompress(frame, max_output_size=size)
    except zstandard.ZstdError:
        raise FormatError("unwind table does not decompress") from None
    if len(body) != size:
        raise FormatError("unwind table has another length than it says")
    return body


def _check_ranges(base: int, segments: list[Segment], rows: PackedRows, rule_count: int) -> None:
    """Raise :class:`FormatError` unless each page's rows are within a block and refer to existing
    rules. They may still be wrong, which harms only the module's own paths."""
    end = max((s.vaddr + s.filesz for s in segments if s.executable), default=0)
    if not base <= end <= base + MAX_SPAN or base & 4095:
        raise FormatError("unwind table covers an impossible range")
    words, group = rows
    if len(group) != _pages(base, segments) or int(group.max()) >= len(words):
        raise FormatError("unwind table has pages without rows")
    count = words[group] & np.uint32(0xFFFF)
    if (
        int(words.max()) >> 16 > rule_count
        or not count.all()
        or bool((group % BLOCK_WORDS + count > BLOCK_WORDS).any())
        or int((group + count).max()) > len(words)
    ):
        raise FormatError("unwind table has rows out of range")
