"""State of the stack while x86-64 machine code runs: the effect of each instruction on it.

Followed are the stack pointer, registers that hold an address of the stack, and where the caller's
rbp and rbx are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache

from iced_x86 import Code, FlowControl, Instruction, OpCodeOperandKind, OpKind, Register

from hpcd.bpf.wire import CfaKind, FpKind
from hpcd.daemon.unwind.unwind_rules import NONE, Rule, rule

RSP, RBP, RBX = int(Register.RSP), int(Register.RBP), int(Register.RBX)
_DWARF = {
    int(Register.RAX): 0, int(Register.RDX): 1, int(Register.RCX): 2, RBX: 3,
    int(Register.RSI): 4, int(Register.RDI): 5, int(Register.R8): 8, int(Register.R9): 9,
    int(Register.R10): 10, int(Register.R11): 11, int(Register.R12): 12, int(Register.R13): 13,
    int(Register.R14): 14, int(Register.R15): 15,
}  # fmt: skip
_FOLLOWED = frozenset((RSP, RBP, *_DWARF))
_PRESERVED = frozenset(
    (RBX, RBP, int(Register.R12), int(Register.R13), int(Register.R14), int(Register.R15))
)
_REGISTER_KIND, _MEMORY_KIND = int(OpKind.REGISTER), int(OpKind.MEMORY)


# Operands other than registers of 64 bits, whatever the instruction's.
_OTHER_OPERANDS = frozenset(
    number
    for name, number in vars(OpCodeOperandKind).items()
    if name.startswith(("XMM_", "YMM_", "ZMM_", "K_", "MM_", "R32_", "R16_", "R8_"))
)
_NEITHER = (0, 0)
IGNORED, BY_OPERANDS, TAKEN = range(3)


def interest_in(instruction: Instruction) -> int:
    """Whether instructions of this code matter here: never, by :func:`is_followed`, or always."""
    if instruction.flow_control != FlowControl.NEXT or instruction.is_stack_instruction:
        return TAKEN
    first = instruction.op_code().op0_kind
    ignored = first == OpCodeOperandKind.NONE or first in _OTHER_OPERANDS
    return IGNORED if ignored else BY_OPERANDS


def is_followed(instruction: Instruction) -> bool:
    """Whether it writes to a register that is followed, or may keep the caller's rbp or rbx."""
    kind = instruction.op0_kind
    if kind == _REGISTER_KIND:
        return instruction.op0_register in _FOLLOWED
    return (
        kind == _MEMORY_KIND
        and instruction.op1_kind == _REGISTER_KIND
        and instruction.op1_register in (RBP, RBX)
    )


def registers_of(instruction: Instruction) -> tuple[int, int] | None:
    """The registers (target, source) on which it depends whether an instruction does anything to a
    state: where neither has an address of the stack it does nothing. None: that depends on more."""
    code = instruction.code
    handled = code in _HANDLERS
    if code in _READERS or (not handled and instruction.op0_kind == _MEMORY_KIND):
        return _NEITHER
    target = instruction.op0_register
    if instruction.op0_kind != _REGISTER_KIND or target in (RSP, RBP):
        return None
    if not handled:
        return _same_pair(target, 0)
    if code not in _SETTERS or target == RBX:
        return None
    source = instruction.memory_base if code == Code.LEA_R64_M else instruction.op1_register
    return None if source == RSP else _same_pair(target, source)


@cache
def _same_pair(target: int, source: int) -> tuple[int, int]:
    return target, source


@dataclass(slots=True)
class StackState:
    """The place of the CFA before an instruction. Offsets are CFA minus register.

    ``copies`` maps registers that hold a stack address to their offsets; ``fp`` and ``bx`` are
    where the caller's rbp and rbx are saved, as offsets from the CFA (0: still in the register).
    """

    sp: int | None = 8
    copies: dict[int, int] = field(default_factory=dict)
    fp: int = 0
    bx: int = 0
    fp_lost: bool = False

    def copy(self) -> StackState:
        """Return a copy that may change apart from this state."""
        return StackState(self.sp, dict(self.copies), self.fp, self.bx, self.fp_lost)

    def row(self) -> Rule:
        """The unwind rule of this state."""
        # A frame pointer stays right where the stack pointer has been moved in a loop.
        if self.sp is not None and RBP not in self.copies:
            return _by_register(CfaKind.SP, self.sp, 0, self.fp, self.bx, self.fp_lost)
        saved = self.fp, self.bx, self.fp_lost
        if RBP in self.copies:
            return _by_register(CfaKind.FP, self.copies[RBP], 0, *saved)
        # rbx is followed through callers too; any other register is known in the leaf alone.
        for register in sorted(self.copies, key=lambda other: other != RBX):
            return _by_register(CfaKind.REG, self.copies[register], _DWARF[register], *saved)
        return NONE


