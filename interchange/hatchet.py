"""Hatchet's literal form: a list of nodes with children, as JSON, for ``GraphFrame.from_literal``.

Each node has every metric exclusive (``cpu_time``) and inclusive (``cpu_time (inc)``), summed over
the trace lines; times in s.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hpcd.array_types import Mask
from hpcd.interchange.context_table import Detail
from hpcd.interchange.export_selection import Selection
from hpcd.interchange.text import as_json, json_names, utf8


def write(selection: Selection, path: Path) -> None:
    """Write ``selection`` to the file ``path``."""
    table = selection.contexts(Detail.PROCEDURE)
    exclusive = selection.total_costs(table)
    inclusive = np.stack([table.tree.inclusive(row) for row in exclusive])
    # Contexts without any cost carry no information.
    shown: Mask = np.array(inclusive.any(axis=0))
    shown[0] = True
    names = json_names(name or "[unnamed]" for name in table.frames.name)
    frame = table.frame.tolist()
    own, whole = exclusive.T.tolist(), inclusive.T.tolist()
    keys = [*selection.names, *(f"{name} (inc)" for name in selection.names)]
    keys = [utf8(key) for key in keys]
    children = _children(table.parent.tolist(), shown.tolist())
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write("[")
        # A walk of its own: call paths may be deeper than Python recurses.
        waiting = [iter([0])]
        first = [True]
        while waiting:
            node = next(waiting[-1], None)
            if node is None:
                waiting.pop()
                first.pop()
                file.write("]" if not waiting else "]}")
                continue
            metrics = as_json(dict(zip(keys, own[node] + whole[node], strict=True)))
            name = names[frame[node]]
            file.write("\n" if first[-1] else ",\n")
            first[-1] = False
            file.write(
                f'{{"name":{name},"frame":{{"name":{name},"type":"function"}},'
                f'"metrics":{metrics},"children":['
            )
            waiting.append(iter(children[node]))
            first.append(True)
        file.write("\n")


def _children(parent: list[int], shown: list[bool]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in parent]
    for node, above in enumerate(parent):
        if node and shown[node]:
            children[above].append(node)
    return children
