"""Unwind rows for code without call frame information, from the machine code itself.

Hand-written kernels (BLAS, video codecs, some of libcrypto) have none, and are where the time
goes. Within each function the stack pointer is followed from the entry, where the canonical frame
address (CFA) is known, along straight code and branches, together with the registers and stack
slots that hold the caller's rbp and rbx or a stack address. (Tallent, Mellor-Crummey, Fagan:
Binary analysis for measurement and attribution of program performance, PLDI 2009, section 3.)

Blocks no branch is seen to reach (targets of jump tables, functions nobody names or calls) are
tried with the states that could hold there. A state is believed when it brings the stack pointer
to where it must be at the next return, or at a join with code already known.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from iced_x86 import (
    Code,
    Decoder,
    FlowControl,
    Instruction,
    InstructionInfoFactory,
    OpAccess,
    OpKind,
    Register,
    RegisterExt,
)

from hpcd.daemon.unwind.cfi import REGISTERS, Registers
from hpcd.daemon.unwind.rules import NONE, RULE_DTYPE, CfaKind, FpKind, RaKind, Rule, rule

# The largest known body of code without call frame information is x265's, 12 MiB. What lies
# beyond a limit gets no rows.
MAX_BYTES = 48 << 20
MAX_STEPS = 2_000_000
"""Instructions that move the stack pointer, control or a register followed: some 200 bytes each."""

_ALIGNMENT = 16
# Below the stack pointer, and not overwritten by signal handlers. (System V ABI x86-64, 3.2.2.)
_RED_ZONE = 128
# A state only ever loses knowledge at a join, so few visits settle a block; the rest is malice.
_MAX_VISITS = 8
# How far back a block that nothing reaches looks for the state of its function.
_NEIGHBOURS = 32

# Values of registers and slots: (base, offset). Bases are the CFA, "what the register of this
# number held at the entry", and addresses of instructions that moved the stack pointer by an
# unknown amount: all stack addresses derived from the pointer they left share that base.
_Value = tuple[int, int]
_CFA, _ENTRY = 0, -1


class _State:
    """What is known before an instruction.

    ``base`` and ``sp`` are the stack pointer's value; ``regs`` and ``mem`` those of registers (by
    DWARF number) and of stack slots. Both dictionaries are shared between states: replaced, never
    changed.
    """

    __slots__ = ("base", "mem", "regs", "sp")

    def __init__(
        self, base: int, sp: int, regs: dict[int, _Value], mem: dict[_Value, _Value]
    ) -> None:
        self.base, self.sp, self.regs, self.mem = base, sp, regs, mem

    def copy(self) -> _State:
        return _State(self.base, self.sp, self.regs, self.mem)

    def same(self, other: _State) -> bool:
        return (
            self.sp == other.sp
            and self.base == other.base
            and self.regs == other.regs
            and self.mem == other.mem
        )

    def row(self, registers: Registers) -> Rule:
        """The unwind rule of this state."""
        regs, mem = self.regs, self.mem
        frame = regs.get(registers.fp)
        on_frame = frame is not None and frame[0] == _CFA
        kind, offset, reg = CfaKind.NONE, 0, 0
        if frame is not None and on_frame and mem.get(frame) == (_ENTRY, registers.fp):
            # A proper frame. The pointer to it is set once and so the surer way.
            kind, offset = CfaKind.FP, -frame[1]
        elif self.base == _CFA:
            kind, offset = CfaKind.SP, -self.sp
        elif frame is not None and on_frame:
            kind, offset = CfaKind.FP, -frame[1]
        elif registers.bx >= 0 and regs.get(registers.bx, (_ENTRY, 0))[0] == _CFA:
            kind, offset, reg = CfaKind.REG, -regs[registers.bx][1], registers.bx
        else:
            kind, offset, reg = self._indirect(frame)
        if kind == CfaKind.NONE:
            return NONE
        ra_kind, ra_off = RaKind.AT_CFA, -8
        if registers.cfa_offset == 0:  # a link register
            ra_off = self._slot(registers.ra) or 0
            if not ra_off:
                if regs.get(registers.ra) != (_ENTRY, registers.ra):
                    return NONE
                ra_kind = RaKind.IN_LINK
        fp_kind, fp_off = FpKind.SAME, self._slot(registers.fp) or 0
        if fp_off:
            fp_kind = FpKind.AT_CFA
        elif frame != (_ENTRY, registers.fp):
            fp_kind = FpKind.UNDEFINED
            for slot, value in mem.items():
                if value == (_ENTRY, registers.fp) and frame is not None and slot[0] == frame[0]:
                    fp_kind, fp_off = FpKind.AT_FP, slot[1] - frame[1]
        return rule(
            kind,
            offset,
            reg=reg,
            fp=fp_kind,
            fp_off=fp_off,
            ra=ra_kind,
            ra_off=ra_off,
            bx_off=self._slot(registers.bx) or 0,
        )

    def _slot(self, register: int) -> int | None:
        """Where, from the CFA, the caller's value of a register is saved (and still safe)."""
        entry = (_ENTRY, register)
        held = self.regs.get(register) == entry
        for (base, offset), value in self.mem.items():
            # Once restored, the register is the better source than memory already given back.
            if (
                base == _CFA
                and value == entry
                and (self.base != _CFA or offset >= self.sp or not held)
            ):
                return offset
        return None

    def _indirect(self, frame: _Value | None) -> tuple[CfaKind, int, int]:
        """The CFA by an address kept on a stack of unknown position, or in any other register."""
        for (base, offset), (kept, distance) in self.mem.items():
            if kept != _CFA or not -256 < distance <= 0 or base == _CFA:
                continue
            if frame is not None and base == frame[0]:
                return CfaKind.FP_DEREF, offset - frame[1], -distance
            if base == self.base and offset >= self.sp:
                return CfaKind.SP_DEREF, offset - self.sp, -distance
        # Such registers are known in the innermost frame alone.
        for register, (kept, distance) in self.regs.items():
            if kept == _CFA:
                return CfaKind.REG, -distance, register
        return CfaKind.NONE, 0, 0

    def knows_cfa(self) -> bool:
        """Whether any register still leads to the CFA, whatever the stack pointer."""
        return any(base == _CFA for base, _ in self.regs.values()) or any(
            base != _CFA and kept == _CFA for (base, _), (kept, _) in self.mem.items()
        )


