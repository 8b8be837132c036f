"""The segment files of a measurement that is written: chunks appended, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections import Counter
from pathlib import Path

from hpcd.errors import StorageError
from hpcd.measurement.chunk import SEGMENT_HEADER_BYTES, ChunkKind, encode_chunk, segment_header
from hpcd.output_folder import make_directory


class SegmentWriter:
    """Writes chunks into segments of about ``segment_bytes`` in the directory ``path``.

    The directory is made (mode 0700) unless it is ``existing``; it and its files belong
    to ``owner`` (uid, gid). With ``sync``, segments are on the disk when they are full.

    Raises :class:`StorageError` in one line when the directory exists or cannot be made, and from
    :meth:`append` and :meth:`close` when the disk is full or fails.
    """

    def __init__(
        self,
        path: Path,
        segment_bytes: int,
        owner: tuple[int, int] | None,
        *,
        existing: bool,
        sync: bool,
    ) -> None:
        self.path = path
        self.bytes_written: Counter[str] = Counter()
        """Bytes by kind of chunk."""
        self.chunks = 0
        """Number of chunks written."""
        self._segment_bytes = segment_bytes
        self._owner = owner
        self._sync = sync
        self._id = int.from_bytes(os.urandom(8), "little")
        self._segments = 0
        self._fd = -1
        self._size = 0
        self._made = not existing
        if self._made:
            self._folder = make_directory(path)
            if owner:
                os.fchown(self._folder, *owner)
        else:
            self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def append(self, kind: ChunkKind, payload: bytes) -> None:
        """Append a chunk, in a new segment if this one would be too large."""
        data = encode_chunk(kind, payload, self.chunks)
        full = self._size + len(data) > self._segment_bytes and self._size > SEGMENT_HEADER_BYTES
        if full or self._fd < 0:  # without one, the last attempt to begin a segment failed
            self._next_segment()
        self._write(data)
        self.chunks += 1
        self.bytes_written[kind.name.lower()] += len(data)

    def _write(self, data: bytes) -> None:
        """All of ``data`` or nothing: a part that got through is cut off again."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, memoryview(data)[done:])
        except OSError as error:
            # Should this fail too: a torn chunk at the end is skipped by every reader.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            raise self._failure(error) from None
        self._size += len(data)

    def _failure(self, error: OSError) -> StorageError:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "no space left" if full else error.strerror
        return StorageError(f"writing {self.path} failed: {reason}; earlier data is safe")

    def _next_segment(self) -> None:
        self._end_segment()
        name = f"segment-{self._segments:06d}.hpcd"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(name, flags, 0o600, dir_fd=self._folder)
            # Readers tell a living writer from a dead one by this lock.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._failure(error) from None
        if self._owner:
            os.fchown(self._fd, *self._owner)
        self._size = 0
        try:
            self._write(segment_header(self._segments, self._id))
        except StorageError:
            # A segment without a header would make later segments unreadable.
            os.close(self._fd)
            self._fd = -1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)
            raise
        self._segments += 1

    def _end_segment(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                if self._sync:
                    os.fdatasync(fd)
            except OSError as error:
                raise self._failure(error) from None
            finally:
                os.close(fd)

    def close(self) -> None:
        """End the segment that is written; nothing can be appended after. Calling again does
        nothing."""
        try:
            self._end_segment()
        finally:
            folder, self._folder = self._folder, -1
            if folder >= 0:
                os.close(folder)

    def discard(self) -> None:
        """Remove the measurement."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1  # without waiting for the disk
        for entry in os.scandir(self._folder):
            if entry.name.startswith("segment-"):
                os.unlink(entry.name, dir_fd=self._folder)
        self.close()
        if self._made:
            self.path.rmdir()
