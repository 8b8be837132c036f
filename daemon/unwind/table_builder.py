"""Making a module's unwind table: from its call frame information, Go's table of functions and its
machine code.

Apart from :mod:`hpcd.daemon.unwind.unwind_table`, since readers of existing tables need no
disassembler.
"""

from __future__ import annotations

import contextlib

import numpy as np

from hpcd.array_types import I64, U16, Mask
from hpcd.daemon.unwind.cfi import CfiDecoder
from hpcd.daemon.unwind.cfi_corrections import corrections
from hpcd.daemon.unwind.cfi_rows import CfiRows
from hpcd.daemon.unwind.code_rules import code_rows
from hpcd.daemon.unwind.frame_chains import RULES, chain_rows
from hpcd.daemon.unwind.go_frames import go_frames
from hpcd.daemon.unwind.runtime_symbols import runtime_symbols
from hpcd.daemon.unwind.stack_ends import stack_ends, with_offset
from hpcd.daemon.unwind.unwind_rules import END, NONE, Rule, RuleSet, guessed
from hpcd.daemon.unwind.unwind_table import MACHINES, MAX_SPAN, ModuleTable
from hpcd.daemon.unwind.work_limit import UNLIMITED, WorkLimit
from hpcd.distinct import begins_run
from hpcd.elf.elf_view import ElfView, FileBytes
from hpcd.errors import FormatError

# Shorter stretches between functions are padding.
_MIN_GAP = 16
# Instructions are not followed in gaps longer than the second bound: each takes 200 bytes of
# memory. In gaps longer than the first bound frame pointers are tried before.
_MAX_UNCHAINED, _MAX_FOLLOWED = 4 << 20, 32 << 20


def build_table(data: memoryview | FileBytes, limit: WorkLimit = UNLIMITED) -> ModuleTable:
    """The table of an ELF file. Raises :class:`FormatError` when it is no ELF file, or
    takes longer than ``limit``."""
    elf = ElfView(data)
    base, end = elf.base, elf.end
    if end - base > MAX_SPAN:
        raise FormatError("ELF text spans more than 1 GiB")
    rules = RuleSet()
    rules.number(NONE)
    decoder = CfiDecoder(elf.machine, rules)
    address, frames = elf.eh_frame()
    decoder.add_section(frames, address)
    debug = elf.sections.get(".debug_frame")
    if debug:
        decoder.add_section(elf.contents(debug), 0, debug=True)
    draft = _Draft(elf, rules, *decoder.rows())
    if not debug:
        draft.add_go()
    limit.check()
    gaps = draft.gaps()
    if gaps:
        draft.add_code(gaps, limit)
    limit.check()
    corrected = draft.correct()
    draft.end_at_entry()
    draft.end_stacks()

    inside = (draft.pc >= base) & (draft.pc < end)
    pc, rule = draft.pc[inside], draft.rule[inside]
    fresh = begins_run(rule)
    return ModuleTable(
        build_id=elf.build_id(),
        machine=elf.machine,
        base=base,
        segments=elf.segments,
        pc=(pc[fresh] - base).astype(np.uint32),
        rule=rule[fresh],
        rules=rules.array(),
        functions=len(draft.starts),
        bad=decoder.functions.bad,
        analysed=sum(stop - start for start, stop in gaps),
        corrected=corrected,
        runtime=runtime_symbols(elf),
    )


