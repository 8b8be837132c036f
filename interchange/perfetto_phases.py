"""Phases in Perfetto's trace: slices on a track below that of their thread."""

from __future__ import annotations

from collections.abc import Iterator

from hpcd.interchange.export_selection import ExportedPhases
from hpcd.interchange.protobuf import integer, message, text

# Fields of TracePacket, TrackDescriptor and TrackEvent.
_TIMESTAMP, _SEQUENCE, _EVENT, _TRACK = 8, 10, 11, 60
_UUID, _TRACK_NAME, _PARENT = 1, 2, 5
_TYPE, _OF_TRACK, _CATEGORY, _NAME = 9, 11, 22, 23
_BEGIN, _END = 1, 2
# Above the identifiers of threads.
_FIRST_TRACK = 1 << 33


def phase_packets(
    phases: ExportedPhases, line: int, task: int, thread: int, origin: int
) -> Iterator[bytes]:
    """The packets of trace line ``line``: a track below the track ``thread``, and slices on it."""
    track = _FIRST_TRACK + task
    head = integer(_SEQUENCE, 1)
    for number, (begin, end, group) in enumerate(phases.of_line(line)):
        if not number:
            described = integer(_UUID, track) + text(_TRACK_NAME, "phases")
            yield message(1, head, message(_TRACK, described, integer(_PARENT, thread)))
        on_track = integer(_OF_TRACK, track)
        started = message(
            _EVENT, integer(_TYPE, _BEGIN), on_track, text(_CATEGORY, "phase"),
            text(_NAME, phases.names[group]),
        )  # fmt: skip
        yield message(1, head, integer(_TIMESTAMP, begin + origin), started)
        ended = message(_EVENT, integer(_TYPE, _END), on_track)
        yield message(1, head, integer(_TIMESTAMP, end + origin), ended)
