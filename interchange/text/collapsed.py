"""Collapsed stacks: ``outermost;...;innermost COUNT``, one call path a line, written and read.

Exports have a line for each calling context with a cost: whole numbers, times in ns; a semicolon in
a name is written ``\\x3b``, a line end ``\\n``. flamegraph.pl, inferno, speedscope and others read
them. Imports are outputs of FlameGraph's stackcollapse scripts (described in stackcollapse.pl),
bcc, async-profiler, inferno, ``perf script report stackcollapse``, and py-spy (``--format raw``),
whose frames are ``function (file.py:line)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import one_line
from hpcd.interchange.input.imported_tree import NO_MODULE
from hpcd.interchange.input.input_file import numbered_lines
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.input.skipped_lines import SkippedLines
from hpcd.interchange.input.synthetic_clock import SyntheticClock
from hpcd.interchange.output.context_table import Detail
from hpcd.interchange.output.export_selection import ExportSelection, whole_numbers

# --- export ---


def write(selection: ExportSelection, file: BinaryIO, _: Path) -> None:
    """Write the main metric of ``selection`` to ``file``."""
    table = selection.contexts(Detail.NAME)
    row = selection.main_row
    scale = 1e9 if selection.units[row] == "s" else 1.0
    cost = whole_numbers(selection.total_costs(table)[row] * scale)
    names = [one_line(name, ";") for name in table.frames.name]
    parent, frame = table.parent.tolist(), table.frame.tolist()
    for context in np.flatnonzero(cost).tolist():
        count = int(cost[context])
        words = []
        # Costs that match no context are the root's.
        at = context
        while at:
            words.append(names[frame[at]])
            at = parent[at]
        file.write(f"{';'.join(reversed(words)) or names[0]} {count}\n".encode())


# --- import ---

# Appended by stackcollapse-perf.pl --all: kernel, compiled at run time, inlined, other threads.
_ANNOTATION = re.compile(rb"_\[([kjiw])\]$")
_DTRACE = re.compile(rb"([\w.+-]{1,255})`(.+)", re.DOTALL)
# py-spy's frames; with --threads the outermost one is "thread (id): name".
_PYTHON = re.compile(rb"(.+) \(([^;()]{1,4096}):(\d{1,9})\)$", re.DOTALL)
PY_SPY_THREAD = re.compile(rb"thread \((0x[0-9A-Fa-f]{1,16}|\d{1,19})\)(?:: (.*))?$", re.DOTALL)
_PROCESS = re.compile(rb'process (\d{1,10}):"(.*)"$', re.DOTALL)
_CACHED = 1 << 19
_MAX_SKIPPED_SHARE = 0.1
# Fractions, which some tools write, keep six decimals.
_PARTS = 1_000_000
_UNIT_NS = 1_000_000


def looks_collapsed(head: bytes, least: float = 1 - _MAX_SKIPPED_SHARE) -> bool:
    """Whether of the first lines the share ``least`` is call paths with counts."""
    parts = [_split(line) for line in _whole_lines(head)]
    understood = sum(bool(stack) and _count(count) is not None for stack, count in parts)
    return bool(parts) and understood >= least * len(parts)


def looks_like_py_spy(head: bytes) -> bool:
    """Whether most frames of the call paths among the first lines are py-spy's."""
    if not looks_collapsed(head):
        return False
    frames = [frame for line in _whole_lines(head) for frame in _split(line)[0].split(b";")]
    places = sum(bool(_PYTHON.match(frame)) for frame in frames)
    threads = sum(bool(PY_SPY_THREAD.match(frame) or _PROCESS.match(frame)) for frame in frames)
    return bool(places) and places + threads > 0.9 * len(frames)


def require_one_count(head: bytes, name: str) -> None:
    """Raise FormatError naming the file ``name`` if all first lines have two counts: the second
    one would be taken for the only one, and the first for a part of a name."""
    parts = [_split(_split(line)[0]) for line in _whole_lines(head)]
    if parts and all(stack and _count(count) is not None for stack, count in parts):
        raise FormatError(
            f"{name}: two counts a line, as difffolded.pl writes them: import the two files that it"
            " was made of (hpcd compare shows their difference)"
        )


def _whole_lines(head: bytes) -> list[bytes]:
    lines = head.split(b"\n")
    lines = lines[:-1] if len(lines) > 1 else lines
    return [line for line in lines if line.strip() and not line.startswith(b"#")][:100]


def _split(line: bytes) -> tuple[bytes, bytes]:
    stack, _, count = line.rstrip().rpartition(b" ")
    return stack.strip(), count