@lru_cache(maxsize=1 << 14)  # the same few make nearly all rows
def _by_register(kind: CfaKind, offset: int, register: int, fp: int, bx: int, lost: bool) -> Rule:
    fp_kind = FpKind.AT_CFA if fp else FpKind.UNDEFINED if lost else FpKind.SAME
    return rule(kind, offset, reg=register, fp=fp_kind, fp_off=fp, bx_off=bx)


def step(state: StackState, instruction: Instruction) -> bool:
    """Apply one instruction; False when the state is as it was."""
    code = instruction.code
    handler = _HANDLERS.get(code)
    if handler:
        handler(state, instruction)
        return True
    if instruction.op0_kind == _REGISTER_KIND and code not in _READERS:
        register = instruction.op0_register
        if register not in state.copies and register != RSP and register != RBP:
            return False
        _write(state, register)
    elif instruction.is_stack_instruction and state.sp is not None:
        state.sp -= instruction.stack_pointer_increment
    else:
        return False
    return True


def _write(state: StackState, register: int) -> None:
    """A register gets a value that is no stack address."""
    if register == RSP:
        state.sp = None
    else:
        state.copies.pop(register, None)
        if register == RBP and not state.fp:
            state.fp_lost = True


def _push(state: StackState, instruction: Instruction) -> None:
    if state.sp is None:
        return
    state.sp += 8
    register = instruction.op0_register if instruction.op0_kind == _REGISTER_KIND else 0
    if register == RBP and not state.fp and not state.fp_lost and RBP not in state.copies:
        state.fp = -state.sp
    elif register == RBX and not state.bx and RBX not in state.copies:
        state.bx = -state.sp


def _call(state: StackState, instruction: Instruction) -> None:
    """Apply a call: it leaves the stack and the callee-saved registers as they were."""
    if instruction.near_branch_target == instruction.ip + instruction.len:
        _push(state, instruction)  # the code asks where it is: no call, but a push
        return
    for register in [copy for copy in state.copies if copy not in _PRESERVED]:
        del state.copies[register]


def _pop(state: StackState, instruction: Instruction) -> None:
    register = instruction.op0_register if instruction.op0_kind == _REGISTER_KIND else 0
    if register == RSP:
        state.sp = None
        return
    slot = -state.sp if state.sp is not None else 0
    _restore(state, register, slot)
    if state.sp is not None:
        state.sp -= 8


def _restore(state: StackState, register: int, slot: int) -> None:
    """``register`` is loaded from the CFA plus ``slot`` (0: somewhere unknown)."""
    state.copies.pop(register, None)
    if register == RBP:
        if state.fp and slot in (state.fp, 0):
            state.fp = 0
        elif not state.fp:
            state.fp_lost = True
    elif register == RBX and state.bx and slot in (state.bx, 0):
        state.bx = 0


def _add(sign: int) -> Callable[[StackState, Instruction], None]:
    def add(state: StackState, instruction: Instruction) -> None:
        register = instruction.op0_register
        if instruction.op0_kind != _REGISTER_KIND:
            return
        immediate = instruction.op1_kind not in (_REGISTER_KIND, _MEMORY_KIND)
        value = instruction.immediate(1) if immediate else None
        if value is not None and value >= 1 << 63:
            value -= 1 << 64
        if register == RSP:
            if state.sp is not None:
                state.sp = None if value is None else state.sp - sign * value
        elif register in state.copies and value is not None:
            state.copies[register] -= sign * value
        else:
            _write(state, register)

    return add


def _lea(state: StackState, instruction: Instruction) -> None:
    register, base = instruction.op0_register, instruction.memory_base
    displacement = instruction.memory_displacement
    if displacement >= 1 << 63:
        displacement -= 1 << 64
    offset = state.sp if base == RSP else state.copies.get(base)
    if offset is None or instruction.memory_index != Register.NONE:
        _write(state, register)
        return
    _set(state, register, offset - displacement)


def _set(state: StackState, register: int, offset: int) -> None:
    """``register`` now holds the CFA minus ``offset``."""
    if register == RSP:
        state.sp = offset
    else:
        if register == RBP and not state.fp:
            state.fp_lost = True
        state.copies[register] = offset


