"""A module's unwind table, and as bytes: what the decoder sends and the cache keeps."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.bpf.map_sizes import MAX_RULES
from hpcd.daemon.unwind.unwind_rules import RULE_DTYPE
from hpcd.elf.elf_view import Segment
from hpcd.errors import FormatError

# Text beyond this is not one program's: the page directory alone would take 4 MiB.
MAX_SPAN = 1 << 30
# Raised whenever the decoder makes other rows of the same file: cached tables are then remade.
VERSION = 13
_MAGIC = b"HPCDUNW\n"
_HEAD = struct.Struct("<8sIIQIIIIIIII")
_SEGMENT = struct.Struct("<QQQQ")
_MAX_ROWS = 1 << 27
_MAX_BUILD_ID = 128
MACHINES = ("x86_64", "aarch64")


@dataclass(slots=True)
class ModuleTable:
    """Unwind rows of one module.

    ``pc`` is ``uint32[n]``, strictly increasing, relative to ``base`` (an ELF virtual address);
    ``rule`` is ``uint16[n]``, indices of ``rules`` (RULE_DTYPE). A row holds up to the next one's
    pc. ``functions`` had call frame information, ``bad`` of them malformed; ``analysed`` bytes of
    code had none and were followed instruction by instruction. ``corrected`` are prologues and
    epilogues whose information was wrong; a table from the cache does not tell.
    """

    build_id: str
    machine: str
    base: int
    segments: list[Segment]
    pc: npt.NDArray[np.uint32]
    rule: npt.NDArray[np.uint16]
    rules: npt.NDArray[np.void]
    functions: int = 0
    bad: int = 0
    analysed: int = 0
    corrected: int = 0

    def without_rows(self) -> ModuleTable:
        """What else there is of the module. Empty copies, as a view would keep all the rows."""
        return replace(
            self, pc=self.pc[:0].copy(), rule=self.rule[:0].copy(), rules=self.rules[:0].copy()
        )


def pack_table(table: ModuleTable) -> bytes:
    """A table as bytes: header with checksum, then one zstd frame of its columns."""
    columns = b"".join(
        [
            table.pc.astype("<u4").tobytes(),
            table.rule.astype("<u2").tobytes(),
            table.rules.tobytes(),
            *(
                _SEGMENT.pack(s.offset, s.vaddr, s.filesz, int(s.executable))
                for s in table.segments
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
        len(table.pc),
        len(table.rules),
        len(table.segments),
        len(table.build_id.encode()),
        MACHINES.index(table.machine),
        table.functions,
        table.bad,
        table.analysed & 0xFFFFFFFF,
    )
    return _HEAD.pack(*head) + body


def unpack_table(data: bytes) -> ModuleTable:
    """The inverse of :func:`pack_table`, checked: :class:`FormatError` on anything unsound."""
    if len(data) < _HEAD.size:
        raise FormatError("unwind table is too short")
    (magic, version, crc, base, rows, rule_count, segment_count, id_size, machine, functions, bad,
     analysed) = _HEAD.unpack_from(data)  # fmt: skip
    if magic != _MAGIC or version != VERSION:
        raise FormatError("not an unwind table of this version")
    if (
        rows > _MAX_ROWS
        or rule_count > MAX_RULES
        or segment_count > 65535
        or id_size > _MAX_BUILD_ID
    ):
        raise FormatError("unwind table has an impossible size")
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != crc or machine >= len(MACHINES):
        raise FormatError("unwind table is damaged")
    size = 6 * rows + RULE_DTYPE.itemsize * rule_count + _SEGMENT.size * segment_count + id_size
    body = _decompressed(data[_HEAD.size :], size)
    pc = np.frombuffer(body, "<u4", rows)
    rule = np.frombuffer(body, "<u2", rows, 4 * rows)
    rules = np.frombuffer(body, RULE_DTYPE, rule_count, 6 * rows)
    at = 6 * rows + rules.nbytes
    segments = []
    for _ in range(segment_count):
        offset, vaddr, filesz, flags = _SEGMENT.unpack_from(body, at)
        segments.append(Segment(offset, vaddr, filesz, bool(flags & 1)))
        at += _SEGMENT.size
    _check_ranges(base, segments, pc, rule, rule_count)
    build_id = body[at:].decode("ascii", errors="replace")
    if not build_id.replace("hash-", "").isalnum():
        raise FormatError("unwind table has no proper build-id")
    return ModuleTable(
        build_id, MACHINES[machine], base, segments, pc, rule, rules, functions, bad, analysed
    )


def _decompressed(packed: bytes, size: int) -> bytes:
    """The ``size`` bytes ``packed`` stands for; :class:`FormatError` when they are not so many."""
    try:
        # The frame names its own size, and zstd allocates that whatever the limit given.
        if zstandard.frame_content_size(packed) != size:
            raise FormatError("unwind table has another length than it says")
        body = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except zstandard.ZstdError:
        raise FormatError("unwind table does not decompress") from None
    if len(body) != size:
        raise FormatError("unwind table has another length than it says")
    return body


def _check_ranges(
    base: int,
    segments: list[Segment],
    pc: npt.NDArray[np.uint32],
    rule: npt.NDArray[np.uint16],
    rule_count: int,
) -> None:
    """Raise :class:`FormatError` unless rows are in order and refer to what there is."""
    end = max((s.vaddr + s.filesz for s in segments if s.executable), default=0)
    if not base <= end <= base + MAX_SPAN or base & 4095:
        raise FormatError("unwind table covers an impossible range")
    if len(pc) and (
        int(rule.max()) >= rule_count or bool((pc[1:] <= pc[:-1]).any()) or int(pc[-1]) >= MAX_SPAN
    ):
        raise FormatError("unwind table has rows out of order or out of range")
