"""Call frame information (.eh_frame, .debug_frame) → unwind rows.

Compilers emit the same short programs again and again, so each distinct program is run once and the
rows of all functions are put together in bulk. (DWARF 5, section 6.4; LSB 5.0, 10.6; System V ABI
for x86-64 and aarch64 for register numbers.)
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hpcd.daemon.unwind.unwind_rules import (
    END,
    NONE,
    UNSUPPORTED,
    BxKind,
    CfaKind,
    FpKind,
    RaKind,
    Rule,
    RuleSet,
    rule,
)
from hpcd.elf.leb128 import sleb128, uleb128

I64 = npt.NDArray[np.int64]

# The standard PLT expression: sp + 8 + ((ip & 15) >= 11 (10 without IBT)) * 8.
_PLT = {
    bytes.fromhex("770880003f1a3b2a332422"): 11,
    bytes.fromhex("770880003f1a3a2a332422"): 10,
}
_BREG0, _DEREF, _PLUS_UCONST = 0x70, 0x06, 0x23


@dataclass(frozen=True, slots=True)
class Registers:
    """DWARF numbers of the registers followed; ``bx`` is -1 where there is no such."""

    sp: int
    fp: int
    ra: int
    bx: int
    cfa_offset: int
    """Of the CFA from sp at a function's entry."""


REGISTERS = {
    "x86_64": Registers(sp=7, fp=6, ra=16, bx=3, cfa_offset=8),
    "aarch64": Registers(sp=31, fp=29, ra=30, bx=-1, cfa_offset=0),
}

# Where a register's value in the caller is: unchanged, at CFA + int, at fp + offset ("expr"),
# nowhere ("undef"), in another register ("register"), or somewhere the walker has no form for
# ("odd").
_Saved = int | tuple[str, int] | None
_UNDEFINED: _Saved = ("undef", 0)
_ODD: _Saved = ("odd", 0)

_Expression = tuple[CfaKind, int, int]
# What a program has said so far: CFA register, offset and expression, then where the caller's
# fp, ra, bx and sp are. Other registers are not followed, so a state has a fixed size and costs
# nothing to remember, whatever a hostile program says.
_State = tuple[int, int, _Expression | None, _Saved, _Saved, _Saved, _Saved]

_WIDE = 0xFFFFFFFF  # in the place of a record's length: the length follows in 64 bits
_MAX_NESTING = 256
_MAX_ADDRESS = 1 << 47


@dataclass(slots=True)
class _Cie:
    code_align: int
    data_align: int
    encoding: int
    signal: bool
    augmented: bool
    key: int
    state: _State
    """After the CIE's own program, which is run once."""


@dataclass(slots=True)
class Functions:
    """Rows of many functions, before they are put together.

    Each of ``parts`` is ``int64[3, n]``: where functions start, where they end, and which rows
    they have. ``bad`` of them were malformed.
    """

    parts: list[I64] = field(default_factory=list)
    bad: int = 0


