"""Steps from the frames of Java of a thread that stands still, by its process's memory.

It is what ``bpf/programs/runtimes/jvm.h`` does for a thread that runs, as far as frames need it
that have called others: their code's prologue is behind them, and their registers are on the stack.
"""

from __future__ import annotations

import re
import struct
import time

from hpcd.bpf.saved_walk import Caller, ReadStack
from hpcd.bpf.wire import (
    FRAME_JVM,
    FRAME_JVM_INTERPRETED,
    FRAME_PYTHON,
    FRAME_PYTHON_POSITION,
    PYTHON_ADDRESS_MASK,
    PYTHON_POSITION_BITS,
)
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.runtimes.java.hotspot_layouts import Heap, HotSpotLayout, as_integer
from hpcd.daemon.runtimes.process_memory import ReadMemory, is_address

_FRAME = FRAME_PYTHON | FRAME_JVM
_POSITION_MASK = (1 << PYTHON_POSITION_BITS) - 1
# Of the steps of one process's threads: a stack that lies has thousands of frames.
_MOST_SECONDS = 2.0
_MOST_HOPS = 32
_FREE = 0xFF
_NO_FRAME = -1
_ENTRY_COOKIE = (1 << 64) - 1
_MOST_WORDS_MORE = 6
_MOST_FRAME = 1 << 20
_NAME_BYTES = 8
_INTERPRETER = b"Interpre"
_COMPILED = (b"nmethod\0", b"native n")
# An interpreter's frame from the bytecode's address, 64 bytes below the frame pointer, on.
_SLOTS_BELOW, _SLOTS = 64, struct.Struct("<10Q")
_TWO = struct.Struct("<QQ")
# pop rbp, ret, and what asks for a safepoint before that (is_return() of jvm.h).
_EPILOGUE = re.compile(
    rb"\x5d|\xc3|\x49\x3b[\xa7\x67]|\x0f\x87.{4}\xc3|\x41\x85\x02\xc3|\x4d\x8b\x97.{4}\x41\x85.\xc3",
    re.DOTALL,
)
_CODE_BYTES = 16