# --- what instructions do to a state ---
# Each takes the address after the instruction and up to three operands. _SP stands for the stack
# pointer among register operands.

_SP = -1
_Effect = Callable[[_State, int, int, int, int], None]


def _without(mem: dict[_Value, _Value], slot: _Value) -> dict[_Value, _Value]:
    return {each: value for each, value in mem.items() if each != slot}


def _rebase(state: _State, base: int) -> None:
    """The stack pointer is now nobody knows where; within a loop, anew in each turn."""
    state.base, state.sp = base, 0
    if any(value[0] == base for value in state.regs.values()):
        state.regs = {reg: value for reg, value in state.regs.items() if value[0] != base}
    if any(base in (slot[0], value[0]) for slot, value in state.mem.items()):
        state.mem = {
            slot: value for slot, value in state.mem.items() if base not in (slot[0], value[0])
        }


def _assign(state: _State, end: int, register: int, value: _Value | None) -> None:
    if register == _SP:
        if value is None or value[0] == _ENTRY:
            _rebase(state, end)
        else:
            state.base, state.sp = value
            _release(state)
    elif value is not None:
        state.regs = {**state.regs, register: value}
    elif register in state.regs:
        state.regs = {reg: each for reg, each in state.regs.items() if reg != register}


def _release(state: _State) -> None:
    """Forget slots the stack pointer has risen past."""
    floor = state.sp - _RED_ZONE
    for base, offset in state.mem:
        if offset < floor and base == state.base:
            state.mem = {
                slot: value
                for slot, value in state.mem.items()
                if slot[0] != state.base or slot[1] >= floor
            }
            return


def _value(state: _State, register: int) -> _Value | None:
    if register == _SP:
        return state.base, state.sp
    return state.regs.get(register)


def _address(state: _State, register: int, displacement: int) -> _Value | None:
    value = _value(state, register)
    if value is None or value[0] == _ENTRY:
        return None
    return value[0], value[1] + displacement


def _push(state: _State, end: int, register: int, _b: int, _c: int) -> None:
    value = _value(state, register)
    state.sp -= 8
    slot = (state.base, state.sp)
    if value is not None:
        state.mem = {**state.mem, slot: value}
    elif slot in state.mem:
        state.mem = _without(state.mem, slot)


def _pop(state: _State, end: int, register: int, _b: int, _c: int) -> None:
    slot = (state.base, state.sp)
    value = state.mem.get(slot)
    if value is not None:
        state.mem = _without(state.mem, slot)
    state.sp += 8
    _assign(state, end, register, value)


def _adjust(state: _State, end: int, amount: int, _b: int, _c: int) -> None:
    state.sp += amount
    if amount > 0 and state.mem:
        _release(state)


def _set(state: _State, end: int, register: int, source: int, displacement: int) -> None:
    value = _value(state, source)
    if value is not None and displacement:
        value = _address(state, source, displacement)
    _assign(state, end, register, value)


def _equal(state: _State, end: int, register: int, _b: int, _c: int) -> None:
    """A loop that probes the stack has ended: the stack pointer is what the register holds."""
    value = _address(state, register, 0)
    if value is not None:
        _assign(state, end, _SP, value)


