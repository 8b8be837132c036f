"""The heap of processes as text and as JSON, for ``hpcd memory``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpcd.analysis.calls.process_heap import Estimate, ProcessHeap
from hpcd.analysis.profile.row_text import shorten_apart
from hpcd.cli.output.tree_tables import Column, Row, table_rows
from hpcd.wording import bytes_text, compact, fixed

HEAP_HEADING = "Heap blocks by the path that allocated them: estimates, +- one standard error."
_FIGURES = ("at_end", "at_peak", "allocated")


def heap_heading(heap: ProcessHeap) -> str:
    """Return what a process held and allocated, as a sentence."""
    peak, end, allocated = (_amount(one) for one in (heap.at_peak, heap.at_end, heap.allocated))
    return (
        f"{heap.name} ({heap.pid}): peak {peak} at {fixed(heap.peak_ns / 1e9, 3)} s,"
        f" {end} at the end, {allocated} allocated"
    )


def heap_rows(heap: ProcessHeap, limit: int | None, width: int) -> Iterator[Row]:
    """Yield the lines of the table of one process, at most ``limit`` paths."""
    figures = (
        ("at end", heap.at_end.bytes), ("+-", heap.at_end.error), ("at peak", heap.at_peak.bytes),
        ("+-", heap.at_peak.error), ("allocated", heap.allocated.bytes), ("calls", heap.calls),
    )  # fmt: skip
    columns = [Column(head, [*map(compact, values[:limit].tolist())]) for head, values in figures]
    names = heap.path[:limit]
    return table_rows(
        columns, "path", lambda room: shorten_apart(names, room), width,
        left_out=len(heap.path) - len(names),
    )  # fmt: skip


def _amount(estimate: Estimate) -> str:
    total, error = estimate.total
    return bytes_text(total) + (f" +- {bytes_text(error)}" if error else "")


def heap_json(heaps: list[ProcessHeap], limit: int | None) -> dict[str, list[dict[str, Any]]]:
    """Return the same as plain JSON values, with what was held over time; nothing of no heap."""
    if not heaps:
        return {}
    return {
        "heap": [
            {
                "name": heap.name,
                "pid": heap.pid,
                "peak_ns": heap.peak_ns,
                **_figures({name: getattr(heap, name).total for name in _FIGURES}),
                "held": heap.history.tolist(),
                "paths": [
                    {
                        "path": heap.path[at],
                        "node": int(node),
                        "calls": int(heap.calls[at]),
                        **_figures(
                            {
                                name: (one.bytes[at], one.error[at])
                                for name, one in ((name, getattr(heap, name)) for name in _FIGURES)
                            }
                        ),
                    }
                    for at, node in enumerate(heap.node[:limit].tolist())
                ],
            }
            for heap in heaps
        ]
    }


def _figures(totals: dict[str, tuple[Any, Any]]) -> dict[str, float]:
    return {name: int(total) for name, (total, _) in totals.items()} | {
        f"{name}_error": round(float(error), 1) for name, (_, error) in totals.items()
    }