class CollapsedReader:
    """Turns collapsed stacks into records of ``builder``.

    With ``python`` frames are py-spy's, with ``lines`` a function's lines are procedures of their
    own.
    """

    def __init__(self, builder: RecordingBuilder, *, python: bool, lines: bool) -> None:
        self._builder = builder
        self._clock = SyntheticClock(builder, 1)
        # Counts are whole numbers of 1 / this.
        self._parts = 1
        self._total = 0
        self._frame: Callable[[bytes], int] = self._python_frame if python else self._plain_frame
        self._python = python
        self._with_lines = lines
        self._frames: dict[bytes, int] = {}
        self._skipped = SkippedLines(builder, "no call path with a count", _MAX_SKIPPED_SHARE)

    def read(self, blocks: Iterable[bytes], hertz: float) -> None:
        """Add call paths from blocks of whole lines; with ``hertz`` counts are samples of CPU time
        taken so many times a second. Raises FormatError when they are something else."""
        number = 0
        for number, line in numbered_lines(blocks, self._builder.notes):
            if line.strip() and not line.startswith(b"#"):
                self._take(line, number)
        self._finish(hertz)
        self._skipped.finish(number)

    def _finish(self, hertz: float) -> None:
        builder, parts = self._builder, self._parts
        builder.taken = round(self._total / parts)
        if hertz:
            scale = 1 / hertz / parts
            event = builder.event("samples", "s", scale, "cpu_time", round(hertz))
        else:
            event = builder.event("samples", "", 1 / parts, "count")
        self._clock.finish([event], (1e9 / hertz if hertz else _UNIT_NS) / parts)

    def _take(self, line: bytes, number: int) -> None:
        stack, text = _split(line)
        count = _count(text, self._parts)
        if count is None and self._parts == 1 and (count := _count(text, _PARTS)) is not None:
            self._parts = _PARTS
            self._total *= _PARTS
            self._clock.multiply(_PARTS)
        if count is None or not stack:
            self._skipped.add(number)
            return
        if not count:
            return
        names = stack.split(b";")
        pid = tid = 0
        thread = b""
        if self._python:
            pid, tid, thread, names = self._owner(names)
        frames = self._frames
        path = []
        for name in names:
            frame = frames.get(name)
            if frame is None:
                if len(frames) >= _CACHED:
                    frames.clear()
                frame = frames[name] = self._frame(name)
            path.append(frame)
        builder = self._builder
        unnamed = "" if tid else builder.threads.default_name
        line_number = builder.threads.line(pid, tid, thread or unnamed)
        self._clock.add(line_number, builder.tree.node(path), (count,))
        self._total += count

    def _owner(self, names: list[bytes]) -> tuple[int, int, bytes, list[bytes]]:
        """Return (pid, tid, thread, frames below) of a call path of py-spy."""
        pid = tid = 0
        thread = b""
        process: bytes | str = self._builder.threads.default_name
        while names and (match := _PROCESS.match(names[0])):
            pid, process, names = int(match[1]), match[2], names[1:]
        self._builder.threads.name_process(pid, process)
        if names and (match := PY_SPY_THREAD.match(names[0])):
            number = match[1]
            tid = int(number, 16) if number.startswith(b"0x") else int(number)
            # At the beginning Python has no name for a thread.
            thread, names = match[2] or b"", names[1:]
            if thread:
                self._builder.threads.rename(
                    self._builder.threads.line(pid, tid & (1 << 62) - 1, thread), thread
                )
        return pid, tid & (1 << 62) - 1, thread, names

    def _plain_frame(self, name: bytes) -> int:
        module: bytes | str = NO_MODULE
        kernel = False
        match = _ANNOTATION.search(name)
        if match:
            name = name[: match.start()]
            kernel = match[1] == b"k"
            module = {b"k": b"kernel", b"j": b"[jit]"}.get(match[1], module)
        elif match := _DTRACE.match(name):
            module, name = match[1], match[2]
        return self._builder.tree.frame(self._builder.tree.module(module, kernel=kernel), name)

    def _python_frame(self, name: bytes) -> int:
        match = _PYTHON.match(name)
        if match is None:
            return self._plain_frame(name)
        function, file, line = match.groups()
        return python_frame(self._builder, function, file, int(line) if self._with_lines else 0)


def python_frame(builder: RecordingBuilder, function: bytes, file: bytes, line: int) -> int:
    """Return the frame of a function in the source file ``file``; of its ``line`` if not 0."""
    return builder.tree.frame(
        builder.tree.module(file), b"%s:%d" % (function, line) if line else function
    )


def _count(text: bytes, parts: int = _PARTS) -> int | None:
    """Return a count as a number of ``parts`` of one, rounded; None if it is no number, or has a
    fraction with 1 part."""
    if text.isdigit() and len(text) <= 18:
        return int(text) * parts
    whole, _, part = text.partition(b".")
    if parts > 1 and whole.isdigit() and part.isdigit() and len(whole) <= 15:
        return round(Decimal(text.decode()) * parts)
    return None
