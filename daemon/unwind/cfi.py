"""Call frame information (.eh_frame, .debug_frame) → unwind rows.

Each distinct program is run once (:mod:`~hpcd.daemon.unwind.frame_programs`), and the rows of all
functions are put together in bulk. (DWARF 5, section 6.4; LSB 5.0, 10.6.)
"""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field

import numpy as np

from hpcd.array_types import I64, U16
from hpcd.daemon.unwind.frame_programs import MAX_ADDRESS, Cie, FramePrograms
from hpcd.daemon.unwind.unwind_rules import NONE, RuleSet
from hpcd.elf.encoded_pointer import encoded_pointer
from hpcd.elf.frame_records import RELATIVE, WIDE, record_head, record_offsets
from hpcd.elf.leb128 import sleb128, uleb128


@dataclass(slots=True)
class FunctionRows:
    """Rows of many functions, before they are put together.

    Each of ``parts`` is ``int64[3, n]``: where functions start, where they end, and which rows
    they have. ``bad`` of them were malformed.
    """

    parts: list[I64] = field(default_factory=list)
    bad: int = 0


class CfiDecoder:
    """Decodes the frame sections of one module."""

    def __init__(self, machine: str, rules: RuleSet) -> None:
        self._rules = rules
        self._programs = FramePrograms(machine, rules)
        self.functions = FunctionRows()
        self._cie_keys: dict[tuple[object, ...], int] = {}

    def add_section(self, data: bytes, address: int, *, debug: bool = False) -> None:
        """Take in the functions of a section. A malformed one loses itself only."""
        where, cut_off = record_offsets(data, debug=debug)
        self.functions.bad += cut_off
        if not len(where):
            return
        spans = np.zeros((3, len(where)), np.int64)
        cies: dict[int, Cie | None] = {}
        if debug:  # where a CIE may follow the functions that name it
            for offset in where.tolist():
                start, id_size, _ = record_head(data, offset, debug=True)
                if data[start : start + id_size] == b"\xff" * id_size:
                    cies[offset] = self._try_cie(data, offset, address, True)
            one_by_one = list(range(len(where)))
        else:
            one_by_one = self._add_plain(data, address, where, cies, spans)
        for index in one_by_one:
            try:
                one = self._function(data, address, int(where[index]), cies, debug=debug)
            except (IndexError, struct.error, ValueError, OverflowError, RecursionError):
                self.functions.bad += 1
                continue
            if one:
                spans[:, index] = one
        spans = spans[:, spans[1] > 0]
        self.functions.bad += int(np.isin(spans[2], list(self._programs.malformed)).sum())
        self.functions.parts.append(spans)

    def _add_plain(
        self, data: bytes, address: int, where: I64, cies: dict[int, Cie | None], spans: I64
    ) -> list[int]:
        """Read ``cies`` of .eh_frame and its functions as compilers make all but a few; put them
        into ``spans``. Returns the indices of the others."""
        size = len(data) & ~3
        words = np.frombuffer(data, "<u4", size >> 2)
        octets = np.frombuffer(data, np.uint8)
        # Only entries that are aligned, with a 32-bit length and all fields that are read here.
        fits = (where & 3 == 0) & (where + 20 <= size)
        at = np.where(fits, where, 0) >> 2
        length = words[at].astype(np.int64)
        fits &= (length != WIDE) & (length >= 13)
        ident = words[at + 1].astype(np.int64)
        for offset in where[~fits | (ident == 0)].tolist():
            start, _, _ = record_head(data, offset, debug=False)
            if data[start : start + 4] == bytes(4):
                cies[offset] = self._try_cie(data, offset, address, False)
        known, which = np.unique(where + 4 - ident, return_inverse=True)
        named = [cies.get(offset) for offset in known.tolist()]
        plain = [cie is not None and cie.augmented and cie.encoding == RELATIVE for cie in named]
        skip = octets[np.where(fits, where + 16, 0)].astype(np.int64)
        body, end = where + 17 + skip, where + 4 + length
        fits &= (ident != 0) & np.array(plain, bool)[which] & (skip < 128) & (body <= end)

        begin = words[at + 2].view("<i4").astype(np.int64) + address + where + 8
        span = words[at + 3].astype(np.int64)
        # The linker blanks out functions it has dropped.
        index = np.flatnonzero(fits & (span > 0) & (begin >= 0) & (begin < MAX_ADDRESS))
        numbers = array("q")
        functions = zip(
            which[index].tolist(), body[index].tolist(), end[index].tolist(), strict=True
        )
        known_programs = [self._programs.known[cie.key] if cie else {} for cie in named]
        for cie_index, low, high in functions:
            program = data[low:high]
            number = known_programs[cie_index].get(program)
            if number is None:
                cie = named[cie_index]
                assert cie
                pc = int(begin[index[len(numbers)]])
                number = self._programs.add(cie, program, address + low, pc)
            numbers.append(number)
        spans[0, index] = begin[index]
        spans[1, index] = begin[index] + span[index]
        spans[2, index] = numbers
        return np.flatnonzero(~fits).tolist()

    def _function(
        self, data: bytes, address: int, where: int, cies: dict[int, Cie | None], *, debug: bool
    ) -> tuple[int, int, int] | None:
        """(start, end, program) of the function whose record is at ``where``, None when it is none
        or has been dropped. Raises what reading malformed bytes raises."""
        start, id_size, end = record_head(data, where, debug=debug)
        ident = int.from_bytes(data[start : start + id_size], "little")
        if ident == (0 if not debug else (1 << 8 * id_size) - 1):
            return None
        if start + id_size > end:
            raise ValueError("record ends within its head")
        cie = cies.get(ident if debug else start - ident)
        if cie is None:
            raise ValueError("no CIE there")
        pos = start + id_size
        pc, pos = encoded_pointer(data, pos, address, cie.encoding)
        span, pos = encoded_pointer(data, pos, address, cie.encoding & 0x0F)
        if cie.augmented:
            skip, pos = uleb128(data, pos)
            pos += skip
        if not span or not 0 <= pc < MAX_ADDRESS or span > 1 << 32:
            return None
        program = data[pos:end]
        number = self._programs.known[cie.key].get(program)
        if number is None:
            number = self._programs.add(cie, program, address + pos, pc)
        return pc, pc + span, number

    # --- entries ---

    def _try_cie(self, data: bytes, at: int, address: int, debug: bool) -> Cie | None:
        """The CIE, None when it is malformed: its functions are then lost one by one."""
        try:
            return self._cie(data, at, address, debug)
        except (IndexError, struct.error, ValueError, OverflowError):
            return None

    def _cie(self, data: bytes, at: int, address: int, debug: bool) -> Cie:
        if not 0 <= at <= len(data) - 8:
            raise ValueError("no CIE there")
        start, id_size, end = record_head(data, at, debug=debug)
        if end > len(data):
            raise ValueError("CIE runs past the section")
        pos = start + id_size
        version = data[pos]
        text_end = data.index(b"\0", pos + 1, end)
        augmentation = data[pos + 1 : text_end]
        pos = text_end + 1
        if version == 4:
            pos += 2  # address size, segment selector size
        if augmentation.startswith(b"eh"):
            pos += 8
        code_align, pos = uleb128(data, pos)
        data_align, pos = sleb128(data, pos)
        if version == 1:
            register = data[pos]
            pos += 1
        else:
            register, pos = uleb128(data, pos)
        encoding = 0
        signal = b"S" in augmentation
        augmented = augmentation.startswith(b"z")
        if augmented:
            size, pos = uleb128(data, pos)
            body = pos
            for letter in augmentation[1:]:
                if letter == 0x52:  # R
                    encoding = data[body]
                    body += 1
                elif letter == 0x50:  # P
                    _, body = encoded_pointer(data, body + 1, address, data[body])
                elif letter == 0x4C:  # L
                    body += 1
            pos += size
        if pos > end:
            raise ValueError("CIE ends within its augmentation")
        if register != self._programs.registers.ra:
            raise ValueError("unusual return address register")
        program = data[pos:end]
        what = (code_align, data_align, encoding, signal, program)
        key = self._cie_keys.setdefault(what, len(self._cie_keys))
        cie = Cie(code_align, data_align, encoding, signal, augmented, key)
        self._programs.run_cie(cie, program)
        return cie

    # --- putting together ---

    def rows(self) -> tuple[I64, U16, I64, I64]:
        """(pc, rule) rows of all functions, sorted, and the functions' (start, end).

        Where functions overlap, the one that starts later rules from its start on. A row of no
        information ends every function that no other follows at once.
        """
        empty = np.zeros(0, np.int64)
        start, end, program = np.concatenate([*self.functions.parts, np.zeros((3, 0), np.int64)], 1)
        if not len(start):
            return empty, np.zeros(0, np.uint16), empty, empty
        order = np.lexsort((end, start))
        start, end, program = start[order], end[order], program[order]
        last = np.ones(len(start), bool)
        last[:-1] = start[1:] != start[:-1]  # the longest of functions with the same start
        start, end, program = start[last], end[last], program[last]
        following = np.append(start[1:], np.int64(1 << 62))
        end, open_end = np.minimum(end, following), end < following

        # Each function's rows, and one row for the code behind it.
        programs = self._programs
        first = np.frombuffer(programs.first, np.int64)
        lengths = np.diff(first, append=len(programs.delta))
        places = np.cumsum(lengths[program] + 1)
        behind = places - 1
        source = np.arange(places[-1])
        count = np.diff(places, prepend=0)
        source -= np.repeat(behind - lengths[program] - first[program], count)
        source[behind] = 0
        pc = np.frombuffer(programs.delta, np.int64)[source]
        pc += np.repeat(start, count)
        keep = pc < np.repeat(end, count)
        rules = np.frombuffer(programs.rule_number, np.uint16)[source]
        pc[behind], keep[behind] = end, open_end
        rules[behind] = self._rules.number(NONE)
        return pc[keep], rules[keep], start, end
