"""Unwind rows for aarch64 code without call frame information that keeps its caller's address in
the link register: entries of the procedure linkage table, for which no linker writes any,
hand-written leaf functions, and functions that push a frame record and pop it again, like those
which the C library begins and ends a module (``_init``, ``__do_global_dtors_aux``).

Stretches that move the stack pointer or write the link register otherwise have no rows, except the
first entry of the table, whose instructions the ABI's PLT layouts give (AAELF64, appendix; lld and
GNU ld make the same). Encodings: Arm Architecture Reference Manual, C4.1.
"""

from __future__ import annotations

import numpy as np

from hpcd.array_types import I64, U32, Mask
from hpcd.bpf.wire import CfaKind, FpKind, RaKind
from hpcd.daemon.unwind.unwind_rules import NONE, Rule, rule

LEAF: Rule = rule(CfaKind.SP, 0, ra=RaKind.IN_LINK, ra_off=0)
"""The caller's stack pointer is this one's, the return address in the link register."""
_FIRST_ENTRY: Rule = rule(CfaKind.SP, 16, ra_off=-8)
_PUSH = 0xA9BF7BF0
"""``stp x16, x30, [sp, #-16]!``, with which the first entry begins."""
_FIRST_ENTRY_BYTES = 32
_SP, _LINK = 31, 30
_PUSH_RECORD, _POP_RECORD = 0xA9807BFD, 0xA8C07BFD
"""``stp x29, x30, [sp, #-N]!`` and ``ldp x29, x30, [sp], #N``, without N / 8 in bits 21..15."""
_RECORD_BITS = 0xFFC07FFF


def leaf_rows(
    text: bytes | memoryview,
    address: int,
    gaps: list[tuple[int, int]],
    functions: list[tuple[int, int]],
) -> tuple[I64, list[Rule]]:
    """Rows of ``gaps``, (start, end) addresses in ``text``, a section at ``address``, in which
    known ``functions``, (start, size), are looked at by themselves: the addresses ``int64[n]`` and
    the rule from each on."""
    pcs: list[int] = []
    rules: list[Rule] = []
    stop = address + len(text)
    edges = (at for start, size in functions for at in (start, start + size))
    borders = np.unique(np.array([at for at in edges if at < stop and at % 4 == 0], np.int64))
    for begin, end in gaps:
        low, high = max(begin, address), min(end, stop)
        if high - low < 4:
            continue
        words = np.frombuffer(text[low - address : high - address], "<u4", (high - low) // 4)
        first = np.flatnonzero(words[:2] == _PUSH)
        if len(first):
            pcs += [low, low + 4 * (int(first[0]) + 1)]
            rules += [LEAF, _FIRST_ENTRY]
            low += _FIRST_ENTRY_BYTES
            words = words[_FIRST_ENTRY_BYTES // 4 :]
        inside = borders[np.searchsorted(borders, low, "right") : np.searchsorted(borders, high)]
        for start, part in zip(
            [low, *inside.tolist()], np.split(words, (inside - low) // 4), strict=True
        ):
            if not len(part):
                continue
            pcs.append(start)
            records = _records(part)
            # Also without records: the previous section may have ended with a rule.
            rules.append(NONE if records is None else LEAF)
            for pushed, popped, size in records or ():
                pcs += [start + 4 * (pushed + 1), start + 4 * (popped + 1)]
                record = rule(CfaKind.SP, size, fp=FpKind.AT_CFA, fp_off=-size, ra_off=8 - size)
                rules += [record, LEAF]
    return np.array(pcs, np.int64), rules


def _records(words: U32) -> list[tuple[int, int, int]] | None:
    """Return where frame records are pushed and popped, as numbers of instructions, and their size
    in bytes; None if the stack pointer or the link register changes otherwise."""
    pushed = np.flatnonzero(words & _RECORD_BITS == _PUSH_RECORD)
    popped = np.flatnonzero(words & _RECORD_BITS == _POP_RECORD)
    moves, calls = _moves(words), _calls(words)
    ends = np.stack([pushed, popped], axis=1) if len(pushed) == len(popped) else None
    if ends is None or (np.diff(ends.ravel()) <= 0).any():
        return None
    sizes = 8 * (128 - (words[pushed] >> 15 & 127)).astype(np.int64)
    if (sizes != 8 * (words[popped] >> 15 & 127)).any():
        return None
    moves[ends.ravel()] = False
    within = np.zeros(len(words) + 1, np.int8)
    within[pushed] += 1
    within[popped] -= 1
    calls &= np.cumsum(within)[:-1] == 0
    if (moves | calls).any():
        return None
    return list(zip(pushed.tolist(), popped.tolist(), sizes.tolist(), strict=True))


def _moves(words: U32) -> Mask:
    """Return which instructions may move the stack pointer or write the link register, except
    calls."""
    first, second, base = words & 31, words >> 10 & 31, words >> 5 & 31
    pair = words & 0x3A000000 == 0x28000000
    single = words & 0x3B200000 == 0x38000000
    writes_back = (pair & (words & 0x800000 != 0)) | (single & (words & 0x400 != 0))
    arithmetic = (words & 0x1F000000 == 0x11000000) | (words & 0x1FE00000 == 0x0B200000)
    logical = (words & 0x1F800000 == 0x12000000) & (words & 0x60000000 != 0x60000000)
    to_stack_pointer = (arithmetic & (words & 0x20000000 == 0)) | logical
    moves: Mask = (
        (writes_back & (base == _SP))
        | (to_stack_pointer & (first == _SP))
        | (first == _LINK)
        | (pair & (second == _LINK))
    )
    return moves


def _calls(words: U32) -> Mask:
    """Return which instructions are calls: they write the link register."""
    direct = words & 0xFC000000 == 0x94000000
    calls: Mask = direct | (words & 0xFEFFF800 == 0xD63F0800) | (words & 0xFFFFFC1F == 0xD63F0000)
    return calls
