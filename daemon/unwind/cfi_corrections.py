"""Corrects call frame information that is wrong in a function's first and last instructions.

The instructions of a prologue and an epilogue show where the stack pointer is: at the entry the CFA
is rsp + 8, and so it is again at the return. Information that contradicts them is replaced by what
they do. Known causes:

- older compilers describe no epilogues, and hand-written directives miss a push;
- gcc describes rbp as saved in a frame that has just ended;
- LLVM moves the first instruction of two epilogues before the branch between them, but not its
  description.

Only certain errors are corrected: the instructions must follow each other from the entry, or lead
to the return from an address where information and instructions agree.

All functions are checked at once, byte by byte; only suspicious ones are disassembled.
"""

from __future__ import annotations

import numpy as np

from hpcd.array_types import I64, U8
from hpcd.daemon.unwind.cfi_rows import (
    MOST_INSTRUCTIONS,
    MOST_STEPS,
    MOST_SUSPECTS,
    CfiRows,
    Correction,
)
from hpcd.daemon.unwind.epilogue_corrections import (
    Listing,
    branches_before_epilogues,
    correct_epilogue,
    realigned_ends,
    suspect_returns,
)
from hpcd.daemon.unwind.prologue_corrections import correct_prologue, suspect_prologues


def corrections(text: U8, vaddr: int, starts: I64, ends: I64, rows: CfiRows) -> list[Correction]:
    """Corrections of a section ``text`` at ``vaddr`` whose functions with information are at
    ``starts`` to ``ends`` (sorted, not overlapping). x86-64 only."""
    inside = (starts >= vaddr) & (ends <= vaddr + len(text))
    starts, ends = starts[inside], ends[inside]
    if not len(starts):
        return []
    corrected = []
    suspects = suspect_prologues(text, vaddr, starts, ends, rows)
    for index in suspects[:MOST_SUSPECTS].tolist():
        corrected += correct_prologue(text, vaddr, int(starts[index]), int(ends[index]), rows)
    budget = MOST_INSTRUCTIONS
    done = {correction.rows[0][0] for correction in corrected if correction.rows}
    listing = Listing(text, vaddr)
    for address in suspect_returns(text, vaddr, rows)[:MOST_SUSPECTS].tolist():
        index = int(np.searchsorted(starts, address, "right")) - 1
        if index < 0 or address >= int(ends[index]) or budget <= 0:
            continue
        # Every row begins with an instruction, so there is no need to begin with the function.
        start = max(int(starts[index]), rows.before(address - 16 * MOST_STEPS))
        end = min(address + 16, int(ends[index]))
        steps = listing.leading_to(start, address, end)
        budget -= listing.read // 4 + 1
        fixed = correct_epilogue(steps, address, rows)
        if fixed and fixed.rows[0][0] not in done:
            done.add(fixed.rows[0][0])
            corrected.append(fixed)
    corrected += branches_before_epilogues(text, vaddr, starts, ends, rows)
    corrected += realigned_ends(text, vaddr, rows)
    return _without_overlaps(corrected)


def _without_overlaps(corrected: list[Correction]) -> list[Correction]:
    """Return corrections in order of address, without any that overlaps an earlier one."""
    result: list[Correction] = []
    for correction in sorted(corrected, key=lambda correction: correction.rows[0][0]):
        if not result or correction.rows[0][0] >= result[-1].end:
            result.append(correction)
    return result
