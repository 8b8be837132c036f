"""Static tracepoints (USDT): the notes that ``<sys/sdt.h>`` leaves in ``.note.stapsdt``.

Format: the header's own comments, and SystemTap's "UserSpaceProbeImplementation" page.
"""

from __future__ import annotations

import platform
import re
import struct
from dataclasses import dataclass

from hpcd.bpf.wire import NO_SOURCE
from hpcd.daemon.probe_places.value_program import Step, ValueProgram, register_index
from hpcd.daemon.probe_places.value_types import WORD, ValueType
from hpcd.elf.elf_view import ElfView
from hpcd.errors import UsageError

_NOTE = struct.Struct("<III")
_ADDRESSES = struct.Struct("<QQQ")
_KIND = 3
_MOST_NOTES = 20_000
_MOST_TEXT = 4096

_OPERAND = re.compile(r"(-?[1248])@(\[[^\]]*\]|\S+)")
_X86_MEMORY = re.compile(r"(-?\d+)?\(%(\w+)\)$")
_ARM_MEMORY = re.compile(r"\[(\w+)(?:, ?(-?\d+))?\]$")


@dataclass(frozen=True, slots=True)
class TracepointNote:
    """One place of a static tracepoint: addresses in the file's address space, ``semaphore`` 0
    for none; ``operands`` as the assembler wrote them."""

    provider: str
    name: str
    address: int
    semaphore: int
    operands: str


def tracepoint_notes(elf: ElfView) -> list[TracepointNote]:
    """All static tracepoints of a file; damaged notes end the list."""
    section = elf.sections.get(".note.stapsdt")
    if section is None:
        return []
    data = elf.contents(section)
    base_section = elf.sections.get(".stapsdt.base")
    notes: list[TracepointNote] = []
    at = 0
    while at + _NOTE.size <= len(data) and len(notes) < _MOST_NOTES:
        name_size, size, kind = _NOTE.unpack_from(data, at)
        name = data[at + 12 : at + 12 + name_size]
        body_at = at + 12 + (name_size + 3 & ~3)
        body = data[body_at : body_at + size]
        at = body_at + (size + 3 & ~3)
        if kind != _KIND or name != b"stapsdt\0":
            continue
        if len(body) != size or size < _ADDRESSES.size + 3:
            break
        address, base, semaphore = _ADDRESSES.unpack_from(body)
        # Prelinking moves the file, but not the addresses in notes.
        moved = base_section.address - base if base_section else 0
        texts = body[_ADDRESSES.size :].split(b"\0")
        if len(texts) < 3:
            break
        provider, label, operands = (
            text[:_MOST_TEXT].decode(errors="replace") for text in texts[:3]
        )
        notes.append(
            TracepointNote(
                provider, label, address + moved, semaphore + moved if semaphore else 0, operands
            )
        )
    return notes


def operand_programs(operands: str, machine: str = "") -> list[ValueProgram | str]:
    """Return the program that reads each argument of a tracepoint, or why none can."""
    machine = machine or platform.machine()
    programs: list[ValueProgram | str] = []
    for match in _OPERAND.finditer(operands):
        size = int(match[1])
        kind = ValueType(abs(size), size < 0)
        try:
            programs.append(_program(match[2], kind, machine))
        except UsageError as error:
            programs.append(str(error))
    return programs


def _program(text: str, kind: ValueType, machine: str) -> ValueProgram:
    """Raises :class:`UsageError` for operands of other forms."""
    arm = machine == "aarch64"
    constant = text.removeprefix("$") if not arm else text
    if (arm or text.startswith("$")) and re.fullmatch(r"-?\d+", constant):
        number = int(constant)
        if abs(number) >= 1 << 31:
            raise UsageError(f"its place {text} is a constant beyond 32 bits")
        return ValueProgram(NO_SOURCE).then(Step(number, WORD))
    memory = (_ARM_MEMORY if arm else _X86_MEMORY).match(text)
    if memory:
        offset, register = (memory[2], memory[1]) if arm else (memory[1], memory[2])
        program = ValueProgram(_register(register, machine, text))
        distance = int(offset or 0)
        if abs(distance) >= 1 << 31:
            raise UsageError(f"its place {text} is not understood")
        return program.then(Step(distance, kind, load=True))
    program = ValueProgram(_register(text.removeprefix("%"), machine, text))
    return program if kind.size == 8 else program.then(Step(0, kind))


def _register(name: str, machine: str, text: str) -> int:
    if machine == "aarch64":
        wide = re.sub(r"^w(\d+)$", r"x\1", name)
    else:
        wide = re.sub(r"^(r(?:8|9|1[0-5]))[dwb]$", r"\1", name)
        wide = re.sub(r"^e?([abcd])x$", r"r\1x", wide)
        wide = re.sub(r"^([abcd])l$", r"r\1x", wide)
        wide = re.sub(r"^e?(si|di|bp|sp)l?$", r"r\1", wide)
    index = register_index(wide, machine)
    if index < 0:
        raise UsageError(f"its place {text} is not understood")
    return index
