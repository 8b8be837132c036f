"""Call frame information (.eh_frame, .debug_frame) → unwind rows.

Compilers emit the same short programs again and again, so each distinct program is run once and the
rows of all functions are put together in bulk. (DWARF 5, section 6.4; LSB 5.0, 10.6; System V ABI
for x86-64 and aarch64 for register numbers.)
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from collections.abc import Callable
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

# Call frame instructions (DWARF 5, section 7.24, and what vendors added). The first three have an
# operand in their low six bits.
_KIND, _OPERAND = 0xC0, 0x3F
DW_CFA_advance_loc = 0x40
DW_CFA_offset = 0x80
DW_CFA_restore = 0xC0
DW_CFA_nop = 0x00
DW_CFA_set_loc = 0x01
DW_CFA_advance_loc1 = 0x02
DW_CFA_advance_loc4 = 0x04
DW_CFA_offset_extended = 0x05
DW_CFA_restore_extended = 0x06
DW_CFA_undefined = 0x07
DW_CFA_same_value = 0x08
DW_CFA_register = 0x09
DW_CFA_remember_state = 0x0A
DW_CFA_restore_state = 0x0B
DW_CFA_def_cfa = 0x0C
DW_CFA_def_cfa_register = 0x0D
DW_CFA_def_cfa_offset = 0x0E
DW_CFA_def_cfa_expression = 0x0F
DW_CFA_expression = 0x10
DW_CFA_offset_extended_sf = 0x11
DW_CFA_def_cfa_sf = 0x12
DW_CFA_def_cfa_offset_sf = 0x13
DW_CFA_val_offset = 0x14
DW_CFA_val_offset_sf = 0x15
DW_CFA_val_expression = 0x16
DW_CFA_AARCH64_negate_ra_state_with_pc = 0x2C
DW_CFA_AARCH64_negate_ra_state = 0x2D
DW_CFA_GNU_args_size = 0x2E
DW_CFA_GNU_negative_offset_extended = 0x2F
_RARE_CFA = {
    DW_CFA_def_cfa_sf, DW_CFA_def_cfa_offset_sf, DW_CFA_def_cfa_expression,
}  # fmt: skip
_WITHOUT_EFFECT = {
    DW_CFA_nop, DW_CFA_AARCH64_negate_ra_state_with_pc, DW_CFA_AARCH64_negate_ra_state,
}  # fmt: skip


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
# Positions of the registers in a state.
_FP, _RA, _BX, _SP = 3, 4, 5, 6

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
    saved: dict[int, _Saved] = field(default_factory=dict)
    """Of that state, where the registers are, by slot; -1 for those not followed."""

    def take_state(self, state: _State) -> None:
        """Take the state that the CIE leaves its functions."""
        self.state = state
        self.saved = {-1: None, _FP: state[3], _RA: state[4], _BX: state[5], _SP: state[6]}


@dataclass(slots=True)
class Functions:
    """Rows of many functions, before they are put together.

    Each of ``parts`` is ``int64[3, n]``: where functions start, where they end, and which rows
    they have. ``bad`` of them were malformed.
    """

    parts: list[I64] = field(default_factory=list)
    bad: int = 0


class _RuleNumbers(dict[_State, int]):
    """The number of each state's unwind rule, worked out when it is asked for first."""

    def __init__(self, number: Callable[[_State], int]) -> None:
        self._work_out = number

    def __missing__(self, state: _State) -> int:
        number = self[state] = self._work_out(state)
        return number


