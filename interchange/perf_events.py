"""What a sample of a perf event stands for."""

from __future__ import annotations

import re

from hpcd.interchange.recording_builder import RecordingBuilder
from hpcd.interchange.text import readable

# Letters behind a colon that say of whom and how precisely (perf-list(1)).
_MODIFIERS = re.compile(r":[ukhGHIpPSDWeb]+$")
_CLOCKS = ("cpu-clock", "task-clock")


def perf_event(builder: RecordingBuilder, name: bytes, with_period: bool) -> int:
    """The number of the event ``name``.

    A period of one of the kernel's clocks is nanoseconds of CPU time; any other counts occurrences.
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
