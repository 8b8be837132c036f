"""The text of ``perf script``: samples with call paths, times, threads and events.

Formats as ``builtin-script.c`` of the kernel's tools/perf writes them (Linux 4.x to 6.x)::

    python3  4711/4712  [001]   828.759066:    2004008 cpu-clock:
            ffffffff816071b7 vmalloc_to_page+0xf7 ([kernel.kallsyms])
                       d4ad7 __GI___execve+0x7 (/usr/lib/x86_64-linux-gnu/libc.so.6)
    <empty line>

Without call paths a sample is one line that ends in address, symbol and module. Call paths are
looked up by their text, frames by their line; both are bounded caches, so memory does not grow with
the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpcd.errors import FormatError
from hpcd.interchange.recording_builder import RecordingBuilder
from hpcd.interchange.text import readable

_REST = (
    rb"\s{1,64}(-?\d{1,10})(?:/(-?\d{1,10}))?\s{1,16}(?:\[(-?\d{1,6})\]\s{1,16})?"
    rb"(?:\S{1,8}\s{1,16})?(\d{1,12})\.(\d{1,9}):\s{1,64}"
    rb"(?:(\d{1,19})\s{1,16})?(\S.{0,255}?):(?:\s|$)"
)
# The first number before a time ends the thread's name, or the last one if nothing is behind the
# event. All lengths are bounded: lines that match nothing cost no more than others.
_HEADER = re.compile(rb"\s*+(.{0,64}?)" + _REST)
_OWN_HEADER = re.compile(rb"\s*+(.{0,64})" + _REST)
_FRAME = re.compile(rb"\s*([0-9a-fA-F]{1,16})\s+(.*)", re.DOTALL)
_OFFSET = re.compile(rb"\+0x[0-9a-f]+$")
_INLINED = b" (inlined)"
_DELETED = b" (deleted))"
_UNKNOWN = b"[unknown]"
_JIT = re.compile(rb"(?:.*/)?perf-\d+\.map$|\[JIT\] tid \d+")
_LOST = re.compile(rb"PERF_RECORD_LOST(?:_SAMPLES)?\b.*?(\d+)\s*$")
# Letters behind a colon that say of whom and how precisely (perf-list(1)).
_MODIFIERS = re.compile(r":[ukhGHIpPSDWeb]+$")
# perf script --show-task-events writes them as events; what is behind is "NAME:PID/TID".
_TASK_EVENT, _EXEC = b"PERF_RECORD_COMM", b"PERF_RECORD_COMM exec"
_NAMED = re.compile(rb"(.*):(\d{1,10})/(\d{1,10})$", re.DOTALL)
_CLOCKS = ("cpu-clock", "task-clock")
_CUT_OFF = "at the end, where the text seems to be cut off"
_KERNEL = 1 << 63
_NO_FRAME = -1

_CACHED_STACKS, _CACHED_LINES = 1 << 18, 1 << 19
_CACHED_BYTES = 128 << 20
# Share of lines that may be something else than samples and perf's own messages.
_MAX_SKIPPED_SHARE = 0.5


def looks_like_perf_script(head: bytes) -> bool:
    """Whether one of the first lines is the header of a sample."""
    lines = head.split(b"\n")[:200]
    return any(_HEADER.match(line) for line in lines if not line.startswith(b"#"))


class PerfScriptReader:
    """Turns the text of ``perf script`` into records of ``builder``.

    With ``own`` the text has no fields behind the event's name, so that no name of a thread can be
    taken for the fields behind it.
    """

    def __init__(self, builder: RecordingBuilder, *, own: bool = False) -> None:
        self._builder = builder
        self._header = _OWN_HEADER if own else _HEADER
        self._lines: dict[bytes, int] = {}
        self._stacks: dict[bytes, int] = {}
        self._cached_bytes = 0
        self._events: dict[bytes, int] = {}
        self._threads: dict[tuple[bytes, bytes | None, bytes | None], int] = {}
        self._names: dict[int, bytes] = {}
        self._programs: set[int] = set()
        self.samples = self.skipped = 0
        """Numbers of samples added, and of lines that are neither samples nor frames."""

    def read(self, blocks: Iterable[bytes]) -> None:
        """Add the samples of blocks that end behind an empty line, or behind a line if there are no
        call paths. Raises FormatError when it is no text of ``perf script``."""
        for block in blocks:
            text = block.replace(b"\r\n", b"\n") if b"\r\n" in block else block
            *parts, rest = text.split(b"\n\n")
            for part in parts:
                if part:
                    self._take(part)
            if rest:
                self._take_rest(rest)
        self._builder.taken = self.samples
        if self.skipped > _MAX_SKIPPED_SHARE * (self.samples + self.skipped):
            raise FormatError(
                f"{self._builder.source}: not the text of perf script"
                f" ({self.skipped:,} lines are neither samples nor frames)"
            )

    def _take_rest(self, rest: bytes) -> None:
        """Add the samples in ``rest``, which no empty line ends: all if they are of one line, none
        that has lost its last frames or half of a line."""
        whole, _, cut = rest.rpartition(b"\n")
        at = rest.find(b"\n\t")
        at = self._indented(rest, 0) if at < 0 else at
        if at >= 0:
            whole, cut = rest[: max(rest.rfind(b"\n", 0, at), 0)], rest
        if cut:
            self._builder.dropped[_CUT_OFF] += 1
        if whole:
            self._take(whole)

    def _take(self, part: bytes) -> None:
        """Add the samples of a block without empty lines: one line each, the last with frames."""
        start = 1 if part.startswith(b"\n") else 0
        at = part.find(b"\n\t", start)
        if at < 0:
            at = self._indented(part, start)
        if at < 0:
            for line in part.split(b"\n"):
                self._single(line)
            return
        before = part.rfind(b"\n", 0, at)
        if before >= 0:
            for line in part[:before].split(b"\n"):
                self._single(line)
        header = self._header.match(part, before + 1, at)
        if header is None:
            self._skip(part[before + 1 : at])
            return
        stack = part[at + 1 :]
        node = self._stacks.get(stack)
        if node is None:
            node = self._stack(stack)
        self._sample(header, node)

    def _indented(self, part: bytes, start: int) -> int:
        """Return where frames begin whose tabs have become spaces, -1 if there are none."""
        at = part.find(b"\n  ", start)
        # Short names of threads are indented too.
        end = part.find(b"\n", at + 1)
        line = part[at + 1 : end if end >= 0 else None]
        return -1 if at < 0 or self._header.match(line) or not _FRAME.match(line) else at

    def _single(self, line: bytes) -> None:
        """Add a sample in one line, or skip something else that perf writes."""
        header = self._header.match(line)
        if header is None:
            self._skip(line)
            return
        rest = line[header.end() :].strip()
        if header[8].startswith(_TASK_EVENT):
            self._name_process(header[8] == _EXEC, rest)
            return
        frame = self._frame(rest) if rest.endswith(b")") else None
        self._sample(header, self._builder.tree.node([] if frame is None else [frame]))

    def _name_process(self, executed: bool, named: bytes) -> None:
        """Name a process after the program it executed, or else after its main thread."""
        match = _NAMED.match(named)
        if match is None or match[2] != match[3]:
            return
        pid = int(match[2])
        if executed:
            self._programs.add(pid)
        if executed or pid not in self._programs:
            self._builder.threads.name_process(pid, match[1])

    def _skip(self, line: bytes) -> None:
        if b"PERF_RECORD_" in line:
            lost = _LOST.search(line)
            if lost:
                self._builder.dropped["lost by perf"] += int(lost[1][:12])
        elif line.strip() and not line.startswith(b"#"):
            self.skipped += 1

    def _sample(self, header: re.Match[bytes], node: int) -> None:
        comm, first, second, cpu, seconds, fraction, period, name = header.groups()
        key = (first, second, cpu if (second or first) == b"0" else None)
        line = self._threads.get(key)
        if line is None:
            pid, tid = int(first), int(second or first)
            line = self._builder.threads.line(pid, tid, comm.rstrip(), int(key[2] or 0))
            self._threads[key] = line
            self._names[line] = comm
        elif self._names[line] != comm:
            self._builder.threads.rename(line, comm.rstrip())
            self._names[line] = comm
        event = self._events.get(name)
        if event is None:
            event = self._events[name] = _perf_event(self._builder, name, period is not None)
        time_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, b"0"))
        self._builder.add(line, time_ns, node, event, int(period) if period else 1)
        self.samples += 1

    def _stack(self, stack: bytes) -> int:
        lines = stack.split(b"\n")
        known = list(map(self._lines.get, lines))
        if None in known:
            known = [
                self._line(line) if frame is None else frame
                for line, frame in zip(lines, known, strict=True)
            ]
        path = [frame for frame in known if frame is not None and frame != _NO_FRAME]
        path.reverse()
        node = self._builder.tree.node(path)
        if len(self._stacks) >= _CACHED_STACKS or self._cached_bytes > _CACHED_BYTES:
            self._stacks.clear()
            self._lines.clear()
            self._cached_bytes = 0
        self._stacks[stack] = node
        self._cached_bytes += len(stack)
        return node

    def _line(self, line: bytes) -> int:
        """Return the frame of a line of a call path, or :data:`_NO_FRAME`."""
        frame = self._frame(line) if line.endswith(b")") else None
        if frame is None and line.strip() and not line.startswith(b" "):
            self.skipped += 1
        if len(self._lines) >= _CACHED_LINES:
            self._lines.clear()
        number = _NO_FRAME if frame is None else frame
        self._lines[line] = number
        self._cached_bytes += len(line)
        return number

    def _frame(self, line: bytes) -> int | None:
        """Return the frame of ``address symbol+offset (module)``, None if it is something else."""
        match = _FRAME.match(line)
        if match is None:
            return None
        address, rest = int(match[1], 16), match[2]
        inlined = rest.endswith(_INLINED)
        end = len(rest) - len(b" (deleted))") if rest.endswith(_DELETED) else len(rest)
        at = rest.rfind(b"(", 0, end)
        symbol, module = rest[:at].rstrip(), rest[at + 1 : -1]
        if inlined:
            module = b"[inlined]"
        elif _JIT.match(module):
            module = b"[jit]"
        symbol = _OFFSET.sub(b"", symbol)
        builder = self._builder
        if symbol == _UNKNOWN or not symbol:
            if module == _UNKNOWN or not module:
                return builder.tree.unknown()
            symbol = b"[%s]" % module.rpartition(b"/")[2].strip(b"[]")
        kernel = address >= _KERNEL or module.startswith((b"[kernel.", b"[guest.kernel."))
        if kernel and module.startswith(b"[kernel."):
            module = b"kernel"
        return builder.tree.frame(builder.tree.module(module, kernel=kernel), symbol)


def _perf_event(builder: RecordingBuilder, name: bytes, with_period: bool) -> int:
    """Return the number of the event ``name``.

    A period of one of the kernel's clocks is ns of CPU time; any other counts occurrences.
    Without periods a sample is one sample: the metric is ``NAME samples``.
    """
    text = readable(name)
    plain = _MODIFIERS.sub("", text)
    if not with_period:
        return builder.event(text, "", 1.0, f"{plain} samples")
    if plain in _CLOCKS:
        metric = "cpu_time" if builder.first_clock(plain) else plain.replace("-", "_")
        return builder.event(text, "s", 1e-9, metric)
    return builder.event(text, "", 1.0, plain)
