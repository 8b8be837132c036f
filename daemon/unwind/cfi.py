"""Call frame information (.eh_frame, .debug_frame) → unwind rows.

Compilers emit the same short programs again and again, so each distinct program is run once and the
rows of all functions are put together in bulk. (DWARF 5, section 6.4; LSB 5.0, 10.6; System V ABI
for x86-64 and aarch64 for register numbers.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from hpcd.daemon.unwind.rules import (
    END,
    NONE,
    UNSUPPORTED,
    CfaKind,
    FpKind,
    RaKind,
    Rule,
    RuleSet,
    rule,
)

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

# How a register's value in the caller is found.
_Saved = tuple[str, int] | None  # ("off", n), ("expr", breg offset), ("undef", 0), ("odd", 0)


@dataclass(slots=True)
class _Cie:
    code_align: int
    data_align: int
    return_register: int
    encoding: int
    signal: bool
    augmented: bool
    program: bytes
    key: int


@dataclass(slots=True)
class Functions:
    """Rows of many functions, before they are put together.

    ``start`` and ``end`` are the functions' ranges; ``program`` says which rows they have.
    """

    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    program: list[int] = field(default_factory=list)
    bad: int = 0


class CfiDecoder:
    """Decodes the frame sections of one module."""

    def __init__(self, machine: str, rules: RuleSet) -> None:
        self._registers = REGISTERS[machine]
        self._rules = rules
        self._programs: dict[tuple[int, bytes], int] = {}
        self._delta: list[list[int]] = []
        self._number: list[list[int]] = []
        self._unsupported: int | None = None
        self.functions = Functions()
        self._cie_keys: dict[tuple[object, ...], int] = {}

    def add_section(self, data: bytes, address: int, *, debug: bool = False) -> None:
        """Take in the functions of a section. A malformed one loses itself only."""
        cies: dict[int, _Cie | None] = {}
        functions = self.functions
        unpack_u32 = struct.Struct("<I").unpack_from
        unpack_pair = struct.Struct("<iI").unpack_from
        at, size = 0, len(data)
        programs = self._programs
        while at + 8 <= size:
            (length,) = unpack_u32(data, at)
            start = at + 4
            if length == 0xFFFFFFFF:
                if at + 20 > size:
                    break
                (length,) = struct.unpack_from("<Q", data, at + 4)
                start = at + 12
                wide = True
            else:
                wide = False
            if length == 0:
                if not debug:  # a terminator; crtend's need not be the last
                    at += 4
                    continue
                break
            end = start + length
            if end > size:
                functions.bad += 1
                break
            where = at
            at = end
            id_size = 8 if wide and debug else 4
            if start + id_size > end:
                functions.bad += 1
                continue
            ident = int.from_bytes(data[start : start + id_size], "little")
            if ident == (0 if not debug else (1 << 8 * id_size) - 1):
                cies[where] = None
                continue
            cie_at = ident if debug else start - ident
            try:
                cie = cies.get(cie_at)
                if cie is None:
                    cie = cies[cie_at] = self._cie(data, cie_at, address, debug)
                pos = start + id_size
                if cie.encoding == 0x1B:  # pc-relative, signed 4 bytes: all but a few
                    pc, span = unpack_pair(data, pos)
                    pc += address + pos
                    pos += 8
                else:
                    pc, pos = _pointer(data, pos, address, cie.encoding)
                    span, pos = _pointer(data, pos, address, cie.encoding & 0x0F)
                if cie.augmented:
                    skip = data[pos]
                    pos += 1
                    if skip > 127:
                        skip, pos = _uleb(data, pos - 1)
                    pos += skip
                if not span or not 0 <= pc < 1 << 47 or span > 1 << 32:
                    continue  # the linker blanks out functions it has dropped
                key = (cie.key, data[pos:end])
                number = programs.get(key)
                if number is None:
                    number = programs[key] = self._program(cie, key[1])
            except (IndexError, struct.error, ValueError, OverflowError, RecursionError):
                functions.bad += 1
                continue
            functions.start.append(pc)
            functions.end.append(pc + span)
            functions.program.append(number)

    # --- entries ---

    def _cie(self, data: bytes, at: int, address: int, debug: bool) -> _Cie:
        if not 0 <= at <= len(data) - 8:
            raise ValueError("no CIE there")
        (length,) = struct.unpack_from("<I", data, at)
        pos, wide = at + 4, False
        if length == 0xFFFFFFFF:
            (length,) = struct.unpack_from("<Q", data, at + 4)
            pos, wide = at + 12, True
        end = pos + length
        if end > len(data):
            raise ValueError("CIE runs past the section")
        pos += 8 if wide and debug else 4
        version = data[pos]
        text_end = data.index(b"\0", pos + 1, end)
        augmentation = data[pos + 1 : text_end]
        pos = text_end + 1
        if version == 4:
            pos += 2  # address size, segment selector size
        if augmentation.startswith(b"eh"):
            pos += 8
        code_align, pos = _uleb(data, pos)
        data_align, pos = _sleb(data, pos)
        if version == 1:
            register = data[pos]
            pos += 1
        else:
            register, pos = _uleb(data, pos)
        encoding = 0
        signal = b"S" in augmentation
        augmented = augmentation.startswith(b"z")
        if augmented:
            size, pos = _uleb(data, pos)
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
        program = data[pos:end]
        what = (code_align, data_align, register, signal, program)
        key = self._cie_keys.setdefault(what, len(self._cie_keys))
        return _Cie(code_align, data_align, register, encoding, signal, augmented, program, key)

    def _program(self, cie: _Cie, body: bytes) -> int:
        """Run a program; its rows' number."""
        try:
            delta, rules = self._run(cie, body)
        except (IndexError, struct.error, ValueError):
            self.functions.bad += 1
            delta, rules = [0], [UNSUPPORTED]
        self._delta.append(delta)
        self._number.append([self._rules.number(each) for each in rules])
        return len(self._delta) - 1

    def _run(self, cie: _Cie, body: bytes) -> tuple[list[int], list[Rule]]:
        registers = self._registers
        sp, fp, ra, bx = registers.sp, registers.fp, registers.ra, registers.bx
        if cie.return_register != ra:
            raise ValueError("unusual return address register")
        code_align, data_align = cie.code_align, cie.data_align
        cfa_reg, cfa_off, cfa_expr = sp, registers.cfa_offset, b""
        saved: dict[int, _Saved] = {}
        initial: dict[int, _Saved] = {}
        stack: list[tuple[int, int, bytes, dict[int, _Saved]]] = []
        delta: list[int] = []
        rules: list[Rule] = []
        loc = 0
        for program in (cie.program, body):
            pos, size = 0, len(program)
            if program is body:
                initial = dict(saved)
            while pos < size:
                op = program[pos]
                pos += 1
                high = op & 0xC0
                advance = 0
                if high == 0x40:
                    advance = (op & 63) * code_align
                elif high == 0x80:
                    offset, pos = _uleb(program, pos)
                    saved[op & 63] = ("off", offset * data_align)
                elif high == 0xC0:
                    _restore(saved, initial, op & 63)
                elif op == 0x0E:  # def_cfa_offset
                    cfa_off, pos = _uleb(program, pos)
                elif op == 0x00 or op == 0x2D:  # nop, AARCH64_negate_ra_state
                    pass
                elif op == 0x02:
                    advance = program[pos] * code_align
                    pos += 1
                elif op == 0x03:
                    advance = int.from_bytes(program[pos : pos + 2], "little") * code_align
                    pos += 2
                elif op == 0x04:
                    advance = int.from_bytes(program[pos : pos + 4], "little") * code_align
                    pos += 4
                elif op == 0x0A:
                    if len(stack) > 256:
                        raise ValueError("states nest too deep")
                    stack.append((cfa_reg, cfa_off, cfa_expr, dict(saved)))
                elif op == 0x0B:
                    if not stack:
                        raise ValueError("restore without remember")
                    cfa_reg, cfa_off, cfa_expr, saved = stack.pop()
                    saved = dict(saved)
                elif op == 0x0C:
                    cfa_reg, pos = _uleb(program, pos)
                    cfa_off, pos = _uleb(program, pos)
                    cfa_expr = b""
                elif op == 0x0D:
                    cfa_reg, pos = _uleb(program, pos)
                    cfa_expr = b""
                elif op == 0x12:  # def_cfa_sf
                    cfa_reg, pos = _uleb(program, pos)
                    offset, pos = _sleb(program, pos)
                    cfa_off, cfa_expr = offset * data_align, b""
                elif op == 0x13:
                    offset, pos = _sleb(program, pos)
                    cfa_off = offset * data_align
                elif op == 0x0F:
                    length, pos = _uleb(program, pos)
                    cfa_expr = program[pos : pos + length]
                    pos += length
                elif op == 0x05:
                    register, pos = _uleb(program, pos)
                    offset, pos = _uleb(program, pos)
                    saved[register] = ("off", offset * data_align)
                elif op == 0x11:
                    register, pos = _uleb(program, pos)
                    offset, pos = _sleb(program, pos)
                    saved[register] = ("off", offset * data_align)
                elif op == 0x2F:  # GNU_negative_offset_extended
                    register, pos = _uleb(program, pos)
                    offset, pos = _uleb(program, pos)
                    saved[register] = ("off", -offset * data_align)
                elif op == 0x06:
                    register, pos = _uleb(program, pos)
                    _restore(saved, initial, register)
                elif op == 0x07:
                    register, pos = _uleb(program, pos)
                    saved[register] = ("undef", 0)
                elif op == 0x08:
                    register, pos = _uleb(program, pos)
                    saved.pop(register, None)
                elif op == 0x09:
                    register, pos = _uleb(program, pos)
                    other, pos = _uleb(program, pos)
                    saved[register] = None if other == register else ("odd", 0)
                elif op in (0x10, 0x16):
                    register, pos = _uleb(program, pos)
                    length, pos = _uleb(program, pos)
                    expression = program[pos : pos + length]
                    pos += length
                    saved[register] = (
                        _saved_expression(expression, fp) if op == 0x10 else ("odd", 0)
                    )
                elif op in (0x14, 0x15):
                    register, pos = _uleb(program, pos)
                    _, pos = (_uleb if op == 0x14 else _sleb)(program, pos)
                    saved[register] = ("odd", 0)
                elif op == 0x2E:  # GNU_args_size
                    _, pos = _uleb(program, pos)
                else:
                    raise ValueError(f"unknown call frame instruction {op:#x}")
                if advance and program is body:
                    delta.append(loc)
                    rules.append(self._rule(cie, cfa_reg, cfa_off, cfa_expr, saved, sp, fp, ra, bx))
                    loc += advance
                if pos > size:
                    raise ValueError("program ends within an instruction")
        delta.append(loc)
        rules.append(self._rule(cie, cfa_reg, cfa_off, cfa_expr, saved, sp, fp, ra, bx))
        return delta, rules

    def _rule(
        self,
        cie: _Cie,
        cfa_reg: int,
        cfa_off: int,
        cfa_expr: bytes,
        saved: dict[int, _Saved],
        sp: int,
        fp: int,
        ra: int,
        bx: int,
    ) -> Rule:
        if cie.signal:
            return rule(CfaKind.SIGNAL)
        return_saved = saved.get(ra)
        if return_saved == ("undef", 0):
            return END
        ra_kind, ra_off = RaKind.AT_CFA, 0
        if return_saved is None:
            ra_kind = RaKind.IN_LINK
            if ra == 16:
                return UNSUPPORTED
        elif return_saved[0] == "off":
            ra_off = return_saved[1]
        else:
            return UNSUPPORTED
        fp_kind, fp_off = _fp(saved.get(fp))
        bx_saved = saved.get(bx)
        bx_off = bx_saved[1] if bx_saved and bx_saved[0] == "off" else 0
        if cfa_expr:
            kind, off, reg = _cfa_expression(cfa_expr, sp, fp)
        elif cfa_reg == sp:
            kind, off, reg = CfaKind.SP, cfa_off, 0
        elif cfa_reg == fp:
            kind, off, reg = CfaKind.FP, cfa_off, 0
        else:
            kind, off, reg = CfaKind.REG, cfa_off, cfa_reg & 255
        return rule(
            kind, off, reg=reg, fp=fp_kind, fp_off=fp_off, ra=ra_kind, ra_off=ra_off, bx_off=bx_off
        )

    # --- putting together ---

    def rows(self) -> tuple[I64, npt.NDArray[np.uint16], I64, I64]:
        """(pc, rule) rows of all functions, sorted, and the functions' (start, end).

        Where functions overlap, the one that starts later rules from its start on. A row of no
        information ends every function that no other follows at once.
        """
        functions = self.functions
        if not functions.start:
            empty = np.zeros(0, np.int64)
            return empty, np.zeros(0, np.uint16), empty, empty
        start = np.array(functions.start, np.int64)
        end = np.array(functions.end, np.int64)
        program = np.array(functions.program, np.int64)
        order = np.lexsort((end, start))
        start, end, program = start[order], end[order], program[order]
        last = np.ones(len(start), bool)
        last[:-1] = start[1:] != start[:-1]  # of several that start together, the longest
        start, end, program = start[last], end[last], program[last]
        following = np.append(start[1:], np.int64(1 << 62))

        lengths = np.array([len(each) for each in self._delta], np.int64)
        first = np.cumsum(lengths) - lengths
        delta = np.fromiter(
            (value for each in self._delta for value in each), np.int64, int(lengths.sum())
        )
        number = np.fromiter(
            (value for each in self._number for value in each), np.int64, int(lengths.sum())
        )
        count = lengths[program]
        owner = np.repeat(np.arange(len(start)), count)
        within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        source = first[program][owner] + within
        pc = start[owner] + delta[source]
        keep = pc < np.minimum(end, following)[owner]
        pc, rules = pc[keep], number[source][keep]

        gap = end < following
        none = self._rules.number(NONE)
        pc = np.concatenate([pc, end[gap]])
        rules = np.concatenate([rules, np.full(int(gap.sum()), none)])
        order = np.argsort(pc, kind="stable")
        return pc[order], rules[order].astype(np.uint16), start, np.minimum(end, following)


