"""Corrects call frame information that is wrong in a function's first and last instructions.

The instructions of a prologue and an epilogue show where the stack pointer is: at the entry the CFA
is rsp + 8, and so it is again at the return. Information that contradicts them is replaced by what
they do. Known causes:

- older compilers describe no epilogues, and hand-written directives miss a push;
- gcc describes rbp as saved in a frame that has just ended;
- LLVM moves the first instruction of two epilogues before the branch between them, but not its
  description.

Only what is certain is corrected: the instructions must follow each other from the entry, or lead
to the return from an address where information and instructions agree.

All functions are checked at once, byte by byte; only suspicious ones are disassembled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from iced_x86 import Code, Decoder, FlowControl, Instruction, Register

from hpcd.daemon.unwind.code_rules import code_rows
from hpcd.daemon.unwind.unwind_rules import CfaKind, FpKind, Rule, rule

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

# Instructions of a prologue or epilogue that are followed; longer ones are rare.
_MOST_STEPS = 16
_LONGEST = 8  # bytes of one that is looked at
# A module that keeps more under suspicion than this is not what a compiler makes.
_MOST_SUSPECTS = 20_000
_MOST_INSTRUCTIONS = 1_000_000
# Text is searched in pieces, which bounds the memory of intermediate results.
_PIECE = 8 << 20
# lea -8(%r10), %rsp between leave or pop %rbp and ret or repz ret.
_REALIGNED = bytes.fromhex("498d62f8")
_BEFORE, _BEHIND = (b"\xc9", b"\x5d"), (b"\xc3", b"\xf3\xc3")


@dataclass(frozen=True, slots=True)
class Correction:
    """Rows that hold from the first one's pc up to ``end``; pcs are ELF addresses."""

    rows: list[tuple[int, Rule]]
    end: int


class Rows:
    """The rows of the call frame information: rules (RULE_DTYPE) by pc, sorted."""

    def __init__(self, pc: I64, number: npt.NDArray[np.uint16], rules: npt.NDArray[np.void]):
        self.pc = pc
        self._number = number
        self._rules = rules
        self._kind = rules["cfa_kind"]
        self._offset = rules["cfa_off"].astype(np.int64)

    def at(self, address: int) -> Rule:
        """The rule that holds at one address."""
        row = self._rules[self._number[max(0, int(np.searchsorted(self.pc, address, "right")) - 1)]]
        return tuple(row.tolist())

    def before(self, address: int) -> int:
        """Return where the row that holds at ``address`` begins."""
        return int(self.pc[max(0, int(np.searchsorted(self.pc, address, "right")) - 1)])

    def shrinking(self) -> I64:
        """Return where rows begin that have the CFA nearer to rsp than the row before them."""
        by_sp = np.where(self._kind == CfaKind.SP, self._offset, 0)[self._number]
        before, behind = by_sp[:-1], by_sp[1:]
        return self.pc[1:][(behind > 0) & (behind < before)]

    def places(self, address: I64) -> I64:
        """Which rows hold at addresses."""
        return np.maximum(np.searchsorted(self.pc, address, "right") - 1, 0)

    def cfa(self, rows: I64) -> tuple[U8, I64]:
        """Return the kinds and offsets of the CFA by ``rows``."""
        number = self._number[rows]
        return self._kind[number], self._offset[number]

    def realigned(self) -> I64:
        """Rows by which the CFA is in r10 and rbp saved in a realigned frame."""
        rules = self._rules
        such = (self._kind == CfaKind.REG) & (rules["cfa_reg"] == 10)
        return np.flatnonzero((such & (rules["fp_kind"] == FpKind.AT_FP))[self._number])


