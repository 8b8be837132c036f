"""The archive of a part: named bytes, each of which is read whole or not at all.

u64 length, JSON of name to [begin, end], then a zstd frame for each.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import zstandard

from hpcd.errors import FormatError
from hpcd.measurement.zstd_contexts import compressor, decompressor

# Bound on one entry; a tree of 2^26 nodes takes half of it.
_ENTRY_LIMIT = 1 << 30


def pack_archive(entries: Mapping[str, bytes]) -> bytes:
    """Return the archive of ``entries``."""
    pack = compressor(3).compress
    index, parts, at = {}, [], 0
    for name, value in entries.items():
        part = pack(value)
        index[name] = [at, at + len(part)]
        parts.append(part)
        at += len(part)
    head = json.dumps(index).encode()
    return b"".join([struct.pack("<Q", len(head)), head, *parts])


def archive_index(data: bytes) -> dict[str, memoryview]:
    """The packed entries of an archive by name. Raises :class:`FormatError`."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        index = json.loads(data[8 : 8 + length])
        body = memoryview(data)[8 + length :]
        return {str(name): body[int(a) : int(b)] for name, (a, b) in index.items()}
    except (struct.error, ValueError, TypeError, AttributeError, RecursionError):
        raise FormatError("the archive of a part has no readable index") from None


def unpack_bytes(frame: memoryview) -> bytes:
    """An entry of the archive. Raises :class:`FormatError`."""
    try:
        if not 0 <= zstandard.frame_content_size(frame) <= _ENTRY_LIMIT:
            raise FormatError("an entry of a part's archive is too big")
        return decompressor().decompress(frame)
    except zstandard.ZstdError as error:
        raise FormatError(f"an entry of a part's archive does not decompress: {error}") from None
