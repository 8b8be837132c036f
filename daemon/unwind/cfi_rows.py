"""Rows of call frame information, and corrections of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from iced_x86 import Code, Instruction, Register

from hpcd.array_types import I64, U8, U16
from hpcd.bpf.wire import CfaKind, FpKind
from hpcd.daemon.unwind.unwind_rules import Rule, rule

LONGEST = 8
"""Bytes of an instruction that is looked at."""
MOST_STEPS = 16
"""Instructions of a prologue or epilogue that are followed; longer ones are rare."""
MOST_SUSPECTS = 20_000
"""Bound on suspects of a module; no compiler makes more."""
MOST_INSTRUCTIONS = 1_000_000
PIECE = 8 << 20
"""Text is searched in pieces, which bounds the memory of intermediate results."""
RETURNS = (Code.RETNQ, Code.RETNQ_IMM16)


@dataclass(frozen=True, slots=True)
class Correction:
    """Rows that hold from the first one's pc up to ``end``; pcs are ELF addresses."""

    rows: list[tuple[int, Rule]]
    end: int


class CfiRows:
    """The rows of the call frame information: rules (RULE_DTYPE) by pc, sorted."""

    def __init__(self, pc: I64, number: U16, rules: npt.NDArray[np.void]):
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
        matching = (self._kind == CfaKind.REG) & (rules["cfa_reg"] == 10)
        return np.flatnonzero((matching & (rules["fp_kind"] == FpKind.AT_FP))[self._number])


def rule_by_sp(offset: int, fp: int, bx: int) -> Rule:
    """Return the rule of a CFA at rsp + ``offset``, with rbp and rbx saved at offsets from the CFA
    (0: not saved)."""
    kind = FpKind.AT_CFA if fp else FpKind.SAME
    return rule(CfaKind.SP, offset, fp=kind, fp_off=fp, bx_off=bx)


def changes_rsp(instruction: Instruction, codes: tuple[int, int]) -> bool:
    """Whether ``instruction`` has one of ``codes`` and adds or subtracts a constant from rsp."""
    return (
        instruction.code in codes
        and instruction.op0_register == Register.RSP
        and instruction.immediate(1) < 1 << 31
    )