class CfiDecoder:
    """Decodes the frame sections of one module."""

    def __init__(self, machine: str, rules: RuleSet) -> None:
        self._registers = REGISTERS[machine]
        registers = self._registers
        self._slots = {registers.fp: 0, registers.ra: 1, registers.bx: 2, registers.sp: 3}
        self._rules = rules
        self._programs: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        # Rows of all programs, one after another; a program's begin at its number in _first.
        self._delta = array("q")
        self._number = array("H")
        self._first = array("q")
        self._malformed: set[int] = set()
        self._states: tuple[dict[_State, int], dict[_State, int]] = ({}, {})
        self._positional = False
        self.functions = Functions()
        self._cie_keys: dict[tuple[object, ...], int] = {}

    def add_section(self, data: bytes, address: int, *, debug: bool = False) -> None:
        """Take in the functions of a section. A malformed one loses itself only."""
        where = self._records(data, debug=debug)
        if not len(where):
            return
        spans = np.zeros((3, len(where)), np.int64)
        cies: dict[int, _Cie | None] = {}
        if debug:  # where a CIE may follow the functions that name it
            for offset in where.tolist():
                start, id_size, _ = _head(data, offset, debug=True)
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
        self.functions.bad += int(np.isin(spans[2], list(self._malformed)).sum())
        self.functions.parts.append(spans)

    def _records(self, data: bytes, *, debug: bool) -> I64:
        """Where the records of a section begin: all that is read of it one by one."""
        unpack = struct.Struct("<I").unpack_from
        places = array("q")
        at, size = 0, len(data)
        while at + 8 <= size:
            (length,) = unpack(data, at)
            end = at + 4 + length
            if length == _WIDE:
                if at + 20 > size:
                    break
                end = at + 12 + int.from_bytes(data[at + 4 : at + 12], "little")
            elif not length:
                if debug:
                    break
                at += 4  # a terminator; crtend's need not be the last
                continue
            if end > size:
                self.functions.bad += 1
                break
            places.append(at)
            at = end
        return np.frombuffer(places, np.int64) if places else np.zeros(0, np.int64)

    def _add_plain(
        self, data: bytes, address: int, where: I64, cies: dict[int, _Cie | None], spans: I64
    ) -> list[int]:
        """Read ``cies`` of .eh_frame and its functions as compilers make all but a few; put them
        into ``spans``. Returns the indices of the others."""
        size = len(data) & ~3
        words = np.frombuffer(data, "<u4", size >> 2)
        octets = np.frombuffer(data, np.uint8)
        # Aligned, with a length of 32 bits and no shorter than what is read of it here.
        fits = (where & 3 == 0) & (where + 20 <= size)
        at = np.where(fits, where, 0) >> 2
        length = words[at].astype(np.int64)
        fits &= (length != _WIDE) & (length >= 13)
        ident = words[at + 1].astype(np.int64)
        for offset in where[~fits | (ident == 0)].tolist():
            start, _, _ = _head(data, offset, debug=False)
            if data[start : start + 4] == bytes(4):
                cies[offset] = self._try_cie(data, offset, address, False)
        known, which = np.unique(where + 4 - ident, return_inverse=True)
        named = [cies.get(offset) for offset in known.tolist()]
        plain = [cie is not None and cie.augmented and cie.encoding == 0x1B for cie in named]
        skip = octets[np.where(fits, where + 16, 0)].astype(np.int64)
        body, end = where + 17 + skip, where + 4 + length
        fits &= (ident != 0) & np.array(plain, bool)[which] & (skip < 128) & (body <= end)

        begin = words[at + 2].view("<i4").astype(np.int64) + address + where + 8
        span = words[at + 3].astype(np.int64)
        # The linker blanks out functions it has dropped.
        index = np.flatnonzero(fits & (span > 0) & (begin >= 0) & (begin < _MAX_ADDRESS))
        numbers = array("q")
        functions = zip(
            which[index].tolist(), body[index].tolist(), end[index].tolist(), strict=True
        )
        known_programs = [self._programs[cie.key] if cie else {} for cie in named]
        for cie_index, low, high in functions:
            program = data[low:high]
            number = known_programs[cie_index].get(program)
            if number is None:
                cie = named[cie_index]
                assert cie
                pc = int(begin[index[len(numbers)]])
                number = self._program(cie, program, address + low, pc)
            numbers.append(number)
        spans[0, index] = begin[index]
        spans[1, index] = begin[index] + span[index]
        spans[2, index] = numbers
        return np.flatnonzero(~fits).tolist()

    def _function(
        self, data: bytes, address: int, where: int, cies: dict[int, _Cie | None], *, debug: bool
    ) -> tuple[int, int, int] | None:
        """(start, end, program) of the function whose record is at ``where``, None when it is none
        or has been dropped. Raises what reading malformed bytes raises."""
        start, id_size, end = _head(data, where, debug=debug)
        ident = int.from_bytes(data[start : start + id_size], "little")
        if ident == (0 if not debug else (1 << 8 * id_size) - 1):
            return None
        if start + id_size > end:
            raise ValueError("record ends within its head")
        cie = cies.get(ident if debug else start - ident)
        if cie is None:
            raise ValueError("no CIE there")
        pos = start + id_size
        pc, pos = _pointer(data, pos, address, cie.encoding)
        span, pos = _pointer(data, pos, address, cie.encoding & 0x0F)
        if cie.augmented:
            skip, pos = uleb128(data, pos)
            pos += skip
        if not span or not 0 <= pc < _MAX_ADDRESS or span > 1 << 32:
            return None
        program = data[pos:end]
        number = self._programs[cie.key].get(program)
        if number is None:
            number = self._program(cie, program, address + pos, pc)
        return pc, pc + span, number

    # --- entries ---

    def _try_cie(self, data: bytes, at: int, address: int, debug: bool) -> _Cie | None:
        """The CIE, None when it is malformed: its functions are then lost one by one."""
        try:
            return self._cie(data, at, address, debug)
        except (IndexError, struct.error, ValueError, OverflowError):
            return None

    def _cie(self, data: bytes, at: int, address: int, debug: bool) -> _Cie:
        if not 0 <= at <= len(data) - 8:
            raise ValueError("no CIE there")
        start, id_size, end = _head(data, at, debug=debug)
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
                    _, body = _pointer(data, body + 1, address, data[body])
                elif letter == 0x4C:  # L
                    body += 1
            pos += size
        if pos > end:
            raise ValueError("CIE ends within its augmentation")
        registers = self._registers
        if register != registers.ra:
            raise ValueError("unusual return address register")
        program = data[pos:end]
        what = (code_align, data_align, encoding, signal, program)
        key = self._cie_keys.setdefault(what, len(self._cie_keys))
        state: _State = (registers.sp, registers.cfa_offset, None, None, None, None, None)
        cie = _Cie(code_align, data_align, encoding, signal, augmented, key, state)
        cie.state = self._run(cie, program, None)
        return cie

    def _program(self, cie: _Cie, program: bytes, address: int, pc: int) -> int:
        """Run a function's program, found at ``address``; its rows' number."""
        number = len(self._first)
        mark = len(self._delta)
        self._first.append(mark)
        self._positional = False
        try:
            self._run(cie, program, (address, pc))
        except (IndexError, struct.error, ValueError, OverflowError):
            del self._delta[mark:]
            del self._number[mark:]
            self._delta.append(0)
            self._number.append(self._rules.number(UNSUPPORTED))
            self._malformed.add(number)
        if not self._positional:
            self._programs[cie.key][program] = number
        return number

    def _run(self, cie: _Cie, program: bytes, function: tuple[int, int] | None) -> _State:
        """Run a program, from the state its CIE leaves; the state at its end.

        Rows are kept when it is a ``function``'s: (address of the program, address of the
        function).

        One long function on purpose: its loop runs once for every call frame instruction of a
        module, and most of them are a few operations on locals that hold the state. A function
        for each kind would add a call and the passing of that state to every one.
        """
        registers = self._registers
        code_align, data_align = cie.code_align, cie.data_align
        cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = cie.state
        slots = self._slots
        numbers = self._states[cie.signal]
        stack: list[_State] = []
        delta, number = self._delta, self._number
        last = -1
        loc = 0
        pos, size = 0, len(program)
        state: _State
        while pos < size:
            op = program[pos]
            pos += 1
            high = op & 0xC0
            if high == 0x40 or 0x01 <= op <= 0x04:
                if high == 0x40:
                    advance = (op & 63) * code_align
                elif op == 0x01:  # set_loc
                    if function is None:
                        raise ValueError("a CIE sets a location")
                    self._positional = True
                    target, pos = _pointer(program, pos, function[0], cie.encoding)
                    advance = target - function[1] - loc
                    if advance < 0:
                        raise ValueError("locations go backwards")
                else:
                    width = 1 << (op - 2)
                    advance = int.from_bytes(program[pos : pos + width], "little") * code_align
                    pos += width
                if advance and function:
                    state = (cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp)
                    here = numbers.get(state)
                    if here is None:
                        here = numbers[state] = self._rules.number(self._rule(cie, state))
                    if here != last:
                        delta.append(loc)
                        number.append(here)
                        last = here
                    loc += advance
                continue
            if op == 0x0E:  # def_cfa_offset
                cfa_off = program[pos]
                pos += 1
                if cfa_off > 127:
                    cfa_off, pos = uleb128(program, pos - 1)
                continue
            if high == 0x80:
                offset = program[pos]
                pos += 1
                if offset > 127:
                    offset, pos = uleb128(program, pos - 1)
                slot = slots.get(op & 63, -1)
                saved: _Saved = offset * data_align
            elif high == 0xC0 or op == 0x06:
                register = op & 63
                if op == 0x06:
                    register, pos = uleb128(program, pos)
                slot = slots.get(register, -1)
                saved = (*cie.state[3:],)[slot] if slot >= 0 else None
            elif op == 0x0A:
                if len(stack) > _MAX_NESTING:
                    raise ValueError("states nest too deep")
                stack.append((cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp))
                continue
            elif op == 0x0B:
                if not stack:
                    raise ValueError("restore without remember")
                cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = stack.pop()
                continue
            elif op == 0x0C:
                cfa_reg, pos = uleb128(program, pos)
                cfa_off, pos = uleb128(program, pos)
                cfa_expr = None
                continue
            elif op == 0x0D:
                cfa_reg, pos = uleb128(program, pos)
                cfa_expr = None
                continue
            elif op == 0x12:  # def_cfa_sf
                cfa_reg, pos = uleb128(program, pos)
                offset, pos = sleb128(program, pos)
                cfa_off, cfa_expr = offset * data_align, None
                continue
            elif op == 0x13:
                offset, pos = sleb128(program, pos)
                cfa_off = offset * data_align
                continue
            elif op == 0x0F:
                length, pos = uleb128(program, pos)
                cfa_expr = _cfa_expression(program[pos : pos + length], registers.sp, registers.fp)
                pos += length
                continue
            elif op in (0x00, 0x2C, 0x2D):  # nop, AARCH64_negate_ra_state with and without pc
                continue
            elif op == 0x2E:  # GNU_args_size
                _, pos = uleb128(program, pos)
                continue
            else:
                register, pos = uleb128(program, pos)
                slot = slots.get(register, -1)
                if op in (0x05, 0x2F):  # offset_extended, GNU_negative_offset_extended
                    offset, pos = uleb128(program, pos)
                    saved = offset * (data_align if op == 0x05 else -data_align)
                elif op == 0x11:
                    offset, pos = sleb128(program, pos)
                    saved = offset * data_align
                elif op == 0x07:
                    saved = _UNDEFINED
                elif op == 0x08:
                    saved = None
                elif op == 0x09:
                    other, pos = uleb128(program, pos)
                    saved = None if other == register else _ODD
                    if (
                        slot == 1 and other != register and other < 256
                    ):  # vfork: its child writes over the stack
                        saved = ("register", other)
                elif op in (0x10, 0x16):
                    length, pos = uleb128(program, pos)
                    saved = _ODD
                    if op == 0x10:
                        saved = _saved_expression(program[pos : pos + length], registers.fp)
                    pos += length
                elif op in (0x14, 0x15):  # val_offset: the stack pointer's is the CFA anyway
                    offset, pos = (uleb128 if op == 0x14 else sleb128)(program, pos)
                    saved = None if slot == 3 and not offset else _ODD
                else:
                    raise ValueError(f"unknown call frame instruction {op:#x}")
            if slot == 0:
                fp = saved
            elif slot == 1:
                ra = saved
            elif slot == 2:
                bx = saved
            elif slot == 3:
                sp = saved
        if pos > size or loc >= _MAX_ADDRESS:
            raise ValueError("program ends within an instruction or beyond the address space")
        state = (cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp)
        if function:
            here = numbers.get(state)
            if here is None:
                here = numbers[state] = self._rules.number(self._rule(cie, state))
            if here != last:
                delta.append(loc)
                number.append(here)
        return state

    def _rule(self, cie: _Cie, state: _State) -> Rule:
        registers = self._registers
        cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = state
        if cie.signal:
            return rule(CfaKind.SIGNAL)
        if ra == _UNDEFINED:
            return END
        if sp is not None:  # setcontext: the caller's stack is another one
            return UNSUPPORTED
        ra_kind, ra_off, ra_register = RaKind.AT_CFA, 0, 0
        if isinstance(ra, int):
            ra_off = ra
        elif (
            ra and ra[0] == "register" and not cfa_expr and cfa_reg in (registers.sp, registers.fp)
        ):
            ra_kind, ra_register = RaKind.IN_REGISTER, ra[1]
        elif ra is None and registers is REGISTERS["aarch64"]:
            ra_kind = RaKind.IN_LINK
        else:
            return UNSUPPORTED
        if (cfa_reg, cfa_off, cfa_expr) == (registers.sp, registers.cfa_offset, None):
            # Nothing is left of the frame, so what was saved in it is back. gcc does not say so at
            # the end of realigned functions, where rbp itself is no longer this function's.
            fp = None if isinstance(fp, tuple) and fp[0] == "expr" else fp
            bx = None if isinstance(bx, tuple) and bx[0] == "expr" else bx
        fp_kind, fp_off = _fp(fp)
        bx_kind, bx_off = _bx(bx)
        if cfa_expr:
            kind, off, reg = cfa_expr
        elif cfa_reg == registers.sp:
            kind, off, reg = CfaKind.SP, cfa_off, ra_register
        elif cfa_reg == registers.fp:
            kind, off, reg = CfaKind.FP, cfa_off, ra_register
        elif cfa_reg < 256:
            kind, off, reg = CfaKind.REG, cfa_off, cfa_reg
        else:
            return UNSUPPORTED
        return rule(
            kind, off, reg=reg, fp=fp_kind, fp_off=fp_off, ra=ra_kind, ra_off=ra_off, bx_off=bx_off,
            bx=bx_kind,
        )  # fmt: skip

    # --- putting together ---

    def rows(self) -> tuple[I64, npt.NDArray[np.uint16], I64, I64]:
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
        last[:-1] = start[1:] != start[:-1]  # of several that start together, the longest
        start, end, program = start[last], end[last], program[last]
        following = np.append(start[1:], np.int64(1 << 62))
        end, open_end = np.minimum(end, following), end < following

        # Each function's rows, and one for what is behind it.
        first = np.frombuffer(self._first, np.int64)
        lengths = np.diff(first, append=len(self._delta))
        places = np.cumsum(lengths[program] + 1)
        behind = places - 1
        source = np.arange(places[-1])
        count = np.diff(places, prepend=0)
        source -= np.repeat(behind - lengths[program] - first[program], count)
        source[behind] = 0
        pc = np.frombuffer(self._delta, np.int64)[source]
        pc += np.repeat(start, count)
        keep = pc < np.repeat(end, count)
        rules = np.frombuffer(self._number, np.uint16)[source]
        pc[behind], keep[behind] = end, open_end
        rules[behind] = self._rules.number(NONE)
        return pc[keep], rules[keep], start, end


