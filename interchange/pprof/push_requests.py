"""Requests that bring the profiles of an interval to a receiver: OTLP, or pprof.

OTLP: an ExportProfilesServiceRequest of OpenTelemetry's protocol
(https://github.com/open-telemetry/opentelemetry-proto, ``collector/profiles/v1development``),
fields as in v1.10.0, which renumbered the fields of ``Sample``: receivers of earlier versions
misread them. A resource for each set of labels, a profile for each metric.

pprof: a profile for each set of labels, for Pyroscope's ``/ingest`` and its forwarders. Labels
are in the request's ``name``, ``command{user="ada",job="17",rank="3",command="lmp"}``, and in each
sample.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

import numpy as np

from hpcd import __version__
from hpcd.analysis.live.label_profiles import IntervalProfiles, Labels, Series
from hpcd.analysis.trace.states import STATE_TIMES
from hpcd.interchange.numbering import Numbering
from hpcd.interchange.pprof.pprof_message import PprofWriter, encode_stack
from hpcd.interchange.protobuf import fixed64, integer, message, packed, text
from hpcd.model.identity import SOURCE_KINDS, Module, ModuleKind

_SAMPLE_TYPES = tuple(metric.removesuffix("_time") for metric in STATE_TIMES)
_UNIT = "nanoseconds"
# Of OpenTelemetry's semantic conventions.
_FRAME_TYPE = "profile.frame.type"
_RUNTIMES = {ModuleKind.PYTHON: "cpython", ModuleKind.JAVA: "jvm"}
# Characters with a meaning in the list of labels.
_SPECIAL = re.compile(r"[{},=\"\\\x00-\x1f]")


class Request(NamedTuple):
    """A request: its query string and body."""

    query: str
    body: bytes


class RequestFormat(NamedTuple):
    """A format of requests: the path that receivers take it at, its headers, its encoder."""

    path: str
    headers: Mapping[str, str]
    encode: Callable[[IntervalProfiles], list[Request]]


# --- OTLP ---


class _Dictionary:
    """ProfilesDictionary: tables of distinct messages, with the empty message as number 0."""

    def __init__(self, profiles: IntervalProfiles) -> None:
        self._paths = profiles.paths
        # In the order of their fields.
        tables: list[Numbering[bytes]] = [Numbering([b""]) for _ in range(7)]
        (self._mappings, self._locations, self._functions, _links, self._strings,
         self._attributes, self._stacks) = self._tables = tables  # fmt: skip
        self._location_of: dict[int, int] = {}
        self._mapping_of: dict[int, int] = {}

    def string(self, value: str) -> int:
        return self._strings[value.encode("utf-8", "backslashreplace")]

    def stack(self, node: int) -> int:
        return self._stacks[packed(1, map(self._location, self._paths.of(node)))]

    def _location(self, frame: int) -> int:
        number = self._location_of.get(frame)
        if number is None:
            name, module, address, line = self._paths.text(frame)
            source = module if module and module.kind in SOURCE_KINDS else None
            mapped = module if module and not source else None
            file = integer(3, self.string(source.path)) if source else b""
            function = self._functions[integer(1, self.string(name)) + file]
            number = self._location_of[frame] = self._locations[
                (integer(1, self._mapping(mapped)) + integer(2, address) if mapped else b"")
                + message(3, integer(1, function), integer(2, line) if line else b"")
                + (
                    packed(4, [self._attribute(_FRAME_TYPE, _RUNTIMES[source.kind])])
                    if source
                    else b""
                )
            ]
        return number

    def _mapping(self, module: Module) -> int:
        number = self._mapping_of.get(module.id)
        if number is None:
            hashed = module.build_id.startswith("hash-")
            key = "hpcd.build_hash" if hashed else "process.executable.build_id.gnu"
            attributes = [self._attribute(key, module.build_id)] if module.build_id else []
            number = self._mapping_of[module.id] = self._mappings[
                integer(4, self.string(module.path))
                + (packed(5, attributes) if attributes else b"")
            ]
        return number

    def _attribute(self, key: str, value: str) -> int:
        return self._attributes[integer(1, self.string(key)) + message(2, text(1, value))]

    def encode(self) -> bytes:
        return b"".join(
            message(field, entry)
            for field, table in enumerate(self._tables, start=1)
            for entry in table
        )


def _encode_otlp(profiles: IntervalProfiles) -> list[Request]:
    """Return the single request of ``profiles``."""
    dictionary = _Dictionary(profiles)
    scope = message(1, text(1, "hpcd"), text(2, __version__))
    resources = [
        message(
            1,
            message(1, *_attributes(profiles.host, series.labels)),
            message(
                2,
                scope,
                *(
                    _profile(profiles, series, metric, dictionary)
                    for metric in range(len(STATE_TIMES))
                    if series.value[metric].any()
                ),
            ),
        )
        for series in profiles.series
    ]
    body = b"".join(resources) + message(2, dictionary.encode())
    return [Request("", gzip.compress(body, 6, mtime=0))]


def _attributes(host: str, labels: Labels) -> list[bytes]:
    """Return the attributes of a resource: by the semantic conventions' names, and the labels."""
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
    """Return the Profile message of a metric."""
    used = np.flatnonzero(series.value[metric])
    samples = [
        message(2, integer(1, dictionary.stack(node)), packed(4, [value]))
        for node, value in zip(
            series.node[used].tolist(), series.value[metric, used].tolist(), strict=True
        )
    ]
    unit = dictionary.string(_UNIT)
    kind = integer(1, dictionary.string(_SAMPLE_TYPES[metric])) + integer(2, unit)
    return message(
        2,
        message(1, kind),
        *samples,
        fixed64(3, profiles.begin_ns),
        integer(4, max(profiles.end_ns - profiles.begin_ns, 1)),
        message(5, kind),
        # Each wait is recorded; receivers refuse a period of 0.
        integer(6, profiles.period_ns if metric == 0 else 1),
    )


