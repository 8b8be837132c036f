"""Rows for big programs that were built with frame pointers and without call frame information.

Browsers are: hundreds of megabytes that cannot be disassembled in the time and memory a table may
take. Compilers begin a function by ``push %rbp; mov %rsp, %rbp`` and end it by ``pop %rbp; ret`` or
``pop %rbp; jmp``; these are found as bytes, and between them the frame pointer tells the CFA. A
match in the middle of an instruction costs nothing: no program counter stands there. Functions that
begin otherwise are left to :mod:`hpcd.daemon.unwind.code_rules`.

Text is searched in pieces, so that memory depends on the functions, some 200 bytes each.
"""

from __future__ import annotations

import re
from array import array

import numpy as np
import numpy.typing as npt

from hpcd.daemon.unwind.unwind_rules import BxKind, CfaKind, FpKind, Rule, rule

I64 = npt.NDArray[np.int64]

_BEGIN = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x55\x48(?:\x89\xe5|\x8b\xec)")
_END = re.compile(rb"\x5d(?:\xc3|\xe9....|\xeb.)", re.S)
# int3 up to an address that is a multiple of 16, behind which a function begins. One before ud2 is
# a check that fails.
_PADDING = re.compile(rb"\xcc+(?!\x0f\x0b|\xcc)")
_ALIGNMENT = 16
_PIECE = 4 << 20
# Fewer functions with a frame than one in so many bytes: it was built without frame pointers.
_MAX_BYTES_A_FRAME = 4096
_LONGEST_OTHER = 4096

RULES: list[Rule] = [
    rule(CfaKind.SP, 8),
    rule(CfaKind.SP, 16, fp=FpKind.AT_CFA, fp_off=-16),
    rule(CfaKind.FP, 16, fp=FpKind.AT_CFA, fp_off=-16, bx=BxKind.LOST),
]
_ENTERED, _PUSHED, _FRAMED = range(3)


def chain_rows(text: memoryview, address: int, low: int, high: int) -> tuple[I64, I64, I64]:
    """Rows of ``text[low:high]``, a section at ``address``.

    Returns (offsets in the text, sorted; indices of :data:`RULES`; ``int64[n, 2]``: from where to
    where functions make no frame at their beginning). There are none where hardly any function
    makes a frame, or where no padding tells functions apart.
    """
    begins, bodies, ends, resumes, others = (array("q") for _ in range(5))
    for start in range(low, high, _PIECE):
        piece = bytes(text[start : min(start + _PIECE + 16, high)])
        for match in _BEGIN.finditer(piece):
            begins.append(start + match.start())
            bodies.append(start + match.end())
        for match in _END.finditer(piece):
            ends.append(start + match.start() + 1)
            resumes.append(start + match.end())
        for match in _PADDING.finditer(piece):
            at = start + match.end()
            if (address + at) % _ALIGNMENT == 0 and at < high:
                others.append(at)
    begin, body, end, resume, padded = (
        np.array(column, np.int64) for column in (begins, bodies, ends, resumes, others)
    )
    known = int(np.isin(begin, padded).sum())
    if len(begin) * _MAX_BYTES_A_FRAME < high - low or 2 * known < len(begin):
        empty = np.zeros(0, np.int64)
        return empty, empty, np.zeros((0, 2), np.int64)
    # What comes first holds where several begin.
    columns = [
        (begin, _ENTERED),
        (body - 3, _PUSHED),
        (body, _FRAMED),
        (end, _ENTERED),
        (resume, _FRAMED),
    ]
    pc = np.concatenate([column for column, _ in columns])
    number = np.concatenate(
        [np.full(len(column), of_rule, np.int64) for column, of_rule in columns]
    )
    order = np.argsort(pc, kind="stable")
    pc, number = pc[order], number[order]
    first = np.ones(len(pc), bool)
    first[1:] = pc[1:] != pc[:-1]
    return pc[first], number[first], _stretches(np.setdiff1d(padded, begin), begin, high)


def _stretches(other: I64, begin: I64, high: int) -> I64:
    """From each function without a frame to the next function."""
    every = np.union1d(other, begin)
    following = np.append(every[1:], high)
    end = following[np.searchsorted(every, other)]
    short = end - other <= _LONGEST_OTHER
    return np.stack([other[short], end[short]], 1)
