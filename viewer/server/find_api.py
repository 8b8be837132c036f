"""Places in the trace: stretches of time in procedures of a name, and where a finding shows.

Inlined procedures are among them. Stretches follow from the records where these are few enough to
be read at once, else from a picture of all time.
"""

from __future__ import annotations

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.findings.finding import Finding
from hpcd.analysis.profile.filters import inside_of
from hpcd.analysis.profile.state_times import RecordStates
from hpcd.analysis.trace.states import nodes_of, states_of
from hpcd.array_types import F64, I64, Mask
from hpcd.model.codes import State
from hpcd.model.scope import ScopeKind
from hpcd.viewer.picture_tree import PictureTree
from hpcd.viewer.server.selection import Choice, LineSelection

# Records and lines read for one answer: about half a second.
_MOST_RECORDS, _MOST_LINES = 4_000_000, 2000
_ROWS, _COLUMNS = 1000, 4000
_MOST_STRETCHES = 20_000
# A window around what is to be seen: this multiple of it, and at least this share of all time.
_AROUND, _LEAST = 4, 1 / 50
# Metrics of findings that are about time off the CPUs; of others it is CPU time.
_METRICS = {
    "locks": "blocked_time", "communication": "blocked_time", "sleep": "blocked_time",
    "network": "blocked_time", "blocked": "blocked_time", "messages": "blocked_time",
    "runnable": "runnable_time", "outside": "runnable_time",
}  # fmt: skip
_STATES = {"blocked_time": State.BLOCKED, "runnable_time": State.READY}


def contexts_named(picture: PictureTree, text: str) -> Mask:
    """``bool[contexts]``: the database's contexts in procedures, inlined ones too, whose names,
    whole or short, contain ``text``, and all they call. Small letters fit any case."""
    any_case = text == text.lower()

    def fits(name: str) -> bool:
        return text in (name.lower() if any_case else name)

    names = zip(picture.names, picture.short_names, strict=True)
    named = np.array([fits(name) or fits(short) for name, short in names], bool)
    named &= picture.entities.kind < ScopeKind.LOOP
    named[0] = False
    return picture.tree.below(named[picture.entity])[picture.place]


def stretches(
    db: Database, picture: PictureTree, selection: LineSelection, choice: Choice, text: str
) -> dict[str, object]:
    """Return the stretches of the lines of ``choice`` in procedures whose names contain ``text``,
    in order of time, at most 20,000 of ``count``.

    Raises :class:`UsageError`.
    """
    inside = contexts_named(picture, text)
    order = selection.order(choice)
    lines = selection.with_folded(order, choice)
    exact = len(lines) <= _MOST_LINES and int(db.lines.records[lines].sum()) <= _MOST_RECORDS
    spans = np.zeros((3, 0), np.int64)
    if bool(inside.any()) and db.duration_ns > 0:
        spans = _recorded(db, lines, inside) if exact else _pictured(db, lines, inside)
    at = np.lexsort((spans[0], spans[1]))[:_MOST_STRETCHES]
    line, begin, end = spans[:, at]
    drawn_in = selection.drawn_in(line, choice)
    return {
        "count": spans.shape[1],
        "exact": exact,
        "line": np.where(drawn_in < 0, line, drawn_in).tolist(),
        "place": selection.places(line, choice).tolist(),
        "begin": begin.tolist(),
        "end": end.tolist(),
    }


def _recorded(db: Database, lines: I64, inside: Mask) -> I64:
    """Lines, begins and ends ``int64[3, n]`` of the stretches ``inside``, by the records."""
    parts = [np.zeros((3, 0), np.int64)]
    states = RecordStates(db)
    for line in lines.tolist():
        records = db.records(line)
        if not len(records):
            continue
        edges = states.borders(line, records)
        first, last = _runs(inside[records.node][None])[1:]
        parts.append(np.stack([np.full(len(first), line), edges[first], edges[last]]))
    return np.concatenate(parts, axis=1)


def _pictured(db: Database, lines: I64, inside: Mask) -> I64:
    """Lines, begins and ends ``int64[3, n]`` of the stretches ``inside``, by a picture's pixels."""
    rows = lines[db.sample_lines(np.arange(len(lines)), _ROWS)]
    row, first, last = _runs(_hits(db, rows, inside))
    step = db.duration_ns / _COLUMNS
    return np.stack([rows[row], (first * step).astype(np.int64), (last * step).astype(np.int64)])


def _hits(db: Database, lines: I64, inside: Mask, state: State | None = None) -> Mask:
    """``bool[lines, columns]``: where a picture of all time shows one of the contexts ``inside``,
    in ``state`` (None: in any) where it shows one there."""
    pixels = db.sample_grid(lines, 0, db.duration_ns, len(lines), _COLUMNS)
    there: Mask = np.append(inside, False)[np.minimum(nodes_of(pixels), len(inside))]
    in_state = there & (states_of(pixels) == state)
    return in_state if bool(in_state.any()) else there


def _runs(hits: Mask) -> tuple[I64, I64, I64]:
    """Row, first column and the one after the last of each run in ``hits`` ``bool[h, w]``."""
    padded = np.pad(hits.astype(np.int8), ((0, 0), (1, 1)))
    change = np.diff(padded, axis=1)
    row, first = np.nonzero(change == 1)
    return row, first, np.nonzero(change == -1)[1]


def telling_place(db: Database, finding: Finding) -> dict[str, int] | None:
    """Return where a finding shows: a ``line``, a moment (``time``) of the longest stretch there,
    and a window around it (``t0``, ``t1``); None where nowhere."""
    metric = _METRICS.get(finding.kind, "cpu_time")
    if metric not in db.metrics.names:
        metric = "cpu_time"
    inside = db.metrics.exclusive(metric) > 0
    if finding.procedure:
        name = finding.procedure
        named = np.array([text == name for text in db.procedure_names], bool)
        inlined = [text == name for text in db.scopes.name]
        own = db.cct.below(inside_of(db, named, inlined))
        inside = own if bool(own.any()) else inside
    cost: F64 = db.metrics.over_contexts(metric, inside)
    if not bool(cost.any()):
        cost = db.metrics.over_contexts("cpu_time", inside)
    if not bool(cost.any()) or db.duration_ns <= 0:
        return None
    line = int(cost.argmax()) if finding.line is None else finding.line
    _, first, last = _runs(_hits(db, np.array([line]), inside, _STATES.get(metric)))
    if not len(first):
        return None
    longest = int((last - first).argmax())
    begin, end = int(first[longest]), int(last[longest])
    step, around = db.duration_ns / _COLUMNS, max(_AROUND * (end - begin), int(_LEAST * _COLUMNS))
    t0 = max(0, (begin + end - around) // 2)
    t1 = min(_COLUMNS, t0 + around)
    return {
        "line": line, "time": int((begin + end) / 2 * step), "t0": int(t0 * step),
        "t1": int(t1 * step),
    }  # fmt: skip
