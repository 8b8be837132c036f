"""Ranges of a module's functions without its symbols: from call frame information and Go's own
table, and without those (hand-written kernels, C libraries) from the machine code."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np
from iced_x86 import Code, Decoder, FlowControl, Mnemonic, Register

from hpcd.array_types import I64, U64
from hpcd.elf.elf_file import ElfFile
from hpcd.elf.elf_reader import X86_64, Section
from hpcd.elf.go_table import go_table
from hpcd.errors import FormatError

# Stubs are named by the relocations of their slots.
_STUBS = (".plt", ".plt.sec", ".plt.got")
# Shorter stretches between functions are padding.
_MIN_GAP = 16
_ALIGNMENT = 16
# Bound on decoded bytes of a stretch, and of a module: decoding takes 0.3 µs an instruction.
# In other stretches functions begin only at targets of calls.
_MAX_DECODED, _MAX_DECODED_IN_ALL = 4 << 20, 16 << 20
# Jumps farther ahead than this are calls at the end of a function.
_MAX_JUMP = 1 << 16
# The last bytes of padding and of returns.
_ENDS = np.array([0x00, 0x90, 0xC3, 0xCC], np.uint8)
_ADDRESSES = 1 << 47
# Bytes of the entry point within which it calls the C library: glibc's has 38.
_ENTRY_BYTES = 64

_PADDING = frozenset((int(Mnemonic.NOP), int(Mnemonic.INT3)))
_STOPS = frozenset(
    int(flow)
    for flow in (
        FlowControl.UNCONDITIONAL_BRANCH,
        FlowControl.RETURN,
        FlowControl.EXCEPTION,
        FlowControl.INDIRECT_BRANCH,
    )
)
_CALLS = frozenset((int(FlowControl.CALL), int(FlowControl.INDIRECT_CALL)))
_NEXT = int(FlowControl.NEXT)
_JUMP = int(FlowControl.UNCONDITIONAL_BRANCH)
_JUMPS = frozenset((int(FlowControl.CONDITIONAL_BRANCH), _JUMP))


class FunctionRanges(NamedTuple):
    """Functions ``start`` to ``end`` ``uint64[n]``, ascending and of distinct starts.

    ``edges`` ``uint64[m]`` ascending: none of them is inside a function; a function that begins
    before an edge ends there at the latest.
    """

    start: U64
    end: U64
    edges: U64


def function_ranges(elf: ElfFile) -> FunctionRanges:
    """The functions of ``elf``. Raises :class:`FormatError`."""
    start, end = _described(elf)
    sections = [
        section
        for section in elf.sections
        if section.executable and section.has_data and section.address + section.size < _ADDRESSES
    ]
    limits = [bound for one in sections for bound in (one.address, one.address + one.size)]
    if elf.machine == X86_64:
        described = start.astype(np.int64), end.astype(np.int64)
        left = _MAX_DECODED_IN_ALL
        for section in sections:
            gaps = [] if section.name in _STUBS else _gaps(section, *described)
            if gaps:
                code = elf.contents(section)
                targets = _targets(code, section.address)
                more = []
                for low, high in gaps:
                    decoded = high - low <= min(_MAX_DECODED, left)
                    left -= decoded * (high - low)
                    more.append(_functions_in(code, section.address, targets, low, high, decoded))
                start = np.concatenate([start, *(starts for starts, _ in more)])
                end = np.concatenate([end, *(ends for _, ends in more)])
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    edges = np.unique(np.concatenate([start, end, np.array(limits, np.uint64)]))
    return FunctionRanges(start, end, edges)


def _described(elf: ElfFile) -> tuple[U64, U64]:
    """Starts and ends of the functions in call frame information and in Go's own table, ascending;
    a damaged table of Go costs only its own. Raises :class:`FormatError`."""
    start, end = elf.function_spans()
    with contextlib.suppress(FormatError):
        table = go_table(elf)
        if table is not None:
            start = np.concatenate([start, table.start.astype(np.uint64)])
            end = np.concatenate([end, table.end.astype(np.uint64)])
            start, first = np.unique(start, return_index=True)
            end = end[first]
    return start, end


def entry_functions(elf: ElfFile) -> dict[int, str]:
    """Names, by address, of functions that a program without symbols has by its ELF header.

    The entry point is ``_start``. ``main`` is the first argument that glibc's ``_start`` loads for
    its last call (``sysdeps/x86_64/start.S``).
    """
    entry = elf.header.entry
    try:
        code = elf.code(entry, _ENTRY_BYTES)
    except FormatError:
        return {}
    names = {entry: "_start"}
    first_argument = None
    for instruction in Decoder(64, code, ip=entry) if elf.machine == X86_64 else ():
        if int(instruction.flow_control) in _CALLS:
            if first_argument is not None:
                names.setdefault(first_argument, "main")
            break
        if instruction.op0_register in (Register.RDI, Register.EDI):
            first_argument = {
                Code.LEA_R64_M: instruction.ip_rel_memory_address,
                Code.MOV_RM64_IMM32: instruction.immediate32to64,
            }.get(instruction.code)
    return names


def _gaps(section: Section, start: I64, end: I64) -> list[tuple[int, int]]:
    """Stretches of a section that none of the functions covers."""
    low, high = section.address, section.address + section.size
    first, last = np.searchsorted(start, [low, high])
    covered = np.maximum.accumulate(np.concatenate([[low], end[first:last]]))
    following = np.concatenate([start[first:last], [high]])
    wide = np.flatnonzero(following - covered >= _MIN_GAP)
    return list(zip(covered[wide].tolist(), following[wide].tolist(), strict=True))


def _functions_in(
    code: bytes, address: int, targets: I64, low: int, high: int, decoded: bool
) -> tuple[U64, U64]:
    """Starts and ends of the functions from ``low`` to ``high`` in a section at ``address``, by its
    instructions if it is to be ``decoded``, else by calls."""
    first, last = np.searchsorted(targets, [low, high])
    inside = targets[first:last]
    if decoded:
        starts = _starts(code[low - address : high - address], low, set(inside.tolist()))
    else:
        before = np.frombuffer(code, np.uint8)[np.maximum(inside - address - 1, 0)]
        starts = inside[np.isin(before, _ENDS)].tolist()
    start = np.array(starts, np.uint64)
    return start, np.append(start[1:], np.array([high] * bool(starts), np.uint64))


def _targets(code: bytes, address: int) -> I64:
    """Addresses, ascending, to which ``code`` may refer by calls or by loading them.

    ``address`` is the address of ``code``.
    """
    octets = np.frombuffer(code, np.uint8)
    calls = np.flatnonzero(octets[:-4] == 0xE8) + 1
    # lea distance(%rip), register
    loads = (octets[1:-5] == 0x8D) & (octets[2:-4] & 0xC7 == 0x05) & (octets[:-6] & 0xF8 == 0x48)
    at = np.concatenate([calls, np.flatnonzero(loads) + 3])
    distance = octets[at[:, None] + np.arange(4)].view("<i4").ravel()
    targets = address + at + 4 + distance
    return np.unique(targets[(targets >= address) & (targets < address + len(code))])


def _starts(code: bytes, address: int, targets: set[int]) -> list[int]:
    """Return the addresses at which the functions of ``code``, which is at ``address``, begin.

    One begins at a target that nothing runs on into; and behind the end of another, beyond all that
    it jumps to, where code is aligned.
    """
    starts: list[int] = []
    reach = 0
    before = _JUMP
    for instruction in Decoder(64, code, ip=address):
        at, flow = instruction.ip, instruction.flow_control
        if before != _NEXT and int(instruction.mnemonic) in _PADDING:
            continue
        stopped = before in _STOPS
        if (at in targets and (stopped or before in _CALLS)) or (
            stopped and at > reach and (at % _ALIGNMENT == 0 or not starts)
        ):
            starts.append(at)
            reach = at
        before = flow
        if flow in _JUMPS:
            target = instruction.near_branch_target
            if reach < target < at + _MAX_JUMP and target not in targets:
                reach = target
    return starts