class _Draft:
    """Rows being made: ``pc`` ``int64[n]``, sorted, and ``rule`` ``uint16[n]``, numbers of
    ``rules``; functions with call frame information begin at ``starts`` and end at ``ends``."""

    def __init__(
        self,
        elf: ElfView,
        rules: RuleSet,
        pc: I64,
        rule: U16,
        starts: I64,
        ends: I64,
    ) -> None:
        self._elf, self._rules = elf, rules
        self.pc, self.rule, self.starts, self._ends = pc, rule, starts, ends

    def gaps(self) -> list[tuple[int, int]]:
        """Stretches of code no function with call frame information covers."""
        starts, ends = self.starts, self._ends
        gaps = []
        for section in self._elf.code_sections():
            low, high = section.address, section.address + section.size
            first = int(np.searchsorted(ends, low, "right"))
            last = int(np.searchsorted(starts, high, "left"))
            begin = np.concatenate([[low], ends[first:last]])
            stop = np.concatenate([starts[first:last], [high]])
            # A section of its own is no padding: .fini has 9 bytes.
            wanted = (stop - begin >= _MIN_GAP) | ((begin == low) & (stop == high) & (low < high))
            wide = np.flatnonzero(wanted)
            gaps += [(int(begin[i]), int(stop[i])) for i in wide]
        return gaps

    def add_go(self) -> None:
        """Add the functions of a Go program. A damaged table costs only those."""
        with contextlib.suppress(FormatError):
            pc, rule, starts, ends = go_frames(self._elf, self._rules, self.starts, self._ends)
            self.pc, self.rule = _merged(self.pc, self.rule, pc, rule)
            order = np.argsort(np.concatenate([self.starts, starts]), kind="stable")
            self.starts = np.concatenate([self.starts, starts])[order]
            self._ends = np.concatenate([self._ends, ends])[order]

    def add_code(self, gaps: list[tuple[int, int]], limit: WorkLimit) -> None:
        """Add rows of these stretches from the machine code."""
        functions = self._elf.functions()
        parts_pc, parts_rule = [np.zeros(0, np.int64)], [np.zeros(0, np.uint16)]
        for section in self._elf.code_sections():
            low, high = section.address, section.address + section.size
            mine = [gap for gap in gaps if low <= gap[0] < high]
            if not mine:
                continue
            inside = (functions[:, 0] >= low) & (functions[:, 0] < high)
            known = [(address, size) for address, size in functions[inside].tolist()]
            big = [gap for gap in mine if gap[1] - gap[0] > _MAX_UNCHAINED]
            mine = [gap for gap in mine if gap[1] - gap[0] <= _MAX_UNCHAINED]
            for start, stop in big if self._elf.machine == "x86_64" else []:
                text = self._elf.text(section)
                offsets, indices, frameless = chain_rows(text, low, start - low, stop - low)
                if not len(offsets):
                    if stop - start <= _MAX_FOLLOWED:
                        mine.append((start, stop))
                    continue
                # Rows end where a function without a frame begins.
                kept = ~_inside(offsets, frameless)
                chain_rules = np.array(
                    [self._rules.number(guessed(row)) for row in RULES], np.uint16
                )
                parts_pc += [offsets[kept] + low]
                parts_rule += [chain_rules[indices[kept]]]
                mine += [(int(first) + low, int(last) + low) for first, last in frameless.tolist()]
                none = np.full(len(frameless), self._rules.number(NONE), np.uint16)
                parts_pc += [frameless[:, 0] + low]
                parts_rule += [none]
            code_pc, code = code_rows(
                self._elf.text(section), low, sorted(mine), known, self._elf.machine, limit
            )
            numbers = [self._rules.number(guessed(row)) for row in code]
            parts_pc.append(code_pc)
            parts_rule.append(np.array(numbers, np.uint16))
        self.pc, self.rule = _merged(
            self.pc, self.rule, np.concatenate(parts_pc), np.concatenate(parts_rule)
        )

    def correct(self) -> int:
        """Correct prologues and epilogues by the machine code; return how many were corrected."""
        if self._elf.machine != "x86_64" or not len(self.pc):
            return 0
        pc, rule = self.pc, self.rule
        rows = CfiRows(pc, rule, self._rules.array())
        corrected = []
        for section in self._elf.code_sections():
            text = np.frombuffer(self._elf.text(section), np.uint8)
            corrected += corrections(text, section.address, self.starts, self._ends, rows)
        if not corrected:
            return 0
        pcs, numbers, done = [], [], 0
        for index, correction in enumerate(corrected):
            first, last = np.searchsorted(pc, (correction.rows[0][0], correction.end)).tolist()
            corrected_rows = [
                (at, self._rules.number(row_rule)) for at, row_rule in correction.rows
            ]
            follows = corrected[index + 1].rows[0][0] if index + 1 < len(corrected) else -1
            if follows != correction.end and (last == len(pc) or pc[last] != correction.end):
                # Behind the correction the earlier row applies again.
                corrected_rows.append((correction.end, int(rule[max(0, last - 1)])))
            fresh = np.array(corrected_rows, np.int64)
            pcs += [pc[done:first], fresh[:, 0]]
            numbers += [rule[done:first], fresh[:, 1].astype(np.uint16)]
            done = last
        self.pc = np.concatenate([*pcs, pc[done:]])
        self.rule = np.concatenate([*numbers, rule[done:]])
        return len(corrected)

    def end_at_entry(self) -> None:
        """The function the program starts in has no caller, whether it says so or not."""
        entry = self._elf.entry
        if not self._elf.base <= entry < self._elf.end or self._elf.machine not in MACHINES:
            return
        starts, ends = self.starts, self._ends
        at = int(np.searchsorted(starts, entry, "right")) - 1
        if at >= 0 and entry < int(ends[at]):
            stop = int(ends[at])
        else:
            following = int(starts[at + 1]) if at + 1 < len(starts) else self._elf.end
            functions = self._elf.functions()
            sizes = functions[functions[:, 0] == entry, 1].tolist()
            stop = min(following, entry + (max(sizes, default=0) or 64))
        self._replace(entry, stop, END)

    def end_stacks(self) -> None:
        """Set the rules where threads and coroutines begin: no caller, or one on another stack."""
        for span in sorted(stack_ends(self._elf), key=lambda span: (span.start, span.end)):
            if not span.clone:
                self._replace(span.start, span.end, span.rule)
                continue
            before = self._rule_at(span.start - 1)
            clone = with_offset(span, before)
            if clone is None:
                continue
            self._replace(span.start, span.end, clone.rule)
            behind = int(np.searchsorted(self.pc, span.end, "right"))
            if self._rule_at(span.end) == NONE and behind < len(self.pc):
                # The parent continues behind clone; libraries omit rules for code that both run.
                self._replace(span.end, int(self.pc[behind]), before)

    def _rule_at(self, address: int) -> Rule:
        row = int(np.searchsorted(self.pc, address, "right")) - 1
        return self._rules.rule(int(self.rule[row])) if row >= 0 else NONE

    def _replace(self, start: int, stop: int, by: Rule) -> None:
        pc, rule = self.pc, self.rule
        first, after = (int(row) for row in np.searchsorted(pc, [start, stop]))
        # Unless a row begins exactly at the stop, the earlier row applies again.
        goes_on = after == len(pc) or pc[after] != stop
        resume = int(rule[after - 1]) if after else self._rules.number(NONE)
        pcs = np.array([start, stop][: 1 + goes_on], np.int64)
        numbers = np.array([self._rules.number(by), resume][: 1 + goes_on], np.uint16)
        self.pc = np.concatenate([pc[:first], pcs, pc[after:]])
        self.rule = np.concatenate([rule[:first], numbers, rule[after:]])


