"""Code between functions of call frame information: each path of it is followed, by instructions.

The stack pointer is followed from the entry of each function, where the CFA is known, along
straight code and branches.
"""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass, field

from iced_x86 import Code, Decoder, FlowControl, Instruction

from hpcd.daemon.unwind.stack_state import (
    BY_OPERANDS,
    IGNORED,
    TAKEN,
    StackState,
    interest_in,
    is_followed,
    registers_of,
    step,
)
from hpcd.daemon.unwind.unwind_rules import NONE, Rule

_ALIGNMENT = 16
_PADDING = frozenset((0x90, 0xCC, 0x00))

# endbr64? push %rbp; mov %rsp, %rbp
_FRAME_MADE = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x55\x48(?:\x89\xe5|\x8b\xec)")
# The same behind int3, ret, jmp, ud2 or a call, which may not return.
_FRAME_AFTER_END = re.compile(
    rb"(?:(?<=[\xcc\xc3])|(?<=\xeb.)|(?<=\xff[\xe0-\xef])|(?<=\x0f\x0b)|(?<=[\xe8\xe9]....))"
    + _FRAME_MADE.pattern,
    re.DOTALL,
)
# lea N(%rip), %register: a target behind padding is a function, such as the body of a new thread.
_ADDRESS_TAKEN = re.compile(
    rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(....))", re.DOTALL
)


Rows = tuple[list[int], list[Rule]]
"""Addresses, and the rule from each on."""


@dataclass(slots=True)
class Steps:
    """Instructions that can move the stack pointer or control, in address order: where each begins
    and ends, and the registers it depends on
    (:func:`~hpcd.daemon.unwind.stack_state.registers_of`).

    ``called`` are the targets of calls, ``looked_at`` the number of decoded instructions; code from
    the address ``cut`` on was too long (0: none was).
    """

    steps: list[Instruction] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    registers: list[tuple[int, int] | None] = field(default_factory=list)
    called: set[int] = field(default_factory=set)
    looked_at: int = 0
    cut: int = 0


def decode_steps(code: bytes, start: int, budget: int) -> Steps:
    """The steps of ``code`` at address ``start``, of at most ``budget`` instructions."""
    decoded = Steps()
    count = 0
    steps, at, ends, registers = decoded.steps, decoded.at, decoded.after, decoded.registers
    interest = _interest
    for instruction in Decoder(64, code, ip=start):
        count += 1
        if count > budget:
            decoded.cut = instruction.ip
            break
        code_number = instruction.code
        kind = interest.get(code_number)
        if kind is None:
            kind = interest[code_number] = interest_in(instruction)
        if kind == IGNORED or (kind == BY_OPERANDS and not is_followed(instruction)):
            continue
        after = instruction.next_ip
        if kind == TAKEN and instruction.flow_control == FlowControl.CALL:
            target = instruction.near_branch_target
            if target != after:  # or it asks where it is
                decoded.called.add(target)
        steps.append(instruction)
        at.append(instruction.ip)
        ends.append(after)
        registers.append(registers_of(instruction) if kind == BY_OPERANDS else None)
    decoded.looked_at = count
    return decoded


