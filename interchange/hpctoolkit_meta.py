"""meta.db: metrics, load modules, source files, functions, and the tree of contexts."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from hpcd.array_types import I64, U64
from hpcd.interchange.export_selection import ExportSelection
from hpcd.interchange.hpctoolkit_contexts import LexicalContexts
from hpcd.interchange.hpctoolkit_file import (
    FOOTER,
    MetricIds,
    StringTable,
    align,
    c_string,
    header_size,
    write_header,
)

ID_KINDS = ["SUMMARY", "NODE", "RANK", "THREAD", "GPUDEVICE", "GPUCONTEXT", "GPUSTREAM", "CORE",
            "PROCESS"]  # fmt: skip
"""Names of the identifiers of threads, by the numbers that HPCToolkit gives them; the last is of
processes without a rank."""

_SECTIONS = 8
# Propagation scopes: (name, type, index of its bit).
_SCOPES = [("execution", 2, 0), ("function", 3, 0)]
_IN_FUNCTION_BIT = 1
_HAS_FUNCTION, _HAS_LINE, _HAS_POINT = 1, 2, 4
_FUNCTION, _LINE, _INSTRUCTION = 0, 2, 3
_LEXICAL, _CALL, _INLINED_CALL = 0, 1, 2
_MAIN_THREAD = 1
_ENTRY_NAME = "all threads"


class _Places(NamedTuple):
    """Where in the file load modules (by id), functions (by number), source files and the name of
    the entry point lie."""

    module: I64
    function: I64
    file: dict[str, int]
    entry: int


def write_meta(
    selection: ExportSelection, contexts: LexicalContexts, metrics: MetricIds, path: Path
) -> None:
    """Write meta.db."""
    with path.open("wb") as file:
        file.write(bytes(header_size(_SECTIONS)))
        general = _write_general(file, selection)
        names = _write_id_names(file)
        measured = _write_metrics(file, metrics)
        code, sections = _write_code(file, selection, contexts)
        tree = _write_contexts(file, contexts, code)
        align(file)
        file.write(FOOTER["meta"])
        strings, modules, files, functions = sections
        ordered = [general, names, measured, tree, strings, modules, files, functions]
        write_header(file, "meta", ordered)


def _write_general(file: BinaryIO, selection: ExportSelection) -> tuple[int, int]:
    at = align(file)
    title = c_string(selection.db.path.name)
    about = c_string("Exported by hpcd.")
    file.write(struct.pack("<QQ", at + 16, at + 16 + len(title)) + title + about)
    return file.tell() - at, at


def _write_id_names(file: BinaryIO) -> tuple[int, int]:
    at = align(file)
    strings = StringTable(at + 16 + 8 * len(ID_KINDS))
    places = [strings(name) for name in ID_KINDS]
    file.write(struct.pack("<QQ", at + 16, len(ID_KINDS)))
    file.write(struct.pack(f"<{len(places)}Q", *places) + strings.data)
    return file.tell() - at, at


def _write_metrics(file: BinaryIO, metrics: MetricIds) -> tuple[int, int]:
    """{MD}, then the sub-metrics {PSI} and summaries {SS} of each, then the scopes {PS}."""
    at = align(file)
    count = len(metrics.names)
    described = at + 32
    instances = described + 32 * count
    summaries = instances + 16 * 2 * count
    scopes = summaries + 24 * 2 * count
    strings = StringTable(scopes + 16 * len(_SCOPES))
    head = struct.pack("<QIBBBxQHB5x", described, count, 32, 16, 24, scopes, len(_SCOPES), 16)
    bodies = [bytearray(), bytearray(), bytearray()]
    for number, name in enumerate(metrics.names):
        bodies[0] += struct.pack(
            "<QQQHH4x", strings(name), instances + 32 * number, summaries + 48 * number, 2, 2
        )
        for place in range(2):
            scope = scopes + 16 * place
            metric = 2 * number + place
            bodies[1] += struct.pack("<QH6x", scope, metric)
            bodies[2] += struct.pack("<QQBxH4x", scope, strings("$$"), 0, 2 * count + metric)
    listed = b"".join(struct.pack("<QBB6x", strings(name), *rest) for name, *rest in _SCOPES)
    file.write(head + b"".join(bodies) + listed + strings.data)
    return file.tell() - at, at


def _write_code(
    file: BinaryIO, selection: ExportSelection, contexts: LexicalContexts
) -> tuple[_Places, list[tuple[int, int]]]:
    """Strings, load modules, source files and functions: where they lie, and the sections."""
    strings_at = align(file)
    strings = StringTable(strings_at)
    entry = strings(_ENTRY_NAME)
    modules = [strings(module.path) for module in selection.db.modules]
    named = [strings(function.name) for function in contexts.functions]
    paths = {function.file for function in contexts.functions}
    paths |= {place.file for place in contexts.places}
    sources = sorted(paths - {""})
    files = [strings(path) for path in sources]
    file.write(strings.data)
    sections = [(file.tell() - strings_at, strings_at)]
    module_at = align(file) + 16
    sections.append(_write_table(file, 16, [struct.pack("<QQ", 0, place) for place in modules]))
    file_at = align(file) + 16
    sections.append(_write_table(file, 16, [struct.pack("<QQ", 0, place) for place in files]))
    file_of = {path: file_at + 16 * number for number, path in enumerate(sources)}
    module_of = np.concatenate(([0], module_at + 16 * np.arange(len(modules)))).astype(np.int64)
    function_at = align(file) + 16
    rows = [
        struct.pack("<QQQQII", name, int(module_of[function.module]), function.offset,
                    file_of.get(function.file, 0), function.line, 0)
        for name, function in zip(named, contexts.functions, strict=True)
    ]  # fmt: skip
    sections.append(_write_table(file, 40, rows))
    function_of = function_at + 40 * np.arange(len(rows))
    return _Places(module_of, function_of, file_of, entry), sections


def _write_table(file: BinaryIO, size: int, rows: list[bytes]) -> tuple[int, int]:
    at = file.tell()
    file.write(struct.pack("<QIH2x", at + 16, len(rows), size) + b"".join(rows))
    return file.tell() - at, at


def _write_contexts(file: BinaryIO, contexts: LexicalContexts, code: _Places) -> tuple[int, int]:
    """The tree: the entry point, which is its root, and {Ctx} of all others, siblings together."""
    module_of, function_of, file_of, name = code
    tree, inside, number = contexts.tree, contexts.within_function, contexts.number
    count = len(tree)
    first, second = np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    outside = ~inside
    first[outside] = function_of[number[outside]].astype(np.uint64)
    lines = np.array([bool(place.file) for place in contexts.places], bool)
    where = [file_of[p.file] if p.file else int(module_of[p.module]) for p in contexts.places]
    detail = [p.line if p.file else p.offset for p in contexts.places]
    places = np.flatnonzero(inside)
    first[places] = np.array(where, np.uint64)[number[places]]
    second[places] = np.array(detail, np.uint64)[number[places]]
    is_line = np.zeros(count, bool)
    is_line[places] = lines[number[places]]
    inlined = np.array([function.inlined for function in contexts.functions], bool)
    flags = np.where(outside, _HAS_FUNCTION, np.where(is_line, _HAS_LINE, _HAS_POINT))
    kind = np.where(outside, _FUNCTION, np.where(is_line, _LINE, _INSTRUCTION))
    relation = np.full(count, _LEXICAL)
    relation[outside] = np.where(inlined[number[outside]], _INLINED_CALL, _CALL)
    words = np.where(outside, 1, 2)

    at = align(file)
    # The root is the entry point; identifiers are one more than the numbers of nodes.
    size = 32 + 8 * words
    size[0] = 0
    position = at + 16 + 32 + np.cumsum(size) - size
    span, begin = _children(tree.parent.astype(np.int64), size, position)
    table = np.zeros((count, 6), np.uint64)
    table[:, 0], table[:, 1] = span.astype(np.uint64), begin.astype(np.uint64)
    packed = np.arange(1, count + 1).astype(np.uint64)
    for shift, column in ((32, flags), (40, relation), (48, kind), (56, words)):
        packed |= column.astype(np.uint64) << np.uint64(shift)
    table[:, 2] = packed
    table[:, 3] = np.where(inside, _IN_FUNCTION_BIT, 0)
    table[:, 4], table[:, 5] = first, second
    kept: U64 = table[1:][np.arange(6) < (4 + words[1:])[:, None]]
    file.write(struct.pack("<QHB5x", at + 16, 1, 32))
    file.write(struct.pack("<QQIH2xQ", int(span[0]), int(begin[0]), 1, _MAIN_THREAD, name))
    file.write(kept.astype("<u8").tobytes())
    return file.tell() - at, at


def _children(parent: I64, size: I64, position: I64) -> tuple[I64, I64]:
    """Bytes of the children of each node, and where they begin; 0 where there are none."""
    count = len(parent)
    span, begin = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(span, parent[1:], size[1:])
    # Siblings follow one another: the first is the smallest number.
    above, first = np.unique(parent[1:], return_index=True)
    begin[above] = position[first + 1]
    return span, begin
