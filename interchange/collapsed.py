"""Collapsed stacks: ``main;solve;dot 1234``, a line for each calling context with a cost.

Read by flamegraph.pl, inferno, speedscope and others. Costs are whole numbers, times in ns. A
semicolon in a name is written ``\\x3b``, a line end ``\\n``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.interchange.context_table import Detail
from hpcd.interchange.export_selection import ExportSelection
from hpcd.interchange.text import one_line


def write(selection: ExportSelection, path: Path) -> None:
    """Write the main metric of ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.NAME)
    row = selection.main_row
    scale = 1e9 if selection.units[row] == "s" else 1.0
    cost = np.rint(selection.total_costs(table)[row] * scale).astype(np.int64)
    names = [one_line(name, ";") for name in table.frames.name]
    parent, frame = table.parent.tolist(), table.frame.tolist()
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for context in np.flatnonzero(cost).tolist():
            count = int(cost[context])
            words = []
            # What no context fits is the root's.
            at = context
            while at:
                words.append(names[frame[at]])
                at = parent[at]
            file.write(f"{';'.join(reversed(words)) or names[0]} {count}\n")
