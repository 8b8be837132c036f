"""Functions read from memory: that of this process, and such as looks like it."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path
from types import CodeType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.bpf.wire import FunctionEvent, PythonAnchor
from hpcd.daemon.runtimes.process_memory import AT_ONCE, Pieces
from hpcd.daemon.runtimes.python.code_objects import read_codes, sent_code
from hpcd.daemon.runtimes.python.cpython_layouts import (
    UnknownVersionError,
    layout_of,
    unset_code,
)
from hpcd.daemon.unwind.runtime_symbols import runtime_symbols
from hpcd.elf.elf_view import ElfView, FileBytes
from tests.support.python_code import code_named

VERSION = sys.version_info[:2]
needs_3_11 = pytest.mark.skipif(VERSION != (3, 11), reason="the layout is that of 3.11")


def own_memory(pieces: Pieces) -> list[bytes | None]:
    """Memory of this process."""
    result: list[bytes | None] = []
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for address, size in pieces:
            try:
                result.append(os.pread(memory.fileno(), size, address))
            except (OSError, OverflowError):
                result.append(None)
    return result


@needs_3_11
@pytest.mark.parametrize("name", ["plain", "größe", "名前", "𐐀"])
def test_file_name_and_line(name: str) -> None:
    code = code_named(name)
    layout = layout_of(VERSION, b"")
    read = read_codes(own_memory, layout, id(CodeType), [id(code)])
    ((key, function),) = read.items()
    name = code.co_name  # identifiers are normalised
    assert (function.file, function.name, function.first_line) == (code.co_filename, name, 1)
    assert key[0] == id(code)
    assert function.lines.line(2) == 2


@needs_3_11
def test_what_is_no_code_object_is_not_named() -> None:
    layout = layout_of(VERSION, b"")
    text = "not code"
    assert read_codes(own_memory, layout, id(CodeType), [id(text), 0, 8, 1 << 46, 1 << 63]) == {}


@needs_3_11
@given(st.binary(min_size=1, max_size=600), st.integers(0, 255))
def test_memory_that_lies(noise: bytes, at: int) -> None:
    """Sizes and addresses of anything: nothing raises, little is read."""
    layout = layout_of(VERSION, b"")

    def read(pieces: Pieces) -> list[bytes | None]:
        assert all(size <= 1 << 20 for _, size in pieces)
        return [(noise * (size // len(noise) + 1))[at % len(noise) :][:size] for _, size in pieces]

    read_codes(read, layout, 0, [4096, 8192])


@needs_3_11
def test_large_tables_of_many_functions() -> None:
    """Only so much is read at once as is decoded in half a second."""
    layout, asked = layout_of(VERSION, b""), []
    says_500_kb = struct.pack("<QQQ", 1, 0, 500_000)

    def read(pieces: Pieces) -> list[bytes | None]:
        asked.extend(size for _, size in pieces)
        return [says_500_kb.ljust(size, b"\xff") for _, size in pieces]

    read_codes(read, layout, 0, range(4096, 4096 + AT_ONCE))
    assert sum(size for size in asked if size > 4096) <= 1 << 20
    assert len(asked) > 4 * AT_ONCE


@given(st.binary(max_size=6000), st.lists(st.integers(0, 65535), min_size=6, max_size=6))
def test_sent_functions_that_lie(text: bytes, numbers: list[int]) -> None:
    names = ("version", "file", "name", "table", "file_width", "name_width")
    event = FunctionEvent(**dict(zip(names, numbers, strict=True)), first_line=-5)
    code = sent_code(event, text, lines=True)
    assert code.first_line == 0 and len(code.file) + len(code.name) <= len(text)
    assert len(code.lines.ends) <= len(text) + 1


@needs_3_11
@pytest.mark.parametrize(
    ("name", "width", "encoding"),
    [
        ("plain", 1, "ascii"),
        ("größe", 1, "latin-1"),
        ("名前", 2, "utf-16-le"),
        ("𐐀", 4, "utf-32-le"),
    ],
)
def test_a_sent_function(name: str, width: int, encoding: str) -> None:
    code = code_named(name)
    text, table = name.encode(encoding), code.co_linetable
    event = FunctionEvent(
        version=VERSION[1], file=5, name=len(text), table=len(table), first_line=1,
        file_width=1, name_width=width, whole_table=len(table),
    )  # fmt: skip
    text = b"/a.py" + text + table
    function = sent_code(event, text, lines=True)
    assert (function.name, function.first_line, function.whole) == (name, 1, True)
    assert function.lines.line(2) == 2
    function = sent_code(event, text, lines=False)
    assert (function.name, function.lines.line(2), function.whole) == (name, 1, False)


def test_offsets_told_by_the_process() -> None:
    def told(version: int, words: list[int], free_threaded: int = 0) -> bytes:
        head = struct.pack("<8sQQ", b"xdebugpy", version, free_threaded)
        return (head + struct.pack(f"<{len(words)}Q", *words)).ljust(1024, b"\0")

    thirteen = 0x030D00F0
    runtime, interpreter = [0, 0, 632], [0, 0, 7360, 7344] + [0] * 9
    thread = [0, 0, 8, 16, 72, 152, 160, 0, 0]
    frame, code = [88, 8, 0, 56, 72, 70], [0, 112, 120, 128, 136, 68, 52, 0, 0, 200]
    words = runtime + interpreter + thread + frame + code
    layout = layout_of((3, 13), told(thirteen, words))
    assert (layout.interpreters, layout.threads, layout.thread_frame) == (632, 7344, 72)
    assert (layout.anchor, layout.owner, layout.instructions) == (PythonAnchor.ENTRY_FRAME, 70, 200)
    for wrong in (
        b"",
        told(thirteen, words, 1),
        told(0x030E00F0, words),
        told(thirteen, [1 << 40] * 40),
        told(thirteen, [200] * 40),
    ):
        with pytest.raises(UnknownVersionError):
            layout_of((3, 13), wrong)
    for version in ((2, 7), (3, 8), (3, 16), (0, 0)):
        with pytest.raises(UnknownVersionError):
            layout_of(version, b"")


def test_code_in_which_a_frame_is_not_set_yet() -> None:
    """The prologue of Debian's 3.11: the state's CFrame is linked, six instructions later its frame
    is written."""
    layout = layout_of((3, 11), b"")
    before = bytes.fromhex("4157 4881ec28010000 884c24b0")
    load = bytes.fromhex("488d8c24b0000000")
    link = bytes.fromhex("48894f38")
    between = bytes.fromhex("488b48088b4720c6464401")
    store = bytes.fromhex("0f118424b8000000")
    code = before + load + link + between + store + bytes(64)
    begin, end = unset_code(code, layout)
    assert code[:begin].endswith(link) and code[:end].endswith(store)
    assert unset_code(bytes(256), layout) == (0, 256)
    assert unset_code(code, layout_of((3, 10), b"")) == (0, 0)


def test_the_runtime_of_this_interpreter_is_found() -> None:
    library = ctypes.pythonapi._name or sys.executable
    with Path(library).open("rb") as file:
        symbols = runtime_symbols(ElfView(FileBytes(file.fileno())))
    assert {"_PyRuntime", "PyCode_Type"} <= symbols.keys()
    with Path("/bin/true").open("rb") as file:
        assert runtime_symbols(ElfView(FileBytes(file.fileno()))) == {}