class CodeGap:
    """One stretch of code without call frame information."""

    def __init__(
        self,
        code: bytes,
        start: int,
        functions: list[tuple[int, int]],
        seeds: dict[int, StackState],
        decoded: Steps,
    ) -> None:
        self._code = code
        self._start = start
        self._end = start + len(code)
        self._functions = {low: low + size for low, size in functions}
        self._starts = sorted(self._functions)
        # Code that begins by making a frame is a function, whatever leads to it.
        self._seeds = {
            at: state
            for at, state in seeds.items()
            if start <= at < self._end and not _FRAME_MADE.match(code, at - start)
        }
        called = {target for target in decoded.called if start <= target < self._end}
        # Nor does code of the previous function continue there.
        framed = {
            at
            for match in _FRAME_AFTER_END.finditer(code)
            if (at := start + match.start()) % _ALIGNMENT == 0
        }
        for match in _ADDRESS_TAKEN.finditer(code):
            target = match.end() + 4 + int.from_bytes(match[1], "little", signed=True)
            aligned = (start + target) % _ALIGNMENT == 0 and 0 < target < len(code)
            if aligned and code[target - 1] in _PADDING:
                framed.add(start + target)
        self._limits = sorted(framed | set(self._functions))
        self._entries = {start, *self._functions, *called, *framed} - set(self._seeds)
        self.parts: dict[int, StackState] = {}
        """State at addresses outside of their function where its code continues."""
        self._steps, self._at, self._after = decoded.steps, decoded.at, decoded.after
        self._registers, self._cut = decoded.registers, decoded.cut
        self._visited = bytearray(len(self._at))
        self._rows: dict[int, Rule] = {}
        self._bodies: dict[int, StackState] = {}
        self._jumps: dict[int, StackState] = {}
        """Before jumps through tables, by their addresses."""
        self._body = StackState()
        self._at_table: StackState | None = None
        """State before the last jump through a table, with which the table's targets begin."""

    def rows(self) -> Rows:
        """Follow the gap's code and return its rows."""
        for part, state in self._seeds.items():
            self._new_function(part, state)
        for entry in sorted(self._entries):
            self._new_function(entry, StackState())
        self._follow_leftovers()
        pcs: list[int] = []
        rules: list[Rule] = []
        last: Rule | None = None
        for pc, row in sorted(self._rows.items()):
            if (row is not last and row != last and pc < self._end) or pc == self._start:
                pcs.append(pc)
                rules.append(row)
                last = row
        if self._cut:
            kept = bisect.bisect_left(pcs, self._cut)
            return [*pcs[:kept], self._cut], [*rules[:kept], NONE]
        return pcs, rules

    def _new_function(self, entry: int, state: StackState) -> None:
        self._body = state.copy()
        self._at_table = None
        self._follow(entry, state.copy())
        self._bodies[entry] = self._body

    def _follow(self, entry: int, state: StackState) -> None:
        """Follow all paths from ``entry``; each instruction is taken once, by the first path."""
        pending = [(entry, state)]
        while pending:
            at, state = pending.pop()
            index = bisect.bisect_left(self._at, at)
            if not self._reached(index):
                self._rows.setdefault(at, state.row())
            self._follow_straight(index, self._next_function(at), state, pending)

    def _follow_straight(
        self, index: int, limit: int, state: StackState, pending: list[tuple[int, StackState]]
    ) -> None:
        """Follow steps from ``index`` up to the end of the path; branches are added to ``pending``.

        Where a named function begins, at ``limit``, straight code ends: the last instruction was a
        call that does not return.
        """
        steps, visited, rows = self._steps, self._visited, self._rows
        ends, registers = self._after, self._registers
        count = bisect.bisect_left(self._at, limit, index)
        row = state.row()
        kept = False  # whether the state is that of the body
        while index < count and not visited[index]:
            visited[index] = True
            after, touched = ends[index], registers[index]
            instruction = steps[index]
            index += 1
            flow = FlowControl.NEXT if touched else instruction.flow_control
            if flow in _GOES_ON:
                before, copies = state.sp, state.copies
                idle = touched and not (copies and (touched[0] in copies or touched[1] in copies))
                if not idle and step(state, instruction):
                    row = state.row()
                    kept = False
                if after < limit:
                    rows[after] = row
                # The deepest state is that of the function's body.
                now = state.sp
                if kept:
                    continue
                if now is None or (before is not None and now > (self._body.sp or 0)):
                    self._body = state.copy()
                    kept = True
                continue
            if flow in _BRANCHES:
                self._branch(instruction.near_branch_target, state, pending)
            elif flow == FlowControl.INDIRECT_BRANCH:
                self._at_table = self._jumps[instruction.ip] = state.copy()
            if flow in _ENDS or instruction.code == Code.INT3 or after >= limit:
                break
            rows.setdefault(after, row)

    def _branch(
        self, target: int, state: StackState, pending: list[tuple[int, StackState]]
    ) -> None:
        """Follow a branch to ``target`` later, or note it as an entry of another part.

        No code leaves a function for another with its frame still there: such a target is a part
        of the same function, put elsewhere.
        """
        if target not in self._entries and self._start <= target < self._end:
            if not self._reached(bisect.bisect_left(self._at, target)):
                pending.append((target, state.copy()))
        elif target not in self._seeds:
            part = self.parts.setdefault(target, state.copy())
            if state != part or state.sp is None or state.sp <= 8:
                # A function after all, or nothing is known, or it cannot be: less than the return
                # address is left when code is followed from within a function.
                part.sp = None

    def _reached(self, index: int) -> bool:
        """Whether step ``index`` and the step before it were followed, one leading to the other."""
        visited = self._visited
        return bool(
            0 < index < len(visited)
            and visited[index]
            and visited[index - 1]
            and self._steps[index - 1].flow_control not in _ENDS
        )

    def _follow_leftovers(self) -> None:
        """Follow code that no path reached: targets of jump tables, functions without a symbol."""
        jump = 0
        for index, instruction in enumerate(self._steps):
            begin = self._at[index]
            if begin in self._jumps:
                jump = begin
            if self._visited[index] or instruction.code == Code.INT3:
                continue
            if index:
                begin = self._after[index - 1]
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
                self._new_function(entry, StackState())

    def _next_function(self, address: int) -> int:
        """Return where the next function behind ``address`` with a name or a frame begins.

        An apparent target of a call may be data read as code, where no function begins.
        """
        at = bisect.bisect_right(self._limits, address)
        return self._limits[at] if at < len(self._limits) else self._end

    def _function_at(self, address: int) -> int:
        """Return where the named function that contains ``address`` begins; 0: none does."""
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


# Relevance of instructions by code, as far as they have been met.
_interest: dict[int, int] = {}
_BRANCHES = (FlowControl.CONDITIONAL_BRANCH, FlowControl.UNCONDITIONAL_BRANCH)
_GOES_ON = (FlowControl.NEXT, FlowControl.CALL, FlowControl.INDIRECT_CALL)
_ENDS = (
    FlowControl.UNCONDITIONAL_BRANCH,
    FlowControl.INDIRECT_BRANCH,
    FlowControl.RETURN,
    FlowControl.EXCEPTION,
)
_NOPS = frozenset((int(Code.NOP_RM16), int(Code.NOP_RM32), int(Code.NOP_RM64), int(Code.NOPW)))
