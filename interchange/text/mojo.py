"""MOJO, Austin's binary format: ``austin --binary``, and all that Austin 4 writes.

A stream of events (Austin's documentation, versions 1 to 4 of the format): strings and frames are
defined once and referred to, by process; a sample is its stack's head, references to its frames,
outermost first, and its metrics, up to the next sample.
"""

from __future__ import annotations

from hpcd.errors import FormatError
from hpcd.interchange.input.input_file import InputFile
from hpcd.interchange.text.austin import AustinSamples

MAGIC = b"MOJ"
_METADATA, _STACK, _FRAME, _FRAME_INVALID, _FRAME_REFERENCE, _FRAME_KERNEL = 1, 2, 3, 4, 5, 6
_GARBAGE, _IDLE, _TIME, _MEMORY, _STRING, _STRING_REFERENCE = 7, 8, 9, 10, 11, 12
_NEWEST = 4
_BLOCK = 1 << 20
_LONGEST = 32 << 20
_UNKNOWN_STRING = 1
_MAX_DEFINITIONS = 1 << 22


def looks_like_mojo(head: bytes) -> bool:
    """Whether this is how MOJO begins."""
    return head.startswith(MAGIC)


class MojoReader:
    """Turns a MOJO file into records."""

    def __init__(self, samples: AustinSamples) -> None:
        self._samples = samples
        self._builder = samples.builder
        self._version = 0
        self._strings: dict[tuple[int, int], bytes] = {}
        self._frames: dict[tuple[int, int], int] = {}
        self._open = False
        self._pid = self._line = 0
        self._path: list[int] = []
        self._time = self._allocated = 0
        self._full = self._idle = False

    def read(self, file: InputFile) -> None:
        """Add the samples of the file. Raises FormatError."""
        stream = _Stream(file)
        stream.skip(len(MAGIC))
        self._version = stream.number()
        if not 1 <= self._version <= _NEWEST:
            raise FormatError(f"{file.name}: version {self._version} of MOJO is not known")
        handlers = {
            _METADATA: self._metadata, _STACK: self._stack, _FRAME: self._frame,
            _FRAME_REFERENCE: self._frame_reference, _FRAME_KERNEL: self._kernel_frame,
            _TIME: self._time_metric, _MEMORY: self._memory_metric, _STRING: self._string,
        }  # fmt: skip
        while (kind := stream.event()) is not None:
            handler = handlers.get(kind)
            if handler:
                handler(stream)
            elif kind in (_FRAME_INVALID, _GARBAGE):
                name = b"invalid" if kind == _FRAME_INVALID else b"gc"
                self._path.append(self._samples.special_frame(name))
            elif kind == _IDLE:
                self._idle = True
            elif kind == _STRING_REFERENCE:
                stream.number()
            else:
                raise FormatError(f"{file.name}: damaged: there is no event {kind}")
        self._finish()

    def _finish(self) -> None:
        if not self._open:
            return
        self._open = False
        busy = not self._idle if self._full else None
        node = self._builder.tree.node(self._path)
        self._samples.add(self._line, node, self._time, self._allocated, busy)

    def _metadata(self, stream: _Stream) -> None:
        key, value = stream.string(), stream.string()
        self._full = self._full or (key, value) == (b"mode", b"full")
        self._samples.setting(key, value)

    def _stack(self, stream: _Stream) -> None:
        self._finish()
        self._pid = stream.number()
        interpreter = stream.number() if self._version >= 3 else 0
        name = stream.string()
        try:
            tid = int(name, 16) & (1 << 62) - 1
        except ValueError:
            raise stream.damaged("a thread has no number") from None
        self._line = self._builder.threads.line(self._pid, tid, "", max(interpreter, 0))
        self._open, self._path = True, []
        self._time = self._allocated = 0
        self._idle = False

    def _frame(self, stream: _Stream) -> None:
        key, file, function, line = (stream.number() for _ in range(4))
        if self._version >= 2:
            for _ in range(3):
                stream.number()
        if len(self._frames) >= _MAX_DEFINITIONS:
            raise stream.damaged("more frames than fit")
        function_name, file_name = self._name(stream, function), self._name(stream, file)
        frame = self._samples.frame(function_name, file_name, line)
        self._frames[self._pid, key] = frame

    def _name(self, stream: _Stream, number: int) -> bytes:
        if number == _UNKNOWN_STRING:
            return b"<unknown>"
        if number and (self._pid, number) not in self._strings:
            raise stream.damaged("a name is missing")
        return self._strings.get((self._pid, number), b"")

    def _frame_reference(self, stream: _Stream) -> None:
        frame = self._frames.get((self._pid, stream.number()))
        if frame is None:
            raise stream.damaged("a frame is missing")
        self._path.append(frame)

    def _kernel_frame(self, stream: _Stream) -> None:
        module = self._builder.tree.module("kernel", kernel=True)
        self._path.append(self._builder.tree.frame(module, stream.string()))

    def _time_metric(self, stream: _Stream) -> None:
        self._time = stream.number()

    def _memory_metric(self, stream: _Stream) -> None:
        self._allocated = stream.number()

    def _string(self, stream: _Stream) -> None:
        key, value = stream.number(), stream.string()
        if len(self._strings) >= _MAX_DEFINITIONS:
            raise stream.damaged("more names than fit")
        self._strings[self._pid, key] = value


class _Stream:
    """Numbers and strings of a file, a block in memory at a time."""

    def __init__(self, file: InputFile) -> None:
        self._file = file
        self._data = b""
        self._at = 0

    def event(self) -> int | None:
        """Return the next byte; None at the end."""
        if self._at >= len(self._data) and not self._more():
            return None
        self._at += 1
        return self._data[self._at - 1]

    def skip(self, size: int) -> None:
        for _ in range(size):
            self.event()

    def number(self) -> int:
        """Return a varint: six bits and a sign in the first byte, seven in the others."""
        byte = self._byte()
        value, shift, negative = byte & 0x3F, 6, byte & 0x40
        while byte & 0x80:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 76:
                raise self.damaged("a number is too long")
        return -value if negative else value

    def string(self) -> bytes:
        """Return a string that ends in a zero byte."""
        while (end := self._data.find(b"\0", self._at)) < 0:
            if len(self._data) - self._at > _LONGEST or not self._more():
                raise self.damaged("a string does not end")
        text = self._data[self._at : end]
        self._at = end + 1
        return text

    def damaged(self, what: str) -> FormatError:
        return FormatError(f"{self._file.name}: damaged or cut off: {what}")

    def _byte(self) -> int:
        byte = self.event()
        if byte is None:
            raise self.damaged("it ends within a number")
        return byte

    def _more(self) -> bool:
        data = self._file.read(_BLOCK)
        self._data, self._at = self._data[self._at :] + data, 0
        return bool(data)
