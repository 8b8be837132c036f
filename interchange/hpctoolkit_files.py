"""The files of an HPCToolkit database, version 4: contexts, metrics, profiles, traces.

Layouts are those of FORMATS.md, which hpcprof puts into each database. Strides of arrays are in the
files, so that structures may grow within the version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpcd.array_types import I64, Array
from hpcd.errors import FormatError
from hpcd.interchange.mapped_file import MappedFile

MAGIC = b"HPCTOOLKIT"
_HEADER = struct.Struct("<10s4sBB")
_SECTION = struct.Struct("<QQ")
_U64 = struct.Struct("<Q")
_COUNTED = struct.Struct("<QIH")  # pointer, count, stride
_NAMES = struct.Struct("<QB")
_METRICS = struct.Struct("<QIBBB1xQHB")
_METRIC = struct.Struct("<QQQHH")
_SCOPE_INSTANCE = struct.Struct("<QH")
_SCOPE = struct.Struct("<QBB")
_ENTRIES = struct.Struct("<QHB")
_ENTRY = struct.Struct("<QQIH2xQ")
_CONTEXT = struct.Struct("<QQIBBBBH6x")
_FUNCTION = struct.Struct("<QQQQI")
_PROFILES = struct.Struct("<QIB")
_PROFILE = struct.Struct("<QQI4xQQI")
_ID = struct.Struct("<BxHIQ")
_TRACES = struct.Struct("<QIB3xQQ")
_TRACE = struct.Struct("<I4xQQ")
_VALUE = np.dtype([("metric", "<u2"), ("value", "<f8")])
_INDEX = np.dtype([("context", "<u4"), ("start", "<u8")])
_ELEMENT = np.dtype([("time_ns", "<u8"), ("context", "<u4")])
_EXECUTION = 2
_FUNCTION_LIKE = 0
_HAS_FUNCTION = 1
_MAX_CONTEXTS = 1 << 24
_MAX_PROFILES = 1 << 18
_MAX_INSTANCES = 64


@dataclass(frozen=True, slots=True)
class Context:
    """A context: ``call`` is whether a function is called here, ``function`` where it is described
    (0: unknown); ``entry`` is the kind of entry point, None below."""

    id: int
    parent: int
    call: bool
    function: int
    entry: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A thread's sums: ``ids`` its identifiers by kind; the rest says where its values are."""

    ids: dict[str, int]
    values: int
    value_count: int
    contexts: int
    context_count: int


class MetaFile:
    """``meta.db``: what contexts and metrics there are."""

    def __init__(self, folder: Path) -> None:
        self._file = file = _open(folder / "meta.db", b"meta")
        self._sections = [file.unpack(_SECTION, 16 + 16 * number)[1] for number in range(8)]
        (title,) = file.unpack(_U64, self._sections[0])
        self.title = file.text(title)

    def identifier_kinds(self) -> list[str]:
        """Names of the kinds of identifiers, by number."""
        place, count = self._file.unpack(_NAMES, self._sections[1])
        pointers = [self._file.unpack(_U64, place + 8 * number)[0] for number in range(count)]
        return [self._file.text(at).decode(errors="replace") for at in pointers]

    def metrics(self) -> dict[int, bytes]:
        """Names of metrics by the number their inclusive values have."""
        file = self._file
        place, count, stride, instance_stride = file.unpack(_METRICS, self._sections[2])[:4]
        named = {}
        for number in range(min(count, 1 << 12)):
            name, instances, _, instance_count, _ = file.unpack(_METRIC, place + stride * number)
            if instance_count > _MAX_INSTANCES:
                raise file.damaged(f"{instance_count} kinds of a metric")
            for instance in range(instance_count):
                scope, metric = file.unpack(_SCOPE_INSTANCE, instances + instance_stride * instance)
                if file.unpack(_SCOPE, scope)[1] == _EXECUTION:
                    named[metric] = file.text(name)
        return named

    def contexts(self) -> Iterator[Context]:
        """All contexts, parents before their children. 0 is the parent of entry points."""
        file = self._file
        place, count, stride = file.unpack(_ENTRIES, self._sections[3])
        ranges = []
        for number in range(count):
            size, children, context, kind, _ = file.unpack(_ENTRY, place + stride * number)
            yield Context(context, 0, False, 0, kind)
            ranges.append((children, size, context))
        seen = 0
        while ranges:
            at, size, parent = ranges.pop()
            end = at + size
            while at < end:
                seen += 1
                if seen > _MAX_CONTEXTS or seen * _CONTEXT.size > len(file):
                    raise file.damaged("more contexts than fit into it")
                below, below_size, context, call, function, words = self._context(at)
                yield Context(context, parent, call, function)
                if below_size:
                    ranges.append((below, below_size, context))
                at += _CONTEXT.size + 8 * words

    def _context(self, at: int) -> tuple[int, int, int, bool, int, int]:
        size, below, context, flags, _, kind, words, _ = self._file.unpack(_CONTEXT, at)
        function = 0
        if flags & _HAS_FUNCTION and words:
            (function,) = self._file.unpack(_U64, at + _CONTEXT.size)
        return below, size, context, kind == _FUNCTION_LIKE, function, words

    def function(self, at: int) -> tuple[bytes, bytes, bytes]:
        """(name, load module, source file) of the function described at ``at``, or empty."""
        file = self._file
        name, module, _, source, _ = file.unpack(_FUNCTION, at)
        texts = [file.text(name) if name else b""]
        for place in (module, source):
            texts.append(file.text(file.unpack(_U64, place + 8)[0]) if place else b"")
        return texts[0], texts[1], texts[2]


