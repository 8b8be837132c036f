"""Unwind rows of Go code from the table that Go's run-time system walks stacks by, for programs
without call frame information: stripping leaves that table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hpcd.array_types import I64, U16
from hpcd.bpf.wire import MAX_RULES
from hpcd.daemon.unwind.cfi_rows import rule_by_sp
from hpcd.daemon.unwind.unwind_rules import NONE, RuleSet
from hpcd.distinct import begins_run, distinct
from hpcd.elf.elf_view import ElfView
from hpcd.elf.go_table import go_table
from hpcd.errors import FormatError

# A call pushes its return address.
_RETURN_ADDRESS = 8


class GoFrames(NamedTuple):
    """Rows (``pc`` ``int64[r]``, ascending; ``rule`` ``uint16[r]``, a number) of functions, and
    where these start and end, ``int64[n]``, ascending, not overlapping. A row of no information
    ends each function that no other follows at once."""

    pc: I64
    rule: U16
    start: I64
    end: I64


def go_frames(elf: ElfView, rules: RuleSet, starts: I64, ends: I64) -> GoFrames:
    """The rows of a Go program's functions, apart from those in functions that begin at ``starts``
    and end at ``ends``; none of another program's. x86-64 only. Raises :class:`FormatError`."""
    nothing = np.zeros(0, np.int64)
    table = go_table(elf) if elf.machine == "x86_64" else None
    if table is None:
        return GoFrames(nothing, np.zeros(0, np.uint16), nothing, nothing)
    size = table.frame_sizes()
    function = np.searchsorted(table.start, size.start, side="right") - 1
    begins = begins_run(function)
    start, end = size.start[begins], size.end[np.append(begins[1:], True)[: len(begins)]]
    following = np.searchsorted(ends, start, side="right")
    other = np.append(starts, np.int64(1 << 62))[following] < end
    start, end = start[~other], end[~other]
    kept = ~other[np.cumsum(begins) - 1]
    first, values = size.start[kept], size.value[kept]
    known = distinct(values)
    if len(known) > MAX_RULES:
        raise FormatError("Go's table of functions has too many frame sizes")
    numbers = [rules.number(rule_by_sp(of + _RETURN_ADDRESS, 0, 0)) for of in known.tolist()]
    rule = np.array(numbers, np.uint16)[np.searchsorted(known, values)]
    open_ends = end[~np.isin(end, np.concatenate([start, starts]))]
    pc = np.concatenate([first, open_ends])
    rule = np.concatenate([rule, np.full(len(open_ends), rules.number(NONE), np.uint16)])
    order = np.argsort(pc, kind="stable")
    return GoFrames(pc[order], rule[order], start, end)