def _load(state: _State, end: int, register: int, base: int, displacement: int) -> None:
    slot = _address(state, base, displacement)
    _assign(state, end, register, None if slot is None else state.mem.get(slot))


def _store(state: _State, end: int, register: int, base: int, displacement: int) -> None:
    slot, value = _address(state, base, displacement), _value(state, register)
    if slot is not None and value is not None:
        state.mem = {**state.mem, slot: value}
    elif slot is not None and slot in state.mem:
        state.mem = _without(state.mem, slot)


def _lose(state: _State, end: int, register: int, _b: int, _c: int) -> None:
    _assign(state, end, register, None)


def _leave(state: _State, end: int, frame: int, _b: int, _c: int) -> None:
    _set(state, end, _SP, frame, 0)
    _pop(state, end, frame, 0, 0)


def _enter(state: _State, end: int, frame: int, size: int, _c: int) -> None:
    _push(state, end, frame, 0, 0)
    _set(state, end, frame, _SP, 0)
    state.sp -= size


def _clobber(state: _State, end: int, mask: int, _b: int, _c: int) -> None:
    """Registers of a bit mask by DWARF number change."""
    for register in state.regs:
        if mask >> register & 1:
            state.regs = {reg: v for reg, v in state.regs.items() if not mask >> reg & 1}
            return


# --- steps: the instructions that matter ---

# What a step without an effect does to control; the second operand is the target.
_JUMP, _BRANCH, _CALL, _RETURN, _TABLE, _STOP = range(6)
_Step = tuple[int, _Effect | None, int, int, int]
"""(address after it, effect or None for control flow, three operands)"""


@dataclass(slots=True)
class _Steps:
    """The steps of one stretch of code, in address order, and where its blocks may begin."""

    at: list[int] = field(default_factory=list)
    step: list[_Step] = field(default_factory=list)
    leaders: set[int] = field(default_factory=set)
    """Targets of branches, and what follows an instruction that never falls through."""
    called: set[int] = field(default_factory=set)
    full: bool = False

    def add(self, at: int, end: int, effect: _Effect | None, *operands: int) -> None:
        a, b, c = (*operands, 0, 0, 0)[:3]
        self.at.append(at)
        self.step.append((end, effect, a, b, c))


_SPECIAL, _WRITER, _STACK, _FLOW, _IMPLICIT, _EXCHANGE = range(1, 7)
_DWARF_ORDER = ("RAX", "RDX", "RCX", "RBX", "RSI", "RDI", "RBP", "RSP") + tuple(
    f"R{n}" for n in range(8, 16)
)
_NUMBER = {int(getattr(Register, name)): n for n, name in enumerate(_DWARF_ORDER)}
_RSP, _RBP, _RBX = (int(each) for each in (Register.RSP, Register.RBP, Register.RBX))
_OF = {
    register: _NUMBER[int(RegisterExt.full_register(register))]
    for register in range(int(Register.R15) + 1)
    if int(RegisterExt.full_register(register)) in _NUMBER
}
"""DWARF numbers of general registers, whole or in part."""
_X86 = REGISTERS["x86_64"]
_CALLER_SAVED = sum(1 << n for n in (0, 1, 2, 4, 5, 8, 9, 10, 11))
_SYSCALL = 1 << 0 | 1 << 2 | 1 << 11
_IN_REGISTER = int(OpKind.REGISTER)


def _codes(*names: str) -> frozenset[int]:
    return frozenset(int(getattr(Code, name)) for name in names)


_PUSH = _codes("PUSH_R64")
_POP = _codes("POP_R64")
_MOVE = _codes("MOV_R64_RM64", "MOV_RM64_R64")
_LEA = _codes("LEA_R64_M")
_SUB = _codes("SUB_RM64_IMM8", "SUB_RM64_IMM32", "SUB_RAX_IMM32")
_ADD = _codes("ADD_RM64_IMM8", "ADD_RM64_IMM32", "ADD_RAX_IMM32")
_COMPARE = _codes("CMP_R64_RM64", "CMP_RM64_R64")
_JNE = _codes("JNE_REL8_64", "JNE_REL32_64")
_LEAVE = _codes("LEAVEQ")
_ENTER = _codes("ENTERQ_IMM16_IMM8")
_HALT = _codes("HLT", "INT1", "INT3")
_PADDING = _codes("NOPW", "NOPD", "NOPQ", "NOP_RM16", "NOP_RM32", "NOP_RM64", "INT3")
_INVALID = int(Code.INVALID)
_SYSTEM_CALLS = _codes("SYSCALL", "SYSENTER")
_HANDLED = _PUSH | _POP | _MOVE | _LEA | _SUB | _ADD | _COMPARE | _LEAVE | _ENTER
_WRITES = frozenset(
    int(each)
    for each in (
        OpAccess.WRITE,
        OpAccess.COND_WRITE,
        OpAccess.READ_WRITE,
        OpAccess.READ_COND_WRITE,
    )
)


