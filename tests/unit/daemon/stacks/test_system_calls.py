"""System calls by the registers a thread entered the kernel with."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from hpcd.bpf.task_stacks import TaskStack
from hpcd.bpf.wire import TaskParts
from hpcd.daemon.stacks.system_calls import SystemCall, system_call

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="registers of x86-64")

# Words of struct pt_regs: bp, bx, cx, dx, si, di; orig_ax and cs.
_ORIG_AX, _CS = 15, 17


def record(words: dict[int, int], parts: int = TaskParts.REGISTERS) -> TaskStack:
    registers = np.zeros(21, np.uint64)
    for place, value in words.items():
        registers[place] = value
    return TaskStack(parts=parts, record=bytes(TaskStack.BYTES) + registers.tobytes())


def test_a_call_of_a_64_bit_program() -> None:
    call = system_call(record({_ORIG_AX: 202, _CS: 0x33, 14: 1 << 40, 13: 128, 12: 7}))
    assert call == SystemCall("futex", (1 << 40, 128, 7, 0, 0, 0), 8)


@pytest.mark.parametrize(
    ("number", "name", "time_word"),
    [(162, "nanosleep", 4), (407, "clock_nanosleep", 8), (168, "poll", 4), (9999, "call 9999", 8)],
)
def test_a_call_of_a_32_bit_program(number: int, name: str, time_word: int) -> None:
    """Numbers and registers are others, and only their lower halves are the program's."""
    arguments = {5: 0x1_0000_0001, 11: 2, 12: 3, 13: 4, 14: 5, 4: 6}
    call = system_call(record({_ORIG_AX: number, _CS: 0x23, **arguments}))
    assert call == SystemCall(name, (1, 2, 3, 4, 5, 6), time_word)


def test_who_is_in_no_call() -> None:
    for code in (0x33, 0x23):
        assert system_call(record({_ORIG_AX: 0xFFFF_FFFF_FFFF_FFFF, _CS: code})) is None
    assert system_call(record({_ORIG_AX: 202, _CS: 0x10})) is None
    assert system_call(record({_ORIG_AX: 202, _CS: 0x33}, parts=0)) is None
