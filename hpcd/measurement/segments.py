"""The segment files of a measurement, and the chunks that are in them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from hpcd.errors import FormatError, NotFoundError
from hpcd.measurement import chunk
from hpcd.measurement.chunk import ChunkHeader
from hpcd.regular_file import open_regular, regular_size

# Segments of fewer bytes are read in one go: a short measurement has dozens of chunks.
_AT_ONCE = 1 << 20
_MOST_AT_ONCE = 8


def measurement_size(path: Path) -> int:
    """Bytes of a measurement's segments. Raises :class:`OSError` when one goes meanwhile."""
    with os.scandir(path) as entries:
        return sum(
            min(entry.stat(follow_symlinks=False).st_size, chunk.MAX_SEGMENT)
            for entry in entries
            if entry.name.startswith("segment-") and entry.name.endswith(".hpcd")
        )


def identify_measurement(path: Path) -> tuple[int | None, int]:
    """Return the id of a measurement, None if its first segment is unreadable, and its bytes;
    None and 0 for any other file."""
    try:
        size = measurement_size(path)
    except OSError:
        return None, 0
    try:
        with open_regular(_segment_path(path, 0)) as file:
            header = file.read(chunk.SEGMENT_HEADER_BYTES)
        return chunk.read_segment_header(header, str(path))[1], size
    except (OSError, FormatError):
        return None, size


def is_being_written(path: Path) -> bool:
    """Whether a living writer holds the last segment. Raises :class:`NotFoundError`."""
    try:
        with open_regular(max(path.glob("segment-*.hpcd"))) as file:
            return _held(file)
    except (ValueError, OSError):
        raise NotFoundError(f"{path}: no such measurement") from None


def _size_of(file: BinaryIO) -> int:
    """Bytes to read of a segment, at most the largest allowed size."""
    return min(os.fstat(file.fileno()).st_size, chunk.MAX_SEGMENT)


def _held(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _segment_path(path: Path, number: int) -> Path:
    return Path(f"{path}/segment-{number:06d}.hpcd")


class Segments:
    """The segments of the measurement ``path``, or their first ``size`` bytes, which
    may grow. ``report`` is called with damage in words.

    ``id`` is the measurement's, None until a segment has been read; ``sequence`` is the number of
    chunks there have been, damaged ones too.
    """

    def __init__(self, path: Path, size: int | None, report: Callable[[str], None]) -> None:
        self._path, self._upto, self._report = path, size, report
        self.id: int | None = None
        self.sequence = 0
        self._files: list[BinaryIO] = []
        # The contents of segments that are read in one go.
        self._content: dict[int, bytes] = {}
        # Scan position in each segment; -1 if it is damaged from there on.
        self._end: list[int] = []
        # Start of each segment, counted over all of them.
        self._begin: list[int] = []

    def __len__(self) -> int:
        return len(self._files)

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()
        self._files.clear()
        self._content.clear()

    @property
    def being_written(self) -> bool:
        """Whether a living writer holds the last segment."""
        return _held(self._files[-1])

    @property
    def size(self) -> int:
        """Bytes of the segments, as many as the last one has now."""
        return self._begin[-1] + _size_of(self._files[-1])

    def place(self, number: int, header: ChunkHeader) -> int:
        """Return where the payload of a chunk of segment ``number`` begins, counted over all."""
        return self._begin[number] + header.offset

    def payload(self, number: int, header: ChunkHeader) -> bytes:
        """The payload of a chunk of segment ``number``. Raises :class:`FormatError`."""
        content = self._content.get(number)
        if content is not None and header.end <= len(content):
            return chunk.read_payload(content, header)
        return chunk.read_payload(self._files[number], header)

    def report_damage(self, number: int, offset: int, what: str) -> None:
        """Report damage of segment ``number`` at a byte of it."""
        self._report(f"{_segment_path(self._path, number)} at byte {offset}: {what}")

    def scan(self) -> Iterator[tuple[int, ChunkHeader]]:
        """The chunks that were appended since the last time, each with its segment's number. Raises
        :class:`NotFoundError`."""
        while True:
            if self._files:
                yield from self._scan(len(self._files) - 1)
            path = _segment_path(self._path, len(self._files))
            if regular_size(path) is None:
                return
            self._open(path)

    def _open(self, path: Path) -> None:
        try:
            # Unbuffered: reads are whole headers and payloads, or a whole short segment.
            file = open_regular(path)
        except OSError as error:
            raise NotFoundError(f"{path}: {error.strerror}") from None
        self._begin.append(self.size if self._files else 0)
        self._files.append(file)
        self._end.append(chunk.SEGMENT_HEADER_BYTES)
        try:
            number, measurement = chunk.read_segment_header(
                file.read(chunk.SEGMENT_HEADER_BYTES), str(path)
            )
            if number != len(self._files) - 1 or self.id not in (None, measurement):
                raise FormatError(f"{path}: belongs to another measurement")
        except FormatError as error:
            self._report(str(error))
            self._end[-1] = -1
            return
        self.id = measurement

    def _scan(self, number: int) -> Iterator[tuple[int, ChunkHeader]]:
        file = self._files[number]
        if self._end[number] < 0:
            return
        size = _size_of(file)
        cut = self._upto is not None and self._upto < self._begin[number] + size
        if self._upto is not None and cut:
            size = max(self._upto - self._begin[number], 0)
        source: BinaryIO | bytes = file
        new = self._end[number] == chunk.SEGMENT_HEADER_BYTES
        if new and size <= _AT_ONCE and len(self._content) < _MOST_AT_ONCE:
            file.seek(0)
            source = self._content[number] = file.read(size)
        for header in chunk.scan(source, size, self._end[number]):
            if header.sequence != self.sequence:
                self.report_damage(number, header.offset, f"chunk {self.sequence} is missing")
            self.sequence = header.sequence + 1
            self._end[number] = header.end
            yield number, header
        if self._end[number] < size and not cut:
            last = not _segment_path(self._path, number + 1).exists()
            if last and self.being_written:
                return
            torn = size - self._end[number]
            self.report_damage(number, self._end[number], f"{torn} bytes of a torn chunk")
            self._end[number] = -1
