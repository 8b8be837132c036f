"""Programs by which the kernel computes each value of a call: a register, then steps.

A step adds an offset, and may read memory at the sum; the result is cut to the size of a type. Some
steps may be left for the return of the function, when memory behind an argument has been written.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace

from hpcd.bpf import wire
from hpcd.bpf.wire import PROBE_STEPS
from hpcd.daemon.probe_places.value_types import ValueType
from hpcd.errors import UsageError

_OFFSETS = 1 << 31

# Indices in ``struct registers`` of bpf/programs/stack/unwind.h, 8 bytes each.
_X86_64 = ("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx",
           "rsi", "rdi", "", "rip", "", "", "rsp")  # fmt: skip
_AARCH64 = (*(f"x{number}" for number in range(31)), "sp")
_ARGUMENTS = {
    "x86_64": ("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
    "aarch64": tuple(f"x{number}" for number in range(8)),
}
_RESULTS = {"x86_64": "rax", "aarch64": "x0"}
# Where the first argument on the stack is, from the stack pointer at the function's entry.
_STACK_ARGUMENTS = {"x86_64": 8, "aarch64": 0}
MOST_ARGUMENTS = 24


def register_index(name: str, machine: str = "") -> int:
    """Return the position of a register in ``struct registers``; -1 if it has none."""
    names = _AARCH64 if (machine or platform.machine()) == "aarch64" else _X86_64
    return names.index(name) if name in names and name else -1


@dataclass(frozen=True, slots=True)
class Step:
    """Add ``offset``; with ``load`` read there; then cut to ``type``."""

    offset: int
    type: ValueType
    load: bool = False


@dataclass(frozen=True, slots=True)
class ValueProgram:
    """The program that computes one value.

    ``register`` is read at the entry, or with ``at_return`` when the function has returned; of
    ``steps``, steps from number ``late`` on are done at the return.
    """

    register: int
    steps: tuple[Step, ...] = ()
    late: int = PROBE_STEPS
    at_return: bool = False
    marks: bool = False
    """Whether a value that cannot be read is -2^63; else it is 0."""

    def then(self, step: Step) -> ValueProgram:
        """This and one step more. Raises :class:`UsageError` when there are too many."""
        last = self.steps[-1] if self.steps else None
        wide = last is not None and last.type.size == 8 and not last.load
        if wide and last is not None:  # an offset before: one step for both
            merged = replace(step, offset=last.offset + step.offset)
            if abs(merged.offset) >= _OFFSETS:
                raise UsageError("an offset is not below 2^31")
            return replace(self, steps=(*self.steps[:-1], merged))
        if len(self.steps) == PROBE_STEPS:
            raise UsageError(f"more than {PROBE_STEPS} steps of reading memory and arithmetic")
        return replace(self, steps=(*self.steps, step))

    def pack(self) -> bytes:
        """``struct value_program`` of bpf/programs/calls/probe_values.h."""
        steps = [
            wire.ValueStep(
                offset=step.offset, size=step.type.size, is_signed=step.type.signed, load=step.load
            ).pack()
            for step in self.steps
        ]
        count = len(self.steps)
        head = wire.ValueProgram(
            source=self.register, steps=count, late=0 if self.at_return else min(self.late, count),
            at_return=self.at_return, marks=self.marks,
        )  # fmt: skip
        return b"".join([head.pack(), *steps]).ljust(wire.VALUE_PROGRAM_BYTES, b"\0")


def argument(position: int, kind: ValueType) -> ValueProgram:
    """The argument at ``position``, from 0, among integers and pointers only."""
    machine = platform.machine()
    registers = _ARGUMENTS[machine]
    if position >= MOST_ARGUMENTS:
        raise UsageError(f"a function of more than {MOST_ARGUMENTS} arguments")
    if position < len(registers):
        program = ValueProgram(register_index(registers[position], machine))
        return program if kind.size == 8 else program.then(Step(0, kind))
    offset = _STACK_ARGUMENTS[machine] + 8 * (position - len(registers))
    stack = "sp" if machine == "aarch64" else "rsp"
    return ValueProgram(register_index(stack, machine)).then(Step(offset, kind, load=True))


def result(kind: ValueType) -> ValueProgram:
    """Program of the value that the function returns."""
    machine = platform.machine()
    program = ValueProgram(register_index(_RESULTS[machine], machine), at_return=True)
    return program if kind.size == 8 else program.then(Step(0, kind))
