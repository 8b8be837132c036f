"""Profiles as an ExportProfilesServiceRequest of OTLP, the OpenTelemetry protocol.

https://github.com/open-telemetry/opentelemetry-proto, ``collector/profiles/v1development``, fields
as in v1.10.0, which gave those of ``Sample`` other numbers: receivers of earlier versions read
nothing sensible. A resource for each :class:`~.label_profiles.Labels`; a profile for each metric.
"""

from __future__ import annotations

import numpy as np

from hpcd import __version__
from hpcd.analysis.live.label_profiles import METRICS, IntervalProfiles, Labels, Series
from hpcd.interchange.protobuf import fixed64, integer, message, packed, text
from hpcd.model.identity import Module

PROTO = "v1.10.0"
"""The version of the protocol."""
PATH = "/v1development/profiles"
"""Where receivers of OTLP/HTTP take profiles."""
CONTENT_TYPE = "application/x-protobuf"

# Sample type, and what lies between two samples: type, unit, and how much, None where that is the
# sampling period. Of waits each is recorded; receivers refuse a period of 0.
_TYPES = (
    ("cpu", "cpu", "nanoseconds", None),
    ("blocked", "blocked", "nanoseconds", 1),
    ("runnable", "runnable", "nanoseconds", 1),
)


class _Table:
    """A table of the dictionary: messages once each; 0 is the empty one."""

    def __init__(self) -> None:
        self.entries: dict[bytes, int] = {b"": 0}

    def __call__(self, entry: bytes) -> int:
        return self.entries.setdefault(entry, len(self.entries))


class _Dictionary:
    """ProfilesDictionary."""

    def __init__(self, profiles: IntervalProfiles) -> None:
        self._paths = profiles.paths
        self._mappings, self._locations, self._functions = _Table(), _Table(), _Table()
        self._strings, self._attributes, self._stacks = _Table(), _Table(), _Table()
        self._location_of: dict[int, int] = {}
        self._mapping_of: dict[int, int] = {}

    def string(self, value: str) -> int:
        """The number of a string."""
        return self._strings(value.encode("utf-8", "backslashreplace"))

    def stack(self, node: int) -> int:
        """The number of the call path of ``node``."""
        return self._stacks(packed(1, map(self._location, self._paths.of(node))))

    def _location(self, frame: int) -> int:
        number = self._location_of.get(frame)
        if number is None:
            name, module, address = self._paths.text(frame)
            function = self._functions(integer(1, self.string(name)))
            number = self._locations(
                (integer(1, self._mapping(module)) + integer(2, address) if module else b"")
                + message(3, integer(1, function))
            )
            self._location_of[frame] = number
        return number

    def _mapping(self, module: Module) -> int:
        number = self._mapping_of.get(module.id)
        if number is None:
            build_id = module.build_id
            key = (
                "hpcd.build_hash"
                if build_id.startswith("hash-")
                else "process.executable.build_id.gnu"
            )
            attributes = [self.attribute(key, build_id)] if build_id else []
            number = self._mappings(
                integer(4, self.string(module.path))
                + (packed(5, attributes) if attributes else b"")
            )
            self._mapping_of[module.id] = number
        return number

    def attribute(self, key: str, value: str) -> int:
        """The number of an attribute."""
        return self._attributes(integer(1, self.string(key)) + message(2, text(1, value)))

    def encoded(self) -> bytes:
        """The message. Links have only the empty one."""
        tables = (
            (1, self._mappings), (2, self._locations), (3, self._functions), (4, _Table()),
            (5, self._strings), (6, self._attributes), (7, self._stacks),
        )  # fmt: skip
        return b"".join(message(field, entry) for field, table in tables for entry in table.entries)


def encode(profiles: IntervalProfiles) -> bytes:
    """The request of ``profiles``."""
    dictionary = _Dictionary(profiles)
    resources = [
        message(
            1,
            message(1, *_attributes(profiles.host, series.labels)),
            message(
                2,
                message(1, text(1, "hpcd"), text(2, __version__)),
                *(
                    message(2, profile)
                    for number in range(len(METRICS))
                    if (profile := _profile(profiles, series, number, dictionary))
                ),
            ),
        )
        for series in profiles.series
    ]
    return b"".join(resources) + message(2, dictionary.encoded())


def _attributes(host: str, labels: Labels) -> list[bytes]:
    """Attributes of a resource: the semantic conventions' names, and the labels by their own."""
    values = {
        "service.name": labels.command or "[unnamed]",
        "host.name": host,
        "process.owner": labels.user,
        "process.executable.name": labels.command,
        **labels._asdict(),
    }
    return [
        message(1, text(1, key), message(2, text(1, value)))
        for key, value in values.items()
        if value or key in labels._fields
    ]


def _profile(
    profiles: IntervalProfiles, series: Series, metric: int, dictionary: _Dictionary
) -> bytes:
    """A Profile of one metric; empty where it cost nothing."""
    used = np.flatnonzero(series.value[metric])
    if not len(used):
        return b""
    name, between, unit, period = _TYPES[metric]
    samples = [
        message(2, integer(1, dictionary.stack(node)), packed(4, [value]))
        for node, value in zip(
            series.node[used].tolist(), series.value[metric, used].tolist(), strict=True
        )
    ]
    nanoseconds = dictionary.string(unit)
    return b"".join(
        (
            message(1, integer(1, dictionary.string(name)), integer(2, nanoseconds)),
            *samples,
            fixed64(3, profiles.begin_ns),
            integer(4, max(profiles.end_ns - profiles.begin_ns, 1)),
            message(5, integer(1, dictionary.string(between)), integer(2, nanoseconds)),
            integer(6, period or profiles.period_ns),
        )
    )