class CfiDecoder:
    """Decodes the frame sections of one module."""

    def __init__(self, machine: str, rules: RuleSet) -> None:
        self._registers = REGISTERS[machine]
        registers = self._registers
        self._slots = {registers.fp: _FP, registers.ra: _RA, registers.bx: _BX, registers.sp: _SP}
        self._rules = rules
        self._programs: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        # Rows of all programs, one after another; a program's begin at its number in _first.
        self._delta = array("q")
        self._number = array("H")
        self._first = array("q")
        self._malformed: set[int] = set()
        # By whether a CIE is of signal frames.
        self._numbers = (
            _RuleNumbers(lambda state: rules.number(self._rule(state))),
            _RuleNumbers(lambda _: rules.number(rule(CfaKind.SIGNAL))),
        )
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
        cie.take_state(state)
        cie.take_state(self._run(cie, program, None))
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
        """Run a program from the state that its CIE leaves, and return the state at its end.

        Rows are kept if it is a ``function``'s: (address of the program, address of the function).

        Its loop runs once for every call frame instruction of a module, most of which are a few
        operations on locals: those are here, rare ones are methods.
        """
        code_align, data_align = cie.code_align, cie.data_align
        cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = cie.state
        slots, numbers = self._slots, self._numbers[cie.signal]
        delta, number = self._delta, self._number
        stack: list[_State] = []
        last, loc, pos, size = -1, 0, 0, len(program)
        while pos < size:
            op = program[pos]
            pos += 1
            high = op & _KIND
            if high == DW_CFA_advance_loc or DW_CFA_set_loc <= op <= DW_CFA_advance_loc4:
                if high:
                    advance = (op & _OPERAND) * code_align
                else:
                    advance, pos = self._advance(cie, op, program, pos, function, loc)
                if advance and function:
                    here = numbers[cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp]
                    if here != last:
                        delta.append(loc)
                        number.append(here)
                        last = here
                    loc += advance
                continue
            if op == DW_CFA_def_cfa_offset:
                cfa_off, pos = program[pos], pos + 1
                if cfa_off > 127:
                    cfa_off, pos = uleb128(program, pos - 1)
                continue
            saved: _Saved
            if high == DW_CFA_offset:
                offset, pos = program[pos], pos + 1
                if offset > 127:
                    offset, pos = uleb128(program, pos - 1)
                slot, saved = slots.get(op & _OPERAND, -1), offset * data_align
            elif high == DW_CFA_restore:
                slot = slots.get(op & _OPERAND, -1)
                saved = cie.saved[slot]
            elif op == DW_CFA_remember_state:
                if len(stack) > _MAX_NESTING:
                    raise ValueError("states nest too deep")
                stack.append((cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp))
                continue
            elif op == DW_CFA_restore_state:
                if not stack:
                    raise ValueError("restore without remember")
                cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = stack.pop()
                continue
            elif op == DW_CFA_def_cfa_register:
                cfa_reg, pos = uleb128(program, pos)
                cfa_expr = None
                continue
            elif op == DW_CFA_def_cfa:
                cfa_reg, pos = uleb128(program, pos)
                cfa_off, pos = uleb128(program, pos)
                cfa_expr = None
                continue
            elif op in _RARE_CFA:
                cfa = cfa_reg, cfa_off, cfa_expr
                (cfa_reg, cfa_off, cfa_expr), pos = self._rare_cfa(cie, op, program, pos, cfa)
                continue
            elif op in _WITHOUT_EFFECT:
                continue
            elif op == DW_CFA_GNU_args_size:
                _, pos = uleb128(program, pos)
                continue
            else:
                slot, saved, pos = self._register_rule(cie, op, program, pos)
            if slot == _FP:
                fp = saved
            elif slot == _RA:
                ra = saved
            elif slot == _BX:
                bx = saved
            elif slot == _SP:
                sp = saved
        if pos > size or loc >= _MAX_ADDRESS:
            raise ValueError("program ends within an instruction or beyond the address space")
        state = cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp
        if function and (here := numbers[state]) != last:
            delta.append(loc)
            number.append(here)
        return state

    def _advance(
        self, cie: _Cie, op: int, program: bytes, pos: int, function: tuple[int, int] | None,
        loc: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Read the operand of an instruction that sets the location, ``loc`` so far; return by how
        much it advances, and the position after it."""
        if op != DW_CFA_set_loc:
            width = 1 << (op - DW_CFA_advance_loc1)
            advance = int.from_bytes(program[pos : pos + width], "little") * cie.code_align
            return advance, pos + width
        if function is None:
            raise ValueError("a CIE sets a location")
        self._positional = True
        target, pos = _pointer(program, pos, function[0], cie.encoding)
        advance = target - function[1] - loc
        if advance < 0:
            raise ValueError("locations go backwards")
        return advance, pos

    def _rare_cfa(
        self, cie: _Cie, op: int, program: bytes, pos: int, cfa: tuple[int, int, _Expression | None]
    ) -> tuple[tuple[int, int, _Expression | None], int]:
        """Read an instruction of :data:`_RARE_CFA`; return the CFA's register, offset and
        expression, and the position after it."""
        register, offset, expression = cfa
        if op == DW_CFA_def_cfa_expression:
            length, pos = uleb128(program, pos)
            registers = self._registers
            body = program[pos : pos + length]
            expression = _cfa_expression(body, registers.sp, registers.fp)
            return (register, offset, expression), pos + length
        if op == DW_CFA_def_cfa_sf:
            register, pos = uleb128(program, pos)
            expression = None
        factored, pos = sleb128(program, pos)
        return (register, factored * cie.data_align, expression), pos

    def _register_rule(
        self, cie: _Cie, op: int, program: bytes, pos: int
    ) -> tuple[int, _Saved, int]:
        """Read an instruction that names a register; return its slot (-1: not followed), where its
        value in the caller is, and the position after it."""
        register, pos = uleb128(program, pos)
        slot = self._slots.get(register, -1)
        saved: _Saved = None
        if op == DW_CFA_offset_extended:
            offset, pos = uleb128(program, pos)
            saved = offset * cie.data_align
        elif op == DW_CFA_GNU_negative_offset_extended:
            offset, pos = uleb128(program, pos)
            saved = -offset * cie.data_align
        elif op == DW_CFA_offset_extended_sf:
            offset, pos = sleb128(program, pos)
            saved = offset * cie.data_align
        elif op == DW_CFA_restore_extended:
            saved = cie.saved[slot]
        elif op == DW_CFA_undefined:
            saved = _UNDEFINED
        elif op == DW_CFA_register:
            other, pos = uleb128(program, pos)
            if other != register:
                # vfork: its child writes over the stack
                saved = ("register", other) if slot == _RA and other < 256 else _ODD
        elif op in (DW_CFA_expression, DW_CFA_val_expression):
            length, pos = uleb128(program, pos)
            saved = _ODD
            if op == DW_CFA_expression:
                saved = _saved_expression(program[pos : pos + length], self._registers.fp)
            pos += length
        elif op in (DW_CFA_val_offset, DW_CFA_val_offset_sf):
            read = uleb128 if op == DW_CFA_val_offset else sleb128
            offset, pos = read(program, pos)
            # The stack pointer's value is the CFA anyway.
            saved = None if slot == _SP and not offset else _ODD
        elif op != DW_CFA_same_value:
            raise ValueError(f"unknown call frame instruction {op:#x}")
        return slot, saved, pos

    def _rule(self, state: _State) -> Rule:
        """Return the unwind rule of a state of a function that is no signal handler's frame."""
        registers = self._registers
        cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = state
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
