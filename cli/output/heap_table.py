"""The heap of processes as text and as JSON, for ``hpcd memory``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hpcd.analysis.calls.process_heap import Estimate, ProcessHeap
from hpcd.analysis.profile.row_text import shorten_apart
from hpcd.cli.output.sizes import size_text
from hpcd.cli.output.tree_tables import Row

HEAP_HEADING = "Heap blocks by the path that allocated them: estimates, +- one standard error."
_MIN_NAME = 24
_FIGURES = ("at_end", "at_peak", "allocated")


def heap_rows(heap: ProcessHeap, limit: int | None, width: int) -> Iterator[Row]:
    """Yield the lines of the table of one process, at most ``limit`` paths."""
    peak, end, allocated = (_amount(one) for one in (heap.at_peak, heap.at_end, heap.allocated))
    yield Row(
        "",
        "",
        f"{heap.name} ({heap.pid}): peak {peak} at {heap.peak_ns / 1e9:.3f} s, {end} at the end,"
        f" {allocated} allocated",
    )
    yield Row("   at end       +-   at peak       +- allocated     calls  ", "", "path")
    rest = width - 60
    names = shorten_apart(heap.path[: limit or None], max(rest, _MIN_NAME))
    for at, name in enumerate(names):
        at_end, at_peak = (
            f"{size_text(one.bytes[at]):>9} {size_text(one.error[at]):>8} "
            for one in (heap.at_end, heap.at_peak)
        )
        figures = (size_text(number) for number in (heap.allocated.bytes[at], heap.calls[at]))
        counts = "".join(f"{figure:>9} " for figure in figures)
        yield Row(f"{at_end}{at_peak}{counts} ", "", name)
    if limit and len(heap.path) > limit:
        yield Row("", "", f"(not shown: {len(heap.path) - limit:,} more; --limit 0 for all)")


def _amount(estimate: Estimate) -> str:
    total, error = estimate.total
    return f"{size_text(total)}B" + (f" +-{size_text(error)}B" if error else "")


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
