"""Rows for big programs that were built with frame pointers and without call frame information.

Browsers are: hundreds of megabytes that cannot be disassembled in the time and memory a table may
take. Compilers begin a function by ``push %rbp; mov %rsp, %rbp`` and end it by ``pop %rbp; ret`` or
``pop %rbp; jmp``; these are found as bytes, and between them the frame pointer gives the CFA. A
match in the middle of an instruction costs nothing: no program counter points there. Functions that
begin otherwise are left to :mod:`hpcd.daemon.unwind.code_rules`.

Text is searched in pieces, so that memory depends on the functions, some 200 bytes each.
"""

from __future__ import annotations

import numpy as np

from hpcd.array_types import I64, U8, Mask
from hpcd.bpf.wire import BxKind, CfaKind, FpKind
from hpcd.daemon.unwind.unwind_rules import Rule, rule
from hpcd.distinct import begins_run

_ALIGNMENT = 16
_INT3 = 0xCC
_PIECE = 4 << 20
# Overlap of two pieces, longer than any searched pattern.
_OVERLAP = 16
# By the octet behind pop %rbp, how long both are: ret, jmp of two lengths.
_END_SIZES = np.zeros(256, np.int64)
_END_SIZES[[0xC3, 0xE9, 0xEB]] = 2, 6, 3
# Bytes a function with a frame; if there are more, it was built without frame pointers.
_MAX_BYTES_A_FRAME = 4096
_LONGEST_OTHER = 4096

RULES: list[Rule] = [
    rule(CfaKind.SP, 8),
    rule(CfaKind.SP, 16, fp=FpKind.AT_CFA, fp_off=-16),
    rule(CfaKind.FP, 16, fp=FpKind.AT_CFA, fp_off=-16, bx=BxKind.LOST),
]
_ENTERED, _PUSHED, _FRAMED = range(3)


def chain_rows(text: memoryview, address: int, low: int, high: int) -> tuple[I64, U8, I64]:
    """Rows of ``text[low:high]``, a section at ``address``.

    Returns (offsets in the text, sorted; indices of :data:`RULES`; ``int64[n, 2]``: ranges of
    functions that make no frame at their beginning). There are none if hardly any function
    makes a frame, or if no padding separates functions.
    """
    pieces = []
    for start in range(low, high, _PIECE):
        piece = np.frombuffer(text[start : min(start + _PIECE + _OVERLAP, high)], np.uint8)
        ends, resumes = _ends(piece, address + start, (address + low, address + high))
        padded = _padded(piece) + start
        padded = padded[((address + padded) % _ALIGNMENT == 0) & (padded < high)]
        begins, bodies = _begins(piece)
        pieces.append([begins + start, bodies + start, ends + start, resumes + start, padded])
    begin, body, end, resume, padded = (
        np.unique(np.concatenate(column)) if column else np.zeros(0, np.int64)
        for column in zip(*pieces, strict=True)
    )
    known = len(begin) - len(_without(begin, padded))
    if len(begin) * _MAX_BYTES_A_FRAME < high - low or 2 * known < len(begin):
        empty = np.zeros(0, np.int64)
        return empty, np.zeros(0, np.uint8), np.zeros((0, 2), np.int64)
    # If several begin at an offset, the first column applies.
    columns = [
        (begin, _ENTERED),
        (body - 3, _PUSHED),
        (body, _FRAMED),
        (end, _ENTERED),
        (resume, _FRAMED),
    ]
    pc = np.concatenate([column for column, _ in columns])
    number = np.concatenate(
        [np.full(len(column), of_rule, np.uint8) for column, of_rule in columns]
    )
    order = np.argsort(pc, kind="stable")
    pc, number = pc[order], number[order]
    first = begins_run(pc)
    return pc[first], number[first], _stretches(_without(padded, begin), begin, high)


def _begins(piece: U8) -> tuple[I64, I64]:
    """Return where functions begin, and where their bodies do, behind endbr64? push %rbp;
    mov %rsp, %rbp, by either of two opcodes."""
    at = np.flatnonzero(piece[: max(0, len(piece) - 3)] == 0x55)
    at = at[piece[at + 1] == 0x48]
    moves = piece[at + 2].astype(np.uint16) << 8 | piece[at + 3]
    at = at[(moves == 0x89E5) | (moves == 0x8BEC)]
    entry = at - 4
    landing = entry >= 0
    for place, octet in enumerate(b"\xf3\x0f\x1e\xfa"):
        landing &= piece[np.maximum(entry + place, 0)] == octet
    return np.where(landing, entry, at), at + 4


