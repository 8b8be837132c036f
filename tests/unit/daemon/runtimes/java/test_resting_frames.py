"""Steps from frames of Java at rest, in memory that may hold anything."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.bpf.saved_walk import Caller
from hpcd.bpf.wire import (
    FRAME_JVM,
    FRAME_JVM_INTERPRETED,
    FRAME_PYTHON,
    FRAME_PYTHON_POSITION,
    PYTHON_POSITION_BITS,
)
from hpcd.daemon.runtimes.java import resting_frames as resting_frames_module
from hpcd.daemon.runtimes.java.hotspot_layouts import Heap, HotSpotLayout, ScopesInCode
from hpcd.daemon.runtimes.java.resting_frames import RestingFrames
from tests.support.target_memory import memory_reader

# A heap of four blocks of two segments of 128 bytes; the CodeBlob is 16 bytes into its block.
BEGIN, MAP, NAMES, STACK = 0x100000, 0x200000, 0x300000, 0x400000
COMPILED, INTERPRETER, BARRIER, UNWIND = (BEGIN + 256 * number for number in range(4))
CODE = 96  # from the CodeBlob on
METHOD, CONSTANTS = 0x500000, 0x600008


def layout() -> HotSpotLayout:
    nothing = dict.fromkeys(HotSpotLayout._fields, 0)
    return HotSpotLayout(**nothing)._replace(
        block_header=16, blob_bytes=72, blob_name=0, frame_size=8, frame_complete=12, code=16,
        compile_id=24, deopt_handler=32, original_pc=28, method_constants=8, code_size=40,
        constants_bytes=56, scopes=ScopesInCode(0, 0, 0, 0), relative=False,
    )  # fmt: skip


def blob(block: int, name: int, words: int) -> bytes:
    at = block + 16
    values = (NAMES + 16 * name, words, 20, at + CODE, 7, 8, at + 0x70)
    return struct.pack("<QiiQiiQ", *values).ljust(72, b"\0")


def memory(stack: bytes) -> dict[int, bytes]:
    names = b"".join(text.ljust(16, b"\0") for text in (b"nmethod", b"Interpreter", b"StubRout"))
    contents = {MAP: bytes([0, 1] * 4), NAMES: names, STACK: stack}
    kinds = [(COMPILED, 0, 6), (INTERPRETER, 1, 0), (BARRIER, 2, 0), (UNWIND, 2, -1)]
    contents |= {block + 16: blob(block, name, words) for block, name, words in kinds}
    contents |= {METHOD + 8: struct.pack("<Q", CONSTANTS), CONSTANTS + 40: struct.pack("<H", 30)}
    return contents


def resting_frames(stack: bytes) -> RestingFrames:
    return RestingFrames(layout(), [Heap(BEGIN, 1024, MAP, 7)], memory_reader(memory(stack)))


def step(
    ip: int,
    sp: int,
    bp: int,
    stack: bytes,
    *,
    called: bool = True,
    frames: RestingFrames | None = None,
) -> Caller | None:
    def read_stack(at: int, size: int) -> bytes:
        part = stack[max(at - STACK, 0) :][:size]
        return part if at >= STACK and len(part) == size else b""

    return (frames or resting_frames(stack)).step(ip, sp, bp, read_stack, called=called)


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}Q", *values)


RETURN = COMPILED + 16 + CODE + 50


def test_compiled_code_has_a_frame_of_its_size() -> None:
    at = COMPILED + 16
    caller = step(at + CODE + 40, STACK, 0, words(1, 2, 3, 4, 0xB0, RETURN, 9))
    word = FRAME_PYTHON | FRAME_JVM | at
    position = FRAME_PYTHON | FRAME_PYTHON_POSITION | 7 << PYTHON_POSITION_BITS
    assert caller == Caller(RETURN, STACK + 48, 0xB0, word, position | 40)
    # Further words are pushed.
    pushed = step(at + CODE + 40, STACK, 0, words(1, 2, 3, 4, 5, 6, 7, 0xB0, RETURN))
    assert pushed and pushed[:3] == (RETURN, STACK + 72, 0xB0)
    # It waits to be deoptimised: its frame has the place of the instruction, 8 bytes above sp.
    waits = step(at + 0x70, STACK, 0, words(1, at + CODE + 44, 3, 4, 0xB0, RETURN))
    assert waits and waits.position == position | 44


def test_the_interpreter_has_its_callers_registers_in_its_frame() -> None:
    bytecode = CONSTANTS + 56 + 12
    stack = words(bytecode, 0, 0, 0, 0, METHOD, 0, STACK + 96, 0xB0, RETURN)
    caller = step(INTERPRETER + 120, STACK, STACK + 64, stack)
    word = FRAME_PYTHON | FRAME_JVM | FRAME_JVM_INTERPRETED | METHOD
    position = (CONSTANTS >> 3) << PYTHON_POSITION_BITS | 12
    position |= FRAME_PYTHON | FRAME_PYTHON_POSITION
    assert caller == Caller(RETURN, STACK + 96, 0xB0, word, position)
    stray = words(bytecode, 0, 0, 0, 0, METHOD, 0, STACK + 96, 0xB0, 0x1234)
    assert step(INTERPRETER + 120, STACK, STACK + 64, stray) is None


def test_stubs() -> None:
    barrier = step(BARRIER + 120, STACK, STACK + 8, words(0, 0xB0, (1 << 64) - 1, RETURN, 5))
    assert barrier and barrier[:3] == (RETURN, STACK + 32, 0xB0)
    unwinds = step(UNWIND + 120, STACK, 0xB0, words(3, RETURN, 0))
    assert unwinds and unwinds[:3] == (RETURN, STACK + 16, 0xB0)


def test_threads_that_stand_before_a_frame_is_there_are_not_stepped_from() -> None:
    stack = words(1, 2, 3, 4, 0xB0, RETURN)
    assert step(COMPILED + 16 + CODE + 8, STACK, 0, stack, called=False) is None
    assert step(INTERPRETER + 120, STACK, STACK + 64, stack, called=False) is None


def test_steps_end_when_they_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where all that they read is known: each step takes a run of the programs, too."""
    stack = words(1, 2, 3, 4, 0xB0, RETURN)
    frames, first = resting_frames(stack), (COMPILED + 16 + CODE + 40, STACK, 0, stack)
    for _ in range(2):
        assert step(*first, frames=frames)
    monkeypatch.setattr(resting_frames_module, "_MOST_SECONDS", 0.0)
    assert step(*first, frames=frames) is None


@given(
    ip=st.integers(BEGIN - 8, BEGIN + 1100),
    sp=st.integers(STACK - 8, STACK + 200),
    bp=st.integers(STACK - 8, STACK + 200),
    stack=st.binary(max_size=160),
    called=st.booleans(),
)
def test_any_stack_is_stepped_from_or_not(
    ip: int, sp: int, bp: int, stack: bytes, called: bool
) -> None:
    caller = step(ip, sp, bp, stack, called=called)
    assert caller is None or all(0 <= value < 1 << 64 for value in caller)
