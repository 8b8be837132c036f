"""Where call frame information is wrong in a function's first and last instructions.

A prologue and an epilogue move the stack pointer in plain sight: at the entry the CFA is rsp + 8,
and so it is again at the return. Information that says otherwise in between (older compilers say
nothing of epilogues, people forget a push, gcc leaves rbp to be looked for in a frame that has just
ended, LLVM moves the first instruction of two epilogues before the branch between them and what it
says of it not) is replaced by what the instructions do. Only what is certain is: the instructions
must follow each other from the entry, or up to the return from a place where both agree.

All functions are looked at at once, byte by byte; only those under suspicion are disassembled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from iced_x86 import Code, Decoder, FlowControl, Instruction, Register

from hpcd.daemon.unwind.code import code_rows
from hpcd.daemon.unwind.rules import CfaKind, FpKind, Rule, rule

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]

# Instructions of a prologue that are followed; more are rare, and what is left to say is then less.
_MOST_STEPS = 16
_LONGEST = 8  # bytes of one that is looked at
# A module that keeps more under suspicion than this is not what a compiler makes.
_MOST_SUSPECTS = 20_000
_MOST_INSTRUCTIONS = 1_000_000
# Text is searched in pieces, so that what is found by the way stays small.
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
    """What the information says: rules (RULE_DTYPE) by pc, sorted."""

    def __init__(self, pc: I64, number: npt.NDArray[np.uint16], rules: npt.NDArray[np.void]):
        self.pc = pc
        self._number = number
        self._rules = rules
        self._kind = rules["cfa_kind"]
        self._offset = rules["cfa_off"].astype(np.int64)

    def at(self, address: int) -> Rule:
        """The rule that holds at one address."""
        found = self._rules[
            self._number[max(0, int(np.searchsorted(self.pc, address, "right")) - 1)]
        ]
        return tuple(found.tolist())

    def before(self, address: int) -> int:
        """Where the row that holds at ``address`` begins."""
        return int(self.pc[max(0, int(np.searchsorted(self.pc, address, "right")) - 1)])

    def shrinking(self) -> I64:
        """Where rows begin that have the CFA nearer to rsp than the row before them."""
        by_sp = np.where(self._kind == CfaKind.SP, self._offset, 0)[self._number]
        before, behind = by_sp[:-1], by_sp[1:]
        return self.pc[1:][(behind > 0) & (behind < before)]

    def places(self, address: I64) -> I64:
        """Which rows hold at addresses."""
        return np.maximum(np.searchsorted(self.pc, address, "right") - 1, 0)

    def cfa(self, place: I64) -> tuple[U8, I64]:
        """What rows say of the CFA: its kinds and offsets."""
        number = self._number[place]
        return self._kind[number], self._offset[number]

    def realigned(self) -> I64:
        """Rows by which the CFA is in r10 and rbp saved in a realigned frame."""
        rules = self._rules
        such = (self._kind == CfaKind.REG) & (rules["cfa_reg"] == 10)
        return np.flatnonzero((such & (rules["fp_kind"] == FpKind.AT_FP))[self._number])


def corrections(text: U8, vaddr: int, starts: I64, ends: I64, rows: Rows) -> list[Correction]:
    """What to correct in a section ``text`` at ``vaddr`` whose functions with information are at
    ``starts`` to ``ends`` (sorted, not overlapping). x86-64 only."""
    inside = (starts >= vaddr) & (ends <= vaddr + len(text))
    starts, ends = starts[inside], ends[inside]
    if not len(starts):
        return []
    found = []
    suspects = _prologues(text, vaddr, starts, ends, rows)
    for index in suspects[:_MOST_SUSPECTS].tolist():
        found += _prologue(text, vaddr, int(starts[index]), int(ends[index]), rows)
    budget = _MOST_INSTRUCTIONS
    done = {each.rows[0][0] for each in found if each.rows}
    for address in _returns(text, vaddr, rows)[:_MOST_SUSPECTS].tolist():
        index = int(np.searchsorted(starts, address, "right")) - 1
        if index < 0 or address >= int(ends[index]) or budget <= 0:
            continue
        # Every row begins with an instruction, so there is no need to begin with the function.
        start = max(int(starts[index]), rows.before(address - 16 * _MOST_STEPS))
        code = text[start - vaddr : min(address + 16, int(ends[index])) - vaddr].tobytes()
        budget -= len(code) // 4 + 1
        fixed = _epilogue(code, start, address, rows)
        if fixed and fixed.rows[0][0] not in done:
            done.add(fixed.rows[0][0])
            found.append(fixed)
    found += _shared(text, vaddr, starts, ends, rows)
    found += _realigned(text, vaddr, rows)
    return _apart(found)


def _apart(found: list[Correction]) -> list[Correction]:
    """In order of address, without those that overlap an earlier one."""
    result: list[Correction] = []
    for each in sorted(found, key=lambda one: one.rows[0][0]):
        if not result or each.rows[0][0] >= result[-1].end:
            result.append(each)
    return result


# --- prologues ---


def _prologues(text: U8, vaddr: int, starts: I64, ends: I64, rows: Rows) -> I64:
    """Indices of functions whose information contradicts their first instructions."""
    kind, told = rows.cfa(rows.places(starts))
    index = np.flatnonzero((kind == CfaKind.SP) & (told == 8) & (ends - starts > 1))
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
        at, stop, offset, framed, index = (each[keep] for each in (at, stop, offset, framed, index))
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
            each[keep] for each in (at + length, stop, offset + moved, framed, index)
        )
        framed = np.where(frame[keep], offset, framed)
        kind, told = rows.cfa(rows.places(at + vaddr))
        by_sp, by_fp = kind == CfaKind.SP, kind == CfaKind.FP
        wrong = (by_sp & (told != offset)) | (by_fp & (told != framed))
        # Whatever else is said there is beyond what is seen here.
        suspect.append(index[wrong])
        going = ~wrong & (by_sp | by_fp)
        at, stop, offset, framed, index = (
            each[going] for each in (at, stop, offset, framed, index)
        )
    return np.unique(np.concatenate(suspect)) if suspect else np.zeros(0, np.int64)


def _prologue(text: U8, vaddr: int, start: int, end: int, rows: Rows) -> list[Correction]:
    """The rows of one function's prologue, by its instructions."""
    code = text[start - vaddr : end - vaddr].tobytes()
    offset, fp, bx, framed = 8, 0, 0, 0
    made: list[tuple[int, Rule]] = []
    last = start
    for instruction in Decoder(64, code[: 8 * _MOST_STEPS], ip=start):
        if instruction.code == Code.PUSH_R64:
            offset += 8
            if instruction.op0_register == Register.RBP:
                fp = fp or -offset
            elif instruction.op0_register == Register.RBX:
                bx = bx or -offset
        elif (
            instruction.code in (Code.SUB_RM64_IMM8, Code.SUB_RM64_IMM32)
            and instruction.op0_register == Register.RSP
            and instruction.immediate(1) < 1 << 31
        ):
            offset += instruction.immediate(1)
        elif instruction.code not in (Code.MOV_RM64_R64, Code.MOV_R64_RM64, Code.ENDBR64) or (
            instruction.code != Code.ENDBR64
            and (instruction.op0_register, instruction.op1_register) != (Register.RBP, Register.RSP)
        ):
            break
        elif instruction.code != Code.ENDBR64:
            framed = offset
        last = instruction.ip + instruction.len
        made.append((last, _by_sp(offset, fp, bx)))
    if not made or last >= end:
        return []
    said = rows.at(last)
    if (said[0], said[4]) not in ((CfaKind.SP, offset), (CfaKind.FP, framed)):
        # The body has it wrong too: as if there were no information, if that comes out even.
        pcs, rules = code_rows(code, start, [(start, end)], [(start, end - start)], "x86_64")
        each = list(zip(pcs.tolist(), map(tuple, rules.tolist()), strict=True))
        if _closes(code, start, each):
            return [Correction(each, end)]
    # Behind the last of them the frame is still as it left it; further on is for others to say.
    return [Correction([(start, _by_sp(8, 0, 0)), *made[:-1]], last)] if len(made) > 1 else []


