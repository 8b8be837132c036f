"""Functions of Python processes: file, qualified name and lines, read once for each code object.

All of it is memory of a target (:mod:`hpcd.daemon.runtimes.process_memory`), read for many code
objects at a time. Sizes are bounded; what does not look like a code object is not named. Most
functions the programs have sent (``bpf/programs/runtimes/python_functions.h``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from hpcd.bpf.wire import (
    PYTHON_BYTES_HEAD,
    PYTHON_BYTES_LENGTH,
    PYTHON_HASH_FACTOR,
    PYTHON_IDENTITY_WORDS,
    PYTHON_TEXT_LENGTH,
    PYTHON_TEXT_STATE,
    FunctionEvent,
)
from hpcd.daemon.runtimes.process_memory import ReadMemory, is_address
from hpcd.daemon.runtimes.python.cpython_layouts import CODE_BYTES, Layout
from hpcd.daemon.runtimes.python.line_tables import LineTable, read_line_table

# A string's head and its characters: longer paths and names are cut.
_TEXT_BYTES = 2048
# Of all tables read at once: half a second of decoding. A module of 10,000 lines has 100 KB.
_MOST_TABLES = 1 << 20
_FIRST_TABLE_BYTES = 1024
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
_MASK = (1 << 64) - 1

Key = tuple[int, int]
"""A code object: its address, and the hash of what identifies it that paths have, as memory is used
again."""


@dataclass(frozen=True, slots=True)
class PythonCode:
    """A function as its code object describes it."""

    file: str
    name: str
    first_line: int
    lines: LineTable
    whole: bool = True
    """Whether it has all of its lines."""

    @property
    def kept_bytes(self) -> int:
        """About how much memory it takes."""
        return 512 + 2 * (len(self.file) + len(self.name)) + 16 * len(self.lines.ends)


@dataclass(slots=True)
class _Draft:
    identity: tuple[int, ...]
    first_line: int
    file: str = ""
    name: str = ""
    table: bytes = b""


def read_codes(
    read: ReadMemory, layout: Layout, code_type: int, addresses: Sequence[int]
) -> dict[Key, PythonCode]:
    """Return the code objects at ``addresses`` that could be read.

    ``code_type`` is the address of ``PyCode_Type``, 0 if it is not known. Raises what ``read``
    does.
    """
    result = {}
    possible = list(filter(is_address, addresses))
    drafts = _heads(read, layout, code_type, possible)
    _read_texts(read, layout, drafts)
    _read_tables(read, drafts)
    for address, draft in drafts.items():
        if draft.file and draft.name:
            lines = read_line_table(layout.version, draft.table, draft.first_line)
            code = PythonCode(draft.file, draft.name, draft.first_line, lines)
            result[address, hash_identity(draft.identity)] = code
    return result


def sent_code(event: FunctionEvent, text: bytes, *, lines: bool) -> PythonCode:
    """Return the function of an event, which ``text`` follows; O(its table), without ``lines``
    O(1)."""
    name, table = event.file, event.file + event.name
    first_line = max(event.first_line, 0)
    data = text[table : table + event.table] if lines else b""
    return PythonCode(
        _decoded(text[:name], event.file_width),
        _decoded(text[name:table], event.name_width),
        first_line,
        read_line_table((3, event.version), data, first_line),
        whole=lines and event.table == event.whole_table,
    )


def hash_identity(identity: Sequence[int]) -> int:
    """Return the hash of what identifies a code object, the addresses of its file, names and line
    table (``bpf/programs/runtimes/python_chain.h:python_identity``)."""
    value = 0
    for word in (*identity, 0)[:PYTHON_IDENTITY_WORDS]:
        product = (value ^ word) * PYTHON_HASH_FACTOR & _MASK
        value = int.from_bytes(product.to_bytes(8, "little"), "big")
    return value & 0xFFFFFFFF


def _heads(
    read: ReadMemory, layout: Layout, code_type: int, addresses: Sequence[int]
) -> dict[int, _Draft]:
    drafts = {}
    heads = read([(address, CODE_BYTES) for address in addresses])
    for address, head in zip(addresses, heads, strict=True):
        if head is None or len(head) < CODE_BYTES:
            continue
        if code_type and struct.unpack_from("<Q", head, 8)[0] != code_type:
            continue
        words = layout.identity_bytes // 8
        identity = struct.unpack_from(f"<{words}Q", head, layout.file)
        (first_line,) = struct.unpack_from("<i", head, layout.first_line)
        drafts[address] = _Draft(identity, max(first_line, 0))
    return drafts


def _read_texts(read: ReadMemory, layout: Layout, drafts: dict[int, _Draft]) -> None:
    name = (layout.qualified_name - layout.file) // 8
    wanted = [
        (draft.identity[which], _TEXT_BYTES) for draft in drafts.values() for which in (0, name)
    ]
    texts = iter(read(wanted) if wanted else ())
    for draft in drafts.values():
        draft.file, draft.name = _text(next(texts), layout), _text(next(texts), layout)


def _text(data: bytes | None, layout: Layout) -> str:
    """The characters of a compact str object that begins with ``data``; "" if it is none."""
    if data is None or len(data) < layout.compact:
        return ""
    (length,) = struct.unpack_from("<Q", data, PYTHON_TEXT_LENGTH)
    (state,) = struct.unpack_from("<I", data, PYTHON_TEXT_STATE)
    # interned: 2 bits, kind: 3, compact: 1, ascii: 1
    kind, compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
    if not compact or kind not in _ENCODINGS:
        return ""
    start = layout.ascii if is_ascii else layout.compact
    return _decoded(data[start : start + min(length, _TEXT_BYTES) * kind], kind)


def _decoded(data: bytes, width: int) -> str:
    """Decode characters of ``width`` bytes each; "" if there are none of that width."""
    encoding = _ENCODINGS.get(width)
    return data.decode(encoding, "replace") if encoding else ""


def _read_tables(read: ReadMemory, drafts: dict[int, _Draft]) -> None:
    tables = [(draft, draft.identity[-1]) for draft in drafts.values()]
    heads = read([(at, _FIRST_TABLE_BYTES) for _, at in tables]) if tables else []
    longer, room = [], _MOST_TABLES
    for (draft, at), head in zip(tables, heads, strict=True):
        if head is None or len(head) < PYTHON_BYTES_HEAD:
            continue
        (size,) = struct.unpack_from("<Q", head, PYTHON_BYTES_LENGTH)
        draft.table = head[PYTHON_BYTES_HEAD : PYTHON_BYTES_HEAD + size]
        if len(draft.table) < size <= room:
            room -= size
            longer.append((draft, at + PYTHON_BYTES_HEAD, size))
    parts = read([(at, size) for _, at, size in longer]) if longer else []
    for (draft, _, _), table in zip(longer, parts, strict=True):
        draft.table = table or draft.table
