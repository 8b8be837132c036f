"""Unwind rows for code without call frame information, from the machine code itself.

Hand-written kernels (BLAS, some of libcrypto) have none, and are where the time goes. Within each
function the stack pointer is followed from the entry, where the CFA is known, along straight code
and branches. (Tallent, Mellor-Crummey, Fagan: Binary analysis for measurement and attribution of
program performance, PLDI 2009, section 3.)
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from iced_x86 import Code, Decoder, FlowControl, Instruction, OpKind, Register

from hpcd.daemon.unwind.unwind_rules import NONE, RULE_DTYPE, CfaKind, FpKind, Rule, rule

# An analysis longer than this is no gap between functions; the rest keeps "no information".
MAX_INSTRUCTIONS = 8_000_000
_ALIGNMENT = 16
_PADDING = frozenset((0x90, 0xCC, 0x00))

_RSP, _RBP, _RBX = int(Register.RSP), int(Register.RBP), int(Register.RBX)
_DWARF = {
    int(Register.RAX): 0, int(Register.RDX): 1, int(Register.RCX): 2, _RBX: 3,
    int(Register.RSI): 4, int(Register.RDI): 5, int(Register.R8): 8, int(Register.R9): 9,
    int(Register.R10): 10, int(Register.R11): 11, int(Register.R12): 12, int(Register.R13): 13,
    int(Register.R14): 14, int(Register.R15): 15,
}  # fmt: skip
_PRESERVED = frozenset(
    (_RBX, _RBP, int(Register.R12), int(Register.R13), int(Register.R14), int(Register.R15))
)
# endbr64? push %rbp; mov %rsp, %rbp
_FRAME_MADE = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x55\x48(?:\x89\xe5|\x8b\xec)")
_REGISTER_KIND, _MEMORY_KIND = int(OpKind.REGISTER), int(OpKind.MEMORY)


@dataclass(slots=True)
class _State:
    """Where the CFA is, before an instruction. Offsets are CFA minus register.

    ``copies`` maps registers that hold a stack address to their offsets; ``fp`` and ``bx`` are
    where the caller's rbp and rbx are saved, as offsets from the CFA (0: still in the register).
    """

    sp: int | None = 8
    copies: dict[int, int] = field(default_factory=dict)
    fp: int = 0
    bx: int = 0
    fp_lost: bool = False

    def copy(self) -> _State:
        return _State(self.sp, dict(self.copies), self.fp, self.bx, self.fp_lost)

    def row(self) -> Rule:
        """The unwind rule of this state."""
        # A frame pointer stays right where the stack pointer has been moved in a loop.
        if self.sp is not None and _RBP not in self.copies:
            return _by_register(CfaKind.SP, self.sp, 0, self.fp, self.bx, self.fp_lost)
        saved = self.fp, self.bx, self.fp_lost
        if _RBP in self.copies:
            return _by_register(CfaKind.FP, self.copies[_RBP], 0, *saved)
        # rbx is followed through callers too; any other register is known in the leaf alone.
        for register in sorted(self.copies, key=lambda other: other != _RBX):
            return _by_register(CfaKind.REG, self.copies[register], _DWARF[register], *saved)
        return NONE


@lru_cache(maxsize=1 << 14)  # the same few make nearly all rows
def _by_register(kind: CfaKind, offset: int, register: int, fp: int, bx: int, lost: bool) -> Rule:
    fp_kind = FpKind.AT_CFA if fp else FpKind.UNDEFINED if lost else FpKind.SAME
    return rule(kind, offset, reg=register, fp=fp_kind, fp_off=fp, bx_off=bx)


def code_rows(
    text: bytes | memoryview,
    text_vaddr: int,
    gaps: list[tuple[int, int]],
    functions: list[tuple[int, int]],
    machine: str,
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.void]]:
    """Rows for stretches of machine code.

    ``text`` is a section at ``text_vaddr``; ``gaps`` are (start, end) addresses in it without call
    frame information; ``functions`` are known (start, size). Returns (pc ``uint64[n]``, RULE_DTYPE
    ``[n]``), pcs strictly increasing within each gap. Only x86-64 is analysed; elsewhere compilers
    and assemblers give information, or there are none (aarch64 kernels are leaf functions that
    keep their return address in the link register, which no table is needed to find: untested).

    About 0.6 µs an instruction in one pass.
    """
    pcs: list[int] = []
    rules: list[Rule] = []
    if machine == "x86_64":
        functions = sorted(functions)
        starts = [start for start, _ in functions]
        budget = MAX_INSTRUCTIONS
        rows_of: dict[tuple[int, int], tuple[list[int], list[Rule]]] = {}
        wanted = [
            (max(low, text_vaddr), min(high, text_vaddr + len(text)))
            for low, high in gaps
            if max(low, text_vaddr) < min(high, text_vaddr + len(text))
        ]
        # Once to see which functions go on elsewhere, then again where they do.
        seeds: dict[int, _State] = {}
        for span in wanted:
            if budget <= 0:
                break
            here: dict[int, _State] = {}
            budget -= _analyse(text, text_vaddr, span, functions, starts, here, rows_of, budget)
            for at, state in here.items():
                seed = seeds.setdefault(at, state)
                if seed != state:
                    seed.sp = None
        places = sorted(at for at, state in seeds.items() if state.sp is not None)
        for low, high in wanted:
            inside = places[bisect.bisect_left(places, low) : bisect.bisect_left(places, high)]
            if inside and budget > 0:
                mine = {at: seeds[at] for at in inside}
                budget -= _analyse(
                    text, text_vaddr, (low, high), functions, starts, mine, rows_of, budget
                )
        for span_wanted in wanted:
            if span_wanted in rows_of:
                pcs += rows_of[span_wanted][0]
                rules += rows_of[span_wanted][1]
    rows = np.array(rules, dtype=RULE_DTYPE)
    return np.array(pcs, dtype=np.uint64), rows


def _analyse(
    text: bytes | memoryview,
    text_vaddr: int,
    span: tuple[int, int],
    functions: list[tuple[int, int]],
    starts: list[int],
    parts: dict[int, _State],
    rows_of: dict[tuple[int, int], tuple[list[int], list[Rule]]],
    budget: int,
) -> int:
    """Rows of one stretch into ``found``; ``parts`` are parts of functions known to be within, and
    those seen from here are added. Returns the instructions looked at."""
    low, high = span
    named = functions[bisect.bisect_left(starts, low) : bisect.bisect_left(starts, high)]
    gap = _Gap(bytes(text[low - text_vaddr : high - text_vaddr]), low, named, parts)
    rows: tuple[list[int], list[Rule]] = ([], [])
    count = gap.analyse(*rows, budget)
    for at, state in gap.parts.items():
        parts.setdefault(at, state)
    rows_of[span] = rows
    return count


class _Gap:
    """One stretch of code without call frame information."""

    def __init__(
        self,
        code: bytes,
        start: int,
        functions: list[tuple[int, int]],
        seeds: dict[int, _State],
    ) -> None:
        self._code = code
        self._start = start
        self._end = start + len(code)
        self._functions = {low: low + size for low, size in functions}
        self._starts = sorted(self._functions)
        # What begins by making a frame is a function, however it is come to.
        self._seeds = {
            at: state
            for at, state in seeds.items()
            if start <= at < self._end and not _FRAME_MADE.match(code, at - start)
        }
        self._entries = {start, *self._functions} - set(self._seeds)
        self.parts: dict[int, _State] = {}
        """Where functions go on outside of themselves, and with which state."""
        # What can move the stack pointer or control, in address order.
        self._steps: list[Instruction] = []
        self._at: list[int] = []
        self._visited: list[bool] = []
        self._rows: dict[int, Rule] = {}
        self._bodies: dict[int, _State] = {}
        self._jumps: dict[int, _State] = {}
        """Before jumps through tables, by their addresses."""
        self._body = _State()
        self._at_table: _State | None = None
        """Before the last jump through a table: where the table's targets go on from."""

    def analyse(self, pcs: list[int], rules: list[Rule], budget: int) -> int:
        """Append the gap's rows; returns the instructions looked at."""
        count = self._decode(budget)
        for part, state in self._seeds.items():
            self._new_function(part, state)
        for entry in sorted(self._entries):
            self._new_function(entry, _State())
        self._follow_leftovers()
        for pc in sorted(self._rows):
            row = self._rows[pc]
            if pc < self._end and (not rules or rules[-1] != row or pc == self._start):
                pcs.append(pc)
                rules.append(row)
        return count

    def _decode(self, budget: int) -> int:
        count = 0
        for instruction in Decoder(64, self._code, ip=self._start):
            count += 1
            if count > budget:
                break
            flow = instruction.flow_control
            if flow == FlowControl.CALL:
                target = instruction.near_branch_target
                asks = target == instruction.ip + instruction.len
                if not asks and self._start <= target < self._end and target not in self._seeds:
                    self._entries.add(target)
                self._steps.append(instruction)
                self._at.append(instruction.ip)
            elif (
                flow != FlowControl.NEXT
                or instruction.is_stack_instruction
                or (instruction.op0_kind == _REGISTER_KIND and instruction.op0_register in _TRACKED)
                or (
                    instruction.op1_kind == _REGISTER_KIND
                    and instruction.op1_register in (_RBP, _RBX)
                    and instruction.op0_kind == _MEMORY_KIND
                )
            ):
                self._steps.append(instruction)
                self._at.append(instruction.ip)
        self._visited = [False] * len(self._steps)
        return count

    def _new_function(self, entry: int, state: _State) -> None:
        self._body = state.copy()
        self._at_table = None
        self._follow(entry, state.copy())
        self._bodies[entry] = self._body

    def _follow(self, entry: int, state: _State) -> None:
        """Follow all paths from ``entry``; each instruction is taken once, by the first path."""
        pending = [(entry, state)]
        while pending:
            at, state = pending.pop()
            index = bisect.bisect_left(self._at, at)
            visited = index < len(self._steps) and self._visited[index]
            if not visited or not self._flows_into(index):
                self._rows.setdefault(at, state.row())
            self._follow_straight(index, self._next_function(at), state, pending)

    def _follow_straight(
        self, index: int, limit: int, state: _State, pending: list[tuple[int, _State]]
    ) -> None:
        """Follow steps from ``index`` up to the end of the path; branches are added to ``pending``.

        Where a named function begins, at ``limit``, straight code ends: what seems to go on was a
        call that does not return.
        """
        while index < len(self._steps) and not self._visited[index] and self._at[index] < limit:
            self._visited[index] = True
            instruction = self._steps[index]
            after = instruction.ip + instruction.len
            flow = instruction.flow_control
            index += 1
            if flow in _GOES_ON:
                before = state.sp
                _step(state, instruction)
                if after < limit:
                    self._rows[after] = state.row()
                # The deepest state is that of the function's body.
                if state.sp is None or (before is not None and state.sp > (self._body.sp or 0)):
                    self._body = state.copy()
                continue
            if flow in (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH):
                self._branch(instruction.near_branch_target, state, pending)
            if flow == FlowControl.INDIRECT_BRANCH:
                self._at_table = self._jumps[instruction.ip] = state.copy()
            if flow in _ENDS or instruction.code == Code.INT3 or after >= limit:
                break
            self._rows.setdefault(after, state.row())

    def _branch(self, target: int, state: _State, pending: list[tuple[int, _State]]) -> None:
        """Follow a branch to ``target`` later, or note it as an entry of another part.

        No code leaves a function for another with its frame still there: such a target is a part
        of the same function, put elsewhere.
        """
        if target not in self._entries and self._start <= target < self._end:
            pending.append((target, state.copy()))
        elif target not in self._seeds:
            part = self.parts.setdefault(target, state.copy())
            if state != part or state.sp in (None, 8):
                part.sp = None  # a function after all, or nothing is known

    def _flows_into(self, index: int) -> bool:
        """Whether straight execution reaches step ``index`` from the one before it."""
        return (
            index > 0
            and self._visited[index - 1]
            and self._steps[index - 1].flow_control not in _ENDS
        )

    def _follow_leftovers(self) -> None:
        """What no path has reached: targets of jump tables, functions without a symbol."""
        jump = 0
        for index, instruction in enumerate(self._steps):
            if instruction.ip in self._jumps:
                jump = instruction.ip
            if self._visited[index] or instruction.code == Code.INT3:
                continue
            begin = instruction.ip
            if index:
                before = self._steps[index - 1]
                begin = before.ip + before.len
            entry = self._after_padding(begin)
            function = entry % _ALIGNMENT == 0 and entry > begin
            owner = self._function_at(begin)
            if owner and owner in self._bodies:
                # A table's targets follow the jump through it.
                state = self._jumps[jump] if jump >= owner else self._bodies[owner]
                last = self._body, self._at_table
                self._follow(entry, state.copy())
                self._body, self._at_table = last
            elif owner or (self._at_table and not function):
                self._follow(entry, (self._at_table or self._body).copy())
            else:
                self._new_function(entry, _State())

    def _next_function(self, address: int) -> int:
        """Where the next named function behind ``address`` begins. (What seems to be called may be
        data read as code, and no place where anything begins.)"""
        at = bisect.bisect_right(self._starts, address)
        return self._starts[at] if at < len(self._starts) else self._end

    def _function_at(self, address: int) -> int:
        """Where the named function that ``address`` lies in begins; 0: in none."""
        at = bisect.bisect_right(self._starts, address) - 1
        start = self._starts[at] if at >= 0 else 0
        return start if start and address < self._functions[start] else 0

    def _after_padding(self, position: int) -> int:
        """The first byte from ``position`` on that is not padding."""
        offset = position - self._start
        code = self._code
        # Multi-byte no-ops: 66* 2e? 0f 1f ..., 66 90; skip by decoding up to the next 16 bytes.
        limit = min(len(code), offset + _ALIGNMENT)
        while offset < limit:
            if code[offset] in _PADDING:
                offset += 1
                continue
            decoder = Decoder(64, code[offset : offset + 15], ip=self._start + offset)
            instruction = decoder.decode()
            if instruction.code not in _NOPS:
                break
            offset += instruction.len
        return self._start + offset