def _head(data: bytes, where: int, *, debug: bool) -> tuple[int, int, int]:
    """(where the id of the record at ``where`` is, its size, where the record ends)."""
    (length,) = struct.unpack_from("<I", data, where)
    if length != _WIDE:
        return where + 4, 4, where + 4 + length
    (length,) = struct.unpack_from("<Q", data, where + 4)
    return where + 12, 8 if debug else 4, where + 12 + length


def _fp(saved: _Saved) -> tuple[FpKind, int]:
    if saved is None:
        return FpKind.SAME, 0
    if isinstance(saved, int):
        return FpKind.AT_CFA, saved
    if saved[0] == "expr":
        return FpKind.AT_FP, saved[1]
    return FpKind.UNDEFINED, 0


def _bx(saved: _Saved) -> tuple[BxKind, int]:
    if saved is None:
        return BxKind.AT_CFA, 0
    if isinstance(saved, int):
        return BxKind.AT_CFA, saved
    return (BxKind.AT_FP, saved[1]) if saved[0] == "expr" else (BxKind.LOST, 0)


def _saved_expression(expression: bytes, fp: int) -> _Saved:
    """``breg(fp) offset``: where a realigned frame (DRAP) keeps the caller's frame pointer."""
    if expression and expression[0] == _BREG0 + fp:
        offset, pos = sleb128(expression, 1)
        if pos == len(expression):
            return ("expr", offset)
    return _ODD