def _closes(code: bytes, start: int, each: list[tuple[int, Rule]]) -> bool:
    """Whether rows of a whole function have the CFA where it must be at every return."""
    pcs = np.array([pc for pc, _ in each], np.int64)
    returns = 0
    for instruction in Decoder(64, code, ip=start):
        if instruction.code == Code.INVALID:
            return False
        if instruction.code in _RETURNS:
            returns += 1
            place = int(np.searchsorted(pcs, instruction.ip, "right")) - 1
            if place < 0 or each[place][1][0] != CfaKind.SP or each[place][1][4] != 8:
                return False
    return returns > 0


def _by_sp(offset: int, fp: int, bx: int) -> Rule:
    kind = FpKind.AT_CFA if fp else FpKind.SAME
    return rule(CfaKind.SP, offset, fp=kind, fp_off=fp, bx_off=bx)


# --- epilogues ---

_RETURNS = (Code.RETNQ, Code.RETNQ_IMM16)


def _returns(text: U8, vaddr: int, rows: Rows) -> I64:
    """Addresses of what may be a return behind an epilogue whose information contradicts it."""
    found = []
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
        kind, told = rows.cfa(rows.places(address))
        wrong = (kind == CfaKind.FP) | ((kind == CfaKind.SP) & (told != 8))
        found.append(address[wrong])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _epilogue(code: bytes, start: int, address: int, rows: Rows) -> Correction | None:
    """The rows of the epilogue that ends with the return at ``address``; None when it is none."""
    steps: list[Instruction] = []
    for instruction in Decoder(64, code, ip=start):
        if instruction.ip >= address:
            break
        steps.append(instruction.copy())
        del steps[:-_MOST_STEPS]
    else:
        return None
    if instruction.ip != address or instruction.code not in _RETURNS:
        return None
    end = instruction.ip + instruction.len
    # Backwards: offset of the CFA before each instruction; None: it is rbp + 16.
    offset = 8
    back: list[tuple[int, int]] = [(address, 8)]
    popped: dict[int, int] = {}
    for step in reversed(steps):
        if step.code == Code.POP_R64 and step.op0_register != Register.RSP:
            offset += 8
            popped.setdefault(step.op0_register, step.ip)
        elif (
            step.code in (Code.ADD_RM64_IMM8, Code.ADD_RM64_IMM32)
            and step.op0_register == Register.RSP
            and step.immediate(1) < 1 << 31
        ):
            offset += step.immediate(1)
        elif step.code == Code.LEAVEQ and offset == 8:
            said = rows.at(step.ip)
            if said[0] != CfaKind.FP or said[4] != 16:
                return None
            return Correction([(address, _by_sp(8, 0, 0))], end)
        else:
            break
        back.append((step.ip, offset))
    # Where the epilogue begins both must agree, or this is no epilogue of this frame.
    while len(back) > 1:
        begin, offset = back[-1]
        said = rows.at(begin)
        if said[0] == CfaKind.SP and said[4] == offset:
            break
        if said[0] == CfaKind.FP and said[4] == offset - _depth_of_rbp(steps, begin, offset):
            break
        back.pop()
    if len(back) < 2:
        return None
    begin = back[-1][0]
    fp = said[5] if said[1] == FpKind.AT_CFA else 0
    bx = said[7]
    made: list[tuple[int, Rule]] = []
    for where, after in reversed(back[:-1]):
        if popped.get(Register.RBP, where) < where and popped.get(Register.RBP, 0) >= begin:
            fp = 0
        if popped.get(Register.RBX, where) < where and popped.get(Register.RBX, 0) >= begin:
            bx = 0
        if said[0] == CfaKind.FP and Register.RBP in popped and popped[Register.RBP] >= where:
            continue  # rbp still is the frame's, and the rule by it right
        made.append((where, _by_sp(after, fp, bx)))
    return Correction(made, end) if made else None


