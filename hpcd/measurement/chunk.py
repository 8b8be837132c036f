"""Segments and chunks: the container of a measurement.

Append-only. Header and payload of a chunk carry checksums, so a torn chunk never existed: a reader
stops a segment at the first chunk with a wrong checksum and continues with the next segment.
Written bytes never change.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO

import zstandard

from hpcd.errors import FormatError
from hpcd.measurement.zstd_contexts import Settings, compressor, decompressor

SEGMENT_MAGIC = b"HPCDSEG\n"
VERSION = 1
_SEGMENT = struct.Struct("<8sHHIQI4x")
_CHUNK = struct.Struct("<IHHIIQII")
_CHUNK_MAGIC = 0x4B4E4843  # "CHNK"
SEGMENT_HEADER_BYTES = _SEGMENT.size
CHUNK_HEADER_BYTES = _CHUNK.size

# Bounds what a reader allocates for a damaged or hostile length; writers stay far below it.
MAX_PAYLOAD = 64 << 20
# Writers begin another segment before one has more than 256 MiB (writer.DEFAULT_SEGMENT_BYTES); a
# sparse file may claim any size.
MAX_SEGMENT = (256 << 20) + 2 * MAX_PAYLOAD
_RAW, _ZSTD = 0, 1
# Levels above 1 gain next to nothing on shuffled columns and cost several times the time.
_LEVEL = 1
# For records: level 1's parameters with shorter matches and these sizes of hash tables. For many
# bytes the greater size saves 3 to 5 % for 3 ns a record, for fewer nothing.
_FEW_RECORDS, _MANY_RECORDS = (
    zstandard.ZstdCompressionParameters(
        window_log=20, chain_log=12, hash_log=hash_log, search_log=1, min_match=6,
        target_length=0, strategy=1, write_content_size=True,
    )
    for hash_log in (13, 16)
)  # fmt: skip
_MANY = 1 << 18
# Below this a zstd frame is no smaller than its content.
_WORTH_COMPRESSING = 64

assert SEGMENT_HEADER_BYTES == 32 and CHUNK_HEADER_BYTES == 32


class ChunkKind(IntEnum):
    """The kind of a chunk's content. Readers skip kinds they do not know."""

    META = 1
    EVENT = 2
    PROCESS = 3
    THREAD = 4
    MODULE = 5
    SYMBOLS = 6
    CLOCK = 7
    CCT = 8
    RECORDS = 9
    SUMMARY = 10
    INDEX = 11
    CALLED = 12
    CALLS = 13
    OBJECTS = 14


_NAMES: dict[int, str] = {int(kind): kind.name for kind in ChunkKind}


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """A chunk of a segment: the place of its payload, and its checksum."""

    kind: int
    codec: int
    stored: int
    raw: int
    sequence: int
    payload_crc: int
    offset: int
    """Offset of the payload in the segment file."""

    @property
    def end(self) -> int:
        """Offset of the next chunk."""
        return self.offset + (self.stored + 7 & ~7)


def segment_header(sequence: int, measurement: int) -> bytes:
    """The 32 bytes a segment file begins with."""
    head = _SEGMENT.pack(SEGMENT_MAGIC, VERSION, 0, sequence, measurement, 0)
    return _SEGMENT.pack(SEGMENT_MAGIC, VERSION, 0, sequence, measurement, zlib.crc32(head[:24]))


def read_segment_header(data: bytes, name: str) -> tuple[int, int]:
    """Return (sequence, measurement id) of a segment. Raises :class:`FormatError`."""
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != SEGMENT_MAGIC:
        raise FormatError(f"{name}: not a segment of an hpcd measurement")
    _, version, _, sequence, measurement, crc = _SEGMENT.unpack_from(data)
    if crc != zlib.crc32(data[:24]):
        raise FormatError(f"{name}: checksum of the segment header does not match")
    if version != VERSION:
        raise FormatError(
            f"{name}: measurement format {version}, this hpcd reads format {VERSION}:"
            " merge it with the hpcd that wrote it, or record again"
        )
    return sequence, measurement