def _inside(places: I64, spans: I64) -> Mask:
    """Return which of ``places`` are inside any of ``spans``, ``int64[n, 2]``, sorted, disjoint."""
    if not len(spans):
        return np.zeros(len(places), bool)
    at = np.searchsorted(spans[:, 0], places, "right") - 1
    inside: Mask = (at >= 0) & (places < spans[np.maximum(at, 0), 1])
    return inside


def _merged(pc: I64, rule: U16, more: I64, numbers: U16) -> tuple[I64, U16]:
    """Sorted rows and some more of any order, which win."""
    more, numbers = _sorted(more, numbers)
    at = np.searchsorted(pc, more)
    there = pc[np.minimum(at, len(pc) - 1)] == more if len(pc) else np.zeros(len(more), bool)
    rule = rule.copy()
    rule[at[there]] = numbers[there]
    fresh = ~there
    return np.insert(pc, at[fresh], more[fresh]), np.insert(rule, at[fresh], numbers[fresh])


def _sorted(pc: I64, rule: U16) -> tuple[I64, U16]:
    """Sorted by pc; of rows with one pc the last given stays."""
    order = np.argsort(pc, kind="stable")
    pc, rule = pc[order], rule[order]
    last = np.ones(len(pc), bool)
    last[:-1] = pc[1:] != pc[:-1]
    return pc[last], rule[last]
