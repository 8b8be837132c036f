"""Reading other tools' files: compressed or not, in any encoding, in blocks of bounded size."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from hpcd.errors import FormatError, NotFoundError

_BLOCK = 4 << 20
LONGEST = 32 << 20
"""Bytes of a line, or of a sample with its whole call path, at most."""
_HEAD = 1 << 20
# Marks of encodings other than plain UTF-8; where one begins with another, the longer comes first.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
NO_LINE_END = "the last line has no line end: it may be cut off"
"""The note on a text that ends within a line, which is read nevertheless."""


class InputFile:
    """A file to be imported, decompressed (gzip, xz, zstd) as it is read; ``-`` is standard input.

    Text with a byte order mark is given as UTF-8 without one.

    Raises NotFoundError when it cannot be opened; reading raises FormatError when it is cut off or
    damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = "standard input" if str(path) == "-" else str(path)
        try:
            raw = sys.stdin.buffer if str(path) == "-" else path.open("rb", buffering=_HEAD)
        except OSError as error:
            raise NotFoundError(f"{path}: {error.strerror}") from None
        self._raw = raw
        self._file = cast(BinaryIO, raw)
        head = self.head()
        plain = self._file
        if head.startswith(b"\x1f\x8b"):
            self._file = io.BufferedReader(gzip.GzipFile(fileobj=plain), _HEAD)
        elif head.startswith(b"\xfd7zXZ\x00"):
            self._file = io.BufferedReader(lzma.LZMAFile(plain), _HEAD)  # noqa: SIM115
        elif head.startswith(b"\x28\xb5\x2f\xfd"):
            reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
                plain, read_across_frames=True
            )
            self._file = cast(BinaryIO, io.BufferedReader(reader, _HEAD))
        head = self.head()
        for mark, encoding in _BYTE_ORDER_MARKS.items():
            if head.startswith(mark):
                self.read(len(mark))
                if mark != codecs.BOM_UTF8:
                    utf8 = _Utf8(self._file, encoding)
                    self._file = cast(BinaryIO, io.BufferedReader(utf8, _HEAD))
                break

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()

    @property
    def modified_ns(self) -> int:
        """The time of the last change (ns since 1970); now for standard input."""
        is_file = self._raw is not sys.stdin.buffer
        return self.path.stat().st_mtime_ns if is_file else time.time_ns()

    def head(self) -> bytes:
        """Return the first bytes, up to a megabyte, which :meth:`read` gives again."""
        return self._checked(lambda: cast(io.BufferedReader, self._file).peek(_HEAD))

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end."""
        return self._checked(lambda: self._file.read(size))

    def read_all(self, limit: int) -> bytearray:
        """Return the whole contents. Raises FormatError beyond ``limit`` bytes."""
        data = bytearray()
        # One read would take memory for the limit at once.
        while block := self.read(_BLOCK):
            data += block
            if len(data) > limit:
                raise FormatError(f"{self.name}: more than {limit >> 20} MiB, decompressed")
        return data

    def blocks(self, end: bytes = b"\n", else_end: bytes = b"") -> Iterator[bytes]:
        """Yield the contents in blocks, as :func:`blocks` cuts them."""
        return blocks(self.read, self.name, end, else_end)

    def _checked(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError):
            raise FormatError(f"{self.name}: compressed data is cut off or damaged") from None
        except OSError as error:
            raise NotFoundError(f"{self.name}: {error.strerror or error}") from None


class _Utf8(io.RawIOBase):
    """A text of another encoding as UTF-8; invalid characters are replaced."""

    def __init__(self, file: BinaryIO, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            data = self._file.read(_HEAD)
            self._rest = self._decoder.decode(data, final=not data).encode()
            if not data:
                break
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def blocks(
    read: Callable[[int], bytes], name: str, end: bytes = b"\n", else_end: bytes = b""
) -> Iterator[bytes]:
    """Yield the text of ``read(size)`` in blocks of some megabytes, line ends of Windows as others.

    They end behind an ``end``, or behind an ``else_end`` if there is no ``end`` within 32 MiB.
    Raises FormatError naming ``name`` if there is neither.
    """
    rest = b""
    while data := read(_BLOCK):
        # A line end may cross the border.
        border = max(len(rest) - len(end) + 1, 0)
        if b"\r" in data:
            while data.endswith(b"\r") and (more := read(1)):
                data += more
            data = data.replace(b"\r\n", b"\n")
        rest += data
        cut, used = rest.rfind(end, border), end
        if cut < 0 and len(rest) > LONGEST:
            cut, used = (rest.rfind(else_end) if else_end else -1), else_end
            if cut < 0:
                raise FormatError(f"{name}: a line or sample is longer than {LONGEST >> 20} MiB")
        if cut >= 0:
            yield rest[: cut + len(used)]
            rest = rest[cut + len(used) :]
    if rest:
        yield rest


def numbered_lines(blocks: Iterable[bytes], notes: list[str]) -> Iterator[tuple[int, bytes]]:
    """Yield each line of blocks of whole lines with its number, from 1 on.

    A last line without a line end adds to ``notes``: the rest of it may be missing.
    """
    number = 0
    for block in blocks:
        lines = block.split(b"\n")
        last = lines.pop()
        if last:
            lines.append(last)
            if not last.startswith(b"#"):
                notes.append(NO_LINE_END)
        for line in lines:
            number += 1
            yield number, line
