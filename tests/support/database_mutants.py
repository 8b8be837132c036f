"""Databases changed at random in one place, with sizes and checksums that are right.

What is changed is what readers see: an entry of a column, a value of a table, a number in a part,
the contents of a compressed frame. Bytes that decompress to nothing are refused at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import struct
import zlib
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from tokenize import TokenError

import numpy as np
import zstandard

from hpcd.analysis.arrays.named_arrays import NamedArrays, pack_archive
from hpcd.analysis.arrays.packed_columns import pack_frame
from hpcd.analysis.database import directory
from hpcd.analysis.trace.part_file import PartFile
from hpcd.analysis.trace.part_format import ENTRIES, HEADER, PartHeader
from hpcd.array_types import Array
from hpcd.errors import HpcdError
from hpcd.measurement.zstd_contexts import unpack_frame

_NUMBERS = [0, 1, 2, 7, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**32,
            2**40, 2**53, 2**60, 2**61, 2**62, 2**63 - 1, -1, -2, -(2**31), -(2**60), -(2**62),
            -(2**63)]  # fmt: skip
_FLOATS = [float("nan"), float("inf"), float("-inf"), 1.7e308, -1.7e308, 5e-324, -1.0, 1e18]
_VALUES = [None, "", "x", "[]", "{}", "[", "[1]", "null",
           '{"a": {"b": []}}', b"", b"\xff\x00", "\0",
           "x" * 5000, "\ud7ff\x1b[31m", "-1", "1e999", 0.5, 1e300, float("inf"), -0.5]  # fmt: skip
_JSON = [
    None,
    True,
    -1,
    0,
    2**63,
    2**70,
    1e308,
    float("nan"),
    "",
    "x",
    [],
    {},
    [[]],
    [1, 2],
    {"a": 1},
]


class DatabaseMutants:
    """Mutants of the database ``model``."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._files = sorted(path for path in model.rglob("*") if path.is_file())
        with closing(sqlite3.connect(model / directory.SQLITE)) as connection:
            self._columns = {
                table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
                for (table,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
                if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
            }

    def make(self, to: Path, seed: int) -> str:
        """Make a mutant in ``to``; return what was changed."""
        choice = random.Random(seed)
        for path in self._files:
            place = to / path.relative_to(self._model)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, place)
        changed = " and ".join(
            {self._change(to, choice) for _ in range(choice.choice((1, 1, 1, 2, 3)))}
        )
        manifest = to / directory.MANIFEST
        try:
            content = json.loads(manifest.read_text())
            for name, entry in content["files"].items():
                if (to / name).stat().st_nlink == 1:
                    have = directory.block_checksums(to / name)
                    entry.update(bytes=have.bytes, crc32=have.crc32)
        except (ValueError, TypeError, AttributeError, KeyError):
            return changed  # the manifest itself was changed
        _replace(manifest, json.dumps(content).encode())
        return changed

    def _change(self, to: Path, choice: random.Random) -> str:
        kind = choice.random()
        if kind < 0.4:
            path = to / directory.SQLITE
        elif kind < 0.45:
            path = to / directory.MANIFEST
        else:
            path = to / choice.choice(self._files).relative_to(self._model)
        data = path.read_bytes()
        if 0.45 <= kind < 0.5:
            _replace(path, flipped(data, choice))
            return path.name
        # It may have been changed before; of a header that was, numpy raises what tokenize does.
        with contextlib.suppress(
            ValueError, TokenError, HpcdError, zstandard.ZstdError, IndexError, sqlite3.Error
        ):
            if kind < 0.4:
                return self._change_tables(path, choice)
            if kind < 0.45:
                return _change_manifest(path, choice)
            if path.suffix == ".npy":
                return _change_column(path, choice)
            if path.suffix == ".part":
                return _change_part(path, choice)
            if path.suffix == ".archive":
                _replace(path, _changed_archive(data, choice))
        return path.name

    def _change_tables(self, path: Path, choice: random.Random) -> str:
        _replace(path, path.read_bytes())
        table = choice.choice(list(self._columns))
        column = choice.choice(self._columns[table])
        with closing(sqlite3.connect(path)) as connection:
            key = self._columns[table][0]
            keys = [row[0] for row in connection.execute(f"SELECT {key} FROM {table} LIMIT 5000")]
            if not keys:
                return f"{table} has no rows any more"
            row = choice.choice(keys)
            (old,) = connection.execute(
                f"SELECT {column} FROM {table} WHERE {key} = ? LIMIT 1", (row,)
            ).fetchone()
            value = _changed_value(old, choice)
            which, condition = choice.choice((("a row", f"WHERE {key} IS :key"), ("all rows", "")))
            statement = f"UPDATE OR IGNORE {table} SET {column} = :value {condition}"
            if choice.random() < 0.1:
                statement, value = f"DELETE FROM {table} {condition}", "(deleted)"
            with contextlib.suppress(sqlite3.Error, OverflowError):  # some may not be NULL
                connection.execute(statement, {"key": row, "value": value})
            connection.commit()
        return f"{table}.{column} of {which} = {value!r:.40} (was {old!r:.40})"