def _move(state: StackState, instruction: Instruction) -> None:
    to_register = instruction.op0_kind == _REGISTER_KIND
    from_register = instruction.op1_kind == _REGISTER_KIND
    if to_register and from_register:
        _copy(state, instruction.op1_register, instruction.op0_register)
    elif to_register:
        register = instruction.op0_register
        slot = _frame_slot(state, instruction)
        if register in (RBP, RBX) and slot:
            _restore(state, register, slot)
        else:
            _write(state, register)
    elif from_register:
        _save(state, instruction.op1_register, _frame_slot(state, instruction))


def _copy(state: StackState, source: int, target: int) -> None:
    offset = state.sp if source == RSP else state.copies.get(source)
    if offset is None:
        _write(state, target)
    else:
        _set(state, target, offset)


def _save(state: StackState, register: int, slot: int) -> None:
    """``register`` is stored at the CFA plus ``slot``, or (0) outside of the frame."""
    if not slot or register in state.copies:
        return
    if register == RBP and not state.fp and not state.fp_lost:
        state.fp = slot
    elif register == RBX and not state.bx:
        state.bx = slot


def _frame_slot(state: StackState, instruction: Instruction) -> int:
    """Offset from the CFA of the memory an instruction refers to, 0 when it is not known."""
    base = instruction.memory_base
    offset = state.sp if base == RSP else state.copies.get(base)
    if offset is None or instruction.memory_index != Register.NONE:
        return 0
    displacement = instruction.memory_displacement
    if displacement >= 1 << 63:
        displacement -= 1 << 64
    return int(displacement - offset)


def _and(state: StackState, instruction: Instruction) -> None:
    if instruction.op0_kind == _REGISTER_KIND:
        _write(state, instruction.op0_register)


def _leave(state: StackState, _: Instruction) -> None:
    base = state.copies.pop(RBP, None)
    state.sp = base - 8 if base is not None else None
    state.fp = 0
    state.fp_lost = False


_HANDLERS: dict[int, Callable[[StackState, Instruction], None]] = {
    int(Code.PUSH_R64): _push,
    int(Code.PUSH_RM64): _push,
    int(Code.PUSHQ_IMM8): _push,
    int(Code.PUSHQ_IMM32): _push,
    int(Code.PUSHFQ): _push,
    int(Code.CALL_REL32_64): _call,
    int(Code.CALL_RM64): _call,
    int(Code.POP_R64): _pop,
    int(Code.POP_RM64): _pop,
    int(Code.POPFQ): _pop,
    int(Code.SUB_RM64_IMM8): _add(-1),
    int(Code.SUB_RM64_IMM32): _add(-1),
    int(Code.SUB_RM64_R64): _add(-1),
    int(Code.SUB_R64_RM64): _add(-1),
    int(Code.ADD_RM64_IMM8): _add(1),
    int(Code.ADD_RM64_IMM32): _add(1),
    int(Code.ADD_RM64_R64): _add(1),
    int(Code.ADD_R64_RM64): _add(1),
    int(Code.LEA_R64_M): _lea,
    int(Code.MOV_R64_RM64): _move,
    int(Code.MOV_RM64_R64): _move,
    int(Code.AND_RM64_IMM8): _and,
    int(Code.AND_RM64_IMM32): _and,
    int(Code.LEAVEQ): _leave,
}
# Instructions whose first operand is read only.
_READERS = frozenset(
    int(getattr(Code, name))
    for name in (
        "CMP_RM64_IMM8", "CMP_RM64_IMM32", "CMP_RM64_R64", "CMP_R64_RM64", "CMP_RAX_IMM32",
        "TEST_RM64_R64", "TEST_RM64_IMM32", "TEST_RAX_IMM32", "NOP_RM64", "BT_RM64_IMM8",
        "BT_RM64_R64",
    )
)  # fmt: skip
# Handled instructions that only put a value into their first operand.
_SETTERS = frozenset(
    int(getattr(Code, name))
    for name in (
        "SUB_RM64_IMM8", "SUB_RM64_IMM32", "SUB_RM64_R64", "SUB_R64_RM64", "ADD_RM64_IMM8",
        "ADD_RM64_IMM32", "ADD_RM64_R64", "ADD_R64_RM64", "LEA_R64_M", "MOV_R64_RM64",
        "MOV_RM64_R64", "AND_RM64_IMM8", "AND_RM64_IMM32",
    )
)  # fmt: skip