_GOES_ON = (FlowControl.NEXT, FlowControl.CALL, FlowControl.INDIRECT_CALL)
_ENDS = (
    FlowControl.UNCONDITIONAL_BRANCH,
    FlowControl.INDIRECT_BRANCH,
    FlowControl.RETURN,
    FlowControl.EXCEPTION,
)
_NOPS = frozenset((int(Code.NOP_RM16), int(Code.NOP_RM32), int(Code.NOP_RM64), int(Code.NOPW)))
_TRACKED = frozenset((_RSP, *_DWARF, _RBP))


def _step(state: _State, instruction: Instruction) -> None:
    """Apply one instruction."""
    handler = _HANDLERS.get(instruction.code)
    if handler:
        handler(state, instruction)
        return
    if instruction.op0_kind == _REGISTER_KIND and instruction.code not in _READERS:
        _write(state, instruction.op0_register)
    elif instruction.is_stack_instruction and state.sp is not None:
        state.sp -= instruction.stack_pointer_increment


def _write(state: _State, register: int) -> None:
    """A register gets a value that is no stack address."""
    if register == _RSP:
        state.sp = None
    else:
        state.copies.pop(register, None)
        if register == _RBP and not state.fp:
            state.fp_lost = True


def _push(state: _State, instruction: Instruction) -> None:
    if state.sp is None:
        return
    state.sp += 8
    register = instruction.op0_register if instruction.op0_kind == _REGISTER_KIND else 0
    if register == _RBP and not state.fp and not state.fp_lost and _RBP not in state.copies:
        state.fp = -state.sp
    elif register == _RBX and not state.bx and _RBX not in state.copies:
        state.bx = -state.sp


