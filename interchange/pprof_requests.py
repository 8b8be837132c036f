"""Profiles as pprof, a gzipped profile.proto for each series, for Pyroscope's ``/ingest``.

https://github.com/google/pprof/blob/main/proto/profile.proto. Labels stand in the request's
``name``, ``command{user="ada",job="17",rank="3",command="lmp"}``, and in each sample.
"""

from __future__ import annotations

import gzip
import re
from urllib.parse import urlencode

import numpy as np

from hpcd.analysis.live.label_profiles import METRICS, IntervalProfiles, Labels, Series
from hpcd.interchange.protobuf import integer, message, packed, text

PATH = "/ingest"
"""Where Pyroscope and what forwards to it take profiles."""
CONTENT_TYPE = "application/octet-stream"

_NAMES = ("cpu", "blocked", "runnable")
# The size of code ranges of load modules: addresses are those within a module.
_LIMIT = 1 << 40


def encode(profiles: IntervalProfiles) -> list[tuple[str, bytes]]:
    """The query and the body of a request for each series."""
    return [
        (_query(profiles, series.labels), _body(profiles, series)) for series in profiles.series
    ]


def _query(profiles: IntervalProfiles, labels: Labels) -> str:
    pairs = {"host": profiles.host, **labels._asdict()}
    chosen = ",".join(f"{key}={_quoted(value)}" for key, value in pairs.items() if value)
    return urlencode(
        {
            "name": f"{_plain(labels.command)}{{{chosen}}}",
            # Whole seconds; a receiver refuses an interval that is empty.
            "from": profiles.begin_ns // 10**9,
            "until": max(profiles.end_ns // 10**9, profiles.begin_ns // 10**9 + 1),
            "format": "pprof",
            "spyName": "hpcd",
            "sampleRate": round(1e9 / profiles.period_ns),
        }
    )


def _plain(text_: str) -> str:
    """An application's name: what its receivers allow."""
    return re.sub(r"[^\w.-]", "_", text_, flags=re.ASCII) or "unnamed"


def _quoted(value: str) -> str:
    return re.sub(r"[{},=\"\\\x00-\x1f]", "_", value)


class _Strings:
    """The table of strings; 0 is the empty one."""

    def __init__(self) -> None:
        self.table = {"": 0}

    def __call__(self, value: str) -> int:
        return self.table.setdefault(value, len(self.table))


def _body(profiles: IntervalProfiles, series: Series) -> bytes:
    strings = _Strings()
    nanoseconds = strings("nanoseconds")
    parts = [
        message(1, integer(1, strings(name)), integer(2, nanoseconds))
        for name in _NAMES[: len(METRICS)]
    ]
    labels = b"".join(
        message(3, integer(1, strings(key)), integer(2, strings(value)))
        for key, value in series.labels._asdict().items()
        if value
    )
    frames: dict[int, int] = {}
    for node, value in zip(series.node.tolist(), np.transpose(series.value).tolist(), strict=True):
        stack = [frames.setdefault(frame, len(frames) + 1) for frame in profiles.paths.of(node)]
        parts.append(message(2, packed(1, stack), packed(2, value), labels))
    parts += _code(profiles, frames, strings)
    parts += [
        integer(9, profiles.begin_ns),
        integer(10, max(profiles.end_ns - profiles.begin_ns, 1)),
        message(11, integer(1, strings(_NAMES[0])), integer(2, nanoseconds)),
        integer(12, profiles.period_ns),
        integer(14, strings(_NAMES[0])),
    ]
    parts += [text(6, value) for value in strings.table]
    return gzip.compress(b"".join(parts), 6, mtime=0)


def _code(profiles: IntervalProfiles, frames: dict[int, int], strings: _Strings) -> list[bytes]:
    """Load modules, and a location and a function for each frame."""
    modules: dict[int, bytes] = {}
    functions: dict[str, int] = {}
    parts = []
    for frame, number in frames.items():
        name, module, address = profiles.paths.text(frame)
        function = functions.setdefault(name, len(functions) + 1)
        place = b""
        if module is not None:
            place = integer(2, module.id) + integer(3, address)
            modules[module.id] = message(
                3, integer(1, module.id), integer(3, _LIMIT), integer(5, strings(module.path)),
                integer(6, strings(module.build_id)), integer(7, 1),
            )  # fmt: skip
        parts.append(message(4, integer(1, number), place, message(4, integer(1, function))))
    for name, number in functions.items():
        parts.append(
            message(5, integer(1, number), integer(2, strings(name)), integer(3, strings(name)))
        )
    return [*modules.values(), *parts]
