"""Corrections of call frame information in the last instructions of functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from iced_x86 import Code, Decoder, FlowControl, Instruction, Register

from hpcd.array_types import I64, U8
from hpcd.bpf.wire import CfaKind, FpKind
from hpcd.daemon.unwind.cfi_rows import (
    LONGEST,
    MOST_INSTRUCTIONS,
    MOST_STEPS,
    MOST_SUSPECTS,
    PIECE,
    RETURNS,
    CfiRows,
    Correction,
    changes_rsp,
    rule_by_sp,
)
from hpcd.daemon.unwind.unwind_rules import Rule, rule

# lea -8(%r10), %rsp between leave or pop %rbp and ret or repz ret.
_REALIGNED = bytes.fromhex("498d62f8")
_BEFORE, _BEHIND = (b"\xc9", b"\x5d"), (b"\xc3", b"\xf3\xc3")


def suspect_returns(text: U8, vaddr: int, rows: CfiRows) -> I64:
    """Addresses of possible returns behind an epilogue that contradicts its information."""
    suspects = []
    for low in range(0, len(text), PIECE):
        piece = text[max(0, low - 8) : low + PIECE]
        at = np.flatnonzero(piece == 0xC3)
        at = at[at >= (8 if low else 7)]
        before = at - (piece[at - 1] == 0xF3)
        last = piece[before - 1]
        likely = ((last >= 0x58) & (last < 0x60)) | (last == 0xC9)
        adds = (piece[before - 4] == 0x48) & (piece[before - 3] == 0x83)
        likely |= adds & (piece[before - 2] == 0xC4)
        address = before[likely] + max(0, low - 8) + vaddr
        kind, cfi_offset = rows.cfa(rows.places(address))
        wrong = (kind == CfaKind.FP) | ((kind == CfaKind.SP) & (cfi_offset != 8))
        suspects.append(address[wrong])
    return np.concatenate(suspects) if suspects else np.zeros(0, np.int64)


class Listing:
    """Instructions of a section ``text`` at ``vaddr``, read in the order of addresses."""

    def __init__(self, text: U8, vaddr: int) -> None:
        self._text = text
        self._vaddr = vaddr
        self._start = self._reached = -1
        self.read = 0
        """Bytes that the last one took."""

    def leading_to(self, start: int, address: int, end: int) -> list[Instruction]:
        """Return the last instructions before ``address`` and the one at it, if reading from
        ``start`` on reaches one there; else none. ``end`` is where reading ends."""
        # Instructions decoded from the same start are reused.
        first = start
        if start == self._start and self._reached <= address - LONGEST * MOST_STEPS:
            first = self._reached
        self._start, self._reached = start, first
        code = self._text[first - self._vaddr : end - self._vaddr].tobytes()
        self.read = len(code)
        decoder = Decoder(64, code, ip=first)
        steps: list[Instruction] = []
        near = address - LONGEST * MOST_STEPS
        passed = Instruction()
        while decoder.ip < near and decoder.can_decode:
            self._reached = decoder.ip
            decoder.decode_out(passed)
        for instruction in decoder:
            steps.append(instruction)
            if instruction.ip >= address:
                break
        return steps[-MOST_STEPS - 1 :] if steps and steps[-1].ip == address else []


def correct_epilogue(steps: list[Instruction], address: int, rows: CfiRows) -> Correction | None:
    """The rows of the epilogue that ends with the return at ``address``, the last of ``steps``;
    None if it is no epilogue."""
    if not steps or steps[-1].code not in RETURNS:
        return None
    instruction = steps.pop()
    end = instruction.ip + instruction.len
    if steps and steps[-1].code == Code.LEAVEQ:
        cfi_rule = rows.at(steps[-1].ip)
        if cfi_rule[0] != CfaKind.FP or cfi_rule[4] != 16:
            return None
        return Correction([(address, rule_by_sp(8, 0, 0))], end)
    unwound = _unwound(steps, address)
    while len(unwound.offsets) > 1 and not _agrees(rows, steps, *unwound.offsets[-1]):
        unwound.offsets.pop()
    if len(unwound.offsets) < 2:
        return None
    corrected = _rows_behind(unwound, rows.at(unwound.offsets[-1][0]))
    return Correction(corrected, end) if corrected else None


@dataclass(frozen=True, slots=True)
class _Unwound:
    """An epilogue read backwards from its return.

    ``offsets`` are (address of an instruction, CFA offset from rsp before it), the return first;
    ``popped`` says where registers are popped, of several pops the last.
    """

    offsets: list[tuple[int, int]]
    popped: dict[int, int]


def _unwound(steps: list[Instruction], address: int) -> _Unwound:
    """The instructions that only move the stack pointer before the return at ``address``."""
    offset = 8
    unwound = _Unwound([(address, offset)], {})
    for step in reversed(steps):
        if step.code == Code.POP_R64 and step.op0_register != Register.RSP:
            offset += 8
            unwound.popped.setdefault(step.op0_register, step.ip)
        elif changes_rsp(step, (Code.ADD_RM64_IMM8, Code.ADD_RM64_IMM32)):
            offset += step.immediate(1)
        else:
            break
        unwound.offsets.append((step.ip, offset))
    return unwound


def _agrees(rows: CfiRows, steps: list[Instruction], begin: int, offset: int) -> bool:
    """Whether the information says the same as an epilogue where that begins; if it does not, it
    is no epilogue of this frame."""
    cfi_rule = rows.at(begin)
    if cfi_rule[0] == CfaKind.SP:
        return cfi_rule[4] == offset
    depth = _depth_of_rbp(steps, begin, offset)
    return cfi_rule[0] == CfaKind.FP and cfi_rule[4] == offset - depth


def _rows_behind(unwound: _Unwound, cfi_rule: Rule) -> list[tuple[int, Rule]]:
    """Rows behind each instruction of an epilogue at whose begin ``cfi_rule`` holds."""
    begin = unwound.offsets[-1][0]
    fp = cfi_rule[5] if cfi_rule[1] == FpKind.AT_CFA else 0
    bx = cfi_rule[7]
    rbp_popped = unwound.popped.get(Register.RBP, -1)
    rbx_popped = unwound.popped.get(Register.RBX, -1)
    corrected: list[tuple[int, Rule]] = []
    for address, offset in reversed(unwound.offsets[:-1]):
        if begin <= rbp_popped < address:
            fp = 0
        if begin <= rbx_popped < address:
            bx = 0
        if cfi_rule[0] == CfaKind.FP and rbp_popped >= address:
            continue  # rbp still is the frame's, and the rule by it right
        corrected.append((address, rule_by_sp(offset, fp, bx)))
    return corrected


def _depth_of_rbp(steps: list[Instruction], begin: int, offset: int) -> int:
    """Return how far below rbp the stack pointer is at ``begin``, from the pops before rbp's."""
    depth = 0
    for step in steps:
        if step.ip < begin:
            continue
        if step.code == Code.POP_R64 and step.op0_register == Register.RBP:
            return depth
        depth += 8 if step.code == Code.POP_R64 else step.immediate(1)
    return offset  # rbp is not popped: agreement cannot be had