def _replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def _changed_value(old: object, choice: random.Random) -> object:
    if isinstance(old, str) and old[:1] in ("{", "[") and choice.random() < 0.7:
        with contextlib.suppress(ValueError):  # it may have been changed before
            return json.dumps(changed_json(json.loads(old), choice))
    if isinstance(old, int | float) and choice.random() < 0.3:
        return old + choice.choice((-1, 1, 2, 0.5))
    return choice.choice((*_NUMBERS, *_VALUES))


def changed_json(value: object, choice: random.Random) -> object:
    """Return a JSON value with another, or none, in one place."""
    if isinstance(value, dict) and value and choice.random() < 0.9:
        key = choice.choice(list(value))
        rest = dict(value)
        del rest[key]
        return rest if choice.random() < 0.1 else {**value, key: changed_json(value[key], choice)}
    if isinstance(value, list) and value and choice.random() < 0.8:
        at = choice.randrange(len(value))
        return [*value[:at], changed_json(value[at], choice), *value[at + 1 :]]
    return choice.choice(_JSON)


def flipped(data: bytes, choice: random.Random) -> bytes:
    """Return ``data`` with some bytes changed, lost or repeated."""
    changed = bytearray(data)
    if not changed:
        return b"x"
    for _ in range(choice.randrange(1, 5)):
        at = choice.randrange(len(changed))
        if choice.random() < 0.6:
            changed[at] = choice.choice((0, 1, 255, changed[at] ^ 1 << choice.randrange(8)))
        elif choice.random() < 0.5:
            del changed[at : at + choice.choice((1, 8, 100, len(changed)))]
        else:
            changed[at:at] = changed[at : at + choice.choice((1, 8, 100))]
        if not changed:
            break
    return bytes(changed)


def _change_manifest(path: Path, choice: random.Random) -> str:
    content = json.loads(path.read_text())
    key = choice.choice([key for key in content if key != "files"])
    value = changed_json(content[key], choice)
    if choice.random() < 0.5:
        value = choice.choice((*_NUMBERS, content["lines"], content["nodes"], 1.5))
    _replace(path, json.dumps({**content, key: value}).encode())
    return f"{key} of the manifest = {value!r:.40}"


def _changed_array(values: Array, choice: random.Random) -> Array:
    """Return a copy of an array with some other entries."""
    changed = values.copy()
    if not len(changed):
        return np.ones(1, changed.dtype)
    for _ in range(choice.choice((1, 1, 2, 5))):
        at = choice.randrange(len(changed))
        span = choice.choice((slice(at, at + 1), slice(at, at + 1), slice(at, None), slice(None)))
        if changed.dtype.kind == "f":
            changed[span] = choice.choice(_FLOATS)
        else:
            old = int(changed[at])
            value = choice.choice(
                (choice.choice(_NUMBERS), old + 1, old - 1, old ^ 1 << choice.randrange(32),
                 int(changed[choice.randrange(len(changed))]), len(changed))
            )  # fmt: skip
            bits = 8 * changed.dtype.itemsize
            changed[span] = np.array(value % (1 << bits), f"u{bits // 8}").view(changed.dtype)
    return changed


def _frames_of(name: str) -> str:
    """Return the column that says where the compressed frames of a column begin."""
    return {"cells.npy": "frame_start.npy", "node.npy": "node_frame.npy"}.get(name, "")