class RestingFrames:
    """The code of a JVM with ``heaps``, one or more, whose memory ``memory`` reads; made for one
    reading of the process's threads."""

    def __init__(self, layout: HotSpotLayout, heaps: list[Heap], memory: ReadMemory) -> None:
        self._layout = layout
        self._heaps = heaps
        self._memory = memory
        self.code_begin = min(heap.begin for heap in heaps)
        self.code_bytes = max(heap.begin + heap.size for heap in heaps) - self.code_begin
        self._spent = 0.0
        self._blobs: dict[int, tuple[int, bytes, bytes]] = {}
        """Address, first bytes and name of CodeBlobs, by addresses of code."""

    def step(self, ip: int, sp: int, bp: int, read: ReadStack, *, called: bool) -> Caller | None:
        """Return the caller of the frame at ``ip``, if that has ``called`` another or is in
        compiled code behind its prologue; None if all steps took :data:`_MOST_SECONDS`."""
        if self._spent > _MOST_SECONDS:
            return None
        began = time.monotonic()
        try:
            return self._caller(ip, sp, bp, read, called=called)
        finally:
            self._spent += time.monotonic() - began

    def _caller(self, ip: int, sp: int, bp: int, read: ReadStack, *, called: bool) -> Caller | None:
        blob = self._blob(ip - called)
        if blob is None:
            return None
        at, head, name = blob
        if not (called or (name in _COMPILED and self._has_frame(at, head, ip))):
            return None
        if name == _INTERPRETER:
            return self._from_interpreter(bp, read)
        word, position = _FRAME | at & PYTHON_ADDRESS_MASK, 0
        if name in _COMPILED:
            position = self._position(at, head, ip, sp, read)
        words = as_integer(head, self._layout.frame_size, 4, signed=True)
        caller = None
        if 2 <= words < _MOST_FRAME >> 3:
            caller = self._sized(sp + 8 * words - 16, read)
        elif words == _NO_FRAME:
            caller = self._frameless(sp, bp, read)
        elif 0 <= bp - sp < _MOST_FRAME:
            caller = self._linked(bp, read)
        if caller is None:
            return None
        return Caller(*caller, word, FRAME_PYTHON | FRAME_PYTHON_POSITION | position)

    def _is_code(self, address: int) -> bool:
        return 0 <= address - self.code_begin < self.code_bytes

    def _linked(self, top: int, read: ReadStack) -> tuple[int, int, int] | None:
        """Return ip, sp and bp of the caller whose frame pointer and return address are at
        ``top``."""
        data = read(top, 16)
        if not data:
            return None
        bp, ip = _TWO.unpack(data)
        if ip == _ENTRY_COOKIE:
            return self._frameless(top + 16, bp, read)
        return ip, top + 16, bp

    def _sized(self, top: int, read: ReadStack) -> tuple[int, int, int] | None:
        caller = None
        for more in range(_MOST_WORDS_MORE):
            caller = self._linked(top + 8 * more, read)
            if caller is None or self._is_code(caller[0]):
                break
        return caller

    def _frameless(self, sp: int, bp: int, read: ReadStack) -> tuple[int, int, int] | None:
        """Return the caller whose return address is at ``sp``, or a word above it."""
        data = read(sp, 16)
        words = _TWO.unpack(data) if data else ()
        which = next((at for at, word in enumerate(words) if self._is_code(word)), None)
        return None if which is None else (words[which], sp + 8 * which + 8, bp)

    def _from_interpreter(self, bp: int, read: ReadStack) -> Caller | None:
        data = read(bp - _SLOTS_BELOW, _SLOTS.size)
        if not data:
            return None
        bytecode, _, _, _, _, method, _, sender, link, ip = _SLOTS.unpack(data)
        layout = self._layout
        constants = self._word(method + layout.method_constants)
        length = self._read(constants + layout.code_size, 2)
        if not (length and self._is_code(ip)):
            return None
        size = as_integer(length, 0, 2)  # 0: a native method
        index = bytecode - constants - layout.constants_bytes
        position = (constants >> 3 & 0xFFFFFFFF) << PYTHON_POSITION_BITS
        return Caller(
            ip, sender, link,
            _FRAME | FRAME_JVM_INTERPRETED | method & PYTHON_ADDRESS_MASK,
            FRAME_PYTHON | FRAME_PYTHON_POSITION | position | (index if 0 <= index < size else 0),
        )  # fmt: skip

    def _position(self, at: int, head: bytes, ip: int, sp: int, read: ReadStack) -> int:
        """Return what identifies compiled code, with the byte of it that is executed; a frame that
        waits to be deoptimised has its place in the frame."""
        layout = self._layout
        code = self._place(at, head, layout.code)
        if ip == self._place(at, head, layout.deopt_handler):
            ip = as_integer(read(sp + as_integer(head, layout.original_pc, 4), 8), 0, 8) or ip
        number = as_integer(head, layout.compile_id, 4)
        return number << PYTHON_POSITION_BITS | (ip - code & _POSITION_MASK)

    def _place(self, at: int, head: bytes, offset: int) -> int:
        if self._layout.relative:
            return at + as_integer(head, offset, 4, signed=True)
        return as_integer(head, offset, 8)

    def _has_frame(self, at: int, head: bytes, ip: int) -> bool:
        """Whether a thread at ``ip`` is behind its code's prologue, and not in an epilogue."""
        complete = as_integer(head, self._layout.frame_complete, 2, signed=True)
        code = self._read(ip, _CODE_BYTES)
        begin = self._place(at, head, self._layout.code)
        return ip - begin >= complete >= 0 and bool(code) and not _EPILOGUE.match(code)

    def _blob(self, address: int) -> tuple[int, bytes, bytes] | None:
        if address not in self._blobs:
            blob = self._read_blob(address)
            if blob is None:
                return None
            self._blobs[address] = blob
        return self._blobs[address]

    def _read_blob(self, address: int) -> tuple[int, bytes, bytes] | None:
        heap = next((h for h in self._heaps if h.begin <= address < h.begin + h.size), None)
        if heap is None:
            return None
        segment = address - heap.begin >> heap.segment_shift
        for _ in range(_MOST_HOPS):
            back = self._read(heap.segment_map + segment, 1)
            if not back or back[0] == _FREE:
                return None
            if not back[0]:
                break
            segment -= back[0]
        else:
            return None
        at = heap.begin + (segment << heap.segment_shift) + self._layout.block_header
        head = self._read(at, self._layout.blob_bytes)
        name = self._read(as_integer(head, self._layout.blob_name, 8), _NAME_BYTES)
        return (at, head, name) if head and name else None

    def _read(self, address: int, size: int) -> bytes:
        if not is_address(address):
            return b""
        try:
            (data,) = self._memory([(address, size)])
        except (OSError, WithheldError):
            return b""
        return data if data and len(data) == size else b""

    def _word(self, address: int) -> int:
        return as_integer(self._read(address, 8), 0, 8)
