"""Unwind rows for code without call frame information, from the machine code itself.

Hand-written kernels (BLAS, some of libcrypto) have none, and use most of the time. Within each
function the stack pointer is followed from the entry, where the CFA is known, along straight code
and branches. (Tallent, Mellor-Crummey, Fagan: Binary analysis for measurement and attribution of
program performance, PLDI 2009, section 3.)
"""

from __future__ import annotations

import bisect

import numpy as np

from hpcd.array_types import I64
from hpcd.daemon.unwind.code_gap import CodeGap, Rows, Steps, decode_steps
from hpcd.daemon.unwind.leaf_code import leaf_rows
from hpcd.daemon.unwind.stack_state import StackState
from hpcd.daemon.unwind.unwind_rules import Rule
from hpcd.daemon.unwind.work_limit import UNLIMITED, WorkLimit

# An analysis longer than this is no gap between functions; the rest keeps "no information".
MAX_INSTRUCTIONS = 8_000_000
# Instructions decoded once and followed twice, at some 150 bytes each.
_MAX_KEPT = 300_000
_Span = tuple[int, int]


def code_rows(
    text: bytes | memoryview,
    text_vaddr: int,
    gaps: list[tuple[int, int]],
    functions: list[tuple[int, int]],
    machine: str,
    limit: WorkLimit = UNLIMITED,
) -> tuple[I64, list[Rule]]:
    """Rows for stretches of machine code.

    ``text`` is a section at ``text_vaddr``; ``gaps`` are (start, end) addresses in it without call
    frame information; ``functions`` are known (start, size). Returns (pc ``int64[n]``, n rules),
    pcs strictly increasing within each gap. On aarch64 only leaf functions, functions that push and
    pop a frame record, and the entries of the procedure linkage table have rows
    (:mod:`hpcd.daemon.unwind.leaf_code`).

    About 0.25 µs an instruction, and 1.5 µs more for one that is followed.
    """
    if machine == "aarch64":
        return leaf_rows(text, text_vaddr, gaps, functions)
    if machine != "x86_64":
        return np.zeros(0, np.int64), []
    spans = [
        (max(low, text_vaddr), min(high, text_vaddr + len(text)))
        for low, high in gaps
        if max(low, text_vaddr) < min(high, text_vaddr + len(text))
    ]
    rows = _Section(text, text_vaddr, functions).rows(spans, limit)
    pcs: list[int] = []
    rules: list[Rule] = []
    for span in spans:
        if span in rows:
            pcs += rows[span][0]
            rules += rows[span][1]
    return np.array(pcs, np.int64), rules


class _Section:
    """A section of machine code, ``text`` at the address ``start``, whose gaps are followed."""

    def __init__(
        self, text: bytes | memoryview, start: int, functions: list[tuple[int, int]]
    ) -> None:
        self._text, self._start = text, start
        self._functions = sorted(functions)
        self._function_starts = [low for low, _ in self._functions]
        self._budget = MAX_INSTRUCTIONS
        self._kept: dict[_Span, Steps] = {}
        self._room = _MAX_KEPT

    def rows(self, spans: list[_Span], limit: WorkLimit) -> dict[_Span, Rows]:
        """Rows of each of ``spans``, as far as the budget of instructions lasts."""
        rows: dict[_Span, Rows] = {}
        # The first pass finds functions that continue elsewhere; the second follows them there.
        seeds: dict[int, StackState] = {}
        for span in spans:
            if self._budget <= 0:
                break
            limit.check()
            gap = self._gap(span, {})
            rows[span] = gap.rows()
            for at, state in gap.parts.items():
                seed = seeds.setdefault(at, state)
                if seed != state:
                    seed.sp = None
        places = sorted(at for at, state in seeds.items() if state.sp is not None)
        for span in spans:
            low, high = (bisect.bisect_left(places, end) for end in span)
            limit.check()
            if low < high and self._budget > 0:
                rows[span] = self._gap(span, {at: seeds[at] for at in places[low:high]}).rows()
        return rows

    def _gap(self, span: _Span, seeds: dict[int, StackState]) -> CodeGap:
        """The gap ``span``; ``seeds`` are parts of functions known to be within."""
        low, high = span
        code = bytes(self._text[low - self._start : high - self._start])
        steps = self._kept.get(span) or decode_steps(code, low, self._budget)
        self._budget -= steps.looked_at
        if span not in self._kept and len(steps.at) <= self._room:
            self._room -= len(steps.at)
            self._kept[span] = steps
        starts = self._function_starts
        named = self._functions[bisect.bisect_left(starts, low) : bisect.bisect_left(starts, high)]
        return CodeGap(code, low, named, seeds, steps)
