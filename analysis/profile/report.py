"""A view of a database as text, JSON or CSV, as ``hpcd report`` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.report_header import HeaderFacts
from hpcd.analysis.profile.row_text import fit, run_name
from hpcd.analysis.profile.tree_rows import Forest
from hpcd.analysis.profile.views import View
from hpcd.analysis.symbols.short_names import short_names
from hpcd.model import frame
from hpcd.model.scope import ScopeKind
from hpcd.wording import percent, quantity


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


# A frame whose only callee has this share of its cost has nothing to tell itself.
_PASSED_ON = 0.98
FIGURES_WIDTH = 40
"""Characters of the figures of a metric."""
_MIN_NAME = 24


class MetricColumn(NamedTuple):
    """One metric of a view; of one that is not ``additive`` shares mean nothing."""

    number: int
    name: str
    unit: str
    additive: bool = True

    def figures(self, view: View, node: int) -> str:
        """Inclusive and exclusive cost of a node."""
        total = float(view.total[self.number]) or 1.0
        text = ""
        for values in (view.inclusive, view.exclusive):
            value = float(values[self.number, node])
            share = percent(value / total, 2) if self.additive else ""
            text += f"{share:>8} {quantity(value, self.unit, total):>10} "
        return text


def metric_columns(db: Database, view: View) -> list[MetricColumn]:
    """The metrics of a view, the derived ones last."""
    measured = zip(db.metrics.names, db.metrics.units, strict=True)
    columns = [MetricColumn(number, *metric) for number, metric in enumerate(measured)]
    for number, derived in enumerate(view.derived, start=len(columns)):
        columns.append(MetricColumn(number, derived.name, derived.unit, derived.additive))
    return columns


def text_lines(
    db: Database,
    outline: Outline,
    width: int,
    more: Sequence[int] = (),
    *,
    fold: bool = False,
    wide: bool = False,
) -> Iterator[tuple[float, str, str, str]]:
    """(share of the cost, figures, tree lines, name) of each row, ``width`` wide together.

    The first row is the heading. ``more`` metrics stand left of the one sorted by. ``fold`` has
    runs of frames that pass on all their cost in one row each; ``wide`` has whole names.
    """
    view, metric = outline.view, outline.metric
    columns = metric_columns(db, view)
    shown = [columns[number] for number in (*more, metric)]
    if more:
        yield -1.0, "".join(f"{column.name:>{FIGURES_WIDTH - 1}} " for column in shown), "", ""
    heading = f"{'inclusive':>18} {'exclusive':>18} " * len(shown)
    yield -1.0, heading, "", f"{columns[metric].name}, {view.title}"
    total = abs(float(view.total[outline.cut_by])) or 1.0
    room = max(width - FIGURES_WIDTH * len(shown), _MIN_NAME)
    runs = list(outline.runs(fold=fold and view.is_top_down))
    whole = NodeNames(db, view)
    nodes = [node for run, _ in runs for node in run]
    labels = [whole(node) for node in nodes]
    names = dict(zip(nodes, labels if wide else short_names(labels), strict=True))
    for run, before in runs:
        node = run[-1]
        figures = "".join(column.figures(view, node) for column in shown)
        lines = fit(before, room, _MIN_NAME)
        cost = abs(float(outline.size[node])) / total
        yield cost, figures, lines, run_name([names[n] for n in run], room - len(lines))


class NodeNames:
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

    def as_json(self, node: int) -> dict[str, object]:
        """The identifying fields of a node."""
        number = int(self._view.procedure[node])
        entities = self._view.entities
        if entities is None:
            procedures = self._db.procedures
            name, kind, procedure = self._names[number], ScopeKind.PROCEDURE, number
            file, line = procedures.file[number], int(procedures.line[number])
        else:
            kind = ScopeKind(int(entities.kind[number]))
            called = kind in (ScopeKind.PROCEDURE, ScopeKind.INLINED)
            name = entities.name[number] if called else entities.label(number)
            procedure = int(entities.procedure[number])
            file, line = entities.file[number], int(entities.line[number])
        fields: dict[str, object] = {
            "name": name,
            "kind": "line" if kind == ScopeKind.STATEMENT else kind.name.lower(),
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


def json_parts(db: Database, facts: HeaderFacts, outline: Outline) -> Iterator[str]:
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
    names = NodeNames(db, view)
    metrics = [column.name for column in columns]

    def fields(node: int) -> dict[str, object]:
        fields = names.as_json(node)
        for kind, values in (("inclusive", view.inclusive), ("exclusive", view.exclusive)):
            fields[kind] = dict(zip(metrics, values[:, node].tolist(), strict=True))
        return fields

    return outline.json(head, fields)


def csv_rows(db: Database, outline: Outline) -> Iterator[list[object]]:
    """A heading, and a row for each node shown: ``node``, its ``parent``, then what and how much.

    Costs are in their units, not rounded.
    """
    view = outline.view
    names = NodeNames(db, view)
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