def corrections(text: U8, vaddr: int, starts: I64, ends: I64, rows: Rows) -> list[Correction]:
    """Corrections of a section ``text`` at ``vaddr`` whose functions with information are at
    ``starts`` to ``ends`` (sorted, not overlapping). x86-64 only."""
    inside = (starts >= vaddr) & (ends <= vaddr + len(text))
    starts, ends = starts[inside], ends[inside]
    if not len(starts):
        return []
    corrected = []
    suspects = _prologues(text, vaddr, starts, ends, rows)
    for index in suspects[:_MOST_SUSPECTS].tolist():
        corrected += _prologue(text, vaddr, int(starts[index]), int(ends[index]), rows)
    budget = _MOST_INSTRUCTIONS
    done = {correction.rows[0][0] for correction in corrected if correction.rows}
    listing = _Listing(text, vaddr)
    for address in _returns(text, vaddr, rows)[:_MOST_SUSPECTS].tolist():
        index = int(np.searchsorted(starts, address, "right")) - 1
        if index < 0 or address >= int(ends[index]) or budget <= 0:
            continue
        # Every row begins with an instruction, so there is no need to begin with the function.
        start = max(int(starts[index]), rows.before(address - 16 * _MOST_STEPS))
        end = min(address + 16, int(ends[index]))
        steps = listing.leading_to(start, address, end)
        budget -= listing.read // 4 + 1
        fixed = _epilogue(steps, address, rows)
        if fixed and fixed.rows[0][0] not in done:
            done.add(fixed.rows[0][0])
            corrected.append(fixed)
    corrected += _branches_before_epilogues(text, vaddr, starts, ends, rows)
    corrected += _realigned(text, vaddr, rows)
    return _without_overlaps(corrected)


def _without_overlaps(corrected: list[Correction]) -> list[Correction]:
    """In order of address, without those that overlap an earlier correction."""
    result: list[Correction] = []
    for correction in sorted(corrected, key=lambda correction: correction.rows[0][0]):
        if not result or correction.rows[0][0] >= result[-1].end:
            result.append(correction)
    return result


# --- prologues ---


def _prologues(text: U8, vaddr: int, starts: I64, ends: I64, rows: Rows) -> I64:
    """Indices of functions whose information contradicts their first instructions."""
    kind, cfi_offset = rows.cfa(rows.places(starts))
    index = np.flatnonzero((kind == CfaKind.SP) & (cfi_offset == 8) & (ends - starts > 1))
    at = starts[index] - vaddr
    # Of a function that ends with the text the last bytes are not looked at.
    stop = np.minimum(ends[index] - vaddr, len(text) - _LONGEST)
    index, at, stop = index[at < stop], at[at < stop], stop[at < stop]
    landing = (text[at] == 0xF3) & (text[at + 1] == 0x0F) & (text[at + 2] == 0x1E)
    at = at + 4 * landing
    offset = np.full(len(at), 8, np.int64)
    framed = np.zeros(len(at), np.int64)
    suspect = []
    for _ in range(_MOST_STEPS):
        keep = at < stop
        at, stop, offset, framed, index = (
            column[keep] for column in (at, stop, offset, framed, index)
        )
        if not len(at):
            break
        b0, b1, b2, b3 = (text[at + i] for i in range(4))
        push = (b0 >= 0x50) & (b0 < 0x58)
        far = (b0 == 0x41) & (b1 >= 0x50) & (b1 < 0x58)
        short = (b0 == 0x48) & (b1 == 0x83) & (b2 == 0xEC)
        wide = (b0 == 0x48) & (b1 == 0x81) & (b2 == 0xEC)
        frame = (b0 == 0x48) & (((b1 == 0x89) & (b2 == 0xE5)) | ((b1 == 0x8B) & (b2 == 0xEC)))
        moved = 8 * (push | far).astype(np.int64)
        moved[short] = b3[short].view(np.int8)
        moved[wide] = np.stack([text[at[wide] + i] for i in range(3, 7)], 1).view("<i4").ravel()
        length = np.select([push, far, short, wide, frame], [1, 2, 4, 7, 3], 0)
        keep = (length > 0) & (at + length < stop) & (moved >= 0)
        at, stop, offset, framed, index = (
            column[keep] for column in (at + length, stop, offset + moved, framed, index)
        )
        framed = np.where(frame[keep], offset, framed)
        kind, cfi_offset = rows.cfa(rows.places(at + vaddr))
        by_sp, by_fp = kind == CfaKind.SP, kind == CfaKind.FP
        wrong = (by_sp & (cfi_offset != offset)) | (by_fp & (cfi_offset != framed))
        # Any other rule there is beyond what is checked here.
        suspect.append(index[wrong])
        going = ~wrong & (by_sp | by_fp)
        at, stop, offset, framed, index = (
            column[going] for column in (at, stop, offset, framed, index)
        )
    return np.unique(np.concatenate(suspect)) if suspect else np.zeros(0, np.int64)