# --- pprof ---


def _encode_pprof(profiles: IntervalProfiles) -> list[Request]:
    """Return a request for each series."""
    return [
        Request(_query(profiles, series.labels), _encode_series(profiles, series))
        for series in profiles.series
    ]


def _query(profiles: IntervalProfiles, labels: Labels) -> str:
    pairs = {"host": profiles.host, **labels._asdict()}
    listed = ",".join(f"{key}={_SPECIAL.sub('_', value)}" for key, value in pairs.items() if value)
    # Characters that receivers allow in an application's name.
    name = re.sub(r"[^\w.-]", "_", labels.command, flags=re.ASCII) or "unnamed"
    return urlencode(
        {
            "name": f"{name}{{{listed}}}",
            # Whole seconds; a receiver refuses an interval that is empty.
            "from": profiles.begin_ns // 10**9,
            "until": max(profiles.end_ns // 10**9, profiles.begin_ns // 10**9 + 1),
            "format": "pprof",
            "spyName": "hpcd",
            "sampleRate": round(1e9 / profiles.period_ns),
        }
    )


def _encode_series(profiles: IntervalProfiles, series: Series) -> bytes:
    parts: list[bytes] = []
    profile = PprofWriter(parts.append)
    for name in _SAMPLE_TYPES:
        profile.add_sample_type(name, _UNIT)
    profile.set_time(profiles.begin_ns, max(profiles.end_ns - profiles.begin_ns, 1))
    profile.set_period(_SAMPLE_TYPES[0], _UNIT, profiles.period_ns)
    profile.set_default_type(_SAMPLE_TYPES[0])
    labels = profile.encode_labels(series.labels._asdict().items())
    locations: Numbering[int] = Numbering(first=1)
    for node, value in zip(series.node.tolist(), np.transpose(series.value).tolist(), strict=True):
        stack = encode_stack(locations[frame] for frame in profiles.paths.of(node))
        profile.add_sample(stack, value, labels)
    functions: Numbering[tuple[str, str]] = Numbering(first=1)
    mappings: set[int] = set()
    for frame, location in locations.items():
        name, module, address, line = profiles.paths.text(frame)
        source = module is not None and module.kind in SOURCE_KINDS
        function = name, module.path if module and source else ""
        if function not in functions:
            profile.add_function(functions[function], *function)
        module = None if source else module
        if module is not None and module.id not in mappings:
            mappings.add(module.id)
            profile.add_mapping(module.id, module.path, module.build_id, lines=False)
        place = None if module is None else (module.id, address)
        profile.add_location(location, functions[function], line, place)
    profile.finish()
    return gzip.compress(b"".join(parts), 6, mtime=0)


FORMATS = {
    "otlp": RequestFormat(
        "/v1development/profiles",
        {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"},
        _encode_otlp,
    ),
    "pprof": RequestFormat("/ingest", {"Content-Type": "application/octet-stream"}, _encode_pprof),
}
"""Formats by the names that the command line has for them."""
