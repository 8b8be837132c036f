"""HPCToolkit's database, version 4: meta.db, profile.db, cct.db, trace.db, metrics/default.yaml.

Every metric has the scopes "execution" (inclusive) and "function" (exclusive); times are in s. A
calling context is a function, below it the source line that is executed or, if that is unknown, the
instruction, and below that the functions that are called.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.analysis.database.metrics import RECORDS
from hpcd.array_types import F64
from hpcd.interchange.fitted_names import utf8
from hpcd.interchange.hpctoolkit.hpctoolkit_contexts import LexicalContexts, lexical_contexts
from hpcd.interchange.hpctoolkit.hpctoolkit_meta import write_meta
from hpcd.interchange.hpctoolkit.hpctoolkit_profiles import ProfileFileWriter, write_cct
from hpcd.interchange.hpctoolkit.hpctoolkit_trace import write_trace
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.interchange.output.json_text import as_json


def write(selection: ExportSelection, path: Path) -> None:
    """Write ``selection`` to the folder ``path``."""
    contexts = lexical_contexts(selection)
    rows, metrics = _metrics(selection)
    write_meta(selection, contexts, metrics, path / "meta.db")
    with ProfileFileWriter(path / "profile.db", len(contexts) + 1, len(metrics)) as profiles:
        for line in selection.iterate_lines("profiles"):
            costs = selection.line_costs(line.number, contexts.table)
            point = np.zeros((len(selection.metrics), len(contexts)))
            for row, cost in zip(point, costs.cost[rows], strict=True):
                np.add.at(row, contexts.of_context[costs.context], cost)
            profiles.add(line, _propagate(contexts, point))
        profiles.finish()
    write_cct(path / "cct.db", path / "profile.db", profiles)
    write_trace(selection, contexts, path / "trace.db")
    _write_taxonomy(metrics, path / "metrics")


def _metrics(selection: ExportSelection) -> tuple[list[int], list[str]]:
    """Return the rows of the metrics in the selection, and their names in HPCToolkit.

    CPU time is first, records, which every context has, are last. Metric ``n`` is inclusive ``2 n``
    in profiles of threads and exclusive ``2 n + 1``; in the summary ``2 · metrics`` is added.
    """
    rows = sorted(
        range(len(selection.names)),
        key=lambda row: (selection.names[row] == RECORDS, selection.names[row] != "cpu_time"),
    )
    names = []
    for row in rows:
        name, unit = selection.names[row], selection.units[row]
        name = "CPUTIME" if name == "cpu_time" else name
        unit = "sec" if unit == "s" else unit
        names.append(f"{name} ({unit})" if unit else name)
    return rows, names


def _propagate(contexts: LexicalContexts, point: F64) -> F64:
    """Return float64[contexts + 1, 2 · metrics]: the inclusive and the exclusive cost in each
    metric of the global context and the others, in the order of their identifiers.

    The exclusive cost of a function is the sum over its lines.
    """
    values = np.zeros((len(contexts) + 1, 2 * len(point)))
    lexical = np.flatnonzero(contexts.within_function)
    above = contexts.tree.parent[lexical]
    for number, cost in enumerate(point):
        values[1:, 2 * number] = contexts.tree.inclusive(cost)
        values[0, 2 * number] = values[1, 2 * number]
        exclusive = cost.copy()
        np.add.at(exclusive, above, cost[lexical])
        values[1:, 2 * number + 1] = exclusive
    return values


def _write_taxonomy(metrics: list[str], folder: Path) -> None:
    """Write how the viewer shows metrics (as ``metrics/METRICS.yaml.ex`` explains)."""
    folder.mkdir()
    inputs, roots = [], []
    for number, name in enumerate(metrics):
        for scope, short in (("execution", "i"), ("function", "e")):
            inputs.append(
                f"  - &m{number}{short}\n    metric: {as_json(utf8(name))}\n"
                f"    scope: {scope}\n    formula: $$\n    combine: sum\n"
            )
        roots.append(
            f"  - name: {as_json(utf8(name))}\n    description: {as_json(utf8(name))}\n"
            "    variants:\n      Sum:\n        render: [number, percent]\n        formula:\n"
            f"          inclusive: *m{number}i\n          exclusive: *m{number}e\n"
        )
    text = "version: 0\ninputs:\n" + "".join(inputs) + "roots:\n" + "".join(roots)
    (folder / "default.yaml").write_text(text, encoding="utf-8")
