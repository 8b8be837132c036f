"""The Python frames of threads that stand still, read out of their memory.

They are what ``bpf/programs/runtimes/python.h:take_python`` reads on the thread itself, in the same
words, by which :meth:`hpcd.bpf.saved_walk.SavedWalker.walk` puts them into the path of a copied
stack. Here the thread is another one, which must not have run from its copy to the end of the
reading: whoever asks looks at that afterwards. The memory may hold anything: addresses of the
objects on the stack must increase, and the number of frames and states is bounded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from hpcd.bpf.wire import (
    FRAME_PYTHON,
    FRAME_PYTHON_POSITION,
    MOST_PYTHON_STATES,
    PYTHON_ADDRESS_MASK,
    PYTHON_OWNED_BY_C,
    PYTHON_POSITION_BITS,
    PYTHON_STATE_BYTES,
    PYTHON_WORDS,
    Python,
    PythonAnchor,
)
from hpcd.daemon.runtimes.python.code_objects import Pieces, ReadMemory
from hpcd.daemon.runtimes.python.cpython_layouts import CODE_BYTES

_PAGE = 4096
# Frames lie next to each other, those of a deep path over several pages: read together with one.
_AROUND = range(-2, 3)
_USER_END = 1 << 47
_POSITIONS = 1 << PYTHON_POSITION_BITS


class MemoryWords:
    """Words of a process's memory, read by the page. Raises :class:`LookupError` for what cannot
    be read, and what ``read`` does."""

    def __init__(self, read: ReadMemory) -> None:
        self._read = read
        self._pages: dict[int, bytes] = {}

    def at(self, address: int, size: int = 8) -> int:
        """Return the number of ``size`` bytes at ``address``."""
        return int.from_bytes(self._bytes(address, size), "little")

    def _bytes(self, address: int, size: int) -> bytes:
        data = b""
        while len(data) < size:
            page, offset = divmod(address + len(data), _PAGE)
            piece = self._page(page)[offset : offset + size - len(data)]
            if not piece:
                raise LookupError(address)
            data += piece
        return data

    def _page(self, number: int) -> bytes:
        if number not in self._pages:
            numbers = [number + other for other in _AROUND]
            pieces: Pieces = [
                (one * _PAGE, _PAGE) for one in numbers if 0 < one < _USER_END // _PAGE
            ]
            for (address, _), page in zip(pieces, self._read(pieces), strict=True):
                self._pages.setdefault(address // _PAGE, page or b"")
        return self._pages.get(number, b"")


def thread_states(memory: MemoryWords, python: Python) -> dict[int, int]:
    """Return the addresses of the states of a process's threads by their thread pointers, as far as
    they can be read."""
    states: dict[int, int] = {}
    with suppress(LookupError):
        interpreter = memory.at(python.interpreters)
        for _ in range(MOST_PYTHON_STATES):
            state = memory.at(interpreter + python.threads) if interpreter else 0
            while state and len(states) < MOST_PYTHON_STATES:
                pointer = memory.at(state + python.thread_id)
                if pointer in states:
                    break
                states[pointer] = state
                state = memory.at(state + python.next_thread)
            if not interpreter or len(states) >= MOST_PYTHON_STATES:
                break
            interpreter = memory.at(interpreter + python.next_interpreter)
    return states


class ThreadRegisters(NamedTuple):
    """A thread's pointers: its stack, instruction and thread pointer."""

    stack: int
    instruction: int
    thread: int


