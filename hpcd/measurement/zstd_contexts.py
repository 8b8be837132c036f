"""zstd's contexts, kept: making one takes longer than compressing a short measurement's table."""

from __future__ import annotations

import threading

import zstandard

Settings = int | zstandard.ZstdCompressionParameters
"""A level, or what it stands for, kept by who uses it."""


class _Contexts(threading.local):
    """Those of a thread: a context is for one at a time."""

    def __init__(self) -> None:
        self.compressors: dict[Settings, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compressor(settings: Settings) -> zstandard.ZstdCompressor:
    """What compresses by these ``settings``, whole frames at a time."""
    found = _contexts.compressors.get(settings)
    if found is None:
        if isinstance(settings, int):
            found = zstandard.ZstdCompressor(level=settings)
        else:
            found = zstandard.ZstdCompressor(compression_params=settings)
        _contexts.compressors[settings] = found
    return found


def decompressor() -> zstandard.ZstdDecompressor:
    """What decompresses whole frames."""
    return _contexts.decompressor
