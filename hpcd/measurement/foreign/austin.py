"""Austin's text: ``P<pid>;T<tid>;file:function:line;... MICROSECONDS``, one sample a line.

Austin 3 writes it; Austin 4 writes MOJO, which ``mojo2austin`` of austin-python turns into it. A
sample says how much time has passed since its thread's sample before, so times follow: they are
exact within a thread, and a thread begins when the others have come so far. Of the three metrics
of ``austin --full`` (time, idle, memory) idle samples are no CPU time. The format is described in
Austin's README.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpcd.errors import FormatError
from hpcd.measurement.foreign.collapsed import python_frame
from hpcd.measurement.foreign.recording_builder import NO_MODULE, RecordingBuilder

_HEAD = re.compile(rb"P(\d{1,10});T(?:(\d{1,10}):)?(0x[0-9A-Fa-f]{1,16}|[0-9A-Fa-f]{1,20})(?:;|$)")
_FRAME = re.compile(rb"(.*):([^:]*):(\d{1,9})$", re.DOTALL)
_METRICS = re.compile(rb"-?\d{1,15}(?:,-?\d{1,15}){0,2}")
_SETTING = re.compile(rb"# ([a-z]+): (.*)")
# "time" is what a thread lived.
_MODES = {b"wall": "time", b"cpu": "cpu_time", b"full": "time", b"memory": "memory"}
_SKIPPED_SHARE = 0.1
_CACHED = 1 << 18


def looks_like_austin(head: bytes) -> bool:
    """Whether this is how Austin's text begins."""
    first = next((line for line in head.split(b"\n") if not line.startswith(b"#")), b"")
    return head.startswith(b"# austin:") or bool(_HEAD.match(first))


class AustinReader:
    """Turns Austin's text into records of ``builder``; with ``lines`` a function's lines are
    procedures of their own."""

    def __init__(self, builder: RecordingBuilder, *, lines: bool = False) -> None:
        self._builder = builder
        self._with_lines = lines
        self._mode = b"wall"
        self._now: dict[int, int] = {}
        self._latest = 0
        self._paths: dict[bytes, int] = {}
        self._frames: dict[bytes, int] = {}
        self._skipped = 0
        self.version = ""

    def read(self, blocks: Iterable[bytes]) -> None:
        """Take in blocks of whole lines. Raises :class:`FormatError` when they are something
        else."""
        number = 0
        for block in blocks:
            for line in block.split(b"\n"):
                number += 1
                if line.startswith(b"#"):
                    self._setting(line)
                elif line.strip():
                    self._take(line.rstrip(), number)
        if self._skipped:
            self._builder.dropped["lines not understood"] = self._skipped

    def _setting(self, line: bytes) -> None:
        match = _SETTING.match(line)
        if match and match[1] == b"mode" and match[2].strip() in _MODES:
            self._mode = match[2].strip()
        elif match and match[1] == b"austin":
            self.version = match[2].decode("ascii", "replace")[:40]

    def _take(self, line: bytes, number: int) -> None:
        stack, _, metrics = line.rpartition(b" ")
        head = _HEAD.match(stack)
        if head is None or not _METRICS.fullmatch(metrics):
            self._skipped += 1
            if self._skipped > 10 + _SKIPPED_SHARE * number:
                raise FormatError(f"{self._builder.source}: line {number} is no sample of Austin")
            return
        node = self._paths.get(stack)
        if node is None:
            if len(self._paths) >= _CACHED:
                self._paths.clear()
            node = self._paths[stack] = self._node(stack[head.end() :])
        self._sample(self._line(head), node, [int(value) for value in metrics.split(b",")])

    def _line(self, head: re.Match[bytes]) -> int:
        text = head[3]
        hexadecimal = text.startswith(b"0x") or not text.isdigit()
        tid = int(text, 16 if hexadecimal else 10) & (1 << 62) - 1
        return self._builder.line(int(head[1]), tid, b"thread " + text, int(head[2] or 0))

    def _sample(self, line: int, node: int, values: list[int]) -> None:
        builder = self._builder
        time_us, memory = values[0], 0
        if len(values) == 3:
            time_us, memory = values[0], values[2]
        elif self._mode == b"memory":
            time_us, memory = 0, values[0]
        # Without times, what comes later in the file is later.
        passed = max(time_us, 1) * 1000
        now = self._now.get(line, max(self._latest - passed, 0)) + passed
        self._now[line] = now
        self._latest = max(self._latest, now)
        builder.taken += 1
        if self._mode != b"memory":
            metric = _MODES[self._mode]
            event = builder.event(metric.replace("_", "-"), "s", 1e-6, metric)
            builder.add(line, now, node, event, max(time_us, 0))
            if len(values) == 3 and not values[1]:
                busy = builder.event("cpu-time", "s", 1e-6, "cpu_time")
                builder.add(line, now, node, busy, max(time_us, 0))
        if memory:
            name = "memory_allocated" if memory > 0 else "memory_freed"
            builder.add(line, now, node, builder.event(name, "bytes", 1.0, name), abs(memory))

    def _node(self, stack: bytes) -> int:
        path = []
        for text in stack.split(b";") if stack else []:
            frame = self._frames.get(text)
            if frame is None:
                if len(self._frames) >= _CACHED:
                    self._frames.clear()
                frame = self._frames[text] = self._frame(text)
            path.append(frame)
        return self._builder.node(path)

    def _frame(self, text: bytes) -> int:
        match = _FRAME.match(text)
        if match is None:
            # :INVALID:, :GC: and what else Austin says in the place of a frame.
            module = self._builder.module(NO_MODULE)
            return self._builder.frame(module, b"[%s]" % text.strip(b":"))
        file, function, line = match.groups()
        return python_frame(self._builder, function, file, int(line) if self._with_lines else 0)