class _Catalogue:
    """What kind of step an instruction code is, found out when it is first met."""

    def __init__(self) -> None:
        self.kind: list[int] = [-1] * 8192
        self.implicit: dict[int, int] = {}
        self._info = InstructionInfoFactory()

    def classify(self, instruction: Instruction) -> int:
        """The kind; 0 when such instructions never matter."""
        code = instruction.code
        flow = instruction.flow_control
        if code in _HANDLED:
            kind = _SPECIAL
        elif flow not in (FlowControl.NEXT, FlowControl.INTERRUPT) or code in _HALT:
            kind = _FLOW
        elif instruction.is_stack_instruction:
            kind = _STACK
        else:
            kind = self._by_operands(instruction)
        self.kind[code] = kind
        return kind

    def _by_operands(self, instruction: Instruction) -> int:
        info = self._info.info(instruction)
        explicit = {
            _OF.get(instruction.op_register(i), -1)
            for i in range(instruction.op_count)
            if instruction.op_kind(i) == _IN_REGISTER
        }
        mask = 0
        for used in info.used_registers():
            number = _OF.get(used.register, -1)
            if number >= 0 and used.access in _WRITES and number not in explicit:
                mask |= 1 << number
        if mask & (1 << 4 | 1 << 5):  # a string instruction, with or without a repeat prefix
            mask |= 1 << 2
        later = any(info.op_access(i) in _WRITES for i in range(1, instruction.op_count))
        if later and instruction.op_count > 1:
            return _EXCHANGE
        if mask:
            self.implicit[instruction.code] = mask
            return _IMPLICIT
        # An operand that can be memory or register is a register another time.
        return _WRITER if instruction.op_count and info.op0_access in _WRITES else 0

    def written(self, instruction: Instruction) -> int:
        """Bit mask of the general registers this very instruction writes."""
        mask = 0
        for used in self._info.info(instruction).used_registers():
            number = _OF.get(used.register, -1)
            if number >= 0 and used.access in _WRITES:
                mask |= 1 << number
        return mask