def _depth_of_rbp(steps: list[Instruction], begin: int, offset: int) -> int:
    """How far below rbp the stack pointer is at ``begin``, if what is popped there tells."""
    depth = 0
    for step in steps:
        if step.ip < begin:
            continue
        if step.code == Code.POP_R64 and step.op0_register == Register.RBP:
            return depth
        depth += 8 if step.code == Code.POP_R64 else step.immediate(1)
    return offset  # rbp is not popped: agreement cannot be had


def _shared(text: U8, vaddr: int, starts: I64, ends: I64, rows: Rows) -> list[Correction]:
    """Where two ways out of a function begin with the same instruction, before their branch."""
    low = vaddr + 8
    at = rows.shrinking()
    at = at[(at >= low) & (at <= vaddr + len(text))]
    place = at - vaddr
    short = text[place - 2] & 0xF0 == 0x70
    near = (text[place - 6] == 0x0F) & (text[place - 5] & 0xF0 == 0x80)
    found = []
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
            found.append(Correction([(begin, rows.at(address))], address))
    return found


def _left_before(code: bytes, start: int, address: int, rows: Rows) -> int:
    """Behind which instruction the stack pointer already is where the row at ``address`` has it;
    0: there, as far as is certain. ``code`` leads from the row before to there."""
    steps: list[Instruction] = []
    for instruction in Decoder(64, code, ip=start):
        steps.append(instruction.copy())
        del steps[:-_MOST_STEPS]
    if not steps or steps[-1].flow_control != FlowControl.CONDITIONAL_BRANCH:
        return 0
    told = rows.at(address)[4]
    for step in reversed(steps):
        if step.flow_control == FlowControl.CONDITIONAL_BRANCH:
            said = rows.at(step.near_branch_target)
            if (said[0], said[4]) != (CfaKind.SP, told):
                return 0
        elif step.flow_control != FlowControl.NEXT:
            return 0
        elif step.is_stack_instruction or step.op0_register == Register.RSP:
            moved = step.code in (Code.ADD_RM64_IMM8, Code.ADD_RM64_IMM32) and step.immediate(1)
            popped = step.code == Code.POP_R64 and step.op0_register != Register.RSP and 8
            right = rows.at(step.ip)[4] - told == (moved or popped)
            return int(step.ip + step.len) if right else 0
    return 0


def _realigned(text: U8, vaddr: int, rows: Rows) -> list[Correction]:
    """Ends of realigned functions, where gcc still has rbp in the frame that is gone."""
    found = []
    pc = rows.pc
    for place in rows.realigned()[:_MOST_SUSPECTS].tolist():
        start = max(int(pc[place]) - vaddr, 1)
        end = int(pc[place + 1]) - vaddr if place + 1 < len(pc) else len(text)
        piece = text[start - 1 : min(end, start + _PIECE) + 5].tobytes()
        at = piece.find(_REALIGNED, 1)
        inside = start < end and 0 < at <= end - start
        if inside and piece[at - 1 : at] in _BEFORE and piece.startswith(_BEHIND, at + 4):
            address = vaddr + start - 1 + at
            now = rule(CfaKind.REG, rows.at(address)[4], reg=10)
            found.append(Correction([(address, now)], address + 4))
    return found
