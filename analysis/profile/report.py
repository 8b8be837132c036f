"""What ``hpcd report`` says: a database's summary, and a view as text or JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database.metrics import SAMPLES
from hpcd.analysis.profile.tree_rows import Forest, fit
from hpcd.analysis.profile.views import View
from hpcd.analysis.profile.working_lines import working_lines
from hpcd.analysis.symbols.frame_names import marker_name
from hpcd.model import frame
from hpcd.model.scope import Kind
from hpcd.model.unwind_status import UnwindStatus
from hpcd.wording import counted

_ENDINGS = {status.value: status for status in UnwindStatus}


@dataclass(slots=True)
class Facts:
    """What a report's header says. Counts are over all measurements."""

    database: str
    measurements: list[str]
    hosts: list[str]
    lines: int
    processes: int
    duration_s: float
    contexts: int
    expected: int | None
    taken: int | None
    recorded: int
    dropped: Counter[str] = field(default_factory=Counter)
    complete: int = 0
    truncated: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    damage: int = 0
    unclosed: int = 0
    idle_lines: int = 0
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The header as an object."""
        return {
            "database": self.database,
            "measurements": self.measurements,
            "hosts": self.hosts,
            "lines": self.lines,
            "idle_lines": self.idle_lines,
            "processes": self.processes,
            "duration_s": self.duration_s,
            "contexts": self.contexts,
            "samples": {
                "expected": self.expected,
                "taken": self.taken,
                "recorded": self.recorded,
                "dropped": dict(self.dropped),
                "error_of_a_tenth": self.share_error(0.1),
            },
            "seconds": self.seconds,
            "unwind": {"complete": self.complete, "truncated": dict(self.truncated)},
            "damage": self.damage,
            "unclosed": self.unclosed,
            "findings": self.findings,
            "notes": self.notes,
        }

    def share_error(self, share: float) -> float | None:
        """One standard error of ``share`` (0 to 1) of the CPU time, by the number of samples; None
        where none were taken. That of a long steady thread is less: the clock is nearly even."""
        taken = (self.taken or 0) - sum(self.dropped.values())
        if taken <= 0 or "cpu_time" not in self.seconds:
            return None
        return float((share * (1 - share) / taken) ** 0.5)

    def as_text(self) -> list[str]:
        """The header as lines."""
        hosts = self.hosts[0] if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        idle = f" ({self.idle_lines:,} hardly ran)" if self.idle_lines else ""
        lines = [
            f"{self.database}: {counted(len(self.measurements), 'measurement')} on {hosts}, "
            f"{counted(self.processes, 'process', 'processes')}, "
            f"{counted(self.lines, 'trace line')}{idle}, {self.duration_s:.1f} s, "
            f"{counted(self.contexts, 'calling context')}"
        ]
        samples = f"samples: {self.recorded:,} recorded"
        if self.taken is not None:
            samples = f"samples: {self.taken:,} taken"
            if self.expected:
                samples += f" ({self.expected:,} expected)"
            samples += f", {sum(self.dropped.values()):,} dropped" + _causes(self.dropped)
            samples += f"; {self.recorded:,} records"
        error = self.share_error(0.1)
        if error is not None:
            samples += f"; a CPU share of 10 % has a standard error of {100 * error:.2g} points"
        lines.append(samples)
        if "blocked_time" in self.seconds:
            lines.append(
                "threads: "
                + ", ".join(
                    f"{self.seconds.get(metric, 0.0):,.1f} s {words}"
                    for metric, words in (
                        ("cpu_time", "on CPUs"),
                        ("blocked_time", "blocked"),
                        ("runnable_time", "waiting for a CPU"),
                    )
                )
            )
        paths = self.complete + sum(self.truncated.values())
        if paths:
            lines.append(
                f"call paths: {self.complete:,} complete ({100 * self.complete / paths:.2f} %), "
                f"{sum(self.truncated.values()):,} truncated" + _causes(self.truncated)
            )
        if self.unclosed:
            lines.append(f"{counted(self.unclosed, 'measurement')} ended without being closed")
        if self.damage:
            lines.append(f"damaged parts were left out in {self.damage} places: see hpcd check")
        lines += [f"stands out: {finding}" for finding in self.findings]
        return lines + [f"note: {note}" for note in self.notes]


def gather_facts(db: Database) -> Facts:
    """The header of a report on ``db``."""
    facts = Facts(
        database=str(db.path),
        measurements=[row.name for row in db.measurements],
        hosts=sorted({row.host for row in db.measurements}),
        lines=len(db.lines),
        processes=len(np.unique(db.lines.process)),
        duration_s=round(db.duration_ns / 1e9, 3),
        contexts=len(db.cct) - 1,
        idle_lines=int(np.count_nonzero(~working_lines(db))),
        expected=0,
        taken=0,
        recorded=int(db.metrics.exclusive(SAMPLES).sum()),
        seconds={
            name: float(db.metrics.exclusive(name).sum())
            for name, unit in zip(db.metrics.names, db.metrics.units, strict=True)
            if unit == "s"
        },
    )
    for row in db.measurements:
        samples = row.summary.samples
        # A recorder that was killed left counters older than its records, or none.
        facts.expected = _plus(facts.expected, samples.expected)
        facts.taken = _plus(facts.taken, samples.taken)
        facts.dropped.update(samples.dropped)
        facts.damage += len(row.damage)
        facts.unclosed += not row.closed
    marked = np.flatnonzero(frame.is_marker(db.cct.frame))
    inclusive = db.metrics.inclusive(SAMPLES)
    facts.complete = facts.recorded
    for node in marked[inclusive[marked] > 0].tolist():
        code, number = int(db.cct.frame[node]) & 0xFF, int(inclusive[node])
        ending = _ENDINGS.get(code)
        if ending and ending.whole:
            continue
        facts.complete -= number
        if not ending or ending.looked_for:
            facts.truncated[ending.label if ending else marker_name(code)] += number
    if any(row.origin for row in db.measurements):
        # Other tools do not say where a call path had to end.
        facts.complete = 0
        facts.truncated.clear()
    return facts


def _plus(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def _causes(counts: Counter[str]) -> str:
    causes = [f"{cause} {number:,}" for cause, number in counts.most_common() if number]
    return f" ({', '.join(causes)})" if causes else ""


# --- the tree ---


class Outline(Forest):
    """The nodes of a view that are shown, in the order they are shown.

    A node is shown if its cost (:meth:`View.cost`) is at least ``share`` of the whole, and its
    parent is shown, down to ``depth`` levels. Siblings come costliest first.
    """

    def __init__(
        self,
        view: View,
        metric: int,
        *,
        share: float = 0.0,
        depth: int | None = None,
        cut_by: int | None = None,
        only: Sequence[int] | None = None,
    ) -> None:
        """``cut_by`` is the metric ``share`` is of, ``metric`` if None; ``only`` these nodes."""
        self.view = view
        self.metric = metric
        self.cut_by = metric if cut_by is None else cut_by
        self.size = view.cost(self.cut_by)
        total = abs(float(view.total[self.cut_by]))
        # What a formula makes negative counts by its size.
        shown = np.abs(self.size) >= share * total if share > 0 else np.ones(len(view), bool)
        # Contexts without any cost carry no information, whatever the cut-off.
        measured = len(view.inclusive) - len(view.derived)
        shown &= (view.inclusive[:measured] > 0).any(axis=0)
        if only is not None:
            shown &= np.isin(np.arange(len(view)), only)
        shown[0] = True
        super().__init__(view.parent, view.cost(metric), shown, depth=depth)
        self.omitted += view.omitted

    def runs(self, *, fold: bool) -> Iterator[tuple[list[int], str]]:
        """(nodes, tree lines) of each row, the nodes outermost first.

        With ``fold`` a row is a run of frames of which each is all that the one before it called,
        and none but the last spent anything itself (to :data:`_PASSED_ON`).
        """
        run: list[int] = []
        lines = ""
        for node, level, before in self.rows():
            lines = lines if run else before
            run.append(node)
            if not (fold and self._passes_on(node, level)):
                yield run, lines
                run = []

    def _passes_on(self, node: int, level: int) -> bool:
        members = self.children(node, level)
        return len(members) == 1 and abs(self.size[members[0]]) >= _PASSED_ON * abs(self.size[node])


def shorten(name: str, width: int) -> str:
    """``name`` in at most ``width`` characters, cut in the middle: both ends tell most."""
    if len(name) <= width:
        return name
    if width < 2:
        return name[:width]
    tail = (width - 1) * 2 // 5
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


# A frame whose only callee has this share of its cost has nothing to tell itself.
_PASSED_ON = 0.98
_COLUMNS = 38
_MIN_NAME = 24
_CALLS = " > "


class MetricColumn(NamedTuple):
    """One metric of a view; of one that is not ``additive`` shares mean nothing."""

    number: int
    name: str
    unit: str
    additive: bool = True

    def figures(self, view: View, node: int) -> str:
        """Inclusive and exclusive cost of a node, 38 characters."""
        total = float(view.total[self.number]) or 1.0
        text = ""
        for values in (view.inclusive, view.exclusive):
            value = float(values[self.number, node])
            share = f"{100 * value / total:6.2f}%" if self.additive else " " * 7
            text += f"{share} {amount(value, self.unit):>10} "
        return text


def metric_columns(db: Database, view: View) -> list[MetricColumn]:
    """The metrics of a view, the derived ones last."""
    measured = zip(db.metrics.names, db.metrics.units, strict=True)
    columns = [MetricColumn(number, *metric) for number, metric in enumerate(measured)]
    for number, derived in enumerate(view.derived, start=len(columns)):
        columns.append(MetricColumn(number, derived.name, derived.unit, derived.additive))
    return columns


def text_lines(
    db: Database, outline: Outline, width: int, more: Sequence[int] = (), *, fold: bool = False
) -> Iterator[tuple[float, str, str, str]]:
    """(share of the cost, figures, tree lines, name) of each row, ``width`` wide together.

    The first row is the heading. ``more`` metrics stand left of the one sorted by. ``fold`` has
    runs of frames that pass on all their cost in one row each.
    """
    view, metric = outline.view, outline.metric
    columns = metric_columns(db, view)
    shown = [columns[number] for number in (*more, metric)]
    if more:
        yield -1.0, "".join(f"{column.name:>37} " for column in shown), "", ""
    heading = f"{'inclusive':>18} {'exclusive':>18} " * len(shown)
    yield -1.0, heading, "", f"{columns[metric].name}, {view.kind}"
    total = abs(float(view.total[outline.cut_by])) or 1.0
    names = Names(db, view)
    room = max(width - _COLUMNS * len(shown), _MIN_NAME)
    for run, before in outline.runs(fold=fold and view.kind == "top-down"):
        node = run[-1]
        figures = "".join(column.figures(view, node) for column in shown)
        lines = fit(before, room, _MIN_NAME)
        cost = abs(float(outline.size[node])) / total
        yield cost, figures, lines, run_name([names(n) for n in run], room - len(lines))


def run_name(names: Sequence[str], width: int) -> str:
    """The names of a run of frames, outermost first, in at most ``width`` characters.

    A procedure that follows itself is named once, with how often. Where there is no room for all,
    the innermost ones are named and the others counted.
    """
    words: list[str] = []
    counts: list[int] = []
    for name, repeats in groupby(names):
        count = len(list(repeats))
        words.append(name if count == 1 else f"{name} x{count}")
        counts.append(count)
    text = shorten(words.pop(), width)
    left = sum(counts[:-1])
    for word, count in zip(reversed(words), reversed(counts[:-1]), strict=True):
        rest = f"(+{left - count}) " if left > count else ""
        if len(rest) + len(word) + len(_CALLS) + len(text) > width:
            break
        text = word + _CALLS + text
        left -= count
    before = f"(+{left}) " if left else ""
    return before + text if len(before) + len(text) <= width else text


def amount(value: float, unit: str) -> str:
    """A cost in its unit, for people."""
    if unit == "s":
        return f"{value:.3f} s" if abs(value) < 1000 else f"{value:,.0f} s"
    if abs(value) >= 1e9:
        return f"{value:.3e}"
    if not unit and value != round(value) and abs(value) < 1000:
        # Ratios, and what a formula made of times and counts.
        return f"{value:.4g}"
    return f"{value:,.0f}" + (f" {unit}" if unit else "")


class Names:
    """Display names of a view's nodes."""

    def __init__(self, db: Database, view: View) -> None:
        self._view = view
        self._names = db.procedure_names
        self._procedures = db.procedures
        self._modules = [PurePath(module.path).name for module in db.modules]
        self._paths = [module.path for module in db.modules]
        self._db = db

    def __call__(self, node: int) -> str:
        """Procedure name, with its address in views of addresses; else what the node is."""
        number = int(self._view.procedure[node])
        entities = self._view.entities
        if entities is not None:
            label = entities.label(number)
            if self._view.kind in ("lines", "loops") and not entities.is_procedure[number]:
                label += f" in {self._names[int(entities.procedure[number])]}"
            return label
        name = self._names[number]
        if self._view.frame is None:
            return name
        place = self._view.frame[node : node + 1]
        if not bool(frame.is_marker(place)[0]):
            name += f" {self._module(self._modules, number)}+0x{int(frame.offset_of(place)[0]):x}"
        return name

    def as_json(self, node: int) -> dict[str, Any]:
        """The identifying fields of a node."""
        number = int(self._view.procedure[node])
        entities = self._view.entities
        if entities is None:
            procedures = self._db.procedures
            name, kind, procedure = self._names[number], Kind.PROCEDURE, number
            file, line = procedures.file[number], int(procedures.line[number])
        else:
            kind = Kind(int(entities.kind[number]))
            called = kind in (Kind.PROCEDURE, Kind.INLINED)
            name = entities.name[number] if called else entities.label(number)
            procedure = int(entities.procedure[number])
            file, line = entities.file[number], int(entities.line[number])
        fields: dict[str, Any] = {
            "name": name,
            "kind": "line" if kind == Kind.STATEMENT else kind.name.lower(),
            "procedure": procedure,
            "module": self._module(self._paths, procedure),
            "file": file,
            "line": line,
        }
        if self._view.frame is not None:
            place = self._view.frame[node : node + 1]
            fields["address"] = int(frame.offset_of(place)[0])
        return fields

    def _module(self, table: list[str], procedure: int) -> str:
        module = int(self._procedures.module[procedure])
        return table[module - 1] if module else ""


