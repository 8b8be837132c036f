"""Measurements changed at random in one place, with checksums that are right."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

from hpcd.measurement.chunk import (
    SEGMENT_HEADER_BYTES,
    ChunkKind,
    encode_chunk,
    kind_name,
    read_payload,
    scan,
)
from tests.support.database_mutants import changed_json, flipped

_Chunk = tuple[int, bytes]
"""(kind, payload)."""


class MeasurementMutants:
    """Mutants of the first segment of the measurement ``model``."""

    def __init__(self, model: Path) -> None:
        self._segment = min(model.glob("segment-*"))
        data = self._segment.read_bytes()
        self._data, self._head = data, data[:SEGMENT_HEADER_BYTES]
        self._chunks = [
            (header.kind, read_payload(data, header)) for header in scan(data, len(data))
        ]
        assert len(self._chunks) > 2

    def make(self, to: Path, seed: int) -> str:
        """Make a mutant in ``to``; return what was changed."""
        choice = random.Random(seed)
        to.mkdir()
        place = to / self._segment.name
        if choice.random() < 0.1:
            place.write_bytes(flipped(self._data, choice))
            return "bytes of the segment"
        chunks = list(self._chunks)
        changed = " and ".join(_change(chunks, choice) for _ in range(choice.choice((1, 1, 1, 2))))
        place.write_bytes(self._head + b"".join(
            encode_chunk(ChunkKind(kind), payload, at) for at, (kind, payload) in enumerate(chunks)
        ))  # fmt: skip
        return changed


def _change(chunks: list[_Chunk], choice: random.Random) -> str:
    # Kinds in equal parts: most chunks have records.
    kind = choice.choice(sorted({kind for kind, _ in chunks}))
    at = choice.choice([at for at, chunk in enumerate(chunks) if chunk[0] == kind])
    payload = chunks[at][1]
    way = choice.random()
    if way < 0.08 and len(chunks) > 2:
        del chunks[at]
        return f"{kind_name(kind)} lost"
    if way < 0.16:
        chunks.insert(choice.randrange(len(chunks) + 1), chunks[at])
        return f"{kind_name(kind)} repeated"
    if way < 0.2:
        chunks[at] = (choice.choice(list(ChunkKind)), payload)
        return f"{kind_name(kind)} as {kind_name(chunks[at][0])}"
    if payload[:1] in (b"{", b"[") and way < 0.9:
        with contextlib.suppress(ValueError):  # it may have been changed before
            content = json.loads(payload)
            value = changed_json(content, choice)
            chunks[at] = (kind, json.dumps(value).encode())
            return f"{kind_name(kind)} {_difference(content, value)}"
    chunks[at] = (kind, flipped(payload, choice))
    return f"bytes of {kind_name(kind)}"


def _difference(old: object, new: object) -> str:
    """Return the place and the value of a change."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
        return next((f".{key}{_difference(old[key], new[key])}" for key in old
                     if old[key] != new[key]), "")  # fmt: skip
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return next((f"[{at}]{_difference(*pair)}"
                     for at, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1]),
                    "")  # fmt: skip
    return f" = {new!r:.60}"