def _prologue(text: U8, vaddr: int, start: int, end: int, rows: Rows) -> list[Correction]:
    """The rows of one function's prologue, by its instructions."""
    code = text[start - vaddr : end - vaddr].tobytes()
    offset, fp, bx, framed = 8, 0, 0, 0
    corrected: list[tuple[int, Rule]] = []
    last = start
    for instruction in Decoder(64, code[: 8 * _MOST_STEPS], ip=start):
        if instruction.code == Code.PUSH_R64:
            offset += 8
            if instruction.op0_register == Register.RBP:
                fp = fp or -offset
            elif instruction.op0_register == Register.RBX:
                bx = bx or -offset
        elif _changes_rsp(instruction, (Code.SUB_RM64_IMM8, Code.SUB_RM64_IMM32)):
            offset += instruction.immediate(1)
        elif _sets_frame_pointer(instruction):
            framed = offset
        elif instruction.code != Code.ENDBR64:
            break
        last = instruction.ip + instruction.len
        corrected.append((last, _by_sp(offset, fp, bx)))
    if not corrected or last >= end:
        return []
    cfi_rule = rows.at(last)
    if (cfi_rule[0], cfi_rule[4]) not in ((CfaKind.SP, offset), (CfaKind.FP, framed)):
        # The body has it wrong too: as if there were no information, if that comes out even.
        pcs, rules = code_rows(code, start, [(start, end)], [(start, end - start)], "x86_64")
        function_rows = list(zip(pcs.tolist(), rules, strict=True))
        if _closes(code, start, function_rows):
            return [Correction(function_rows, end)]
    # Behind the last of them the frame is still as it left it; further on is for others to say.
    return (
        [Correction([(start, _by_sp(8, 0, 0)), *corrected[:-1]], last)]
        if len(corrected) > 1
        else []
    )


def _changes_rsp(instruction: Instruction, codes: tuple[int, int]) -> bool:
    """Whether it is one of ``codes`` and adds a constant to rsp or subtracts one."""
    return (
        instruction.code in codes
        and instruction.op0_register == Register.RSP
        and instruction.immediate(1) < 1 << 31
    )


def _sets_frame_pointer(instruction: Instruction) -> bool:
    return (
        instruction.code in (Code.MOV_RM64_R64, Code.MOV_R64_RM64)
        and instruction.op0_register == Register.RBP
        and instruction.op1_register == Register.RSP
    )


def _closes(code: bytes, start: int, rows: list[tuple[int, Rule]]) -> bool:
    """Whether rows of a whole function have the CFA where it must be at every return."""
    pcs = np.array([pc for pc, _ in rows], np.int64)
    returns = 0
    for instruction in Decoder(64, code, ip=start):
        if instruction.code == Code.INVALID:
            return False
        if instruction.code in _RETURNS:
            returns += 1
            row = int(np.searchsorted(pcs, instruction.ip, "right")) - 1
            if row < 0 or rows[row][1][0] != CfaKind.SP or rows[row][1][4] != 8:
                return False
    return returns > 0


def _by_sp(offset: int, fp: int, bx: int) -> Rule:
    kind = FpKind.AT_CFA if fp else FpKind.SAME
    return rule(CfaKind.SP, offset, fp=kind, fp_off=fp, bx_off=bx)


# --- epilogues ---

_RETURNS = (Code.RETNQ, Code.RETNQ_IMM16)


def _returns(text: U8, vaddr: int, rows: Rows) -> I64:
    """Addresses of what may be a return behind an epilogue whose information contradicts it."""
    suspects = []
    for low in range(0, len(text), _PIECE):
        piece = text[max(0, low - 8) : low + _PIECE]
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


