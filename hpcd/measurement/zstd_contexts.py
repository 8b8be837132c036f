"""zstd's contexts, kept: making one takes longer than compressing a short measurement's table."""

from __future__ import annotations

import threading

import zstandard

from hpcd.errors import FormatError

# A tree of 2^26 nodes takes half of it; a chunk of sums of one line may be larger than others.
_FRAME_LIMIT = 1 << 30
Settings = int | zstandard.ZstdCompressionParameters
"""A context of a compression level, kept by its user."""


class _Contexts(threading.local):
    """The contexts of a thread: a context serves one thread at a time."""

    def __init__(self) -> None:
        self.compressors: dict[Settings, zstandard.ZstdCompressor] = {}
        self.decompressor = zstandard.ZstdDecompressor()


_contexts = _Contexts()


def compressor(settings: Settings) -> zstandard.ZstdCompressor:
    """Return the compressor of these ``settings``, for whole frames at a time."""
    context = _contexts.compressors.get(settings)
    if context is None:
        if isinstance(settings, int):
            context = zstandard.ZstdCompressor(level=settings)
        else:
            context = zstandard.ZstdCompressor(compression_params=settings)
        _contexts.compressors[settings] = context
    return context


def decompressor() -> zstandard.ZstdDecompressor:
    """Return the decompressor of whole frames."""
    return _contexts.decompressor


def unpack_frame(frame: bytes | memoryview) -> bytes:
    """Return the contents of a whole frame, at most 1 GiB. Raises :class:`FormatError`."""
    try:
        # A frame may claim any size and would get the memory for it.
        if 0 <= zstandard.frame_content_size(frame) <= _FRAME_LIMIT:
            return decompressor().decompress(frame)
    except zstandard.ZstdError as error:
        raise FormatError(f"a frame does not decompress: {error}") from None
    raise FormatError("size of a frame")