class _Chain:
    """The frames of one thread, being read."""

    def __init__(self, memory: MemoryWords, python: Python, stack_pointer: int) -> None:
        self._memory = memory
        self._python = python
        self._last = stack_pointer - 1
        self.activations: list[tuple[int, list[tuple[int, int]]]] = []
        """The object of each on the stack, and the code object and position of its frames, the
        innermost first."""
        self._frames: list[tuple[int, int]] = []
        self._cframe = 0

    def read(self, state: int, instruction: int) -> None:
        """Read the frames from the thread's state on."""
        python, memory = self._python, self._memory
        at = state + python.thread_frame
        if python.thread_cframe:
            self._cframe = memory.at(state + python.thread_cframe)
            if python.unset_begin <= instruction < python.unset_end:
                self._cframe = memory.at(self._cframe + python.cframe_previous)
            if python.anchor != PythonAnchor.EACH_FRAME:
                at = self._cframe + python.cframe_frame
        frame = memory.at(at)
        if python.anchor == PythonAnchor.EACH_FRAME:
            frame = self._matched(frame, state)
        for _ in range(PYTHON_WORDS):
            if not frame:
                break
            frame = self._take(frame)

    def _take(self, frame: int) -> int:
        """Take a frame; return the one that called it, 0 at the end."""
        python, memory = self._python, self._memory
        owner = memory.at(frame + python.owner, 1)
        if python.anchor == PythonAnchor.ENTRY_FRAME and owner >= PYTHON_OWNED_BY_C:
            if not self._end_activation(frame):
                return 0
        else:
            self._frames.append(self._place(frame))
            if python.anchor == PythonAnchor.EACH_FRAME or (
                python.anchor == PythonAnchor.ENTRY_FLAG and owner
            ):
                if not self._end_activation(self._cframe):
                    return 0
                self._cframe = memory.at(self._cframe + python.cframe_previous)
        return memory.at(frame + python.previous)

    def _place(self, frame: int) -> tuple[int, int]:
        python, memory = self._python, self._memory
        code = memory.at(frame + python.code) & ~python.tags & PYTHON_ADDRESS_MASK
        position = memory.at(frame + python.instruction)
        if python.instructions:
            position = (position - code - python.instructions) // 2
        else:
            position &= 0xFFFFFFFF
        return code, position if 0 <= position < _POSITIONS else 0

    def _end_activation(self, anchor: int) -> bool:
        if not self._last < anchor < _USER_END:
            return False
        self._last = anchor
        if self._frames:
            self.activations.append((anchor, self._frames))
            self._frames = []
        return True

    def _matched(self, frame: int, state: int) -> int:
        """Return the innermost frame that has a CFrame, where each has one: while the loop is
        entered or left, one of the two is not there (any more)."""
        python, memory = self._python, self._memory
        frames = self._length(frame, python.previous)
        # The outermost CFrame is a part of the state; its link is never set, nor read.
        states = range(state, state + PYTHON_STATE_BYTES)
        cframes = self._length(self._cframe, python.cframe_previous, states)
        if frames == cframes + 1:
            return memory.at(frame + python.previous)
        if cframes == frames + 1:
            self._cframe = memory.at(self._cframe + python.cframe_previous)
        return frame if abs(frames - cframes) <= 1 else 0

    def _length(self, first: int, offset: int, end: range | None = None) -> int:
        count = 0
        while first and first not in (end or ()) and count <= PYTHON_WORDS:
            count, first = count + 1, self._memory.at(first + offset)
        return count


def standing_chain(
    read: ReadMemory,
    python: Python,
    state: int,
    registers: ThreadRegisters,
    hash_identity: Callable[[tuple[int, ...]], int],
) -> bytes:
    """Return the Python frames of a thread with this ``state`` as a chain
    (:func:`hpcd.bpf.saved_walk.without_chain`), b"" if it has none or they cannot be read.

    ``hash_identity`` makes the hash of what identifies a code object. Raises what ``read`` does.
    """
    memory = MemoryWords(read)
    chain = _Chain(memory, python, registers.stack)
    with suppress(LookupError):
        if memory.at(state + python.thread_id) == registers.thread:
            chain.read(state, registers.instruction)
    size = python.identity_bytes
    codes = sorted({code for _, frames in chain.activations for code, _ in frames})
    identity = dict.fromkeys(codes, 0)
    usable = [code for code in codes if 0 < code < _USER_END - CODE_BYTES]
    pieces = [(code + python.identity, size) for code in usable]
    for code, data in zip(usable, read(pieces) if pieces else [], strict=True):
        if data and len(data) == size:
            identity[code] = hash_identity(struct.unpack(f"<{size // 8}Q", data))
    words: list[int] = []
    for anchor, frames in chain.activations:
        if len(words) + 2 + 2 * len(frames) > PYTHON_WORDS:
            break
        words += anchor, 2 * len(frames)
        for code, position in frames:
            place = identity[code] << PYTHON_POSITION_BITS | position
            words += FRAME_PYTHON | code, FRAME_PYTHON | FRAME_PYTHON_POSITION | place
    return struct.pack(f"<{len(words)}Q", *words)