class _X86Reader:
    """Finds the steps of x86-64 code."""

    def __init__(self) -> None:
        self._catalogue = _Catalogue()
        self._follow((_X86.sp, _X86.fp, _X86.bx))

    def _follow(self, numbers: Iterable[int]) -> None:
        self._followed = frozenset(numbers)
        self._mask = sum(1 << n for n in self._followed)
        self._watch = bytearray(512)
        for register, number in _OF.items():
            self._watch[register] = number in self._followed

    def read(self, code: bytes, start: int, entries: list[int]) -> _Steps:
        """Steps of ``code`` at ``start``; decoding begins anew at each of the sorted entries."""
        steps = _Steps()
        bounds = sorted({start, *entries, start + len(code)})
        for low, high in zip(bounds, bounds[1:], strict=False):
            if steps.full:
                break
            part = code[low - start : high - start]
            mark = len(steps.at)
            copies, sources = self._read_part(part, low, steps)
            if sources - self._followed:
                # The stack pointer comes back from a register not followed: once more, with it.
                usual = self._followed
                self._follow((usual | copies | sources) - {_SP})
                del steps.at[mark:], steps.step[mark:]
                self._read_part(part, low, steps)
                self._follow(usual)
        return steps

    def _read_part(self, code: bytes, start: int, steps: _Steps) -> tuple[set[int], set[int]]:
        """(registers given the stack pointer, registers that give it back); _SP: from memory."""
        copies: set[int] = set()
        sources: set[int] = set()
        decoder = Decoder(64, code, ip=start)
        kinds, watch = self._catalogue.kind, self._watch
        implicit, mask = self._catalogue.implicit, self._mask
        compared = -2
        for instruction in decoder:
            instruction_code = instruction.code
            kind = kinds[instruction_code]
            if kind < 0:
                kind = self._catalogue.classify(instruction)
            while kind:
                if kind == _WRITER:
                    if watch[instruction.op0_register]:
                        number = _OF[instruction.op0_register]
                        register = _SP if number == _X86.sp else number
                        steps.add(instruction.ip, instruction.next_ip, _lose, register)
                elif kind == _SPECIAL:
                    compared = self._special(instruction, steps, copies, sources)
                elif kind == _FLOW:
                    if instruction_code == _INVALID:
                        # Data. Code after it is aligned.
                        skip = instruction.next_ip + _ALIGNMENT - 1 & -_ALIGNMENT
                        steps.add(instruction.ip, skip, None, _STOP)
                        steps.leaders.add(skip)
                        if skip - start >= len(code):
                            return copies, sources
                        decoder.position = skip - start
                        decoder.ip = skip
                    elif self._flow(instruction, steps):
                        for following in decoder:
                            if following.code not in _PADDING:
                                break
                        else:
                            return copies, sources
                        steps.leaders.add(following.ip)
                        instruction, instruction_code = following, following.code
                        kind = kinds[instruction_code]
                        if kind < 0:
                            kind = self._catalogue.classify(instruction)
                        continue
                    elif compared == len(steps.at) - 1 and instruction_code in _JNE:
                        self._probed(steps)
                elif kind == _STACK:
                    amount = instruction.stack_pointer_increment
                    steps.add(instruction.ip, instruction.next_ip, _adjust, amount)
                elif kind == _IMPLICIT:
                    if implicit[instruction_code] & mask or watch[instruction.op0_register]:
                        self._clobbering(instruction, steps)
                else:
                    self._clobbering(instruction, steps)
                break
            if len(steps.at) > MAX_STEPS:
                steps.full = True
                break
        return copies, sources

    def _clobbering(self, instruction: Instruction, steps: _Steps) -> None:
        written = self._catalogue.written(instruction) & self._mask
        at, end = instruction.ip, instruction.next_ip
        if written >> _X86.sp & 1:
            steps.add(at, end, _lose, _SP)
        if written:
            steps.add(at, end, _clobber, written)

    def _probed(self, steps: _Steps) -> None:
        """``cmp rsp, register; jne``: behind it the two are equal."""
        register = steps.step[-2][2]
        end = steps.step[-1][0]
        steps.add(end, end, _equal, register)

    def _flow(self, instruction: Instruction, steps: _Steps) -> bool:
        """Add a step that changes control; whether nothing falls through it."""
        at, end = instruction.ip, instruction.next_ip
        flow = instruction.flow_control
        if flow == FlowControl.CONDITIONAL_BRANCH:
            target = instruction.near_branch_target
            steps.leaders.add(target)
            steps.add(at, end, None, _BRANCH, target)
            return False
        if flow in (FlowControl.CALL, FlowControl.INDIRECT_CALL):
            if instruction.code in _SYSTEM_CALLS:
                steps.add(at, end, _clobber, _SYSCALL)
                return False
            if flow == FlowControl.CALL and instruction.near_branch_target != end:
                steps.called.add(instruction.near_branch_target)
            steps.add(at, end, None, _CALL)
            return False
        if flow == FlowControl.XBEGIN_XABORT_XEND:
            return False
        if flow == FlowControl.UNCONDITIONAL_BRANCH:
            target = instruction.near_branch_target
            steps.leaders.add(target)
            steps.add(at, end, None, _JUMP, target)
        elif flow == FlowControl.RETURN:
            steps.add(at, end, None, _RETURN)
        elif flow == FlowControl.INDIRECT_BRANCH:
            steps.add(at, end, None, _TABLE)
        else:
            steps.add(at, end, None, _STOP)
        return True

    def _special(
        self, instruction: Instruction, steps: _Steps, copies: set[int], sources: set[int]
    ) -> int:
        """Add the step of an instruction with operands to look at.

        Returns the number of the step it was, when it compared the stack pointer to a register.
        """
        code = instruction.code
        at, end = instruction.ip, instruction.next_ip
        first = instruction.op0_register
        watched = self._watch[first]
        number = _OF.get(first, -2)
        register = _SP if first == _RSP else number
        if code in _PUSH:
            steps.add(at, end, _push, register)
        elif code in _POP:
            if register == _SP:
                sources.add(_SP)
            steps.add(at, end, _pop, register)
        elif code in _MOVE:
            self._move(instruction, steps, copies, sources)
        elif code in _LEA:
            base = instruction.memory_base
            plain = instruction.memory_index == Register.NONE
            if base == _RSP and plain and first != _RSP:
                copies.add(number)
            if first == _RSP and plain and base in _OF:
                sources.add(_OF[base])
            if watched:
                if plain and self._watch[base]:
                    source = _SP if base == _RSP else _OF[base]
                    displacement = _signed(instruction.memory_displacement)
                    steps.add(at, end, _set, register, source, displacement)
                else:
                    steps.add(at, end, _lose, register)
        elif code in _LEAVE:
            steps.add(at, end, _leave, _X86.fp)
        elif code in _ENTER:
            # Nested levels push more; no compiler and no person makes them.
            steps.add(at, end, _enter, _X86.fp, instruction.immediate(0) & 0xFFFF)
        elif code in _COMPARE:
            if instruction.op1_kind == _IN_REGISTER and _RSP in (first, instruction.op1_register):
                other = instruction.op1_register if first == _RSP else first
                if other in _OF and other != _RSP:
                    sources.add(_OF[other])
                    steps.add(at, end, _nothing, _OF[other])
                    return len(steps.at)
        elif watched:
            amount = _signed(instruction.immediate(1))
            amount = -amount if code in _SUB else amount
            if register == _SP:
                steps.add(at, end, _adjust, amount)
            else:
                steps.add(at, end, _set, register, register, amount)
        return -2

    def _move(
        self, instruction: Instruction, steps: _Steps, copies: set[int], sources: set[int]
    ) -> None:
        at, end = instruction.ip, instruction.next_ip
        first, second = instruction.op0_register, instruction.op1_register
        target = _SP if first == _RSP else _OF.get(first, -2)
        source = _SP if second == _RSP else _OF.get(second, -2)
        if first and second:
            if second == _RSP:
                copies.add(target)
            elif first == _RSP:
                sources.add(source)
            if self._watch[first]:
                if self._watch[second]:
                    steps.add(at, end, _set, target, source)
                else:
                    steps.add(at, end, _lose, target)
            return
        base = instruction.memory_base
        plain = instruction.memory_index == Register.NONE and self._watch[base]
        place = _SP if base == _RSP else _OF.get(base, -2)
        if first:
            if first == _RSP:
                sources.add(_SP)
            if not self._watch[first]:
                return
            if plain:
                displacement = _signed(instruction.memory_displacement)
                steps.add(at, end, _load, target, place, displacement)
            else:
                steps.add(at, end, _lose, target)
        elif plain and self._watch[second]:
            displacement = _signed(instruction.memory_displacement)
            steps.add(at, end, _store, source, place, displacement)


