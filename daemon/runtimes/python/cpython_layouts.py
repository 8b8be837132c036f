"""Offsets in CPython's structures, by version: x86-64, release builds with the GIL.

Up to 3.12 by tables, from the headers of each version with ``offsetof``; since 3.13 the process
tells by ``_Py_DebugOffsets``, with which ``_PyRuntime`` begins, and whose own members differ from
version to version. A version that is not listed has no layout: nothing is guessed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from hpcd.bpf import wire
from hpcd.bpf.wire import PythonAnchor
from hpcd.errors import FormatError

DEBUG_OFFSETS_BYTES = 1024
"""Bytes of ``_PyRuntime`` that :func:`layout_of` is given."""
CODE_BYTES = 256
"""Bytes of a code object that hold all members of a layout but the instructions."""
_COOKIE = b"xdebugpy"
# Bits of a _PyStackRef that are no address: since 3.14 frames refer to code by one.
_TAGS = 3
_FIRST_DEBUG_OFFSETS, _LAST = (3, 13), (3, 15)
# Since then each interpreter may have a GIL of its own (PEP 684).
_OWN_GIL = (3, 12)
# Interpreters are hundreds of KB; all other structures are smaller.
_MOST_OFFSET = 1 << 22


class UnknownVersionError(FormatError):
    """A CPython whose structures are not known; the message says which."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes, by structure.

    ``interpreters`` of the runtime; ``next_interpreter``, ``threads`` of an interpreter;
    ``next_thread``, ``thread_id``, ``thread_frame``, ``thread_cframe`` (0: there are no CFrames) of
    a thread's state; ``gil`` of the runtime, since 3.12 of an interpreter, where its address is, to
    which ``thread_interpreter`` of a thread's state leads; ``previous``, ``code``, ``instruction``,
    ``owner`` of a frame, of which ``frame_bytes`` are read; ``file``, ``qualified_name``,
    ``line_table``, ``first_line``, ``instructions`` (0: frames have an index instead of an address)
    of a code object; ``ascii`` and ``compact`` are where the characters of a string are.
    """

    version: tuple[int, int]
    anchor: PythonAnchor
    interpreters: int
    threads: int
    thread_id: int
    thread_frame: int
    previous: int
    code: int
    instruction: int
    owner: int
    frame_bytes: int
    first_line: int
    instructions: int
    gil: int
    next_interpreter: int = 0
    next_thread: int = 8
    thread_interpreter: int = 16
    thread_cframe: int = 0
    cframe_frame: int = 0
    cframe_previous: int = 0
    tags: int = 0
    file: int = 112
    qualified_name: int = 128
    line_table: int = 136
    ascii: int = 40
    compact: int = 56

    @property
    def unset_frame(self) -> int:
        """The offset in a CFrame of the frame, which is written after the CFrame was linked; -1:
        there is no such moment."""
        return self.cframe_frame if self.thread_cframe and self.version >= (3, 11) else -1

    @property
    def identity_bytes(self) -> int:
        """Bytes from ``file`` to the end of ``line_table``: addresses that no other function has
        all of."""
        return self.line_table + 8 - self.file

    def kernel_entry(self, runtime: int, unset: tuple[int, int]) -> wire.Python:
        """Return ``struct python`` of a process with ``_PyRuntime`` at this address; ``unset`` are
        the begin and end of the code in which a CFrame has no frame yet."""
        return wire.Python(
            interpreters=runtime + self.interpreters, unset_begin=unset[0], unset_end=unset[1],
            anchor=self.anchor, next_interpreter=self.next_interpreter, threads=self.threads,
            next_thread=self.next_thread, thread_id=self.thread_id,
            thread_frame=self.thread_frame, thread_cframe=self.thread_cframe,
            cframe_frame=self.cframe_frame, cframe_previous=self.cframe_previous,
            frame_bytes=self.frame_bytes, previous=self.previous, code=self.code,
            instruction=self.instruction, owner=self.owner, tags=self.tags, identity=self.file,
            identity_bytes=self.identity_bytes, instructions=self.instructions,
            thread_interpreter=self.thread_interpreter, interpreter_gil=self.gil,
            gil=runtime + self.gil if self.version < _OWN_GIL else 0,
            version=self.version[1], first_line=self.first_line,
            name=self.qualified_name - self.file, ascii=self.ascii, compact=self.compact,
        )  # fmt: skip


_3_10 = Layout(
    (3, 10),
    PythonAnchor.EACH_FRAME,
    interpreters=32,
    threads=8,
    thread_id=176,
    thread_frame=24,
    thread_cframe=48,
    cframe_previous=8,
    previous=24,
    code=32,
    instruction=96,
    owner=108,
    frame_bytes=120,
    file=104,
    qualified_name=112,
    line_table=120,
    first_line=40,
    instructions=0,
    gil=352,
    ascii=48,
    compact=72,
)
_TABLES = {
    (3, 9): replace(
        _3_10,
        version=(3, 9),
        anchor=PythonAnchor.COUNTED,
        thread_cframe=0,
        cframe_previous=0,
        instruction=104,
        owner=116,
    ),
    (3, 10): _3_10,
    (3, 11): Layout(
        (3, 11),
        PythonAnchor.ENTRY_FLAG,
        interpreters=40,
        threads=16,
        thread_id=152,
        thread_frame=56,
        thread_cframe=56,
        cframe_frame=8,
        cframe_previous=16,
        previous=48,
        code=32,
        instruction=56,
        owner=68,
        frame_bytes=72,
        first_line=72,
        instructions=184,
        gil=360,
        ascii=48,
        compact=72,
    ),
    (3, 12): Layout(
        (3, 12),
        PythonAnchor.ENTRY_FRAME,
        interpreters=40,
        threads=72,
        thread_id=136,
        thread_frame=56,
        thread_cframe=56,
        cframe_frame=0,
        cframe_previous=8,
        previous=8,
        code=0,
        instruction=56,
        owner=70,
        frame_bytes=72,
        first_line=68,
        instructions=192,
        gil=384,
    ),
}

# Members of _Py_DebugOffsets, 8 bytes each, after cookie, version and whether it is free-threaded,
# in groups by structure, as far as they are needed: by the minor version since when they are so.
_MEMBERS: dict[str, dict[int, str]] = {
    "runtime": {13: "size finalizing interpreters_head"},
    "interpreter": {
        13: "size id next threads_head gc imports_modules sysdict builtins ceval_gil"
            " gil_runtime_state gil_enabled gil_locked gil_holder",
        14: "size id next threads_head threads_main gc imports_modules sysdict builtins ceval_gil"
            " gil_runtime_state gil_enabled gil_locked gil_holder code_object_generation"
            " tlbc_generation",
    },
    "thread": {
        13: "size prev next interp current_frame thread_id native_thread_id datastack_chunk status",
        15: "size prev next interp current_frame base_frame last_profiled_frame"
            " last_profiled_frame_seq thread_id native_thread_id datastack_chunk status holds_gil"
            " gil_requested current_exception exc_state",
    },
    "err_stackitem": {13: "", 15: "exc_value"},
    "frame": {
        13: "size previous executable instr_ptr localsplus owner",
        14: "size previous executable instr_ptr localsplus owner stackpointer tlbc_index",
    },
    "code": {13: "size filename name qualname linetable firstlineno argcount localsplusnames"
                 " localspluskinds co_code_adaptive"},
}  # fmt: skip


def layout_of(version: tuple[int, int], runtime: bytes) -> Layout:
    """Return the layout of a version whose ``_PyRuntime`` begins with these bytes.

    Raises :class:`UnknownVersionError`.
    """
    name = f"CPython {version[0]}.{version[1]}"
    if version < _FIRST_DEBUG_OFFSETS:
        layout = _TABLES.get(version)
        if layout is None:
            raise UnknownVersionError(name)
        return layout
    if version > _LAST:
        raise UnknownVersionError(name)
    if runtime[:8] != _COOKIE or len(runtime) < DEBUG_OFFSETS_BYTES:
        raise UnknownVersionError(f"{name} without the table of its offsets")
    number, free_threaded = struct.unpack_from("<QQ", runtime, 8)
    if (number >> 24, number >> 16 & 0xFF) != version:
        raise UnknownVersionError(f"{name} that calls itself another version")
    if free_threaded:
        raise UnknownVersionError(f"{name}, free-threaded")
    return _by_debug_offsets(version, runtime)


def _by_debug_offsets(version: tuple[int, int], runtime: bytes) -> Layout:
    at, offset = 24, {}
    for group, since in _MEMBERS.items():
        for member in since[max(minor for minor in since if minor <= version[1])].split():
            (offset[f"{group}.{member}"],) = struct.unpack_from("<Q", runtime, at)
            at += 8
    if max(offset.values()) > _MOST_OFFSET:
        raise UnknownVersionError(f"CPython {version[0]}.{version[1]} with impossible offsets")
    layout = Layout(
        version,
        PythonAnchor.ENTRY_FRAME,
        interpreters=offset["runtime.interpreters_head"],
        next_interpreter=offset["interpreter.next"],
        threads=offset["interpreter.threads_head"],
        next_thread=offset["thread.next"],
        thread_id=offset["thread.thread_id"],
        thread_frame=offset["thread.current_frame"],
        previous=offset["frame.previous"],
        code=offset["frame.executable"],
        instruction=offset["frame.instr_ptr"],
        owner=offset["frame.owner"],
        frame_bytes=offset["frame.owner"] // 8 * 8 + 8,
        file=offset["code.filename"],
        qualified_name=offset["code.qualname"],
        line_table=offset["code.linetable"],
        first_line=offset["code.firstlineno"],
        instructions=offset["code.co_code_adaptive"],
        gil=offset["interpreter.ceval_gil"],
        thread_interpreter=offset["thread.interp"],
        tags=_TAGS if version >= (3, 14) else 0,
    )
    if (
        layout.frame_bytes > 8 * wire.PYTHON_FRAME_WORDS
        or layout.identity_bytes != 32
        or layout.qualified_name != layout.file + 16
        or max(layout.line_table, layout.first_line) > CODE_BYTES - 8
    ):
        raise UnknownVersionError(f"CPython {version[0]}.{version[1]} with impossible offsets")
    return layout


def unset_code(code: bytes, layout: Layout) -> tuple[int, int]:
    """Return where in ``code``, the first bytes of the evaluation loop, a CFrame has been linked
    and its frame has not been written yet: begin and end, equal if there is no such place.

    The thread's state is in rdi, the CFrame on the stack: ``lea c(%rsp),%r``, ``mov %r,t(%rdi)``
    links it, the first store to ``c + current_frame`` of the stack ends that. Where the stores are
    not found, some instructions of compilers are not known: all of ``code`` counts.
    """
    if layout.unset_frame < 0:
        return 0, 0
    for link in range(2, len(code) - 3):
        # mov %r, disp8(%rdi)
        if (
            code[link - 1] & 0xFB != 0x48
            or code[link] != 0x89
            or code[link + 1] & 0xC7 != 0x47
            or code[link + 2] != layout.thread_cframe
        ):
            continue
        register = code[link - 1] & 4, code[link + 1] & 0x38
        begin = link + 3
        cframe = _loaded_address(code[: link - 1], register)
        if cframe is None:
            return begin, len(code)
        end = _first_store(code, begin, cframe + layout.unset_frame)
        return begin, end or len(code)
    return 0, len(code)


def _loaded_address(code: bytes, register: tuple[int, int]) -> int | None:
    """The stack offset that the last ``lea offset(%rsp),%register`` of ``code`` loads."""
    for at in range(len(code) - 5, 0, -1):
        if code[at - 1] & 0xFB != 0x48 or code[at] != 0x8D or code[at + 2] != 0x24:
            continue
        if (code[at - 1] & 4, code[at + 1] & 0x38) != register:
            continue
        if code[at + 1] & 0xC7 == 0x44:
            return code[at + 3]
        if code[at + 1] & 0xC7 == 0x84 and at + 7 <= len(code):
            return int.from_bytes(code[at + 3 : at + 7], "little")
    return None


def _first_store(code: bytes, begin: int, offset: int) -> int:
    """The end of the first instruction from ``begin`` on that names ``offset(%rsp)``; 0: none."""
    ends = [
        at + len(pattern)
        for pattern in (b"\x24" + offset.to_bytes(4, "little"), bytes([0x24, offset & 0xFF]))
        if (at := code.find(pattern, begin)) >= 0 and (len(pattern) == 5 or offset < 128)
    ]
    return min(ends, default=0)
