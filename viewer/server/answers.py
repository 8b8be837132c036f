"""Answers about one database: functions of the open database and the request's parameters.

:data:`JSON_ANSWERS` return what becomes JSON, :data:`BINARY_ANSWERS` named arrays;
``docs/viewer-api.md`` documents both by their names. :func:`picture` and
:func:`source` need more than that. All are called in threads, and raise :class:`HpcdError` if the
request is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.answers.json_form import json_form, rows
from hpcd.analysis.arrays.named_arrays import Arrays
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.analysis.findings.findings import findings, scene
from hpcd.analysis.profile.formula import parse_formula
from hpcd.analysis.trace.pixel_samples import choose_lines, pixel_runs
from hpcd.analysis.waits.path_report import path_report
from hpcd.array_types import U8, U32, Array, Mask
from hpcd.errors import UsageError
from hpcd.model.identity import SOURCE_KINDS
from hpcd.viewer.palette import DISTINCT, REST, parse_patterns
from hpcd.viewer.picture_colours import entity_colours, view_colours
from hpcd.viewer.picture_tree import causes
from hpcd.viewer.selected_costs import heat, over_lines
from hpcd.viewer.server.curves_api import curve
from hpcd.viewer.server.find_api import stretches, telling_place
from hpcd.viewer.server.open_database import OpenDatabase
from hpcd.viewer.server.query_params import QueryParameters
from hpcd.viewer.server.selection import Choice

JsonAnswer = Callable[[OpenDatabase, QueryParameters], object]
BinaryAnswer = Callable[[OpenDatabase, QueryParameters], Arrays]

# Twice the largest screens: a request for more is a mistake or mischief.
_MOST_PIXELS = 16_000_000
_MOST_LINES = 10_000
_LONGEST_TEXT = 4000
_MOST_MOMENTS = 2000  # of a curve
_MOST_COLUMNS = 10_000  # that a critical path is drawn in
_MOST_PARTS = 50  # of a critical path, in addition to the drawn parts
# Cells of a communication matrix each way, and numbers that select its ranks.
_MOST_CELLS, _SPANS = 512, 4


def describe(database: OpenDatabase) -> dict[str, object]:
    """Return what a database holds; names, kinds, colours and marks of what its call paths have."""
    db, picture = database.db, database.picture
    return {
        "name": db.path.name,
        "lines": len(db.lines),
        "duration_ns": db.duration_ns,
        "cpus": int(db.rows("SELECT sum(cpus) FROM host")[0][0] or 0),
        "origin_ns": db.origin_ns,
        "nodes": len(picture),
        "records": db.metrics.record_count,
        "losses": db.losses,
        "seen": seen_part(db).sentence(),
        "measurements": [measurement.name for measurement in db.measurements],
        "metrics": rows({"name": db.metrics.names, "unit": db.metrics.units}),
        "procedures": picture.names,
        "short": picture.short_names,
        "kinds": picture.entities.kind.tolist(),
        "marks": picture.marks.tolist(),
        "colours": _flagged(*entity_colours(picture)).tolist(),
        "palette": _words(DISTINCT).tolist(),
        "rest": int(_words(np.array(REST, np.uint8))),
        "rule": picture.rule,
        "causes": causes(),
        "waits": len(db.waits) > 0,
        "python": any(module.kind in SOURCE_KINDS for module in db.modules),
    }


# --- the trace ---


def calling_contexts(database: OpenDatabase) -> Arrays:
    """The tree: parent, procedure, owner, state u32[n] each, cost f32[n]; the first ``paths`` nodes
    are call paths, those behind further states of theirs."""
    picture = database.picture
    state = picture.state.astype(np.uint32) | picture.cause.astype(np.uint32) << 2
    return {
        "paths": np.array(picture.paths, np.uint32),
        "parent": np.asarray(picture.tree.parent, np.uint32),
        "procedure": picture.entity,
        "owner": picture.owner,
        "state": state,
        "cost": picture.cost.astype(np.float32),
    }


def _selection(database: OpenDatabase, parameters: QueryParameters) -> object:
    choice = parameters.choice()
    of = choice.partners[:1]
    return {
        "count": len(database.selection.order(choice)),
        "lines": database.selection.line_count(choice),
        "of": len(database.db.lines),
        "partners": database.selection.labels(of, replace(choice, partners=()))[0] if of else "",
    }


def _lines(database: OpenDatabase, parameters: QueryParameters) -> object:
    db, choice = database.db, parameters.choice()
    order = database.selection.order(choice)
    first = parameters.whole("from", 0, len(order))
    lines = order[first : first + parameters.whole("count", 1, _MOST_LINES)].tolist()
    return {
        "labels": database.selection.labels(lines, choice),
        "lines": lines,
        "folded": database.selection.folded(lines, choice),
        "processes": db.lines.process[lines].tolist(),
        "groups": database.selection.groups(lines, choice.group),
        "measurements": db.trace.measurements(lines),
    }


def _findings(database: OpenDatabase, _: QueryParameters) -> object:
    db = database.db
    listed = findings(db)
    places = [_with_row(database, telling_place(db, finding)) for finding in listed]
    work = [place for finding, place in zip(listed, places, strict=True) if finding.kind == "hot"]
    return {
        "scene": scene(db),
        "findings": [
            {**finding.as_json(), "at": place}
            for finding, place in zip(listed, places, strict=True)
        ],
        "costliest": next((place for place in [*work, *places] if place), None),
    }


def _with_row(database: OpenDatabase, place: dict[str, int] | None) -> dict[str, int] | None:
    """``place`` with the line that has the ``row`` in which its line is drawn at first."""
    if place is None:
        return None
    line = place["line"]
    row = int(database.selection.drawn_in(np.array([line]), Choice(fold=True))[0])
    return {**place, "row": line if row < 0 else row}


def _find(database: OpenDatabase, parameters: QueryParameters) -> object:
    choice = parameters.choice()
    return stretches(
        database.db, database.picture, database.selection, choice, parameters.text("text")
    )


def _curves(database: OpenDatabase, parameters: QueryParameters) -> object:
    return curve(
        database.db, database.traffic, parameters.text("kind"), database.all_lines(parameters),
        *parameters.interval(), parameters.whole("count", 1, _MOST_MOMENTS),
    )  # fmt: skip


def picture(database: OpenDatabase, parameters: QueryParameters) -> Arrays:
    """A picture: ``lines`` and ``places`` u32[h], ``nodes`` [h * w] of 2 bytes, or 4 where there
    are many.

    The rows are a choice's lines ``l0`` to ``l1``, or the one of ``line`` alone, over ``t0`` to
    ``t1`` ns. With ``folds`` there is ``folded`` u32[h], the number of lines each row represents.
    With ``runs``, where that is shorter, nodes are those of runs of pixels, with ``ends`` u16.
    """
    db = database.db
    t0, t1 = parameters.interval()
    height, width = parameters.whole("h", 1, 10_000), parameters.whole("w", 1, 10_000)
    if height * width > _MOST_PIXELS:
        raise UsageError(f"a picture has at most {_MOST_PIXELS} pixels")
    if parameters.has("line"):
        place = np.zeros(1, np.int64)
        lines = np.array([parameters.whole("line", 0, len(db.lines) - 1)])
    else:
        order = database.selection.order(parameters.choice())
        l0, l1 = parameters.rows(len(order))
        place = choose_lines(np.arange(l0, l1), height, len(order))
        lines = order[place]
    shown = database.selection.sample(lines, parameters.choice(), t0, t1, width)
    kind = np.uint16 if len(database.picture) < np.iinfo(np.uint16).max else np.uint32
    arrays: dict[str, Array] = {"lines": lines.astype(np.uint32), "places": place.astype(np.uint32)}
    if parameters.has("folds"):
        counts = database.selection.folded(lines.tolist(), parameters.choice())
        arrays["folded"] = np.array(counts, np.uint32)
    if parameters.has("runs"):
        first, end = pixel_runs(shown)  # a run's node is looked up once
        size = np.dtype(kind).itemsize
        if len(first) * (size + end.itemsize) < shown.size * size:
            shown, arrays["ends"] = first, end
    nodes = database.picture.of_pixels(shown).ravel()
    return {**arrays, "nodes": nodes.astype(kind, copy=False)}


def _wait(database: OpenDatabase, parameters: QueryParameters) -> object:
    db, choice = database.db, parameters.choice()
    line = parameters.whole("line", 0, len(db.lines) - 1)
    time, within = (parameters.whole(name, 0, 1 << 62) for name in ("time", "within"))
    lines = database.selection.with_shared(np.array([line], np.int64), choice).tolist()
    wait = json_form(database.waits.find(lines, time, within))
    if wait is None:
        return None
    parts = [wait, *wait["ended_by"], *wait["roots"]]
    nodes = database.nodes_of([part["node"] for part in parts])
    for part, node in zip(parts, nodes, strict=True):
        part["node"] = node if part.pop("path") else -1
    placed = [part for part in parts if part["line"] >= 0]
    drawn = _drawn(database, choice, [part["line"] for part in placed])
    for part, (row, place) in zip(placed, drawn, strict=True):
        part["row"], part["place"] = row, place
    return wait


def _drawn(
    database: OpenDatabase, choice: Choice, lines: Sequence[int]
) -> list[tuple[int, int | None]]:
    """The line in whose row each of ``lines`` is drawn, and the place of that row; where it is
    drawn in none, itself and None."""
    own = np.array(lines, np.int64)
    rows = database.selection.drawn_in(own, choice).tolist()
    places = database.selection.places(own, choice).tolist()
    return [
        (row, place) if place >= 0 else (line, None)
        for line, row, place in zip(lines, rows, places, strict=True)
    ]


def _critical_path(database: OpenDatabase, parameters: QueryParameters) -> object:
    begin, end = np.clip(parameters.interval(), 0, database.db.duration_ns).tolist()
    columns = parameters.whole("w", 1, _MOST_COLUMNS)
    graph = database.graph.of_paths()
    report = path_report(database.db, begin, end, columns=columns, graph=graph)
    kept = np.union1d(np.arange(min(len(report.parts), _MOST_PARTS)), report.steps.part)
    answer = json_form(report)
    parts = [answer["parts"][number] for number in kept.tolist()]
    lines, row_of = np.unique(report.steps.line, return_inverse=True)
    choice, steps = parameters.choice(), answer["steps"]
    drawn = _drawn(database, choice, lines.tolist())
    steps["row"], steps["place"] = map(list, zip(*(drawn[at] for at in row_of), strict=True))
    steps["part"] = np.searchsorted(kept, report.steps.part).tolist()
    nodes = database.nodes_of([part["node"] for part in parts])
    for part, node, (row, place) in zip(
        parts, nodes, _drawn(database, choice, [part["line"] for part in parts]), strict=True
    ):
        part["node"] = node if part.pop("path") else -1
        part["row"], part["place"] = row, place
    lines_of = len(answer["lines"])
    answer["lines"] = answer["lines"][:_MOST_PARTS]
    return {**answer, "parts": parts, "parts_of": len(report.parts), "lines_of": lines_of}


# --- costs ---


def _profile(database: OpenDatabase, parameters: QueryParameters) -> Arrays:
    profile = database.profile(parameters)
    value = np.asarray(profile.value, np.float64)
    if parameters.has("times"):
        value = database.picture.costs(value)[None]
    kind, pixels = np.array(profile.kind, np.uint32), np.array(profile.pixels, np.uint32)
    return {"kind": kind, "pixels": pixels, "values": value}


def _tree(database: OpenDatabase, parameters: QueryParameters) -> Arrays:
    contexts = database.trees.of(parameters.text("view"))
    return {
        "parent": np.asarray(contexts.tree.parent, np.uint32),
        "procedure": contexts.tree.frame.astype(np.uint32),
        "place": np.asarray(contexts.place, np.uint32),
    }


def _colours(database: OpenDatabase, parameters: QueryParameters) -> Arrays:
    patterns = parse_patterns(parameters.text("patterns", longest=_LONGEST_TEXT).split("\n"))
    view, picture = parameters.text("view"), database.picture
    if view:
        entities = database.trees.coloured_as(view)
        return {"colours": _words(view_colours(picture, entities, patterns))}
    return {"colours": _flagged(*entity_colours(picture, patterns))}


def _formula(database: OpenDatabase, parameters: QueryParameters) -> object:
    metrics = database.db.metrics
    text = parameters.text("text", longest=_LONGEST_TEXT)
    return parse_formula(text, metrics.names, metrics.units).as_json()


def source(database: OpenDatabase, parameters: QueryParameters, folders: Sequence[Path]) -> object:
    """A procedure's source lines, looked for in ``folders`` too, with what they cost in the
    window."""
    profile = database.profile(parameters)
    file = parameters.whole("file", 0, 1 << 30) if parameters.has("file") else None
    procedure = parameters.whole("procedure", 0, 1 << 30)
    view = parameters.text("view", "flat")
    return database.sources.lines(procedure, profile, file, folders, view)


def _assembly(database: OpenDatabase, parameters: QueryParameters) -> object:
    profile = database.profile(parameters)
    procedure, view = parameters.whole("procedure", 0, 1 << 30), parameters.text("view", "flat")
    return database.sources.code(procedure, profile, view)


def _over(database: OpenDatabase, parameters: QueryParameters) -> object:
    inside = database.trees.inside(parameters.text("context", longest=_LONGEST_TEXT))
    lines, metric = database.all_lines(parameters), parameters.text("metric")
    phase = parameters.text("phase")
    cost = database.phases.over_lines(phase, lines, metric, inside) if phase else None
    return over_lines(database.db, lines, metric, inside, cost)


def _heat(database: OpenDatabase, parameters: QueryParameters) -> Arrays:
    height, width = parameters.whole("h", 1, 2_000), parameters.whole("w", 1, 500)
    db, lines, phase = database.db, database.own_rows(parameters), parameters.text("phase")
    within = database.phases.costs(phase, lines, 0, db.duration_ns) if phase else None
    cells = heat(db, lines, parameters.text("metric"), height, width, within)
    return {
        "lines": cells.line, "procedures": cells.procedure, "values": cells.value.ravel(),
    }  # fmt: skip


# --- recorded calls ---


def _messages(database: OpenDatabase, parameters: QueryParameters) -> object:
    lines = database.all_lines(parameters)
    answer = database.traffic().summary(lines, *parameters.interval())
    for wait in answer["waits"]:
        wait["node"], wait["delaying_node"] = database.nodes_of(
            [wait["node"], wait["delaying_node"]]
        )
    return answer


def _matrix(database: OpenDatabase, parameters: QueryParameters) -> Arrays:
    ranks = parameters.numbers("ranks")
    if len(ranks) != _SPANS:
        raise UsageError("ranks must be four numbers")
    s0, s1, d0, d1 = ranks
    step, cells = database.traffic().matrix(
        parameters.text("kind"), database.all_lines(parameters), *parameters.interval(),
        (s0, s1, d0, d1), parameters.whole("cells", 1, _MOST_CELLS),
    )  # fmt: skip
    counts, amounts = cells.reshape(2, -1)
    sizes = {"rows": cells.shape[1], "columns": cells.shape[2], "step": step}
    numbers = {name: np.array(size, np.uint32) for name, size in sizes.items()}
    return {**numbers, "counts": counts, "amounts": amounts}


def _calls(database: OpenDatabase, parameters: QueryParameters) -> object:
    totals = database.calls.totals(
        database.all_lines(parameters), *parameters.interval(), parameters.text("by"),
        parameters.text("of"), parameters.text("function"), parameters.text("phase"),
    )  # fmt: skip
    return {**totals, "groups": _in_tree(database, totals["groups"])}


def _in_tree(database: OpenDatabase, rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    """``rows`` of an answer that is kept, with the page's node in place of the database's (-1 where
    there is none), which has the names of its path."""
    nodes = database.nodes_of([-1 if row["node"] is None else row["node"] for row in rows])
    return [
        {**{key: value for key, value in row.items() if key != "path"}, "node": node}
        for row, node in zip(rows, nodes, strict=True)
    ]


def _phases(database: OpenDatabase, parameters: QueryParameters) -> object:
    return database.phases.table(
        parameters.text("phase"), database.all_lines(parameters), *parameters.interval()
    )


def _memory(database: OpenDatabase, parameters: QueryParameters) -> object:
    lines, interval = database.all_lines(parameters), parameters.interval()
    if parameters.has("time"):
        return database.calls.memory(lines, *interval, by_time=True)
    answer = database.calls.memory(lines, *interval)
    processes = [
        {**process, "paths": _in_tree(database, process["paths"])}
        for process in answer["processes"]
    ]
    return {**answer, "processes": processes}


def _call_marks(database: OpenDatabase, parameters: QueryParameters) -> object:
    rows, interval = database.rows(parameters), parameters.interval()
    phase = parameters.text("phase")
    none = {"phases": None, "phase": None}
    phases = database.phases.bands(phase, rows, *interval) if phase else none
    return {**database.calls.marks(rows, *interval), **phases}


def _flagged(rgb: U8, distinct: Mask) -> U32:
    """Colours, with bit 24 where they are distinct."""
    flagged: U32 = _words(rgb) | distinct.astype(np.uint32) << np.uint32(24)
    return flagged


def _words(rgb: U8) -> U32:
    words: U32 = (rgb.astype(np.uint32) @ np.array([1, 1 << 8, 1 << 16], np.uint32)).astype(
        np.uint32
    )
    return words


JSON_ANSWERS: dict[str, JsonAnswer] = {
    "selection": _selection,
    "lines": _lines,
    "findings": _findings,
    "find": _find,
    "curves": _curves,
    "entities": lambda database, request: database.trees.summary(request.text("view")),
    "formula": _formula,
    "assembly": _assembly,
    "over": _over,
    "messages": _messages,
    "calls": _calls,
    "phases": _phases,
    "memory": _memory,
    "call-marks": _call_marks,
    "wait": _wait,
    "critical-path": _critical_path,
}
BINARY_ANSWERS: dict[str, BinaryAnswer] = {
    "cct": lambda database, _: calling_contexts(database),
    "profile": _profile,
    "tree": _tree,
    "colours": _colours,
    "messages/matrix": _matrix,
    "heat": _heat,
}
