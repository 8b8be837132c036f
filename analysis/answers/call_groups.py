"""Groups of recorded calls, and the memory of processes, as answers."""

from __future__ import annotations

from hpcd.analysis.answers.json_form import rows
from hpcd.analysis.calls.memory import ProcessMemory
from hpcd.analysis.calls.process_heap import ProcessHeap
from hpcd.analysis.calls.totals import CallTotals

MEMORY_SUMS = ("at_peak", "at_end", "touched", "huge", "remote", "mapped", "released")
"""Amounts of the memory of a call path, in bytes."""
_CALL_SUMS = (
    "calls", "errors", "read", "written", "size", "seconds", "shortest", "longest",
)  # fmt: skip
_HEAP_SUMS = ("at_end", "at_peak", "allocated")


def call_groups(totals: CallTotals) -> list[dict[str, object]]:
    """Return the groups of ``totals`` in their order, with its units; ``node`` of call paths, or
    null; ``bandwidth`` in bytes per second, all together and of one call, null where none moved
    any."""
    speeds = rows(
        {
            "overall": totals.bandwidth,
            "min": totals.least,
            "mean": totals.mean,
            "max": totals.most,
            "stddev": totals.stddev,
        }
    )
    nodes = [node if node >= 0 else None for node in totals.node.tolist()]
    sums = {name: getattr(totals, name) for name in _CALL_SUMS}
    return rows({"name": totals.name, "node": nodes, **sums, "bandwidth": speeds})


def memory_json(memory: ProcessMemory, most: int | None) -> dict[str, object]:
    """Return the memory of a process in bytes, and of ``most`` of its ``of`` call paths."""
    paths = memory.paths
    sums = {name: getattr(paths, name) for name in MEMORY_SUMS}
    return {
        "name": memory.name,
        "pid": memory.pid,
        "touched": memory.touched,
        "peak": memory.peak,
        "peak_ns": memory.peak_ns,
        "at_end": memory.at_end,
        **{name: int(sums[name].sum()) for name in ("huge", "remote", "mapped", "released")},
        "by_numa_node": {str(node): size for node, size in memory.by_numa_node.items()},
        "of": len(paths),
        "paths": rows(
            {
                "path": paths.name[:most],
                "node": paths.node[:most],
                **{name: values[:most] for name, values in sums.items()},
            }
        ),
    }


def heap_json(heap: ProcessHeap, most: int | None) -> dict[str, object]:
    """Return the heap of a process in bytes, estimates with their standard errors; ``held`` are
    moments (ns) and what was held from then on; and ``most`` of its call paths."""
    estimates = {name: getattr(heap, name) for name in _HEAP_SUMS}
    totals = {name: estimate.total for name, estimate in estimates.items()}
    return {
        "name": heap.name,
        "pid": heap.pid,
        "peak_ns": heap.peak_ns,
        **{name: total for name, (total, _) in totals.items()},
        **{f"{name}_error": round(error, 1) for name, (_, error) in totals.items()},
        "held": heap.history.tolist(),
        "paths": rows(
            {
                "path": heap.path[:most],
                "node": heap.node[:most],
                "calls": heap.calls[:most],
                **{name: estimate.bytes[:most] for name, estimate in estimates.items()},
                **{
                    f"{name}_error": estimate.error[:most].round(1)
                    for name, estimate in estimates.items()
                },
            }
        ),
    }