def _nothing(state: _State, end: int, _a: int, _b: int, _c: int) -> None:
    """A step that is only looked back at."""


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


# --- following them ---


@dataclass(slots=True)
class _Tour:
    """What following a state from one block on has come to."""

    states: dict[int, _State] = field(default_factory=dict)
    later: list[tuple[int, _State]] = field(default_factory=list)
    """Blocks behind calls that may never return, with the state there if they do."""
    right: int = 0
    wrong: int = 0
    off: int = 0
    """By how much the stack pointer missed, the first time it did."""

    def judge(self, got: int, want: int) -> None:
        """The stack pointer is ``got`` from the CFA where it must be ``want``."""
        if got == want:
            self.right += 1
        else:
            self.wrong += 1
            self.off = self.off or got - want

    @property
    def rank(self) -> tuple[bool, int]:
        """Which of two tours to believe."""
        return self.wrong == 0, self.right - self.wrong


class _Flow:
    """One stretch of code without call frame information."""

    def __init__(
        self, steps: _Steps, start: int, end: int, named: list[int], registers: Registers
    ) -> None:
        self._steps = steps
        self._start, self._end = start, end
        self._registers = registers
        inside = {each for each in steps.called if start <= each < end}
        self._trusted = inside | {each for each in named if each % _ALIGNMENT == 0}
        self._named = named
        leaders = {each for each in steps.leaders if start <= each < end}
        leaders |= self._trusted | set(named) | {start}
        self._leaders = sorted(leaders)
        self._next = dict(zip(self._leaders, [*self._leaders[1:], end], strict=True))
        self._states: dict[int, _State] = {}
        self._tables: list[tuple[int, _State]] = []
        """Jumps through a table: where, and the state."""
        self._later: list[tuple[int, _State]] = []

    def fresh(self) -> _State:
        """The state at a function's entry."""
        registers = self._registers
        kept = [registers.fp] + [registers.bx] * (registers.bx >= 0)
        if registers.cfa_offset == 0:
            kept.append(registers.ra)
        return _State(_CFA, -registers.cfa_offset, {r: (_ENTRY, r) for r in kept}, {})

    def seed(self, address: int, sp: int) -> None:
        """Say what the stack pointer is at an address, from other knowledge."""
        state = self.fresh()
        state.sp = sp
        if address in self._next:
            self._states[address] = state
            self._trusted.add(address)

    def solve(self) -> None:
        """Find the state of every block."""
        fresh = self.fresh()
        entries = sorted(self._trusted)
        for entry in entries:
            self._states.setdefault(entry, fresh)
        for entry in entries:
            tour = self._tour(entry, self._states[entry])
            self._keep(tour)
        self._catch_up()
        for entry in self._named:
            if entry not in self._states:
                self._try(entry, [fresh])
                self._catch_up()
        self._bounds = sorted({*self._trusted, *self._named, self._start})
        for index, leader in enumerate(self._leaders):
            if leader not in self._states:
                self._try(leader, self._guesses(index))
                self._catch_up()

    def rows(self, emit: Callable[[int, Rule], None]) -> None:
        """Give each row (address, rule) in order; a rule may repeat."""
        steps, registers = self._steps, self._registers
        for leader in self._leaders:
            state = self._states.get(leader)
            if state is None:
                emit(leader, NONE)
                continue
            state = state.copy()
            emit(leader, state.row(registers))
            stop = self._next[leader]
            index = bisect.bisect_left(steps.at, leader)
            while index < len(steps.at) and steps.at[index] < stop:
                end, effect, a, b, c = steps.step[index]
                index += 1
                if effect is not None:
                    effect(state, end, a, b, c)
                elif a == _CALL:
                    _clobber(state, end, _CALLER_SAVED, 0, 0)
                else:
                    continue
                if end < stop and (index == len(steps.at) or steps.at[index] >= end):
                    emit(end, state.row(registers))

    # --- blocks nothing is seen to reach ---

    def _guesses(self, index: int) -> list[_State]:
        """States that may hold at the start of a block, the likeliest first."""
        leader = self._leaders[index]
        at = bisect.bisect_right(self._bounds, leader)
        low = self._bounds[at - 1]
        high = self._bounds[at] if at < len(self._bounds) else self._end
        guesses = [state for where, state in self._tables if low <= where < high]
        guesses = guesses[:1] + guesses[-1:]
        deepest: _State | None = None
        for other in self._leaders[max(0, index - _NEIGHBOURS) : index]:
            state = self._states.get(other)
            if state is None or other < low:
                continue
            if deepest is None or state.base != _CFA or deepest.sp > state.sp:
                deepest = state
        fresh = self.fresh()
        if leader % _ALIGNMENT == 0 and not guesses:
            guesses.append(fresh)
        if deepest is not None:
            guesses.append(deepest)
        guesses.append(fresh)
        return guesses

    def _catch_up(self) -> None:
        """Go on behind calls, now that everything surer is known."""
        while self._later:
            todo, self._later = self._later, []
            for leader, state in todo:
                if leader not in self._states:
                    guesses = [state]
                    if leader % _ALIGNMENT == 0:
                        guesses.append(self.fresh())
                    self._try(leader, guesses)

    def _try(self, leader: int, guesses: list[_State]) -> None:
        """Follow the guesses from a block on; keep what the best of them came to."""
        best: _Tour | None = None
        tried: list[_State] = []
        while guesses:
            guess = guesses.pop(0)
            if any(guess.same(each) for each in tried):
                continue
            tried.append(guess)
            tour = self._tour(leader, guess)
            if best is None or tour.rank > best.rank:
                best = tour
            if tour.right and not tour.wrong:
                break
            if tour.wrong and not guesses and len(tried) < 8:
                mended = guess.copy()
                mended.sp -= tour.off
                guesses.append(mended)
        if best is not None:
            self._keep(best)

    def _keep(self, tour: _Tour) -> None:
        self._states.update(tour.states)
        self._later += tour.later
        for leader, state in tour.states.items():
            self._note_table(leader, state)

    def _note_table(self, leader: int, state: _State) -> None:
        """Remember a jump through a table that ends a block."""
        steps = self._steps
        index = bisect.bisect_left(steps.at, self._next[leader]) - 1
        if index >= 0 and steps.at[index] >= leader:
            _, effect, a, _, _ = steps.step[index]
            if effect is None and a == _TABLE:
                final = self._through(leader, state)
                if final.base != _CFA or final.sp != -self._registers.cfa_offset:
                    self._tables.append((steps.at[index], final))

    def _through(self, leader: int, state: _State) -> _State:
        """The state at a block's end."""
        steps = self._steps
        state = state.copy()
        stop = self._next[leader]
        for index in range(bisect.bisect_left(steps.at, leader), len(steps.at)):
            if steps.at[index] >= stop:
                break
            end, effect, a, b, c = steps.step[index]
            if effect is not None:
                effect(state, end, a, b, c)
            elif a == _CALL:
                _clobber(state, end, _CALLER_SAVED, 0, 0)
        return state

    # --- following ---

    def _tour(self, leader: int, state: _State) -> _Tour:
        """Follow all paths from a block on through blocks not yet known."""
        tour = _Tour({leader: state})
        visits = {leader: 1}
        pending = [leader]
        while pending:
            at = pending.pop()
            for target, arriving in self._edges(at, tour.states[at].copy(), tour):
                if not self._start <= target < self._end:
                    continue
                known = self._states.get(target)
                if known is not None:
                    if known.base == _CFA == arriving.base:
                        tour.judge(arriving.sp, known.sp)
                    continue
                before = tour.states.get(target)
                merged = arriving if before is None else self._merge(target, before, arriving, tour)
                if before is not None and merged.same(before):
                    continue
                tour.states[target] = merged
                count = visits.get(target, 0)
                if count < _MAX_VISITS:
                    visits[target] = count + 1
                    pending.append(target)
        tour.later = [each for each in tour.later if each[0] not in tour.states]
        return tour

    def _merge(self, at: int, one: _State, other: _State, tour: _Tour) -> _State:
        """What both agree on."""
        if one.same(other):
            return one
        regs, mem = one.regs, one.mem
        if regs != other.regs:
            regs = {reg: each for reg, each in regs.items() if other.regs.get(reg) == each}
        if mem != other.mem:
            mem = {slot: each for slot, each in mem.items() if other.mem.get(slot) == each}
        merged = _State(one.base, one.sp, regs, mem)
        if (one.base, one.sp) != (other.base, other.sp):
            if merged.knows_cfa():
                # Loops that grow the stack have another way to the CFA.
                _rebase(merged, -2 - at)
            elif one.base == _CFA == other.base:
                tour.judge(other.sp, one.sp)
            elif other.base == _CFA:
                merged.base, merged.sp = other.base, other.sp
        return merged

    def _edges(self, leader: int, state: _State, tour: _Tour) -> Iterator[tuple[int, _State]]:
        """Where control goes from a block, and with which state."""
        at, step = self._steps.at, self._steps.step
        stop = self._next[leader]
        index = bisect.bisect_left(at, leader)
        count = len(at)
        behind_call = -1
        while index < count and at[index] < stop:
            end, effect, a, b, c = step[index]
            index += 1
            if effect is not None:
                effect(state, end, a, b, c)
                continue
            if a == _BRANCH:
                yield b, state.copy()
            elif a == _CALL:
                _clobber(state, end, _CALLER_SAVED, 0, 0)
                behind_call = end
            else:
                if a == _JUMP:
                    yield b, state
                elif a == _RETURN and state.base == _CFA:
                    tour.judge(state.sp, -self._registers.cfa_offset)
                return
        if stop >= self._end or stop in self._trusted:
            return
        if 0 <= behind_call and stop - behind_call < _ALIGNMENT and at[index - 1] < behind_call:
            tour.later.append((stop, state))
        else:
            yield stop, state


