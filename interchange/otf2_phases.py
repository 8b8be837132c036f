"""Phases in an OTF2 archive: markers, each with a location, its begin and how long it lasted."""

from __future__ import annotations

from typing import Any

import _otf2

from hpcd.array_types import I64
from hpcd.interchange.export_selection import ExportedPhases
from hpcd.interchange.text import utf8


def write_phases(archive: Any, phases: ExportedPhases, lines: I64) -> None:
    """Write the phases of ``lines``; definitions must have been written."""
    if not phases:
        return
    writer = _otf2.Archive_GetMarkerWriter(archive)
    names = [_text(name) for name in phases.names]
    for group, name in enumerate(names):
        if group:
            _otf2.MarkerWriter_WriteDefMarker(writer, group, "phase", name, _otf2.SEVERITY_NONE)
    for line in lines.tolist():
        for begin, end, group in phases.of_line(line):
            _otf2.MarkerWriter_WriteMarker(
                writer, begin, end - begin, group, _otf2.MARKER_SCOPE_LOCATION, line, names[group]
            )
    _otf2.Archive_CloseMarkerWriter(archive, writer)


def _text(name: str) -> str:
    # The library's strings end with a NUL.
    return utf8(name).replace("\0", "\\x00")