def _ends(piece: U8, address: int = 0, functions: tuple[int, int] = (0, 0)) -> tuple[I64, I64]:
    """Return offsets behind the last pop %rbp of functions, and behind the ret or jmp after it.

    The piece is at ``address``; ``functions`` are bounds of the addresses of functions.
    """
    at = np.flatnonzero(piece[: max(0, len(piece) - 1)] == 0x5D)
    at = at[~_is_distance(piece, at, address, functions)]
    size = _END_SIZES[piece[at + 1]]
    fits = (size > 0) & (at + size <= len(piece))
    at, size = at[fits], size[fits]
    # A pop %rbp inside an earlier match is part of its jump.
    dropped = np.zeros(len(at), bool)
    behind = np.maximum.accumulate(at + size)
    for index in (np.flatnonzero(at[1:] < behind[:-1]) + 1).tolist():
        before = index - 1
        while dropped[before]:
            before -= 1
        dropped[index] = at[index] < at[before] + size[before]
    return at[~dropped] + 1, (at + size)[~dropped]


def _is_distance(piece: U8, at: I64, address: int, functions: tuple[int, int]) -> Mask:
    """Return whether the four octets from ``at`` on are the distance to a function that a call or a
    jump, the octet before, goes to."""
    before = piece[np.maximum(at - 1, 0)]
    matches: Mask = ((before == 0xE8) | (before == 0xE9)) & (at > 0) & (at + 4 <= len(piece))
    place = at[matches]
    distance = np.zeros(len(place), np.uint32)
    for octet in range(4):
        distance |= piece[place + octet].astype(np.uint32) << np.uint32(8 * octet)
    target = address + place + 4 + distance.view(np.int32)
    low, high = functions
    matches[matches] = (target >= low) & (target < high) & (target % _ALIGNMENT == 0)
    return matches


def _is_jumped_over(piece: U8, at: I64) -> Mask:
    """Return whether an int3 follows a call that does not return, and a short jump before
    continues behind it: V8's own functions contain such code."""
    jumped_over = np.zeros(len(at), bool)
    called = np.flatnonzero((at >= 5) & (piece[np.maximum(at - 5, 0)] == 0xE8))
    behind = at[called] + 1
    for distance in range(6, 128):
        jump = np.maximum(behind - distance - 2, 0)
        jumped_over[called] |= (piece[jump] == 0xEB) & (piece[jump + 1] == distance)
    return jumped_over


def _padded(piece: U8) -> I64:
    """Return where code begins behind int3 padding. An int3 before ud2 is a failing check; a
    single int3 may be part of an instruction, and is padding only where code cannot continue. Three
    or seven behind 0xcd are the factor of a division by 5."""
    padding = piece == _INT3
    edges = np.flatnonzero(np.diff(np.concatenate([[False], padding, [False]])))
    first, last = edges[::2], edges[1::2] - 1
    factor = (piece[np.maximum(first - 1, 0)] == 0xCD) & np.isin(last - first, (2, 6))
    last, single = last[~factor], (first == last)[~factor]
    last = last[~(single & _is_jumped_over(piece, last))]
    last = last[padding[np.maximum(last - 1, 0)] | _never_goes_on(piece, last)]
    behind = last + 1
    inside = np.minimum(behind + 1, len(piece) - 1)
    check = (behind + 1 < len(piece)) & (piece[inside - 1] == 0x0F) & (piece[inside] == 0x0B)
    kept: I64 = behind[~check]
    return kept


def _never_goes_on(piece: U8, at: I64) -> Mask:
    """Return whether an instruction may end at ``at`` after which the next one is not run:
    ret, jmp, a call that does not return, ud2."""
    before = [piece[np.maximum(at - back, 0)] for back in range(6)]
    stops: Mask = (
        (before[1] == 0xC3)
        | (before[2] == 0xEB)
        | ((before[2] == 0xFF) & (before[1] >> 4 == 0xE))
        | ((before[2] == 0x0F) & (before[1] == 0x0B))
        | (before[5] == 0xE8)
        | (before[5] == 0xE9)
    )
    return stops


def _without(places: I64, others: I64) -> I64:
    """Return ``places`` that are not in ``others``; both are sorted."""
    if not len(others):
        return places
    at = np.minimum(np.searchsorted(others, places), len(others) - 1)
    kept: I64 = places[others[at] != places]
    return kept


def _stretches(other: I64, begin: I64, high: int) -> I64:
    """From each function without a frame to the next function."""
    every = np.sort(np.concatenate([other, begin]))
    following = np.append(every[1:], high)
    end = following[np.searchsorted(every, other)]
    short = end - other <= _LONGEST_OTHER
    return np.stack([other[short], end[short]], 1)