def _call(state: _State, instruction: Instruction) -> None:
    """What is called leaves the stack as it was, and of the registers those it has to."""
    if instruction.near_branch_target == instruction.ip + instruction.len:
        _push(state, instruction)  # the code asks where it is: no call, but a push
        return
    for register in [copy for copy in state.copies if copy not in _PRESERVED]:
        del state.copies[register]


def _pop(state: _State, instruction: Instruction) -> None:
    register = instruction.op0_register if instruction.op0_kind == _REGISTER_KIND else 0
    if register == _RSP:
        state.sp = None
        return
    slot = -state.sp if state.sp is not None else 0
    _restore(state, register, slot)
    if state.sp is not None:
        state.sp -= 8


def _restore(state: _State, register: int, slot: int) -> None:
    """``register`` is loaded from the CFA plus ``slot`` (0: somewhere unknown)."""
    state.copies.pop(register, None)
    if register == _RBP:
        if state.fp and slot in (state.fp, 0):
            state.fp = 0
        elif not state.fp:
            state.fp_lost = True
    elif register == _RBX and state.bx and slot in (state.bx, 0):
        state.bx = 0


def _add(sign: int) -> Callable[[_State, Instruction], None]:
    def step(state: _State, instruction: Instruction) -> None:
        register = instruction.op0_register
        if instruction.op0_kind != _REGISTER_KIND:
            return
        immediate = instruction.op1_kind not in (_REGISTER_KIND, _MEMORY_KIND)
        value = instruction.immediate(1) if immediate else None
        if value is not None and value >= 1 << 63:
            value -= 1 << 64
        if register == _RSP:
            if state.sp is not None:
                state.sp = None if value is None else state.sp - sign * value
        elif register in state.copies and value is not None:
            state.copies[register] -= sign * value
        else:
            _write(state, register)

    return step


