"""Making a module's unwind table: from its call frame information and its machine code.

Apart from :mod:`hpcd.daemon.unwind.table`, as who reads tables made before needs no disassembler.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.daemon.unwind.cfi import CfiDecoder
from hpcd.daemon.unwind.code import code_rows
from hpcd.daemon.unwind.corrections import Rows, corrections
from hpcd.daemon.unwind.elf import ElfView
from hpcd.daemon.unwind.rules import END, NONE, RuleSet
from hpcd.daemon.unwind.table import MACHINES, MAX_SPAN, ModuleTable
from hpcd.errors import FormatError

I64 = npt.NDArray[np.int64]

# Shorter stretches between functions are padding.
_MIN_GAP = 16


def build_table(data: memoryview) -> ModuleTable:
    """The table of an ELF file in memory. Raises :class:`FormatError` when it is no ELF file."""
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
    pc, rule, starts, ends = decoder.rows()

    gaps = _gaps(elf, starts, ends)
    if gaps:
        pc, rule = _add_code(elf, gaps, rules, pc, rule)
    pc, rule, corrected = _correct(elf, rules, pc, rule, starts, ends)
    pc, rule = _end_at_entry(elf, rules, pc, rule, starts, ends)

    inside = (pc >= base) & (pc < end)
    pc, rule = pc[inside], rule[inside]
    fresh = np.ones(len(pc), bool)
    fresh[1:] = rule[1:] != rule[:-1]
    return ModuleTable(
        build_id=elf.build_id(),
        machine=elf.machine,
        base=base,
        segments=elf.segments,
        pc=(pc[fresh] - base).astype(np.uint32),
        rule=rule[fresh],
        rules=rules.array(),
        functions=len(starts),
        bad=decoder.functions.bad,
        analysed=sum(stop - start for start, stop in gaps),
        corrected=corrected,
    )


def _gaps(elf: ElfView, starts: I64, ends: I64) -> list[tuple[int, int]]:
    """Stretches of code no function with call frame information covers."""
    gaps = []
    for section in elf.code_sections():
        low, high = section.addr, section.addr + section.size
        first = int(np.searchsorted(ends, low, "right"))
        last = int(np.searchsorted(starts, high, "left"))
        begin = np.concatenate([[low], ends[first:last]])
        stop = np.concatenate([starts[first:last], [high]])
        wide = np.flatnonzero(stop - begin >= _MIN_GAP)
        gaps += [(int(begin[i]), int(stop[i])) for i in wide]
    return gaps


def _add_code(
    elf: ElfView,
    gaps: list[tuple[int, int]],
    rules: RuleSet,
    pc: I64,
    rule: npt.NDArray[np.uint16],
) -> tuple[I64, npt.NDArray[np.uint16]]:
    functions = elf.functions()
    parts_pc, parts_rule = [np.zeros(0, np.int64)], [np.zeros(0, np.uint16)]
    for section in elf.code_sections():
        low, high = section.addr, section.addr + section.size
        mine = [gap for gap in gaps if low <= gap[0] < high]
        if not mine:
            continue
        inside = (functions[:, 0] >= low) & (functions[:, 0] < high)
        known = [(address, size) for address, size in functions[inside].tolist()]
        code_pc, code = code_rows(elf.text(section), low, mine, known, elf.machine)
        numbers = [rules.number(tuple(row.tolist())) for row in code]
        parts_pc.append(code_pc.astype(np.int64))
        parts_rule.append(np.array(numbers, np.uint16))
    return _merged(pc, rule, np.concatenate(parts_pc), np.concatenate(parts_rule))


def _correct(
    elf: ElfView,
    rules: RuleSet,
    pc: I64,
    rule: npt.NDArray[np.uint16],
    starts: I64,
    ends: I64,
) -> tuple[I64, npt.NDArray[np.uint16], int]:
    """Rows of prologues and epilogues as the machine code has them, and how many were others."""
    if elf.machine != "x86_64" or not len(pc):
        return pc, rule, 0
    rows = Rows(pc, rule, rules.array())
    found = []
    for section in elf.code_sections():
        text = np.frombuffer(elf.text(section), np.uint8)
        found += corrections(text, section.addr, starts, ends, rows)
    if not found:
        return pc, rule, 0
    pcs, numbers, done = [], [], 0
    for index, one in enumerate(found):
        first, last = np.searchsorted(pc, (one.rows[0][0], one.end)).tolist()
        made = [(at, rules.number(each)) for at, each in one.rows]
        follows = found[index + 1].rows[0][0] if index + 1 < len(found) else -1
        if follows != one.end and (last == len(pc) or pc[last] != one.end):
            made.append((one.end, int(rule[max(0, last - 1)])))  # what was there goes on
        fresh = np.array(made, np.int64)
        pcs += [pc[done:first], fresh[:, 0]]
        numbers += [rule[done:first], fresh[:, 1].astype(np.uint16)]
        done = last
    pc, rule = np.concatenate([*pcs, pc[done:]]), np.concatenate([*numbers, rule[done:]])
    return pc, rule, len(found)


def _merged(
    pc: I64, rule: npt.NDArray[np.uint16], more: I64, numbers: npt.NDArray[np.uint16]
) -> tuple[I64, npt.NDArray[np.uint16]]:
    """Sorted rows and some more of any order, which win."""
    more, numbers = _sorted(more, numbers)
    at = np.searchsorted(pc, more)
    there = pc[np.minimum(at, len(pc) - 1)] == more if len(pc) else np.zeros(len(more), bool)
    rule = rule.copy()
    rule[at[there]] = numbers[there]
    fresh = ~there
    return np.insert(pc, at[fresh], more[fresh]), np.insert(rule, at[fresh], numbers[fresh])


def _sorted(pc: I64, rule: npt.NDArray[np.uint16]) -> tuple[I64, npt.NDArray[np.uint16]]:
    """Sorted by pc; of rows with one pc the last given stays."""
    order = np.argsort(pc, kind="stable")
    pc, rule = pc[order], rule[order]
    last = np.ones(len(pc), bool)
    last[:-1] = pc[1:] != pc[:-1]
    return pc[last], rule[last]


def _end_at_entry(
    elf: ElfView,
    rules: RuleSet,
    pc: I64,
    rule: npt.NDArray[np.uint16],
    starts: I64,
    ends: I64,
) -> tuple[I64, npt.NDArray[np.uint16]]:
    """The function the program starts in has no caller, whether it says so or not."""
    entry = elf.entry
    if not elf.base <= entry < elf.end or elf.machine not in MACHINES:
        return pc, rule
    at = int(np.searchsorted(starts, entry, "right")) - 1
    if at >= 0 and entry < int(ends[at]):
        stop = int(ends[at])
    else:
        following = int(starts[at + 1]) if at + 1 < len(starts) else elf.end
        functions = elf.functions()
        sizes = functions[functions[:, 0] == entry, 1].tolist()
        stop = min(following, entry + (max(sizes, default=0) or 64))
    first, after = (int(each) for each in np.searchsorted(pc, [entry, stop]))
    # Unless a row begins exactly at the stop, the one there goes on.
    goes_on = after == len(pc) or pc[after] != stop
    resume = int(rule[after - 1]) if after else rules.number(NONE)
    ended = np.array([entry, stop][: 1 + goes_on], np.int64)
    what = np.array([rules.number(END), resume][: 1 + goes_on], np.uint16)
    return (
        np.concatenate([pc[:first], ended, pc[after:]]),
        np.concatenate([rule[:first], what, rule[after:]]),
    )
