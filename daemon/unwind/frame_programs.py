"""Programs of call frame instructions → unwind rows.

Compilers emit the same short programs again and again: each distinct one is run once. (DWARF 5,
section 6.4; LSB 5.0, 10.6; System V ABI for x86-64 and aarch64 for register numbers.)
"""

from __future__ import annotations

import struct
from array import array
from collections import defaultdict
from dataclasses import dataclass, field

from hpcd.bpf.wire import CfaKind
from hpcd.daemon.unwind.frame_states import (
    BX,
    FP,
    ODD,
    RA,
    REGISTERS,
    SP,
    UNDEFINED,
    Expression,
    Registers,
    Saved,
    State,
    cfa_expression,
    saved_expression,
    state_rule,
)
from hpcd.daemon.unwind.unwind_rules import UNSUPPORTED, RuleSet, rule
from hpcd.elf.encoded_pointer import encoded_pointer
from hpcd.elf.leb128 import sleb128, uleb128

# Call frame instructions (DWARF 5, section 7.24, and vendors' extensions). The first three have an
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


MAX_ADDRESS = 1 << 47
_MAX_NESTING = 256


@dataclass(slots=True)
class Cie:
    """A common information entry: data shared by the programs of its functions."""

    code_align: int
    data_align: int
    encoding: int
    signal: bool
    augmented: bool
    key: int
    state: State = field(init=False)
    """After the CIE's own program, which is run once."""
    saved: dict[int, Saved] = field(init=False)
    """The saved registers' places in that state, by slot; -1 for registers not followed."""

    def take_state(self, state: State) -> None:
        """Take the state that the CIE leaves its functions."""
        self.state = state
        self.saved = {-1: None, FP: state[3], RA: state[4], BX: state[5], SP: state[6]}


class _RuleNumbers(dict[State, int]):
    """The number of each state's unwind rule in ``rules``, worked out the first time."""

    def __init__(self, rules: RuleSet, registers: Registers, *, signal: bool) -> None:
        self._rules, self._registers, self._signal = rules, registers, signal

    def __missing__(self, state: State) -> int:
        of_state = rule(CfaKind.SIGNAL) if self._signal else state_rule(self._registers, state)
        number = self[state] = self._rules.number(of_state)
        return number


class FramePrograms:
    """The rows of all distinct programs of a module, concatenated.

    Rows of program ``number`` begin at ``first[number]``: ``delta`` is the distance of each from
    its function's start, ``rule_number`` the number of its rule in the module's set.
    """

    def __init__(self, machine: str, rules: RuleSet) -> None:
        self.registers = registers = REGISTERS[machine]
        self._slots = {registers.fp: FP, registers.ra: RA, registers.bx: BX, registers.sp: SP}
        self._rules = rules
        self.known: defaultdict[int, dict[bytes, int]] = defaultdict(dict)
        """Program numbers by the key of their CIE; not of programs that contain addresses."""
        self.delta = array("q")
        self.rule_number = array("H")
        self.first = array("q")
        self.malformed: set[int] = set()
        """Numbers of malformed programs."""
        # By whether a CIE is of signal frames.
        self._numbers = tuple(
            _RuleNumbers(rules, registers, signal=signal) for signal in (False, True)
        )
        self._positional = False

    def run_cie(self, cie: Cie, program: bytes) -> None:
        """Run the program of a CIE, with which the programs of its functions begin.

        Raises :class:`IndexError`, :class:`ValueError` and the like for a malformed one.
        """
        registers = self.registers
        cie.take_state((registers.sp, registers.cfa_offset, None, None, None, None, None))
        cie.take_state(self._run(cie, program, None))

    def add(self, cie: Cie, program: bytes, address: int, pc: int) -> int:
        """Run the program, found at ``address``, of the function at ``pc``; return its number."""
        number = len(self.first)
        mark = len(self.delta)
        self.first.append(mark)
        self._positional = False
        try:
            self._run(cie, program, (address, pc))
        except (IndexError, struct.error, ValueError, OverflowError):
            del self.delta[mark:]
            del self.rule_number[mark:]
            self.delta.append(0)
            self.rule_number.append(self._rules.number(UNSUPPORTED))
            self.malformed.add(number)
        if not self._positional:
            self.known[cie.key][program] = number
        return number

    def _run(self, cie: Cie, program: bytes, function: tuple[int, int] | None) -> State:
        """Run a program from the state that its CIE leaves, and return the state at its end.

        Rows are kept if it is a ``function``'s: (address of the program, address of the function).

        Its loop runs once for every call frame instruction of a module, most of which are a few
        operations on locals: common ones are here, rare ones are methods.
        """
        code_align, data_align = cie.code_align, cie.data_align
        cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = cie.state
        slots, numbers = self._slots, self._numbers[cie.signal]
        delta, number = self.delta, self.rule_number
        stack: list[State] = []
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
            saved: Saved
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
            if slot == FP:
                fp = saved
            elif slot == RA:
                ra = saved
            elif slot == BX:
                bx = saved
            elif slot == SP:
                sp = saved
        if pos > size or loc >= MAX_ADDRESS:
            raise ValueError("program ends within an instruction or beyond the address space")
        state = cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp
        if function and (here := numbers[state]) != last:
            delta.append(loc)
            number.append(here)
        return state

    def _advance(
        self, cie: Cie, op: int, program: bytes, pos: int, function: tuple[int, int] | None,
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
        target, pos = encoded_pointer(program, pos, function[0], cie.encoding)
        advance = target - function[1] - loc
        if advance < 0:
            raise ValueError("locations go backwards")
        return advance, pos

    def _rare_cfa(
        self, cie: Cie, op: int, program: bytes, pos: int, cfa: tuple[int, int, Expression | None]
    ) -> tuple[tuple[int, int, Expression | None], int]:
        """Read an instruction of :data:`_RARE_CFA`; return the CFA's register, offset and
        expression, and the position after it."""
        register, offset, expression = cfa
        if op == DW_CFA_def_cfa_expression:
            length, pos = uleb128(program, pos)
            registers = self.registers
            body = program[pos : pos + length]
            expression = cfa_expression(body, registers.sp, registers.fp)
            return (register, offset, expression), pos + length
        if op == DW_CFA_def_cfa_sf:
            register, pos = uleb128(program, pos)
            expression = None
        factored, pos = sleb128(program, pos)
        return (register, factored * cie.data_align, expression), pos

    def _register_rule(self, cie: Cie, op: int, program: bytes, pos: int) -> tuple[int, Saved, int]:
        """Read an instruction that names a register; return its slot (-1: not followed), where its
        value in the caller is, and the position after it."""
        register, pos = uleb128(program, pos)
        slot = self._slots.get(register, -1)
        saved: Saved = None
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
            saved = UNDEFINED
        elif op == DW_CFA_register:
            other, pos = uleb128(program, pos)
            if other != register:
                # vfork: its child writes over the stack
                saved = ("register", other) if slot == RA and other < 256 else ODD
        elif op in (DW_CFA_expression, DW_CFA_val_expression):
            length, pos = uleb128(program, pos)
            saved = ODD
            if op == DW_CFA_expression:
                saved = saved_expression(program[pos : pos + length], self.registers.fp)
            pos += length
        elif op in (DW_CFA_val_offset, DW_CFA_val_offset_sf):
            read = uleb128 if op == DW_CFA_val_offset else sleb128
            offset, pos = read(program, pos)
            # The stack pointer's value is the CFA anyway.
            saved = None if slot == SP and not offset else ODD
        elif op != DW_CFA_same_value:
            raise ValueError(f"unknown call frame instruction {op:#x}")
        return slot, saved, pos
