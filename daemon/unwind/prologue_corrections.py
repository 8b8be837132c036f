"""Corrections of call frame information in the first instructions of functions."""

from __future__ import annotations

import numpy as np
from iced_x86 import Code, Decoder, Instruction, Register

from hpcd.array_types import I64, U8
from hpcd.bpf.wire import CfaKind
from hpcd.daemon.unwind.cfi_rows import (
    LONGEST,
    MOST_STEPS,
    RETURNS,
    CfiRows,
    Correction,
    changes_rsp,
    rule_by_sp,
)
from hpcd.daemon.unwind.code_rules import code_rows
from hpcd.daemon.unwind.unwind_rules import Rule


def suspect_prologues(text: U8, vaddr: int, starts: I64, ends: I64, rows: CfiRows) -> I64:
    """Indices of functions whose information contradicts their first instructions."""
    kind, cfi_offset = rows.cfa(rows.places(starts))
    index = np.flatnonzero((kind == CfaKind.SP) & (cfi_offset == 8) & (ends - starts > 1))
    at = starts[index] - vaddr
    # Of a function that ends with the text the last bytes are not looked at.
    stop = np.minimum(ends[index] - vaddr, len(text) - LONGEST)
    index, at, stop = index[at < stop], at[at < stop], stop[at < stop]
    landing = (text[at] == 0xF3) & (text[at + 1] == 0x0F) & (text[at + 2] == 0x1E)
    at = at + 4 * landing
    offset = np.full(len(at), 8, np.int64)
    framed = np.zeros(len(at), np.int64)
    suspect = []
    for _ in range(MOST_STEPS):
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
        # Other kinds of rules are not checked here.
        suspect.append(index[wrong])
        going = ~wrong & (by_sp | by_fp)
        at, stop, offset, framed, index = (
            column[going] for column in (at, stop, offset, framed, index)
        )
    return np.unique(np.concatenate(suspect)) if suspect else np.zeros(0, np.int64)


def correct_prologue(text: U8, vaddr: int, start: int, end: int, rows: CfiRows) -> list[Correction]:
    """The rows of one function's prologue, by its instructions."""
    code = text[start - vaddr : end - vaddr].tobytes()
    offset, fp, bx, framed = 8, 0, 0, 0
    corrected: list[tuple[int, Rule]] = []
    last = start
    for instruction in Decoder(64, code[: 8 * MOST_STEPS], ip=start):
        if instruction.code == Code.PUSH_R64:
            offset += 8
            if instruction.op0_register == Register.RBP:
                fp = fp or -offset
            elif instruction.op0_register == Register.RBX:
                bx = bx or -offset
        elif changes_rsp(instruction, (Code.SUB_RM64_IMM8, Code.SUB_RM64_IMM32)):
            offset += instruction.immediate(1)
        elif _sets_frame_pointer(instruction):
            framed = offset
        elif instruction.code != Code.ENDBR64:
            break
        last = instruction.ip + instruction.len
        corrected.append((last, rule_by_sp(offset, fp, bx)))
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
        [Correction([(start, rule_by_sp(8, 0, 0)), *corrected[:-1]], last)]
        if len(corrected) > 1
        else []
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
        if instruction.code in RETURNS:
            returns += 1
            row = int(np.searchsorted(pcs, instruction.ip, "right")) - 1
            if row < 0 or rows[row][1][0] != CfaKind.SP or rows[row][1][4] != 8:
                return False
    return returns > 0
