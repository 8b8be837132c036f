"""The text of ``perf script``: samples with call paths, times, threads and events.

Formats as ``builtin-script.c`` of the kernel's tools/perf writes them (Linux 4.x to 6.x)::

    python3  4711/4712  [001]   828.759066:    2004008 cpu-clock:
            ffffffff816071b7 vmalloc_to_page+0xf7 ([kernel.kallsyms])
                       d4ad7 __GI___execve+0x7 (/usr/lib/x86_64-linux-gnu/libc.so.6)
    <empty line>

All fields but the time can be missing. Without call paths a sample is one line that ends in
address, symbol and module. Call paths are looked up by their text, frames by their line; both are
bounded caches, so memory does not grow with the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile

from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.input.imported_tree import NO_MODULE
from hpcd.interchange.input.input_file import LONGEST
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.input.skipped_lines import SkippedLines
from hpcd.interchange.perf.perf_frame import PerfFrame, parse_frame, parse_last_column

_THREAD = rb"(-?\d{1,10})(?:/(-?\d{1,10}))?\s{1,16}"
_CPU = rb"\[(-?\d{1,6})\]\s{1,16}"
# Letters that say in which mode it was (-F +misc).
_MODE = rb"(?:(?!\d{1,8}\s)\S{1,8}\s{1,16})?"
_TIME = rb"(\d{1,12})\.(\d{1,9}):(?:\s|$)"
# No more spaces than one are behind them, as an address is known by its width.
_EVENT = (
    rb"(?!\s*PERF_RECORD_)(?:\s{0,64}(\d{1,19})(?:\s|$))?"
    rb"(?:\s{0,64}(\S.{0,255}?):(?:\s|$))?"
)
# The first number before a time ends the thread's name, or the last one if nothing is behind the
# event. All lengths are bounded: lines that match nothing cost no more than others.
_HEADER = re.compile(
    rb"\s*+(?:(.{1,64}?)\s{1,64})?"
    rb"(?:%s(?:%s)?%s|\[-?\d{1,6}\]\s{1,16})?%s%s" % (_THREAD, _CPU, _MODE, _TIME, _EVENT)
)
_OWN_HEADER = re.compile(rb"\s*+(.{0,64})\s{1,64}%s(?:%s)?%s%s" % (_THREAD, _CPU, _TIME, _EVENT))
_FRAMES = re.compile(
    rb"^(?:\t *[0-9a-f]{1,16}(?: |$)| {1,16}[0-9a-f]{8,16} \S"
    rb"|.{0,255}: {1,16}[0-9a-f]{1,16} \S.{0,255}\+0x[0-9a-f]{1,16}(?: \(|$))",
    re.MULTILINE,
)
# Further lines of a sample: source lines (-F +srcline, +srccode), registers, instructions.
_DETAIL = re.compile(rb"  \S| (?:ABI|insn|ilen):|\|\d{1,9}\s")
_LAST_DETAIL = (b" ABI:", b" insn:", b" ilen:")
_RECORD = re.compile(
    rb"(?:.*?(\d{1,12})\.(\d{1,9}):\s{1,64}|.*?)PERF_RECORD_(\w+(?: exec)?)(.*)", re.DOTALL
)
_LAST_NUMBER = re.compile(rb"(\d{1,12})\s*$")
# Letters behind a colon: privilege level, precision and the like (perf-list(1)).
_MODIFIERS = re.compile(r":[ukhGHIpPSDWeb]+$")
# perf script --show-task-events: an event ends with "NAME:PID/TID".
_NAMED = re.compile(rb":\s+(.*):(\d{1,10})/(\d{1,10})$", re.DOTALL)
_CLOCKS = ("cpu-clock", "task-clock")
_NO_EVENT = b"event"
_CUT_OFF = "at the end, where the text seems to be cut off"
# Functions that have no caller. They and the kernel's frames tell whether the outermost frame of a
# path is its first (call-graph.order of perf-config(1)).
_OUTERMOST = re.compile(
    rb"_start|_?_?libc_start_\w+|start_thread|thread_start|_?_?clone3?|ret_from_fork\w*|main"
    rb"|runtime\.(?:goexit|mstart|rt0_go)\S*"
)

_CACHED_STACKS, _CACHED_LINES = 1 << 18, 1 << 19
_CACHED_BYTES = 128 << 20
# Share of lines that may be something else than samples and perf's own messages.
_MAX_SKIPPED_SHARE = 0.5
# Lines examined for how times and call paths are written, and the share of steps back in time
# above which times are relative to the previous event (--deltatime).
_LOOKED_AT = 4000
_STEPS_BACK = 0.25


def looks_like_perf_script(head: bytes) -> bool:
    """Whether one of the first lines is a sample's header, a frame, or another event that perf
    recorded."""
    # The heading names every program that the kernel had loaded.
    lines = [line for line in head.split(b"\n") if not line.startswith(b"#")][:200]
    headers = filter(None, map(_HEADER.match, lines))
    return (
        any(
            (match[8] and match[2]) or parse_last_column(match.string[match.end() :]) is not None
            for match in headers
        )
        or any(map(_FRAMES.match, lines))
        or any(b"PERF_RECORD_" in line and _RECORD.match(line) for line in lines)
    )


class PerfScriptReader:
    """Turns the text of ``perf script`` into records of ``builder``.

    With ``own`` the text has no fields behind the event's name, so that no name of a thread can be
    taken for the fields behind it.
    """

    def __init__(self, builder: RecordingBuilder, *, own: bool = False) -> None:
        self._builder = builder
        self._header = _OWN_HEADER if own else _HEADER
        self._own = own
        self._lines: dict[bytes, int] = {}
        self._stacks: dict[bytes, int] = {}
        self._cached_bytes = 0
        self._events: dict[bytes | None, int] = {}
        self._threads: dict[tuple[bytes | None, ...], int] = {}
        self._names: dict[int, bytes] = {}
        self._programs: set[int] = set()
        self._skipped = SkippedLines(builder, "no text of perf script", _MAX_SKIPPED_SHARE)
        self._caller_first = self._relative = False
        self._now_ns = 0
        self._block, self._offset, self._lines_before = b"", 0, 0
        self.samples = 0
        """Number of samples added."""

    def read(self, blocks: Iterable[bytes]) -> None:
        """Add the samples of blocks that end behind an empty line, or behind a line if there are no
        empty ones. Raises FormatError when it is no text of ``perf script``."""
        rest = b""
        for block in blocks:
            text = rest + block
            if not self._lines_before and not self._own:
                self._look_at(text)
            *parts, rest = text.split(b"\n\n")
            self._block, self._offset = text, 0
            for part in parts:
                if part:
                    self._take(part)
                self._offset += len(part) + 2
            at = self._last_sample(rest)
            if at or len(rest) > LONGEST:
                self._take_lines(rest[:at] if at else rest)
                self._offset, rest = self._offset + at, rest[at:] if at else b""
            self._lines_before += text.count(b"\n", 0, self._offset)
        self._finish(rest)
        self._builder.taken = self.samples
        self._skipped.finish(self._lines_before)

    def _look_at(self, text: bytes) -> None:
        """Determine the order of frames in a call path, and the origin of times."""
        times: list[int] = []
        outer, inner = 0, 0
        path: list[PerfFrame] = []
        for line in text.split(b"\n", _LOOKED_AT)[:_LOOKED_AT]:
            header, record = self._parse_line(line)
            if not header and not record and line[:1] in (b"\t", b" "):
                if not _DETAIL.match(line) and (frame := parse_frame(line)):
                    path.append(frame)
                continue
            if len(path) > 1:
                first, last = (_depth(path[end]) for end in (0, -1))
                outer += first < last
                inner += last < first
            path = []
            if header:
                times.append(_nanoseconds(header[5], header[6]))
            elif record and record[1]:
                times.append(_nanoseconds(record[1], record[2]))
        if not times and _FRAMES.search(text):
            raise FormatError(f"{self._builder.source}: no times in it: perf script -F +time")
        self._caller_first = outer > inner
        if self._caller_first:
            self._builder.notes.append("call paths have their outermost frame first")
        if times and not times[0]:
            # Events that perf synthesised from /proc have no time.
            begin = next((at for at, time in enumerate(times) if time), len(times))
            steps = [after <= before for before, after in pairwise(times[begin:])]
            self._relative = sum(steps) > _STEPS_BACK * len(steps)
        if self._relative:
            self._builder.notes.append("times are sums of times between events (--deltatime)")

    def _last_sample(self, text: bytes) -> int:
        """Return where the last sample of ``text`` begins, which no empty line ends; 0 if it is the
        only one."""
        end = len(text)
        while (at := text.rfind(b"\n", 0, end)) >= 0:
            if text[at + 1 : at + 2] != b"\t" and self._header.match(
                text, at + 1, max(end, at + 1)
            ):
                return at + 1
            end = at
        return 0

    def _finish(self, rest: bytes) -> None:
        """Add the last sample, unless its last frames or half of a line are missing."""
        whole, _, cut = rest.rpartition(b"\n")
        lines = [*takewhile(lambda line: b"PERF_RECORD_" not in line, whole.split(b"\n"))]
        header = self._header.match(lines[0]) if lines else None
        framed = any(line and not _DETAIL.match(line) for line in lines[1:])
        begun = cut[:1] in (b"\t", b" ") and header and not lines[0][header.end() :].strip()
        ended = lines and lines[-1].startswith(_LAST_DETAIL)
        lost = bool(header and (framed or begun) and not ended)
        if cut or lost:
            self._builder.dropped[_CUT_OFF] += 1
        if whole and not lost:
            self._block, self._offset = rest, 0
            self._take_lines(whole)
        self._lines_before += rest.count(b"\n")

    def _take(self, part: bytes) -> None:
        """Add the samples of a block without empty lines, mostly one."""
        end = part.find(b"\n")
        header = self._header.match(part, 0, end) if end >= 0 else None
        if header is None:
            self._take_lines(part)
            return
        stack = part[end + 1 :]
        node = self._stacks.get(stack)
        if node is not None:
            self._sample(header, node)
        elif (node := self._take_lines(part)) is not None:
            self._keep(stack, node)

    def _take_lines(self, text: bytes) -> int | None:
        """Add the samples of lines and skip others; return the node of the first line's
        sample if there is only that, and it is understood."""
        header: re.Match[bytes] | None = None
        record = None
        path: list[bytes] = []
        offset = path_offset = 0
        alone, node, skipped = True, None, self._skipped.count
        for line in [*text.split(b"\n"), b""]:
            begun, other = self._parse_line(line)
            indented = line[:1] in (b"\t", b" ")
            if indented and not begun and not other and (header or record):
                path_offset = path_offset or offset
                path.append(line)
                offset += len(line) + 1
                continue
            if header:
                node = self._add(header, path, path_offset)
            header, record, path, path_offset = begun, other, [], 0
            alone = alone and (not offset or not line)
            if record:
                self._take_record(record)
            elif not header and line.strip() and not line.startswith(b"#"):
                self._skip(line, offset)
            offset += len(line) + 1
        return node if alone and skipped == self._skipped.count else None

    def _parse_line(self, line: bytes) -> tuple[re.Match[bytes] | None, re.Match[bytes] | None]:
        """Return the header of a sample, or of something else that perf recorded, in ``line``."""
        header = None if line.startswith(b"\t") else self._header.match(line)
        if header or b"PERF_RECORD_" not in line:
            return header, None
        return None, _RECORD.match(line)

    def _add(self, header: re.Match[bytes], path: Sequence[bytes], offset: int) -> int | None:
        """Add a sample; returns the node of ``path``, None if there is no frame in it."""
        node = self._node(path, offset)
        if node is not None:
            self._sample(header, node)
            return node
        frame = parse_last_column(header.string[header.end() :])
        self._sample(header, self._builder.tree.node([self._number(frame)] if frame else []))
        return None

    def _take_record(self, record: re.Match[bytes]) -> None:
        """Take something else that perf recorded (--show-task-events and others)."""
        if record[1]:
            self._time(record[1], record[2])
        kind, rest = record[3], record[4]
        if kind.startswith(b"LOST") and (lost := _LAST_NUMBER.search(rest)):
            self._builder.dropped["lost by perf"] += int(lost[1])
        if kind.startswith(b"COMM") and (named := _NAMED.match(rest)) and named[2] == named[3]:
            pid = int(named[2])
            if kind.endswith(b" exec"):
                self._programs.add(pid)
            elif pid in self._programs:
                return
            self._builder.threads.name_process(pid, named[1])

    def _skip(self, line: bytes, offset: int) -> None:
        """Count a line at ``offset`` of the block that is not understood, unless it is a detail of
        a sample."""
        if not _DETAIL.match(line):
            before = self._block.count(b"\n", 0, self._offset + offset)
            self._skipped.add(self._lines_before + before + 1)

    def _sample(self, header: re.Match[bytes], node: int) -> None:
        comm, first, second, cpu, seconds, fraction, period, name = header.groups()
        comm = comm or b""
        # Without numbers threads are distinguished by name.
        key = (first or comm, second, cpu if (second or first) == b"0" else None)
        line = self._threads.get(key)
        if line is None:
            pid, tid = int(first or 0), int(second or first or len(self._threads))
            line = self._builder.threads.line(pid, tid, comm.rstrip(), int(key[2] or 0))
            self._threads[key] = line
            self._names[line] = comm
        elif self._names[line] != comm:
            self._builder.threads.rename(line, comm.rstrip())
            self._names[line] = comm
        event = self._events.get(name)
        if event is None:
            event = _perf_event(self._builder, name or _NO_EVENT, period is not None)
            self._events[name] = event
        time_ns = self._time(seconds, fraction)
        self._builder.add(line, time_ns, node, event, int(period) if period else 1)
        self.samples += 1

    def _time(self, seconds: bytes, fraction: bytes) -> int:
        """Return an event's time; call it for every event with a time, in order."""
        time_ns = _nanoseconds(seconds, fraction)
        if not self._relative:
            return time_ns
        # Steps back are printed as unsigned numbers.
        self._now_ns += time_ns - (1 << 64 if time_ns >> 63 else 0)
        return max(self._now_ns, 0)

    def _node(self, lines: Sequence[bytes], offset: int) -> int | None:
        """Return the node of a call path of ``lines``, which begin at ``offset`` of the part; None
        if there is no frame in it."""
        path = []
        addresses = False
        for line in lines:
            number = self._lines.get(line)
            if number is None:
                frame = parse_frame(line)
                named = frame and frame.address is None
                if frame and not (named and (addresses or _DETAIL.match(line))):
                    addresses = addresses or not named
                    number = self._number(frame)
                    if len(self._lines) >= _CACHED_LINES:
                        self._lines.clear()
                    self._lines[line] = number
                    self._cached_bytes += len(line)
                elif line.strip():
                    self._skip(line, offset)
            if number is not None:
                path.append(number)
            offset += len(line) + 1
        if not self._caller_first:
            path.reverse()
        return self._builder.tree.node(path) if path else None

    def _keep(self, stack: bytes, node: int) -> None:
        if len(self._stacks) >= _CACHED_STACKS or self._cached_bytes > _CACHED_BYTES:
            self._stacks.clear()
            self._lines.clear()
            self._cached_bytes = 0
        self._stacks[stack] = node
        self._cached_bytes += len(stack)

    def _number(self, frame: PerfFrame) -> int:
        tree = self._builder.tree
        _, symbol, module, kernel = frame
        if not symbol:
            if not module:
                return tree.unknown()
            symbol = b"[%s]" % module.rpartition(b"/")[2].strip(b"[]")
        return tree.frame(tree.module(module or NO_MODULE, kernel=kernel), symbol)


def _depth(frame: PerfFrame) -> int:
    """Return a number that is larger of frames that are further in."""
    return 0 if _OUTERMOST.fullmatch(frame.symbol) else 2 if frame.kernel else 1


def _nanoseconds(seconds: bytes, fraction: bytes) -> int:
    return int(seconds) * 1_000_000_000 + int(fraction.ljust(9, b"0"))


def _perf_event(builder: RecordingBuilder, name: bytes, with_period: bool) -> int:
    """Return the number of the event ``name``.

    A period of a kernel clock is ns of CPU time; other periods count occurrences.
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