def encode_chunk(kind: ChunkKind, payload: bytes, sequence: int) -> bytes:
    """A whole chunk, header to padding, ready to be written at once."""
    codec, stored = _RAW, payload
    if len(payload) > _WORTH_COMPRESSING:
        packed = compressor(_settings(kind, len(payload))).compress(payload)
        if len(packed) < len(payload):
            codec, stored = _ZSTD, packed
    crc = zlib.crc32(stored)
    fields = (_CHUNK_MAGIC, kind, codec, len(stored), len(payload), sequence, crc)
    head = _CHUNK.pack(*fields, 0)
    head = _CHUNK.pack(*fields, zlib.crc32(head[:28]))
    return head + stored + bytes(-len(stored) % 8)


def _settings(kind: ChunkKind, size: int) -> Settings:
    if kind != ChunkKind.RECORDS:
        return _LEVEL
    return _MANY_RECORDS if size > _MANY else _FEW_RECORDS


def scan(
    file: BinaryIO | bytes, size: int, start: int = SEGMENT_HEADER_BYTES
) -> Iterator[ChunkHeader]:
    """Yield headers of the sound chunks of a segment (a file or its content) from ``start`` on,
    up to the first torn one.

    Only headers are read; :func:`read_payload` checks the payload.
    """
    at = start
    while at + CHUNK_HEADER_BYTES <= size:
        head = _bytes_at(file, at, CHUNK_HEADER_BYTES)
        if len(head) < CHUNK_HEADER_BYTES:
            return
        magic, kind, codec, stored, raw, sequence, crc, head_crc = _CHUNK.unpack(head)
        if magic != _CHUNK_MAGIC or head_crc != zlib.crc32(head[:28]):
            return
        header = ChunkHeader(kind, codec, stored, raw, sequence, crc, at + CHUNK_HEADER_BYTES)
        if raw > MAX_PAYLOAD or stored > MAX_PAYLOAD or header.end > size:
            return
        yield header
        at = header.end


def read_payload(file: BinaryIO | bytes, header: ChunkHeader) -> bytes:
    """The decoded payload; :class:`FormatError` when it is damaged. Memory: 64 MiB at most."""
    stored = _bytes_at(file, header.offset, header.stored)
    where = f"{kind_name(header.kind)} chunk"
    if len(stored) != header.stored:
        raise FormatError(f"{where} is cut off after {len(stored)} of {header.stored} bytes")
    if zlib.crc32(stored) != header.payload_crc:
        raise FormatError(f"{where}: checksum of the payload does not match")
    if header.codec == _RAW:
        return stored
    if header.codec != _ZSTD:
        raise FormatError(f"{where} has the unknown codec {header.codec}")
    try:
        # A frame may claim any size and would get the memory for it; -1 means that it claims none.
        if zstandard.frame_content_size(stored) not in (header.raw, -1):
            raise FormatError(
                f"{where} has another length than its header says, {header.raw} bytes"
            )
        payload = decompressor().decompress(stored, max_output_size=header.raw)
    except zstandard.ZstdError as error:
        raise FormatError(f"{where} does not decompress: {error}") from None
    if len(payload) != header.raw:
        raise FormatError(f"{where} has another length than its header says, {header.raw} bytes")
    return payload


def _bytes_at(file: BinaryIO | bytes, at: int, size: int) -> bytes:
    """Up to ``size`` bytes from ``at`` on, fewer where it ends before."""
    if isinstance(file, bytes):
        return file[at : at + size]
    file.seek(at)
    return file.read(size)


def kind_name(kind: int) -> str:
    """A kind of chunk as messages name it, also one this version does not know."""
    return _NAMES.get(kind) or f"kind {kind}"
