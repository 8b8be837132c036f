"""Phases in Chrome's trace events: nestable asynchronous ones, which viewers show as a row of their
own by the thread they are of. A thread's slices are its call paths, which phases need not fit."""

from __future__ import annotations

from hpcd.interchange.exported_phases import ExportedPhases
from hpcd.interchange.text import json_names

_PHASE = (
    ',\n{"ph":"b","cat":"phase","id":%(id)d,%(place)s,"name":%(name)s,"ts":%(begin).3f}'
    ',\n{"ph":"e","cat":"phase","id":%(id)d,%(place)s,"name":%(name)s,"ts":%(end).3f}'
)


def phase_events(phases: ExportedPhases, line: int, pid: int, tid: int) -> str:
    """The events of trace line ``line``, each of which begins with a comma."""
    if not phases:
        return ""
    names = json_names(phases.names)
    place = f'"pid":{pid},"tid":{tid}'
    return "".join(
        _PHASE % {"id": line + 1, "place": place, "name": names[group], "begin": begin / 1000,
                  "end": end / 1000}
        for begin, end, group in phases.of_line(line)
    )  # fmt: skip