def _lea(state: _State, instruction: Instruction) -> None:
    register, base = instruction.op0_register, instruction.memory_base
    displacement = instruction.memory_displacement
    if displacement >= 1 << 63:
        displacement -= 1 << 64
    offset = state.sp if base == _RSP else state.copies.get(base)
    if offset is None or instruction.memory_index != Register.NONE:
        _write(state, register)
        return
    _set(state, register, offset - displacement)


def _set(state: _State, register: int, offset: int) -> None:
    """``register`` now holds the CFA minus ``offset``."""
    if register == _RSP:
        state.sp = offset
    else:
        if register == _RBP and not state.fp:
            state.fp_lost = True
        state.copies[register] = offset


def _move(state: _State, instruction: Instruction) -> None:
    to_register = instruction.op0_kind == _REGISTER_KIND
    from_register = instruction.op1_kind == _REGISTER_KIND
    if to_register and from_register:
        _copy(state, instruction.op1_register, instruction.op0_register)
    elif to_register:
        register = instruction.op0_register
        slot = _frame_slot(state, instruction)
        if register in (_RBP, _RBX) and slot:
            _restore(state, register, slot)
        else:
            _write(state, register)
    elif from_register:
        _save(state, instruction.op1_register, _frame_slot(state, instruction))


def _copy(state: _State, source: int, target: int) -> None:
    offset = state.sp if source == _RSP else state.copies.get(source)
    if offset is None:
        _write(state, target)
    else:
        _set(state, target, offset)


def _save(state: _State, register: int, slot: int) -> None:
    """``register`` is stored at the CFA plus ``slot``, or (0) outside of the frame."""
    if not slot or register in state.copies:
        return
    if register == _RBP and not state.fp and not state.fp_lost:
        state.fp = slot
    elif register == _RBX and not state.bx:
        state.bx = slot


def _frame_slot(state: _State, instruction: Instruction) -> int:
    """Offset from the CFA of the memory an instruction refers to, 0 when it is not known."""
    base = instruction.memory_base
    offset = state.sp if base == _RSP else state.copies.get(base)
    if offset is None or instruction.memory_index != Register.NONE:
        return 0
    displacement = instruction.memory_displacement
    if displacement >= 1 << 63:
        displacement -= 1 << 64
    return int(displacement - offset)


def _and(state: _State, instruction: Instruction) -> None:
    if instruction.op0_kind == _REGISTER_KIND:
        _write(state, instruction.op0_register)


def _leave(state: _State, _: Instruction) -> None:
    base = state.copies.pop(_RBP, None)
    state.sp = base - 8 if base is not None else None
    state.fp = 0
    state.fp_lost = False


_HANDLERS: dict[int, Callable[[_State, Instruction], None]] = {
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
