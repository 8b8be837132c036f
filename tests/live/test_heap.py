"""``--heap``: what is recorded of programs whose allocations are known."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.calls.process_heap import ProcessHeap, measure_heap
from hpcd.analysis.database import Database
from hpcd.analysis.database import open as open_database
from hpcd.analysis.profile.costs import costs_in_window, event_weights
from hpcd.model.heap_events import ALLOCATED
from tests.support.recorded import hpcd, record
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

LARGE = 100 * 20000
SMALL = [100 + i % 51 for i in range(40_000)]
GRAIN = 16384

# Bytes allocated and held at the end, by the function: all blocks are recorded.
CERTAIN = {
    "zeroed": (LARGE, LARGE),
    "grown": (3 * LARGE, 2 * LARGE),
    "resized_to_nothing": (LARGE, 0),
    "array": (LARGE, LARGE),
    "aligned": (3 * LARGE + 100 * 32, 3 * LARGE + 100 * 32),
    "by_new": (100 * 50000, LARGE),
    "by_library": (LARGE, LARGE),
    "mapped": (100 * 32768, 50 * 32768),
    "handing_over": (LARGE, 0),
    "parent": (50000, 50000),
}
# Of blocks of these sizes a sample is.
SAMPLED = {
    "small_blocks": (SMALL, [size for i, size in enumerate(SMALL) if i % 2 == 0]),
    "small_arrays": (SMALL, SMALL),
}


def _below(heap: ProcessHeap, function: str) -> tuple[int, int]:
    """Bytes allocated and held at the end of all paths through ``function``."""
    mine = [at for at, path in enumerate(heap.path) if function in path.split(" < ")[:3]]
    return int(heap.allocated.bytes[mine].sum()), int(heap.at_end.bytes[mine].sum())


def _error(sizes: list[int]) -> float:
    """The standard error of the sum of ``sizes``, a block of which is chosen with 1/n."""
    return math.sqrt(sum(size**2 * (GRAIN // size - 1) for size in sizes))


def _recorded(path: Path, *command: object) -> list[ProcessHeap]:
    assert record(path / "m", [*command], "--heap")["calls"]["dropped"] == {}
    hpcd("merge", path / "m", "-o", path / "db")
    with open_database(path / "db") as db:
        return measure_heap(db)


def test_a_leak_is_named_with_its_path_and_amount(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    (heap,) = _recorded(tmp_path, build("leaks.c"))
    assert _below(heap, "leak") == (65_000_000, 65_000_000)
    assert _below(heap, "borrow") == (200_000_000, 0)
    held, error = heap.at_end.total
    assert held <= heap.at_peak.total[0] <= held + 100_000 and error < 100_000
    assert heap.history[-1, 1] == held
    text = hpcd("memory", tmp_path / "db").stdout
    assert "malloc < leak < main" in text and "65.0M" in text
    report = hpcd("report", tmp_path / "db", "--metric", "heap_held").stdout
    assert "65.0 MB" in report and "leak > malloc" in report
    assert "allocated and held ever more memory" in report


def test_allocator_of_a_static_program(tmp_path: Path, build: Callable[..., Path]) -> None:
    (heap,) = _recorded(tmp_path, build("leaks.c", "-static"))
    assert _below(heap, "leak") == (65_000_000, 65_000_000)
    assert _below(heap, "borrow") == (200_000_000, 0)


@pytest.mark.parametrize("kind", ["-DPOOLS", "-DGOES_ON"])
def test_library_in_place_of_the_c_librarys_allocator(
    tmp_path: Path, build: Callable[..., Path], kind: str
) -> None:
    """Found by what it exports, by whatever name it is preloaded; what it calls counts once."""
    shutil.copy(build("stands_in.c", kind, "-shared", "-fPIC"), tmp_path / "libours.so")
    preloaded = f"LD_LIBRARY_PATH={tmp_path}", "LD_PRELOAD=libours.so"
    (heap,) = _recorded(tmp_path, "env", *preloaded, build("leaks.c"))
    assert _below(heap, "leak") == (65_000_000, 65_000_000)
    assert _below(heap, "borrow") == (200_000_000, 0)
    held, error = heap.at_end.total
    assert 65_000_000 <= held < 65_000_000 + 100_000 + 4 * error


def test_operators_of_an_allocator_in_a_program(tmp_path: Path, build: Callable[..., Path]) -> None:
    """They are the C++ library's, which call malloc, or the allocator's, which do not."""
    for flags in ((), ("-DOPERATORS",)):
        path = tmp_path / f"with{''.join(flags)}"
        path.mkdir()
        (heap,) = _recorded(path, build("own_allocator.cpp", *flags))
        assert _below(heap, "leak_new()") == (2_000_000, 2_000_000)
        assert _below(heap, "leak_malloc()") == (2_000_000, 2_000_000)


@pytest.mark.parametrize("way", ["session", "multi", "perf"])
def test_every_way_to_allocate_counts_once(
    tmp_path: Path, build: Callable[..., Path], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCD_UPROBES", way)
    with subprocess.Popen([build("heap.cpp")], stdin=subprocess.PIPE) as program:
        assert program.stdin
        recorder = Recorder(tmp_path / "m", "--heap", "--pid", program.pid)
        program.stdin.write(b"x")
        program.stdin.flush()
        recorder.wait_until(lambda measurement: len(measurement.processes) == 2)
        program.stdin.write(b"x")
        program.stdin.flush()
        recorder.wait()
    assert program.returncode == 0
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        first, second = measure_heap(db)
        for function, figures in CERTAIN.items():
            assert _below(first, function) == figures, function
        for function, sampled in SAMPLED.items():
            for figure, sizes in zip(_below(first, function), sampled, strict=True):
                assert abs(figure - sum(sizes)) < 6 * _error(sizes), function
        # What a child has inherited is not its own, and its free is none of the parent's.
        assert _below(second, "child") == second.allocated.total[:1] * 2 == (LARGE, LARGE)
        # In parts of the time, metrics are of the same blocks.
        whole, total = (0, db.duration_ns + 1), first.allocated.total[0] + LARGE
        for windows in ([whole], [(0, first.peak_ns), (first.peak_ns, whole[1])]):
            parts = [_allocated(db, *window) for window in windows]
            assert sum(parts) == total and min(parts) > 0
        number = db.metrics.number(ALLOCATED)
        assert sum(db.metrics.by_line(number, line)[1].sum() for line in range(len(db.lines))) == (
            total
        )


def _allocated(db: Database, begin: int, end: int) -> float:
    lines = np.arange(len(db.lines))
    bounds = (np.full(len(lines), moment) for moment in (begin, end))
    return float(costs_in_window(db, event_weights(db, ALLOCATED), lines, *bounds).sum())