def branches_before_epilogues(
    text: U8, vaddr: int, starts: I64, ends: I64, rows: CfiRows
) -> list[Correction]:
    """Correct where two ways out of a function begin with one instruction before their branch."""
    low = vaddr + 8
    at = rows.shrinking()
    at = at[(at >= low) & (at <= vaddr + len(text))]
    offset = at - vaddr
    short = text[offset - 2] & 0xF0 == 0x70
    near = (text[offset - 6] == 0x0F) & (text[offset - 5] & 0xF0 == 0x80)
    corrected = []
    budget = MOST_INSTRUCTIONS
    for address in at[short | near][:MOST_SUSPECTS].tolist():
        index = int(np.searchsorted(starts, address, "right")) - 1
        start = rows.before(address - 1)
        if index < 0 or start < int(starts[index]) or address >= int(ends[index]) or budget <= 0:
            continue
        code = text[start - vaddr : address - vaddr].tobytes()
        budget -= len(code) // 4 + 1
        begin = _left_before(code, start, address, rows)
        if begin:
            corrected.append(Correction([(begin, rows.at(address))], address))
    return corrected


def _left_before(code: bytes, start: int, address: int, rows: CfiRows) -> int:
    """Behind which instruction the stack pointer already is where the row at ``address`` has it;
    0: there, as far as is certain. ``code`` leads from the row before to there."""
    steps: list[Instruction] = []
    for instruction in Decoder(64, code, ip=start):
        steps.append(instruction.copy())
        del steps[:-MOST_STEPS]
    if not steps or steps[-1].flow_control != FlowControl.CONDITIONAL_BRANCH:
        return 0
    cfi_offset = rows.at(address)[4]
    for step in reversed(steps):
        if step.flow_control == FlowControl.CONDITIONAL_BRANCH:
            cfi_rule = rows.at(step.near_branch_target)
            if (cfi_rule[0], cfi_rule[4]) != (CfaKind.SP, cfi_offset):
                return 0
        elif step.flow_control != FlowControl.NEXT:
            return 0
        elif step.is_stack_instruction or step.op0_register == Register.RSP:
            moved = step.code in (Code.ADD_RM64_IMM8, Code.ADD_RM64_IMM32) and step.immediate(1)
            popped = step.code == Code.POP_R64 and step.op0_register != Register.RSP and 8
            right = rows.at(step.ip)[4] - cfi_offset == (moved or popped)
            return int(step.ip + step.len) if right else 0
    return 0


def realigned_ends(text: U8, vaddr: int, rows: CfiRows) -> list[Correction]:
    """Ends of realigned functions, where gcc still has rbp in the frame that is gone."""
    corrected = []
    pc = rows.pc
    for row in rows.realigned()[:MOST_SUSPECTS].tolist():
        start = max(int(pc[row]) - vaddr, 1)
        end = int(pc[row + 1]) - vaddr if row + 1 < len(pc) else len(text)
        piece = text[start - 1 : min(end, start + PIECE) + 5].tobytes()
        at = piece.find(_REALIGNED, 1)
        inside = start < end and 0 < at <= end - start
        if inside and piece[at - 1 : at] in _BEFORE and piece.startswith(_BEHIND, at + 4):
            address = vaddr + start - 1 + at
            now = rule(CfaKind.REG, rows.at(address)[4], reg=10)
            corrected.append(Correction([(address, now)], address + 4))
    return corrected
