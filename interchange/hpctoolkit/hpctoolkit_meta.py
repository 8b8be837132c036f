"""meta.db: metrics, load modules, source files, functions, and the tree of contexts."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from hpcd.array_types import I64, U64
from hpcd.interchange.hpctoolkit import hpctoolkit_layout as layout
from hpcd.interchange.hpctoolkit.hpctoolkit_contexts import LexicalContexts
from hpcd.interchange.hpctoolkit.hpctoolkit_layout import (
    Section,
    StringTable,
    StructureFile,
    align,
    c_string,
    finish_file,
    header_size,
)
from hpcd.interchange.output.export_selection import ExportSelection

_SECTIONS = 8
# Propagation scopes: name, type, index of its bit.
_SCOPES = [("execution", layout.SCOPE_EXECUTION, 0), ("function", layout.SCOPE_FUNCTION, 0)]
_IN_FUNCTION_BIT = 1
_LEXICAL, _CALL, _INLINED_CALL = 0, 1, 2
_MAIN_THREAD = 1
_ENTRY_NAME = "all threads"
_MAX_CONTEXTS = 1 << 24
_MAX_METRICS = 1 << 12
_MAX_INSTANCES = 64

# --- writing ---


class _CodePlaces(NamedTuple):
    """Positions of load modules (by id), functions (by number), source files and the name of the
    entry point."""

    module: I64
    function: I64
    file: dict[str, int]
    entry: int


def write_meta(
    selection: ExportSelection, contexts: LexicalContexts, metrics: list[str], path: Path
) -> None:
    """Write meta.db."""
    with path.open("wb") as file:
        file.write(bytes(header_size(_SECTIONS)))
        general = _write_general(file, selection)
        names = _write_id_names(file)
        measured = _write_metrics(file, metrics)
        code, sections = _write_code(file, selection, contexts)
        tree = _write_contexts(file, contexts, code)
        finish_file(file, "meta", [general, names, measured, tree, *sections])


def _write_general(file: BinaryIO, selection: ExportSelection) -> Section:
    at = align(file)
    title = c_string(selection.db.path.name)
    about = c_string("Exported by hpcd.")
    file.write(
        layout.TITLE.pack(at + layout.TITLE.size, at + layout.TITLE.size + len(title))
        + title
        + about
    )
    return file.tell() - at, at


def _write_id_names(file: BinaryIO) -> Section:
    at = align(file)
    strings = StringTable(at + layout.NAMES.size + layout.POINTER.size * len(layout.ID_KINDS))
    places = [strings[name] for name in layout.ID_KINDS]
    file.write(layout.NAMES.pack(at + layout.NAMES.size, len(layout.ID_KINDS)))
    file.write(b"".join(map(layout.POINTER.pack, places)) + strings.data)
    return file.tell() - at, at


def _write_metrics(file: BinaryIO, metrics: list[str]) -> Section:
    """Write {MD}, then the sub-metrics {PSI} and summaries {SS} of each, then the scopes {PS}."""
    at = align(file)
    count = len(metrics)
    described = at + layout.METRICS.size
    instances = described + layout.METRIC.size * count
    summaries = instances + layout.SCOPE_INSTANCE.size * 2 * count
    scopes = summaries + layout.SUMMARY.size * 2 * count
    strings = StringTable(scopes + layout.SCOPE.size * len(_SCOPES))
    head = layout.METRICS.pack(
        described, count, layout.METRIC.size, layout.SCOPE_INSTANCE.size, layout.SUMMARY.size,
        scopes, len(_SCOPES), layout.SCOPE.size,
    )  # fmt: skip
    bodies = [bytearray(), bytearray(), bytearray()]
    for number, name in enumerate(metrics):
        bodies[0] += layout.METRIC.pack(
            strings[name], instances + 2 * layout.SCOPE_INSTANCE.size * number,
            summaries + 2 * layout.SUMMARY.size * number, 2, 2,
        )  # fmt: skip
        for place in range(2):
            scope = scopes + layout.SCOPE.size * place
            metric = 2 * number + place
            bodies[1] += layout.SCOPE_INSTANCE.pack(scope, metric)
            bodies[2] += layout.SUMMARY.pack(scope, strings["$$"], 0, 2 * count + metric)
    listed = b"".join(layout.SCOPE.pack(strings[name], *rest) for name, *rest in _SCOPES)
    file.write(head + b"".join(bodies) + listed + strings.data)
    return file.tell() - at, at


def _write_code(
    file: BinaryIO, selection: ExportSelection, contexts: LexicalContexts
) -> tuple[_CodePlaces, list[Section]]:
    """Write strings, modules, source files and functions; returns their places and sections."""
    strings_at = align(file)
    strings = StringTable(strings_at)
    entry = strings[_ENTRY_NAME]
    modules = [strings[module.path] for module in selection.db.modules]
    named = [strings[function.name] for function in contexts.functions]
    paths = {function.file for function in contexts.functions}
    paths |= {place.file for place in contexts.places}
    sources = sorted(paths - {""})
    files = [strings[path] for path in sources]
    file.write(strings.data)
    sections = [(file.tell() - strings_at, strings_at)]
    module_at = align(file) + layout.TABLE.size
    sections.append(_write_table(file, layout.SOURCE, [(0, place) for place in modules]))
    file_at = align(file) + layout.TABLE.size
    sections.append(_write_table(file, layout.SOURCE, [(0, place) for place in files]))
    file_of = {path: file_at + layout.SOURCE.size * number for number, path in enumerate(sources)}
    module_of = np.append(0, module_at + layout.SOURCE.size * np.arange(len(modules)))
    function_at = align(file) + layout.TABLE.size
    rows = [
        (name, int(module_of[function.module]), function.offset,
         file_of.get(function.file, 0), function.line, 0)
        for name, function in zip(named, contexts.functions, strict=True)
    ]  # fmt: skip
    sections.append(_write_table(file, layout.FUNCTION, rows))
    function_of = function_at + layout.FUNCTION.size * np.arange(len(rows))
    return _CodePlaces(module_of, function_of, file_of, entry), sections


def _write_table(
    file: BinaryIO, row_layout: struct.Struct, rows: Sequence[tuple[int, ...]]
) -> Section:
    at = file.tell()
    file.write(layout.TABLE.pack(at + layout.TABLE.size, len(rows), row_layout.size))
    file.write(b"".join(row_layout.pack(*row) for row in rows))
    return file.tell() - at, at


def _write_contexts(file: BinaryIO, contexts: LexicalContexts, code: _CodePlaces) -> Section:
    """Write the entry point, which is the root, and {Ctx} of all others, siblings together."""
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
    flags = np.where(
        outside, layout.HAS_FUNCTION, np.where(is_line, layout.HAS_LINE, layout.HAS_POINT)
    )
    kind = np.where(
        outside, layout.KIND_FUNCTION, np.where(is_line, layout.KIND_LINE, layout.KIND_INSTRUCTION)
    )
    relation = np.full(count, _LEXICAL)
    relation[outside] = np.where(inlined[number[outside]], _INLINED_CALL, _CALL)
    words = np.where(outside, 1, 2)

    at = align(file)
    # The root is the entry point; identifiers are one more than the numbers of nodes.
    size = layout.CONTEXT.size + layout.POINTER.size * words
    size[0] = 0
    position = at + layout.ENTRIES.size + layout.ENTRY.size + np.cumsum(size) - size
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
    file.write(layout.ENTRIES.pack(at + layout.ENTRIES.size, 1, layout.ENTRY.size))
    file.write(layout.ENTRY.pack(int(span[0]), int(begin[0]), 1, _MAIN_THREAD, name))
    file.write(kept.astype("<u8").tobytes())
    return file.tell() - at, at


def _children(parent: I64, size: I64, position: I64) -> tuple[I64, I64]:
    """Return the bytes of the children of each node and their position; 0 without children."""
    count = len(parent)
    span, begin = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(span, parent[1:], size[1:])
    # Siblings follow one another: the first is the smallest number.
    above, first = np.unique(parent[1:], return_index=True)
    begin[above] = position[first + 1]
    return span, begin


# --- reading ---


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A context. ``call`` is set if a function is called here, ``function`` is the position of its
    description (0: unknown), ``entry`` the kind of an entry point, None below."""

    id: int
    parent: int
    call: bool
    function: int
    entry: int | None = None