def _restore(saved: dict[int, _Saved], initial: dict[int, _Saved], register: int) -> None:
    if register in initial:
        saved[register] = initial[register]
    else:
        saved.pop(register, None)


def _fp(saved: _Saved) -> tuple[FpKind, int]:
    if saved is None:
        return FpKind.SAME, 0
    if saved[0] == "off":
        return FpKind.AT_CFA, saved[1]
    if saved[0] == "expr":
        return FpKind.AT_FP, saved[1]
    return FpKind.UNDEFINED, 0


def _saved_expression(expression: bytes, fp: int) -> _Saved:
    """``breg(fp) offset``: where a realigned frame (DRAP) keeps the caller's frame pointer."""
    if expression and expression[0] == _BREG0 + fp:
        offset, pos = _sleb(expression, 1)
        if pos == len(expression):
            return ("expr", offset)
    return ("odd", 0)


def _cfa_expression(expression: bytes, sp: int, fp: int) -> tuple[CfaKind, int, int]:
    """The forms compilers and hand-written assembly use: (kind, offset, addend)."""
    entry = _PLT.get(expression)
    if entry is not None:
        return CfaKind.PLT, entry, 0
    if expression and expression[0] in (_BREG0 + sp, _BREG0 + fp):
        kind = CfaKind.SP_DEREF if expression[0] == _BREG0 + sp else CfaKind.FP_DEREF
        offset, pos = _sleb(expression, 1)
        rest = expression[pos:]
        if rest == bytes([_DEREF]):
            return kind, offset, 0
        if rest[:2] == bytes([_DEREF, _PLUS_UCONST]):
            addend, end = _uleb(rest, 2)
            if end == len(rest) and addend < 256:
                return kind, offset, addend
    return CfaKind.UNSUPPORTED, 0, 0


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    value = data[at]
    at += 1
    if value < 128:
        return value, at
    value &= 127
    shift = 7
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("LEB128 number is too long")


def _sleb(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (value - (1 << shift) if byte & 64 else value), at
    raise ValueError("LEB128 number is too long")


_FORMATS = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}


def _pointer(data: bytes, at: int, address: int, encoding: int) -> tuple[int, int]:
    """An encoded pointer (LSB 5.0, 10.5.1): absolute or pc-relative; indirect ones give 0."""
    if encoding == 0xFF:
        return 0, at
    kind = encoding & 0x0F
    if kind == 0x01:
        value, end = _uleb(data, at)
    elif kind == 0x09:
        value, end = _sleb(data, at)
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