class _Listing:
    """Instructions of a section ``text`` at ``vaddr``, read in the order of addresses."""

    def __init__(self, text: U8, vaddr: int) -> None:
        self._text = text
        self._vaddr = vaddr
        self._start = self._reached = -1
        self.read = 0
        """Bytes that the last one took."""

    def leading_to(self, start: int, address: int, end: int) -> list[Instruction]:
        """The last instructions before ``address``, and the one there, where reading from
        ``start`` on comes to one; else none. ``end`` is where reading ends."""
        # What was read from the same start need not be read again.
        first = start
        if start == self._start and self._reached <= address - _LONGEST * _MOST_STEPS:
            first = self._reached
        self._start, self._reached = start, first
        code = self._text[first - self._vaddr : end - self._vaddr].tobytes()
        self.read = len(code)
        decoder = Decoder(64, code, ip=first)
        steps: list[Instruction] = []
        near = address - _LONGEST * _MOST_STEPS
        passed = Instruction()
        while decoder.ip < near and decoder.can_decode:
            self._reached = decoder.ip
            decoder.decode_out(passed)
        for instruction in decoder:
            steps.append(instruction)
            if instruction.ip >= address:
                break
        return steps[-_MOST_STEPS - 1 :] if steps and steps[-1].ip == address else []


def _epilogue(steps: list[Instruction], address: int, rows: Rows) -> Correction | None:
    """The rows of the epilogue that ends with the return at ``address``, the last of ``steps``;
    None when it is none."""
    if not steps or steps[-1].code not in _RETURNS:
        return None
    instruction = steps.pop()
    end = instruction.ip + instruction.len
    if steps and steps[-1].code == Code.LEAVEQ:
        cfi_rule = rows.at(steps[-1].ip)
        if cfi_rule[0] != CfaKind.FP or cfi_rule[4] != 16:
            return None
        return Correction([(address, _by_sp(8, 0, 0))], end)
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
        elif _changes_rsp(step, (Code.ADD_RM64_IMM8, Code.ADD_RM64_IMM32)):
            offset += step.immediate(1)
        else:
            break
        unwound.offsets.append((step.ip, offset))
    return unwound


def _agrees(rows: Rows, steps: list[Instruction], begin: int, offset: int) -> bool:
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
        corrected.append((address, _by_sp(offset, fp, bx)))
    return corrected


def _depth_of_rbp(steps: list[Instruction], begin: int, offset: int) -> int:
    """Return how far below rbp the stack pointer is at ``begin``, if what is popped there tells."""
    depth = 0
    for step in steps:
        if step.ip < begin:
            continue
        if step.code == Code.POP_R64 and step.op0_register == Register.RBP:
            return depth
        depth += 8 if step.code == Code.POP_R64 else step.immediate(1)
    return offset  # rbp is not popped: agreement cannot be had


def _branches_before_epilogues(
    text: U8, vaddr: int, starts: I64, ends: I64, rows: Rows
) -> list[Correction]:
    """Correct where two ways out of a function begin with one instruction before their branch."""
    low = vaddr + 8
    at = rows.shrinking()
    at = at[(at >= low) & (at <= vaddr + len(text))]
    offset = at - vaddr
    short = text[offset - 2] & 0xF0 == 0x70
    near = (text[offset - 6] == 0x0F) & (text[offset - 5] & 0xF0 == 0x80)
    corrected = []
    budget = _MOST_INSTRUCTIONS
    for address in at[short | near][:_MOST_SUSPECTS].tolist():
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


def _left_before(code: bytes, start: int, address: int, rows: Rows) -> int:
    """Behind which instruction the stack pointer already is where the row at ``address`` has it;
    0: there, as far as is certain. ``code`` leads from the row before to there."""
    steps: list[Instruction] = []
    for instruction in Decoder(64, code, ip=start):
        steps.append(instruction.copy())
        del steps[:-_MOST_STEPS]
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


def _realigned(text: U8, vaddr: int, rows: Rows) -> list[Correction]:
    """Ends of realigned functions, where gcc still has rbp in the frame that is gone."""
    corrected = []
    pc = rows.pc
    for row in rows.realigned()[:_MOST_SUSPECTS].tolist():
        start = max(int(pc[row]) - vaddr, 1)
        end = int(pc[row + 1]) - vaddr if row + 1 < len(pc) else len(text)
        piece = text[start - 1 : min(end, start + _PIECE) + 5].tobytes()
        at = piece.find(_REALIGNED, 1)
        inside = start < end and 0 < at <= end - start
        if inside and piece[at - 1 : at] in _BEFORE and piece.startswith(_BEHIND, at + 4):
            address = vaddr + start - 1 + at
            now = rule(CfaKind.REG, rows.at(address)[4], reg=10)
            corrected.append(Correction([(address, now)], address + 4))
    return corrected
