"""zstd's contexts, kept: making one takes longer than compressing a short measurement's table."""

from __future__ import annotations

import threading

import zstandard


class _Contexts(threading.local):
    """Those of a thread: a context is for one at a time."""

    def __init__(self) -> None:
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compressor(level: int) -> zstandard.ZstdCompressor:
    """What compresses at this ``level``, whole frames at a time."""
    found = _contexts.compressors.get(level)
    if found is None:
        found = _contexts.compressors[level] = zstandard.ZstdCompressor(level=level)
    return found


def decompressor() -> zstandard.ZstdDecompressor:
    """What decompresses whole frames."""
    return _contexts.decompressor
