"""Austin's text: ``P<pid>;T<tid>;file:function:line;... MICROSECONDS``, one sample a line.

Austin 3 writes it; MOJO, its binary sibling, is :mod:`hpcd.interchange.text.mojo`'s. A
sample has the time since its thread's sample before, so times follow: they are exact within a
thread, and a thread begins at the latest time of the others. Idle samples of ``austin --full``
(time, idle, memory) are no CPU time. Austin's README describes the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpcd.interchange.input.imported_tree import NO_MODULE
from hpcd.interchange.input.input_file import numbered_lines
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.input.skipped_lines import SkippedLines
from hpcd.interchange.text.collapsed import python_frame

_HEAD = re.compile(rb"P(\d{1,10});T(?:(\d{1,10}):)?(0x[0-9A-Fa-f]{1,16}|[0-9A-Fa-f]{1,20})(?:;|$)")
_FRAME = re.compile(rb"(.*):([^:]*):(\d{1,9})$", re.DOTALL)
_METRICS = re.compile(rb"-?\d{1,15}(?:,-?\d{1,15}){0,2}")
_SETTING = re.compile(rb"# ([a-z]+): (.*)")
# "time" is a thread's elapsed time.
_MODES = {b"wall": "time", b"cpu": "cpu_time", b"full": "time", b"memory": "memory"}
_MAX_SKIPPED_SHARE = 0.1
_CACHED = 1 << 18


def looks_like_austin(head: bytes) -> bool:
    """Whether this is how Austin's text begins."""
    first = next((line for line in head.split(b"\n") if not line.startswith(b"#")), b"")
    return head.startswith(b"# austin:") or bool(_HEAD.match(first))


class AustinSamples:
    """Adds Austin's samples, whichever format they come from; with ``lines`` a function's lines are
    procedures of their own."""

    def __init__(self, builder: RecordingBuilder, *, lines: bool) -> None:
        self.builder = builder
        self._with_lines = lines
        self._mode = b"wall"
        self._now: dict[int, int] = {}
        self._latest = 0

    def setting(self, key: bytes, value: bytes) -> None:
        """Set a value of Austin's metadata."""
        if key == b"mode" and value in _MODES:
            self._mode = value

    @property
    def memory_only(self) -> bool:
        """Whether samples have no times."""
        return self._mode == b"memory"

    def frame(self, function: bytes, file: bytes, line: int) -> int:
        """Return the number of a Python frame."""
        return python_frame(self.builder, function, file, line if self._with_lines else 0)

    def special_frame(self, name: bytes) -> int:
        """Return the number of a frame other than a function, such as garbage collection."""
        module = self.builder.tree.module(NO_MODULE)
        return self.builder.tree.frame(module, b"[%s]" % name.strip(b":").lower())

    def add(self, line: int, node: int, time_us: int, memory: int, busy: bool | None) -> None:
        """Add a sample; ``busy`` is None if it was not recorded."""
        builder = self.builder
        # Without times, the order in the file is that in time.
        passed = max(time_us, 1) * 1000
        now = self._now.get(line, max(self._latest - passed, 0)) + passed
        self._now[line] = now
        self._latest = max(self._latest, now)
        builder.taken += 1
        if not self.memory_only:
            metric = _MODES[self._mode]
            event = builder.event(metric.replace("_", "-"), "s", 1e-6, metric)
            builder.add(line, now, node, event, max(time_us, 0))
            if busy:
                event = builder.event("cpu-time", "s", 1e-6, "cpu_time")
                builder.add(line, now, node, event, max(time_us, 0))
        if memory:
            name = "memory_allocated" if memory > 0 else "memory_freed"
            builder.add(line, now, node, builder.event(name, "bytes", 1.0, name), abs(memory))


class AustinReader:
    """Turns Austin's text into records."""

    def __init__(self, samples: AustinSamples) -> None:
        self._samples = samples
        self._builder = samples.builder
        self._paths: dict[bytes, int] = {}
        self._frames: dict[bytes, int] = {}
        self._skipped = SkippedLines(self._builder, "no sample of Austin", _MAX_SKIPPED_SHARE)

    def read(self, blocks: Iterable[bytes]) -> None:
        """Add samples from blocks of whole lines. Raises FormatError when they are something
        else."""
        number = 0
        for number, line in numbered_lines(blocks, self._builder.notes):
            if line.startswith(b"#"):
                if match := _SETTING.match(line):
                    self._samples.setting(match[1], match[2].strip())
            elif line.strip():
                self._take(line.rstrip(), number)
        self._skipped.finish(number)

    def _take(self, line: bytes, number: int) -> None:
        stack, _, metrics = line.rpartition(b" ")
        head = _HEAD.match(stack)
        if head is None or not _METRICS.fullmatch(metrics):
            self._skipped.add(number)
            return
        node = self._paths.get(stack)
        if node is None:
            if len(self._paths) >= _CACHED:
                self._paths.clear()
            node = self._paths[stack] = self._node(stack[head.end() :])
        values = [int(value) for value in metrics.split(b",")]
        line_number = self._line(head)
        if len(values) == 3:
            self._samples.add(line_number, node, values[0], values[2], not values[1])
        elif self._samples.memory_only:
            self._samples.add(line_number, node, 0, values[0], None)
        else:
            self._samples.add(line_number, node, values[0], 0, None)

    def _line(self, head: re.Match[bytes]) -> int:
        text = head[3]
        hexadecimal = text.startswith(b"0x") or not text.isdigit()
        tid = int(text, 16 if hexadecimal else 10) & (1 << 62) - 1
        return self._builder.threads.line(int(head[1]), tid, "", int(head[2] or 0))

    def _node(self, stack: bytes) -> int:
        path = []
        for text in stack.split(b";") if stack else []:
            frame = self._frames.get(text)
            if frame is None:
                if len(self._frames) >= _CACHED:
                    self._frames.clear()
                frame = self._frames[text] = self._frame(text)
            path.append(frame)
        return self._builder.tree.node(path)

    def _frame(self, text: bytes) -> int:
        match = _FRAME.match(text)
        if match is None:
            return self._samples.special_frame(text)
        file, function, line = match.groups()
        return self._samples.frame(function, file, int(line))
