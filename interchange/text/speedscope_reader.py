"""speedscope files (py-spy ``--format speedscope``, rbspy, dotnet-trace and others).

A sample is a call path and its weight. If weights are times, the time of a sample is the sum
of weights up to its own in its profile. In profiles of events, which open and close frames, a
call path is an interval from one event to the next.
"""

from __future__ import annotations

import json
import re
from typing import Any

from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.input.imported_tree import MAX_DEPTH, NO_MODULE
from hpcd.interchange.input.input_file import InputFile
from hpcd.interchange.input.recording_builder import RecordingBuilder
from hpcd.interchange.text.collapsed import PY_SPY_THREAD

# Its objects take up to 24 times as much.
_MAX_BYTES = 32 << 20
_SCHEMA = b'"https://www.speedscope.app/file-format-schema.json"'
_NS = {"nanoseconds": 1.0, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9}
# Amounts that are no times keep six decimals, and a sample of them lasts a millisecond.
_PARTS = 1_000_000
_UNIT_NS = 1_000_000
_MAX_WEIGHT = 2.0**55
_PY_SPY = re.compile(r'Thread (0x[0-9A-Fa-f]{1,15}|\d{1,18}) "(.*)"', re.DOTALL)
# hpcd's own profiles: the metric and the trace line; sums over all lines come first.
_OWN = re.compile(r"(.+?): (.*)", re.DOTALL)
_WHOLE = "all trace lines"


def looks_like_speedscope(head: bytes) -> bool:
    """Whether this is JSON that names speedscope's schema."""
    return head.lstrip().startswith(b"{") and _SCHEMA in head


class SpeedscopeReader:
    """Turns profiles into records of ``builder``; with ``lines`` a function's lines are procedures
    of their own."""

    def __init__(self, builder: RecordingBuilder, *, lines: bool) -> None:
        self._builder = builder
        self._with_lines = lines
        self._frames: list[int] = []
        self._threads: dict[int, str] = {}

    def read(self, file: InputFile) -> None:
        """Add the samples of a file. Raises FormatError."""
        try:
            document = json.loads(file.read_all(_MAX_BYTES))
            own = str(document.get("exporter", "")).startswith("hpcd")
            for number, frame in enumerate(document["shared"]["frames"]):
                self._add_frame(number, frame)
            for number, profile in enumerate(document["profiles"]):
                self._add_profile(number, profile, own=own)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            raise self._builder.damaged("it does not follow speedscope's schema") from None

    def _add_frame(self, number: int, frame: dict[str, Any]) -> None:
        name, line = utf8(str(frame["name"])), frame.get("line")
        if thread := PY_SPY_THREAD.match(name.encode()):
            self._threads[number] = (thread[2] or b"").decode()
        if self._with_lines and isinstance(line, int) and line > 0:
            name += f":{line}"
        tree = self._builder.tree
        self._frames.append(tree.frame(tree.module(utf8(frame.get("file") or NO_MODULE)), name))

    def _add_profile(self, number: int, profile: dict[str, Any], *, own: bool) -> None:
        builder, name, unit = self._builder, str(profile["name"]), str(profile["unit"])
        evented = profile["type"] == "evented"
        timed = unit in _NS
        metric, tid = "time" if timed else "count", number
        if own and (match := _OWN.fullmatch(name)):
            if match[2] == _WHOLE:
                return
            metric, name = match[1], match[2]
        elif match := _PY_SPY.fullmatch(name):
            tid, name = int(match[1], 0), match[2]
        line = builder.threads.line(0, tid, utf8(name))
        builder.threads.name_process(0, builder.threads.default_name)
        scale = _NS[unit] if timed else _PARTS
        if timed:
            kind = f"{unit}, intervals" if evented else unit
            event = builder.event(f"{metric} ({kind})", "s", 1e-9, metric, interval=evented)
        else:
            unit = "" if unit == "none" else unit
            event = builder.event(f"{metric} ({unit})", unit, 1 / _PARTS, metric)
        if evented:
            self._add_events(profile, line, event, scale)
            return
        now = self._weight(profile.get("startValue", 0), scale) if timed else 0
        for sample, weight in zip(profile["samples"], profile["weights"], strict=True):
            value = self._weight(weight, scale)
            now += value if timed else _UNIT_NS
            if sample and (thread := self._threads.get(sample[0])) is not None:
                sample = sample[1:]
                if thread:
                    builder.threads.rename(line, thread)
            if min(sample, default=0) < 0:
                raise IndexError
            node = builder.tree.node([self._frames[frame] for frame in sample])
            builder.add(line, now, node, event, value)
            builder.taken += 1

    def _add_events(self, profile: dict[str, Any], line: int, event: int, scale: float) -> None:
        """Add the call paths between the events of a profile."""
        builder = self._builder
        opened: list[int] = []
        nodes = [0]
        now = self._weight(profile["startValue"], scale)
        for what in [*profile["events"], {"type": "end", "at": profile["endValue"]}]:
            at = self._weight(what["at"], scale)
            if at < now:
                raise builder.damaged("its events are not in order of time")
            if opened and at > now:
                builder.add(line, now, nodes[-1], event, at - now)
                builder.taken += 1
            now = at
            if what["type"] == "O":
                if what["frame"] < 0:
                    raise IndexError
                if len(opened) >= MAX_DEPTH:
                    raise builder.damaged(f"a call path has more than {MAX_DEPTH:,} frames")
                nodes.append(builder.tree.child(nodes[-1], self._frames[what["frame"]]))
                opened.append(what["frame"])
            elif what["type"] == "C":
                if opened[-1:] != [what["frame"]]:
                    raise builder.damaged("an event closes a frame that is not the innermost one")
                opened.pop()
                nodes.pop()

    def _weight(self, weight: float, scale: float) -> int:
        value = weight * scale
        if not 0 <= value < _MAX_WEIGHT:
            raise FormatError(f"{self._builder.source}: a sample's weight {weight} is out of range")
        return round(value)