class MetaFile:
    """Reads ``meta.db``: contexts and metrics."""

    def __init__(self, folder: Path) -> None:
        self._file = file = StructureFile(folder / "meta.db", b"meta")
        self._sections = [file.section(number) for number in range(_SECTIONS)]
        (title,) = file.unpack(layout.POINTER, self._sections[0])
        self.title = file.text(title)

    def identifier_kinds(self) -> list[str]:
        """Return the names of the kinds of identifiers, by number."""
        place, count = self._file.unpack(layout.NAMES, self._sections[1])
        pointers = [
            self._file.unpack(layout.POINTER, place + 8 * number)[0] for number in range(count)
        ]
        return [self._file.text(at).decode(errors="replace") for at in pointers]

    def metrics(self) -> dict[int, bytes]:
        """Return names of metrics by the number of their inclusive values."""
        file = self._file
        place, count, stride, instance_stride = file.unpack(layout.METRICS, self._sections[2])[:4]
        named = {}
        for number in range(min(count, _MAX_METRICS)):
            name, instances, _, instance_count, _ = file.unpack(
                layout.METRIC, place + stride * number
            )
            if instance_count > _MAX_INSTANCES:
                raise file.damaged(f"{instance_count} kinds of a metric")
            for instance in range(instance_count):
                scope, metric = file.unpack(
                    layout.SCOPE_INSTANCE, instances + instance_stride * instance
                )
                if file.unpack(layout.SCOPE, scope)[1] == layout.SCOPE_EXECUTION:
                    named[metric] = file.text(name)
        return named

    def contexts(self) -> Iterator[StoredContext]:
        """Yield all contexts, parents before their children. 0 is the parent of entry points."""
        file = self._file
        place, count, stride = file.unpack(layout.ENTRIES, self._sections[3])
        ranges = []
        for number in range(count):
            size, children, context, kind, _ = file.unpack(layout.ENTRY, place + stride * number)
            yield StoredContext(context, 0, False, 0, kind)
            ranges.append((children, size, context))
        seen = 0
        while ranges:
            at, size, parent = ranges.pop()
            end = at + size
            while at < end:
                seen += 1
                if seen > _MAX_CONTEXTS or seen * layout.CONTEXT.size > len(file):
                    raise file.damaged("more contexts than fit into it")
                below, below_size, context, call, function, words = self._context(at)
                yield StoredContext(context, parent, call, function)
                if below_size:
                    ranges.append((below, below_size, context))
                at += layout.CONTEXT.size + 8 * words

    def _context(self, at: int) -> tuple[int, int, int, bool, int, int]:
        size, below, context, flags, _, kind, words, _ = self._file.unpack(layout.CONTEXT, at)
        function = 0
        if flags & layout.HAS_FUNCTION and words:
            (function,) = self._file.unpack(layout.POINTER, at + layout.CONTEXT.size)
        return below, size, context, kind == layout.KIND_FUNCTION, function, words

    def function(self, at: int) -> tuple[bytes, bytes, bytes]:
        """Return (name, load module, source file) of the function described at ``at``, or empty."""
        file = self._file
        name, module, _, source, _, _ = file.unpack(layout.FUNCTION, at)
        texts = [file.text(name) if name else b""]
        for place in (module, source):
            texts.append(
                file.text(file.unpack(layout.POINTER, place + layout.POINTER.size)[0])
                if place
                else b""
            )
        return texts[0], texts[1], texts[2]