def _cfa_expression(expression: bytes, sp: int, fp: int) -> _Expression:
    """The forms compilers and hand-written assembly use: (kind, offset, addend)."""
    entry = _PLT.get(expression)
    if entry is not None:
        return CfaKind.PLT, entry, 0
    if expression and expression[0] in (_BREG0 + sp, _BREG0 + fp):
        kind = CfaKind.SP_DEREF if expression[0] == _BREG0 + sp else CfaKind.FP_DEREF
        offset, pos = sleb128(expression, 1)
        rest = expression[pos:]
        if rest == bytes([_DEREF]):
            return kind, offset, 0
        if rest[:2] == bytes([_DEREF, _PLUS_UCONST]):
            addend, end = uleb128(rest, 2)
            if end == len(rest) and addend < 256:
                return kind, offset, addend
    return CfaKind.UNSUPPORTED, 0, 0


_FORMATS = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}


def _pointer(data: bytes, at: int, address: int, encoding: int) -> tuple[int, int]:
    """An encoded pointer (LSB 5.0, 10.5.1): absolute or pc-relative; indirect ones give 0."""
    if encoding == 0xFF:
        return 0, at
    kind = encoding & 0x0F
    if kind == 0x01:
        value, end = uleb128(data, at)
    elif kind == 0x09:
        value, end = sleb128(data, at)
    elif kind in _FORMATS:
        form = _FORMATS[kind]
        (value,) = struct.unpack_from(form, data, at)
        end = at + struct.calcsize(form)
    else:
        raise ValueError("unknown pointer encoding")
    application = encoding & 0x70
    if application == 0x10:
        value += address + at
    elif application:
        raise ValueError("pointer relative to an unknown base")
    return value, end