class ProfileFile:
    """``profile.db``: inclusive values by thread."""

    def __init__(self, folder: Path, kinds: list[str]) -> None:
        self._file = _open(folder / "profile.db", b"prof")
        self._kinds = kinds

    def profiles(self) -> dict[int, Profile]:
        """The profiles of threads by number, without summaries of several."""
        file = self._file
        _, section = file.unpack(_SECTION, 16)
        place, count, stride = file.unpack(_PROFILES, section)
        if count > _MAX_PROFILES:
            raise file.damaged(f"{count} profiles")
        profiles = {}
        size = 0
        for number in range(count):
            fields = file.unpack(_PROFILE, place + stride * number)
            value_count, values, context_count, contexts, ids = fields[:5]
            size += value_count * _VALUE.itemsize + context_count * _INDEX.itemsize
            if size > len(file):
                raise file.damaged("profiles have more values than fit into it")
            if not fields[5] & 1 and ids:
                profiles[number] = Profile(
                    self._ids(ids), values, value_count, contexts, context_count
                )
        return profiles

    def _ids(self, at: int) -> dict[str, int]:
        (count,) = self._file.unpack(struct.Struct("<H"), at)
        ids = {}
        for number in range(min(count, 16)):
            kind, physical, logical, hardware = self._file.unpack(_ID, at + 8 + 16 * number)
            name = self._kinds[kind] if kind < len(self._kinds) else str(kind)
            ids[name] = hardware if physical & 1 else logical
        return ids

    def values(self, profile: Profile, metric: int) -> tuple[Array, Array]:
        """(contexts ``uint32[n]``, values ``float64[n]``) of a metric."""
        file = self._file
        values = file.array(_VALUE, profile.values, profile.value_count)
        index = file.array(_INDEX, profile.contexts, profile.context_count)
        bounds = np.append(index["start"], np.uint64(len(values)))
        if bool((bounds[1:] < bounds[:-1]).any()) or int(bounds[-2:].max()) > len(values):
            raise file.damaged("values of a profile are out of order")
        counts: I64 = (bounds[1:] - bounds[:-1]).astype(np.int64)
        if len(index) and int(counts.sum()) != len(values):
            raise file.damaged("values of a profile belong to no context")
        context = np.repeat(index["context"], counts)
        mine = values["metric"][: len(context)] == metric
        return context[mine], values["value"][: len(context)][mine]


class TraceFile:
    """``trace.db``: which context a thread was in, and when. ``begin_ns`` is since 1970."""

    def __init__(self, folder: Path) -> None:
        self._file = file = _open(folder / "trace.db", b"trce")
        _, section = file.unpack(_SECTION, 16)
        self._header = file.unpack(_TRACES, section)
        self.begin_ns = self._header[3]

    def traces(self) -> Iterator[tuple[int, Array, Array]]:
        """(profile, times in ns since 1970 ``uint64[n]``, contexts ``uint32[n]``) of each."""
        file = self._file
        place, count, stride = self._header[:3]
        size = 0
        for number in range(min(count, _MAX_PROFILES)):
            profile, begin, end = file.unpack(_TRACE, place + stride * number)
            size += end - begin
            if end < begin or size > len(file):
                raise file.damaged("traces are longer than fit into it")
            elements = file.array(_ELEMENT, begin, (end - begin) // _ELEMENT.itemsize)
            yield profile, elements["time_ns"], elements["context"]


def _open(path: Path, kind: bytes) -> MappedFile:
    file = MappedFile(path)
    head = file.unpack(_HEADER, 0)
    if (head[0], head[1]) != (MAGIC, kind):
        raise FormatError(f"{path}: not a file of an HPCToolkit database")
    if head[2] != 4:
        raise FormatError(f"{path}: version {head[2]} of HPCToolkit's format; only 4 is read")
    return file