def json_parts(db: Database, facts: Facts, outline: Outline) -> Iterator[str]:
    """One JSON object, in parts: the facts, then ``tree``, nodes nested in ``children``."""
    view = outline.view
    columns = metric_columns(db, view)
    head = {
        **facts.as_json(),
        "view": view.kind,
        "metric": columns[outline.metric].name,
        "units": {column.name: column.unit for column in columns},
        "derived": {derived.name: derived.text for derived in view.derived},
    }
    yield json.dumps(head)[:-1] + ', "tree": '
    names = Names(db, view)
    metrics = [column.name for column in columns]

    def fields(node: int) -> dict[str, Any]:
        fields = names.as_json(node)
        for kind, values in (("inclusive", view.inclusive), ("exclusive", view.exclusive)):
            fields[kind] = dict(zip(metrics, values[:, node].tolist(), strict=True))
        return fields

    yield from outline.json(fields)
    yield "}\n"


def csv_rows(db: Database, outline: Outline) -> Iterator[list[object]]:
    """A heading, and a row for each node shown: ``node``, its ``parent``, then what and how much.

    Costs are in their units, not rounded.
    """
    view = outline.view
    names = Names(db, view)
    columns = metric_columns(db, view)
    keys = ("kind", "name", "module", "file", "line")
    heading: list[object] = ["node", "parent", "level", *keys]
    for column in columns:
        unit = f" ({column.unit})" if column.unit else ""
        heading += [f"{column.name} inclusive{unit}", f"{column.name} exclusive{unit}"]
    yield heading
    for node, level, _ in outline.rows():
        fields = names.as_json(node)
        costs = np.stack([view.inclusive[:, node], view.exclusive[:, node]], axis=1)
        row: list[object] = [node, int(view.parent[node]), level]
        yield [*row, *(fields[key] for key in keys), *costs.ravel().tolist()]


def joined(parts: Iterable[str], size: int = 1 << 16) -> Iterator[str]:
    """``parts`` in pieces of about ``size`` characters: fewer, larger writes."""
    pending: list[str] = []
    length = 0
    for part in parts:
        pending.append(part)
        length += len(part)
        if length >= size:
            yield "".join(pending)
            pending, length = [], 0
    yield "".join(pending)
