"""The heap of processes as text, for ``hpcd memory``."""

from __future__ import annotations

from collections.abc import Iterator

from hpcd.analysis.calls.process_heap import Estimate, ProcessHeap
from hpcd.cli.output.tree_tables import Row, amount_rows
from hpcd.wording import bytes_text, fixed

HEAP_HEADING = "Heap blocks by the path that allocated them: estimates, +- one standard error."


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
    columns = [(head, values.tolist()) for head, values in figures]
    return amount_rows(columns, "path", heap.path, limit, width)


def _amount(estimate: Estimate) -> str:
    total, error = estimate.total
    return bytes_text(total) + (f" +- {bytes_text(error)}" if error else "")