def _change_column(path: Path, choice: random.Random) -> str:
    values = np.load(path)
    starts = path.with_name(_frames_of(path.name) or path.name)
    if path.name in ("cells.npy", "node.npy") and starts.exists() and path.parent.name != "calls":
        bounds = np.load(starts).tolist()
        frames = [values.tobytes()[a:b] for a, b in pairwise(bounds)]
        if frames:
            at = choice.randrange(len(frames))
            frames[at] = _changed_frame(frames[at], choice)
        for place, column in (
            (path, np.frombuffer(b"".join(frames), np.uint8)),
            (starts, np.cumsum([0, *map(len, frames)]).astype(np.int64)),
        ):
            place.unlink()
            np.save(place, column)
        return f"a frame of {path.parent.name}/{path.name}"
    changed = _changed_array(values, choice)
    if choice.random() < 0.1 and changed.dtype.kind != "f":
        changed = choice.choice(
            (
                changed[:-1],
                np.append(changed, changed[-1:]),
                changed.astype(choice.choice(("u1", "u4", "i8", "f8"))),
            )
        )
    path.unlink()
    np.save(path, changed)
    where = np.flatnonzero(changed[: len(values)] != values[: len(changed)])[:1].tolist()
    return f"{path.parent.name}/{path.name} at {where}: {changed[where][:1]} (was {values[where]})"


def _changed_frame(frame: bytes, choice: random.Random) -> bytes:
    content = zstandard.ZstdDecompressor().decompress(frame)
    return zstandard.ZstdCompressor(1).compress(flipped(content, choice))


def _changed_archive(data: bytes, choice: random.Random) -> bytes:
    entries = {name: unpack_frame(entry.data) for name, entry in NamedArrays(data).items()}
    if not entries:
        return data
    name = choice.choice(list(entries))
    if entries[name][:1] in (b"{", b"[") and choice.random() < 0.7:
        changed = json.dumps(changed_json(json.loads(entries[name]), choice)).encode()
    else:
        changed = flipped(entries[name], choice)
    return pack_archive({**entries, name: changed})


def _change_part(path: Path, choice: random.Random) -> str:
    """Change a number, a frame or the archive of a part."""
    data = path.read_bytes()
    header = PartHeader.read(path, data[: HEADER.size])
    at = HEADER.size

    def take(count: int) -> bytes:
        nonlocal at
        piece, at = data[at : at + count], at + count + -count % 8
        return piece

    blob = take(header.blob)
    entries = {
        f"entries {width}": np.frombuffer(take(count * kind.itemsize), kind)
        for (width, kind), count in zip(ENTRIES.items(), header.entries, strict=True)
    }
    file = PartFile(path)
    file.at = at
    columns = file.take_tables()
    at = file.at
    archive = data[at : at + header.archive]
    numbers = list(HEADER.unpack_from(data))
    kind_of_change = choice.random()
    if kind_of_change < 0.3 and header.frames:
        frames = [
            blob[a : a + b]
            for a, b in zip(columns["frame_offset"].tolist(), columns["frame_size"].tolist(),
                            strict=True)
        ]  # fmt: skip
        changed = choice.randrange(len(frames))
        frames[changed] = _changed_frame(frames[changed], choice)
        size = np.array([len(frame) for frame in frames])
        columns["frame_offset"] = (np.cumsum(size) - size).astype("<i8")
        columns["frame_size"] = size.astype("<u4")
        columns["frame_content"] = np.array(
            [zstandard.frame_content_size(frame) for frame in frames], "<u4"
        )
        blob = b"".join(frames)
        numbers[5] = len(blob)
        what = "a frame"
    elif kind_of_change < 0.4:
        what = choice.choice(list(entries))
        if len(entries[what]):
            entries[what] = _changed_array(entries[what], choice)
    elif kind_of_change < 0.85:
        what = choice.choice([name for name, column in columns.items() if len(column)] or ["words"])
        if len(columns[what]):
            columns[what] = _changed_array(columns[what], choice)
    elif kind_of_change < 0.95:
        archive = _changed_archive(archive, choice)
        numbers[11] = len(archive)
        what = "the archive"
    else:
        number = choice.randrange(2, 13)
        numbers[number] = choice.choice((0, 1, 2, numbers[number] + 1, numbers[number] - 1, 2**20))
        numbers[2] = min(numbers[2], 2**32 - 1)
        what = f"header's number {number}"
    sections = [blob, *(column.tobytes() for column in entries.values())]
    if header.packed:
        bits = [column.view(f"<u{column.itemsize}") for column in columns.values()]
        sections.append(pack_frame(3, *bits))
        if what != "header's number 12":
            numbers[12] = len(sections[-1])
    else:
        sections += [column.tobytes() for column in columns.values()]
    head = HEADER.pack(*(max(number, 0) if isinstance(number, int) else number
                         for number in numbers[:-2]), 0, 0)[:-8]  # fmt: skip
    _replace(path, b"".join([
        head, struct.pack("<II", zlib.crc32(head), 0),
        *(section + bytes(-len(section) % 8) for section in sections), archive,
    ]))  # fmt: skip
    return f"{what} of {path.name}"
