"""Unwind rows for aarch64 code without call frame information that keeps its caller's address in
the link register: entries of the procedure linkage table, which no linker gives any for, and
hand-written leaf functions.

Stretches that move the stack pointer or write the link register have no rows, but for the first
entry of the table, whose instructions the ABI's PLT layouts give (AAELF64, appendix; lld and GNU ld
make the same). Encodings: Arm Architecture Reference Manual, C4.1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.array_types import Mask
from hpcd.daemon.unwind.unwind_rules import NONE, CfaKind, RaKind, Rule, rule

U32 = npt.NDArray[np.uint32]

LEAF: Rule = rule(CfaKind.SP, 0, ra=RaKind.IN_LINK, ra_off=0)
"""The caller's stack pointer is this one's, the return address in the link register."""
_FIRST_ENTRY: Rule = rule(CfaKind.SP, 16, ra_off=-8)
_PUSH = 0xA9BF7BF0
"""``stp x16, x30, [sp, #-16]!``, with which the first entry begins."""
_FIRST_ENTRY_BYTES = 32
_SP, _LINK = 31, 30


def leaf_rows(
    text: bytes | memoryview, address: int, gaps: list[tuple[int, int]]
) -> tuple[npt.NDArray[np.int64], list[Rule]]:
    """Rows of ``gaps``, (start, end) addresses in ``text``, a section at ``address``: the addresses
    ``int64[n]`` and the rule from each on."""
    pcs: list[int] = []
    rules: list[Rule] = []
    for low, high in gaps:
        code = text[max(low - address, 0) : max(high - address, 0)]
        words = np.frombuffer(code, "<u4", len(code) // 4)
        pushed = np.flatnonzero(words[:2] == _PUSH)
        if len(pushed):
            pcs += [low, low + 4 * (int(pushed[0]) + 1)]
            rules += [LEAF, _FIRST_ENTRY]
            low += _FIRST_ENTRY_BYTES
            words = words[_FIRST_ENTRY_BYTES // 4 :]
        if low < high:
            pcs.append(low)
            # Said of others too: the section before may have ended with a rule.
            rules.append(NONE if _moves(words).any() else LEAF)
    return np.array(pcs, np.int64), rules


def _moves(words: U32) -> Mask:
    """Return which instructions may move the stack pointer or write the link register."""
    first, second, base = words & 31, words >> 10 & 31, words >> 5 & 31
    pair = words & 0x3A000000 == 0x28000000
    single = words & 0x3B200000 == 0x38000000
    writes_back = (pair & (words & 0x800000 != 0)) | (single & (words & 0x400 != 0))
    arithmetic = (words & 0x1F000000 == 0x11000000) | (words & 0x1FE00000 == 0x0B200000)
    logical = (words & 0x1F800000 == 0x12000000) & (words & 0x60000000 != 0x60000000)
    to_stack_pointer = (arithmetic & (words & 0x20000000 == 0)) | logical
    calls = (words & 0xFC000000 == 0x94000000) | (words & 0xFEFFF800 == 0xD63F0800)
    calls |= words & 0xFFFFFC1F == 0xD63F0000
    moves: Mask = (
        (writes_back & (base == _SP))
        | (to_stack_pointer & (first == _SP))
        | calls
        | (first == _LINK)
        | (pair & (second == _LINK))
    )
    return moves