def _plt_seeds(code: bytes, start: int) -> Iterator[tuple[int, int]]:
    """(address, stack pointer from the CFA) of the entries of a procedure linkage table.

    Its first entry pushes the module's word and jumps to the linker, after an entry has pushed
    the symbol's number. (System V ABI x86-64, 5.2.)
    """
    if code[:2] != b"\xff\x35" or b"\xff\x25" not in (code[6:8], code[7:9]):
        return
    yield start, -16
    for offset in range(16, len(code), 16):
        yield start + offset, -8


def code_rows(
    text: bytes,
    text_vaddr: int,
    gaps: list[tuple[int, int]],
    functions: list[tuple[int, int]],
    machine: str,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.void]]:
    """Rows for stretches of machine code.

    ``text`` is a section at ELF address ``text_vaddr``; ``gaps`` are (start, end) addresses in it
    without call frame information; ``functions`` are known (start, size), the size may be 0.
    Returns (pc ``uint64[n]``, strictly increasing, RULE_DTYPE ``[n]``); a row holds up to the next
    one, the last to the end of its gap. Any bytes will do: work is bounded by MAX_BYTES and
    MAX_STEPS, and nothing is raised.
    """
    pcs = array("Q")
    numbers = array("L")
    number: dict[Rule, int] = {}
    last = -1

    def emit(pc: int, each: Rule) -> None:
        nonlocal last
        here = number.setdefault(each, len(number))
        if here != last:
            last = here
            pcs.append(pc)
            numbers.append(here)

    starts = sorted({start for start, _ in functions})
    budget = MAX_BYTES
    reader = _X86Reader()
    floor = text_vaddr
    for low, high in sorted(gaps) if machine == "x86_64" else []:
        low, high = max(low, floor), min(high, text_vaddr + len(text))
        if low >= high:
            continue
        floor = high
        last = -1
        if high - low > budget:
            emit(low, NONE)
            continue
        budget -= high - low
        code = text[low - text_vaddr : high - text_vaddr]
        named = starts[bisect.bisect_left(starts, low) : bisect.bisect_left(starts, high)]
        flow = _Flow(reader.read(code, low, named), low, high, named, _X86)
        for address, sp in _plt_seeds(code, low):
            flow.seed(address, sp)
        flow.solve()
        flow.rows(emit)
    table = np.array([(*each, 0) for each in number], dtype=RULE_DTYPE)
    return np.array(pcs, np.uint64), table[np.array(numbers, np.int64)]
