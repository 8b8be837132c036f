"""The iterator's records: what C and Python have of them is the same."""

from __future__ import annotations

import subprocess

import pytest

from hpcd.bpf.map_sizes import COPY_BYTES, REGISTERS_BYTES
from hpcd.bpf.task_stacks import (
    HAS_CHANGED,
    HAS_REGISTERS,
    HAS_RUN,
    KERNEL_FRAMES,
    TASK_STACK,
    ThreadParts,
)
from tests.support.paths import ROOT

PROGRAMS = ROOT / "bpf/programs"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_compiler_lays_records_out_as_python_reads_them(machine: str) -> None:
    assert TASK_STACK.fields is not None
    facts = {f"sizeof(struct task_stack) == {TASK_STACK.itemsize}"}
    for name, (kind, at, *_) in TASK_STACK.fields.items():
        facts.add(f"__builtin_offsetof(struct task_stack, {name}) == {at}")
        facts.add(f"sizeof(((struct task_stack *)0)->{name}) == {kind.itemsize}")
    kernel_at = TASK_STACK.itemsize + REGISTERS_BYTES[machine]
    facts |= {
        f"__builtin_offsetof(struct task_stack_buffer, kernel) == {kernel_at}",
        f"__builtin_offsetof(struct task_stack_buffer, bytes) == {kernel_at + 8 * KERNEL_FRAMES}",
        f"STACK_COPY_BYTES == {COPY_BYTES}",
        f"HAS_REGISTERS == {HAS_REGISTERS} && HAS_RUN == {HAS_RUN} && HAS_CHANGED == {HAS_CHANGED}",
        *(f"WANT_{wanted.name} == {wanted.value}" for wanted in ThreadParts),
    }
    source = '#include "iterators/task_stacks.h"\n' + "".join(
        f'_Static_assert({fact}, "");\n' for fact in sorted(facts)
    )
    command = ["gcc", f"-DHPCD_{machine.upper()}", f"-I{PROGRAMS}", "-fsyntax-only", "-xc", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
