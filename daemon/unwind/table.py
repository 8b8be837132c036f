"""A module's unwind table: rows from its call frame information and its machine code."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import zstandard

from hpcd.daemon.unwind.cfi import CfiDecoder
from hpcd.daemon.unwind.code import code_rows
from hpcd.daemon.unwind.corrections import Rows, corrections
from hpcd.daemon.unwind.elf import ElfView, Segment
from hpcd.daemon.unwind.rules import END, NONE, RULE_DTYPE, RuleSet
from hpcd.errors import FormatError

I64 = npt.NDArray[np.int64]

# Text beyond this is not one program's: the page directory alone would take 4 MiB.
MAX_SPAN = 1 << 30
# Shorter stretches between functions are padding.
_MIN_GAP = 16
# Raised whenever the decoder makes other rows of the same file: cached tables are then remade.
VERSION = 5
_MAGIC = b"HPCDUNW\n"
_HEAD = struct.Struct("<8sIIQIIIIIIII")
_SEGMENT = struct.Struct("<QQQQ")
_MAX_ROWS = 1 << 27
_MAX_BUILD_ID = 128
_MACHINES = ("x86_64", "aarch64")


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


def build_table(data: memoryview) -> ModuleTable:
    """The table of an ELF file in memory. Raises :class:`FormatError` when it is no ELF file."""
    elf = ElfView(data)
    base, end = elf.base, elf.end
    if end - base > MAX_SPAN:
        raise FormatError("ELF text spans more than 1 GiB")
    rules = RuleSet()
    rules.number(NONE)
    decoder = CfiDecoder(elf.machine, rules)
    address, frames = elf.eh_frame()
    decoder.add_section(frames, address)
    debug = elf.sections.get(".debug_frame")
    if debug:
        decoder.add_section(elf.contents(debug), 0, debug=True)
    pc, rule, starts, ends = decoder.rows()

    gaps = _gaps(elf, starts, ends)
    if gaps:
        pc, rule = _add_code(elf, gaps, rules, pc, rule)
    pc, rule, corrected = _correct(elf, rules, pc, rule, starts, ends)
    pc, rule = _end_at_entry(elf, rules, pc, rule, starts, ends)

    inside = (pc >= base) & (pc < end)
    pc, rule = pc[inside], rule[inside]
    fresh = np.ones(len(pc), bool)
    fresh[1:] = rule[1:] != rule[:-1]
    return ModuleTable(
        build_id=elf.build_id(),
        machine=elf.machine,
        base=base,
        segments=elf.segments,
        pc=(pc[fresh] - base).astype(np.uint32),
        rule=rule[fresh],
        rules=rules.array(),
        functions=len(starts),
        bad=decoder.functions.bad,
        analysed=sum(stop - start for start, stop in gaps),
        corrected=corrected,
    )


def _gaps(elf: ElfView, starts: I64, ends: I64) -> list[tuple[int, int]]:
    """Stretches of code no function with call frame information covers."""
    gaps = []
    for section in elf.code_sections():
        low, high = section.addr, section.addr + section.size
        first = int(np.searchsorted(ends, low, "right"))
        last = int(np.searchsorted(starts, high, "left"))
        begin = np.concatenate([[low], ends[first:last]])
        stop = np.concatenate([starts[first:last], [high]])
        wide = np.flatnonzero(stop - begin >= _MIN_GAP)
        gaps += [(int(begin[i]), int(stop[i])) for i in wide]
    return gaps


def _add_code(
    elf: ElfView,
    gaps: list[tuple[int, int]],
    rules: RuleSet,
    pc: I64,
    rule: npt.NDArray[np.uint16],
) -> tuple[I64, npt.NDArray[np.uint16]]:
    functions = elf.functions()
    parts_pc, parts_rule = [pc], [rule]
    for section in elf.code_sections():
        low, high = section.addr, section.addr + section.size
        mine = [gap for gap in gaps if low <= gap[0] < high]
        if not mine:
            continue
        inside = (functions[:, 0] >= low) & (functions[:, 0] < high)
        known = [(address, size) for address, size in functions[inside].tolist()]
        code_pc, code = code_rows(elf.contents(section), low, mine, known, elf.machine)
        numbers = [rules.number(tuple(row.tolist())) for row in code]
        parts_pc.append(code_pc.astype(np.int64))
        parts_rule.append(np.array(numbers, np.uint16))
    return _sorted(np.concatenate(parts_pc), np.concatenate(parts_rule))


def _correct(
    elf: ElfView,
    rules: RuleSet,
    pc: I64,
    rule: npt.NDArray[np.uint16],
    starts: I64,
    ends: I64,
) -> tuple[I64, npt.NDArray[np.uint16], int]:
    """Rows of prologues and epilogues as the machine code has them, and how many were others."""
    if elf.machine != "x86_64" or not len(pc):
        return pc, rule, 0
    rows = Rows(pc, rule, rules.array())
    found = []
    for section in elf.code_sections():
        text = np.frombuffer(elf.data, np.uint8, section.size, section.offset)
        found += corrections(text, section.addr, starts, ends, rows)
    if not found:
        return pc, rule, 0
    low = np.array([each.rows[0][0] for each in found], np.int64)
    high = np.array([each.end for each in found], np.int64)
    resume = rule[np.maximum(np.searchsorted(pc, high, "right") - 1, 0)]
    place = np.searchsorted(low, pc, "right") - 1
    keep = (place < 0) | (pc >= high[np.maximum(place, 0)])
    made = [(at, rules.number(each)) for one in found for at, each in one.rows]
    fresh = np.array(made, np.int64).reshape(-1, 2)
    # Rows given later win: corrected ones over resumed ones where corrections touch.
    all_pc = np.concatenate([high, pc[keep], fresh[:, 0]])
    numbers = np.concatenate([resume, rule[keep], fresh[:, 1].astype(np.uint16)])
    return *_sorted(all_pc, numbers), len(found)


def _sorted(pc: I64, rule: npt.NDArray[np.uint16]) -> tuple[I64, npt.NDArray[np.uint16]]:
    """Sorted by pc; of rows with one pc the last given stays."""
    order = np.argsort(pc, kind="stable")
    pc, rule = pc[order], rule[order]
    last = np.ones(len(pc), bool)
    last[:-1] = pc[1:] != pc[:-1]
    return pc[last], rule[last]


def _end_at_entry(
    elf: ElfView,
    rules: RuleSet,
    pc: I64,
    rule: npt.NDArray[np.uint16],
    starts: I64,
    ends: I64,
) -> tuple[I64, npt.NDArray[np.uint16]]:
    """The function the program starts in has no caller, whether it says so or not."""
    entry = elf.entry
    if not elf.base <= entry < elf.end or elf.machine not in _MACHINES:
        return pc, rule
    at = int(np.searchsorted(starts, entry, "right")) - 1
    if at >= 0 and entry < int(ends[at]):
        stop = int(ends[at])
    else:
        following = int(starts[at + 1]) if at + 1 < len(starts) else elf.end
        functions = elf.functions()
        sizes = functions[functions[:, 0] == entry, 1].tolist()
        stop = min(following, entry + (max(sizes, default=0) or 64))
    keep = (pc < entry) | (pc >= stop)
    after = int(np.searchsorted(pc, stop, "right")) - 1
    resume = int(rule[after]) if after >= 0 else rules.number(NONE)
    ended = np.array([entry, stop], np.int64)
    what = np.array([rules.number(END), resume], np.uint16)
    # Rows that begin exactly at the stop win over the resumed one.
    return _sorted(np.concatenate([ended, pc[keep]]), np.concatenate([what, rule[keep]]))


# --- as bytes: what the decoder sends and the cache keeps ---


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
        _MACHINES.index(table.machine),
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
    if rows > _MAX_ROWS or rule_count > 65535 or segment_count > 65535 or id_size > _MAX_BUILD_ID:
        raise FormatError("unwind table has an impossible size")
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != crc or machine >= len(_MACHINES):
        raise FormatError("unwind table is damaged")
    size = 6 * rows + RULE_DTYPE.itemsize * rule_count + _SEGMENT.size * segment_count + id_size
    packed = data[_HEAD.size :]
    try:
        # The frame names its own size, and zstd allocates that whatever the limit given.
        if zstandard.frame_content_size(packed) != size:
            raise FormatError("unwind table has another length than it says")
        body = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except zstandard.ZstdError:
        raise FormatError("unwind table does not decompress") from None
    if len(body) != size:
        raise FormatError("unwind table has another length than it says")
    pc = np.frombuffer(body, "<u4", rows)
    rule = np.frombuffer(body, "<u2", rows, 4 * rows)
    rules = np.frombuffer(body, RULE_DTYPE, rule_count, 6 * rows)
    at = 6 * rows + rules.nbytes
    segments = []
    for _ in range(segment_count):
        offset, vaddr, filesz, flags = _SEGMENT.unpack_from(body, at)
        segments.append(Segment(offset, vaddr, filesz, bool(flags & 1)))
        at += _SEGMENT.size
    end = max((s.vaddr + s.filesz for s in segments if s.executable), default=0)
    if not base <= end <= base + MAX_SPAN or base & 4095:
        raise FormatError("unwind table covers an impossible range")
    if rows and (
        int(rule.max()) >= rule_count or bool((pc[1:] <= pc[:-1]).any()) or int(pc[-1]) >= MAX_SPAN
    ):
        raise FormatError("unwind table has rows out of order or out of range")
    build_id = body[at:].decode("ascii", errors="replace")
    if not build_id.replace("hash-", "").isalnum():
        raise FormatError("unwind table has no proper build-id")
    return ModuleTable(
        build_id, _MACHINES[machine], base, segments, pc, rule, rules, functions, bad, analysed
    )
