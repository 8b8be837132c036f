"""States of a frame that call frame instructions describe, and the unwind rule that follows.

(DWARF 5, section 6.4; System V ABI for x86-64 and aarch64 for register numbers.)
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcd.bpf.wire import BxKind, CfaKind, FpKind, RaKind
from hpcd.daemon.unwind.unwind_rules import END, UNSUPPORTED, Rule, rule
from hpcd.elf.leb128 import sleb128, uleb128

# The standard PLT expression: sp + 8 + ((ip & 15) >= 11 (10 without IBT)) * 8.
_PLT = {
    bytes.fromhex("770880003f1a3b2a332422"): 11,
    bytes.fromhex("770880003f1a3a2a332422"): 10,
}
_BREG0, _DEREF, _PLUS_UCONST = 0x70, 0x06, 0x23


@dataclass(frozen=True, slots=True)
class Registers:
    """DWARF numbers of the registers followed; ``bx`` is -1 if the machine has none."""

    sp: int
    fp: int
    ra: int
    bx: int
    cfa_offset: int
    """Offset of the CFA from sp at a function's entry."""


REGISTERS = {
    "x86_64": Registers(sp=7, fp=6, ra=16, bx=3, cfa_offset=8),
    "aarch64": Registers(sp=31, fp=29, ra=30, bx=-1, cfa_offset=0),
}

# Where a register's value in the caller is: unchanged, at CFA + int, at fp + offset ("expr"),
# nowhere ("undef"), in another register ("register"), or somewhere the walker has no form for
# ("odd").
Saved = int | tuple[str, int] | None
UNDEFINED: Saved = ("undef", 0)
ODD: Saved = ("odd", 0)

Expression = tuple[CfaKind, int, int]
# A program's state: CFA register, offset and expression, then the places of the caller's
# fp, ra, bx and sp. Other registers are not followed, so a state has a fixed size and costs
# nothing to remember, even in a hostile program.
State = tuple[int, int, Expression | None, Saved, Saved, Saved, Saved]
# Positions of the registers in a state.
FP, RA, BX, SP = 3, 4, 5, 6


def state_rule(registers: Registers, state: State) -> Rule:
    """Return the unwind rule of a state of a function that is no signal handler's frame."""
    cfa_reg, cfa_off, cfa_expr, fp, ra, bx, sp = state
    if ra == UNDEFINED:
        return END
    if isinstance(ra, int) and ra >= 0 and not registers.cfa_offset:
        # On aarch64 calls push no return address: one at or above the CFA was pushed before.
        if cfa_reg != registers.sp or cfa_expr:
            return UNSUPPORTED  # setcontext: the caller's stack is another one
        # _dl_runtime_resolve: the first entry of the procedure linkage table has pushed it.
        beyond = (ra + 16) & ~15
        cfa_off, ra = cfa_off + beyond, ra - beyond
        fp = fp - beyond if isinstance(fp, int) else fp
    if sp is not None:  # setcontext: the caller's stack is another one
        return UNSUPPORTED
    ra_kind, ra_off, ra_register = RaKind.AT_CFA, 0, 0
    if isinstance(ra, int):
        ra_off = ra
    elif ra and ra[0] == "register" and not cfa_expr and cfa_reg in (registers.sp, registers.fp):
        ra_kind, ra_register = RaKind.IN_REGISTER, ra[1]
    elif ra is None and registers is REGISTERS["aarch64"]:
        ra_kind = RaKind.IN_LINK
    else:
        return UNSUPPORTED
    if (cfa_reg, cfa_off, cfa_expr) == (registers.sp, registers.cfa_offset, None):
        # The frame is gone, so registers saved in it are restored. gcc does not say so at the end
        # of realigned functions, where rbp no longer belongs to this function.
        fp = None if isinstance(fp, tuple) and fp[0] == "expr" else fp
        bx = None if isinstance(bx, tuple) and bx[0] == "expr" else bx
    fp_kind, fp_off = _fp(fp)
    bx_kind, bx_off = _bx(bx)
    if cfa_expr:
        kind, off, reg = cfa_expr
    elif cfa_reg == registers.sp:
        kind, off, reg = CfaKind.SP, cfa_off, ra_register
    elif cfa_reg == registers.fp:
        kind, off, reg = CfaKind.FP, cfa_off, ra_register
    elif cfa_reg < 256:
        kind, off, reg = CfaKind.REG, cfa_off, cfa_reg
    else:
        return UNSUPPORTED
    return rule(
        kind, off, reg=reg, fp=fp_kind, fp_off=fp_off, ra=ra_kind, ra_off=ra_off, bx_off=bx_off,
        bx=bx_kind,
    )  # fmt: skip


def _fp(saved: Saved) -> tuple[FpKind, int]:
    if saved is None:
        return FpKind.SAME, 0
    if isinstance(saved, int):
        return FpKind.AT_CFA, saved
    if saved[0] == "expr":
        return FpKind.AT_FP, saved[1]
    return FpKind.UNDEFINED, 0


def _bx(saved: Saved) -> tuple[BxKind, int]:
    if saved is None:
        return BxKind.AT_CFA, 0
    if isinstance(saved, int):
        return BxKind.AT_CFA, saved
    return (BxKind.AT_FP, saved[1]) if saved[0] == "expr" else (BxKind.LOST, 0)


def saved_expression(expression: bytes, fp: int) -> Saved:
    """``breg(fp) offset``: where a realigned frame (DRAP) keeps the caller's frame pointer."""
    if expression and expression[0] == _BREG0 + fp:
        offset, pos = sleb128(expression, 1)
        if pos == len(expression):
            return ("expr", offset)
    return ODD


def cfa_expression(expression: bytes, sp: int, fp: int) -> Expression:
    """The forms compilers and hand-written assembly use: (kind, offset, addend)."""
    entry = _PLT.get(expression)
    if entry is not None:
        return CfaKind.PLT, entry, 0
    if expression and expression[0] in (_BREG0 + sp, _BREG0 + fp):
        kind = CfaKind.SP_DEREF if expression[0] == _BREG0 + sp else CfaKind.FP_DEREF
        offset, pos = sleb128(expression, 1)
        rest = expression[pos:]
        if rest == bytes([_DEREF]):
            return kind, offset, 0
        if rest[:2] == bytes([_DEREF, _PLUS_UCONST]):
            addend, end = uleb128(rest, 2)
            if end == len(rest) and addend < 256:
                return kind, offset, addend
    return CfaKind.UNSUPPORTED, 0, 0
