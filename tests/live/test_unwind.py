"""Call paths of real programs without frame pointers, taken by the real sampler."""

from __future__ import annotations

import itertools
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames
from tests.support.paths import ROOT
from tests.support.recorded import Names, call_paths, record
from tests.support.tables import libraries_of, prepare_tables
from tests.support.waiting import Recorder, records_in

pytestmark = pytest.mark.root

# Every call tests/programs/paths.c makes. A signal handler may interrupt any of them.
EDGES = {
    ("_start", "main"),
    ("main", "work"),
    ("thread", "work"),
    ("work", "chain1"),
    ("chain1", "chain2"),
    ("chain2", "chain3"),
    ("chain3", "chain4"),
    ("chain4", "leaf"),
    ("work", "recursion"),
    ("recursion", "recursion"),
    ("recursion", "leaf"),
    ("work", "with_alloca"),
    ("with_alloca", "chain4"),
    ("work", "with_alignment"),
    ("with_alignment", "chain4"),
    ("work", "sorting"),
    ("sorting", "compare"),
    ("compare", "leaf"),
    ("work", "reading"),
    ("handler", "leaf"),
    # nm has no names for the linkage table, which follows _init
    ("work", "_init"),
    ("reading", "_init"),
    ("sorting", "_init"),
    ("main", "_init"),
    ("main", "signal_this_thread"),
    ("thread", "signal_this_thread"),
    ("signal_this_thread", "_init"),
    ("_start", "__do_global_dtors_aux"),
}


def possible(path: tuple[str, ...]) -> bool:
    """Whether the program can be in this state. Names in brackets are other modules."""
    own = [name for name in path if not name.startswith("[")]
    # A signal may be handled while the C library starts or ends a thread, outside of its function.
    if own and own[0] not in ("_start", "thread", "handler"):
        return False
    steps = itertools.pairwise(own)
    return own.count("recursion") <= 51 and all(
        step in EDGES or step[1] == "handler" for step in steps
    )


def split(paths: Counter[tuple[str, ...]]) -> tuple[int, int, list[tuple[str, ...]]]:
    """(samples, of them truncated, impossible paths among the whole ones)."""
    truncated = sum(n for path, n in paths.items() if path[0].startswith("!"))
    wrong = [path for path in paths if not path[0].startswith("!") and not possible(path)]
    return sum(paths.values()), truncated, wrong


def truncated_late(summary: dict[str, Any]) -> int:
    """Paths that are not whole for other reasons than that their code was new, or that the thread's
    registers could not be had."""
    early = ("module not yet analysed", "process not yet known", "address in no mapping")
    reasons = summary["unwind"]["truncated"].items()
    beyond = (*early, "registers changing for a signal")
    return sum(number for reason, number in reasons if reason not in beyond)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory, build: Callable[..., Path]):  # type: ignore[no-untyped-def]
    """A recording of the program with known call paths: (summary, paths)."""
    executable = build("paths.c")
    # On a machine hpcd has never run on, tables are made first; that is not what is tested here.
    prepare_tables(executable, *libraries_of(executable))
    output = tmp_path_factory.mktemp("known") / "measurement"
    # Attached to, so that its code is known from the first sample, however busy the machine is.
    with subprocess.Popen([executable, "600", "2"]) as process:
        try:
            recorder = Recorder(output, "-p", process.pid, "-F", 10_000)
            recorder.wait_until(lambda measurement: records_in(measurement) > 40_000)
            summary = recorder.stop()
        finally:
            process.kill()
    return summary, call_paths(output, executable)


def test_no_path_that_cannot_occur(known) -> None:  # type: ignore[no-untyped-def]
    """Chains, recursion, alloca, realigned frames, callbacks, system calls and signal handlers."""
    samples, _, wrong = split(known[1])
    assert samples > 20_000
    assert wrong == []
    assert set(known[0]["samples"]["dropped"]) <= {"thread exiting"}


def test_registers_in_between_are_said(tmp_path: Path, build: Callable[..., Path]) -> None:
    """The kernel writes a signal handler's registers, and then the thread's own again, one by one.
    A sample taken in between finds those of two places: at 50,000 signals a second some do."""
    executable = build("paths.c")
    summary = record(tmp_path / "m", [executable, 3, 2, 20], "-F", 10_000)
    paths = call_paths(tmp_path / "m", executable)
    _, _, wrong = split(paths)
    assert wrong == []
    assert summary["unwind"]["truncated"]["registers changing for a signal"] > 0
    between = [path for path in paths if path[0] == "!18"]
    assert between and all(set(path[1:]) == {"[k]"} for path in between)


@pytest.mark.parametrize("loader", ["bcc", "object"])
def test_both_loaders_sample_alike(tmp_path: Path, build: Callable[..., Path], loader: str) -> None:
    executable = build("paths.c")
    summary = record(tmp_path / "m", [executable, 2], "--loader", loader)
    samples, _, wrong = split(call_paths(tmp_path / "m", executable))
    assert samples > 1000 and wrong == []
    assert summary["unwind"]["complete"] >= 0.9 * summary["unwind"]["paths"]
    assert truncated_late(summary) <= 0.001 * samples
    assert summary["switches"]["recorded"] > 0


def test_nearly_every_path_is_whole(known) -> None:  # type: ignore[no-untyped-def]
    samples, truncated, _ = split(known[1])
    assert truncated < samples * 0.01, known[0]["unwind"]
    assert truncated_late(known[0]) <= samples * 0.0001


def test_every_kind_of_frame_was_seen(known) -> None:  # type: ignore[no-untyped-def]
    seen = {name for path in known[1] for name in path}
    functions = {name for edge in EDGES for name in edge}
    assert functions - {"_init", "signal_this_thread", "__do_global_dtors_aux"} <= seen
    assert any("handler" in path and "recursion" in path for path in known[1])
    assert any("[k]" in path and "reading" in path for path in known[1])
    assert any("compare" in path and "[libc.so.6]" in path for path in known[1])


def test_deep_recursion_is_whole(tmp_path: Path, build: Callable[..., Path]) -> None:
    executable = build("deep.c")
    record(tmp_path / "m", [executable, 1])
    paths = call_paths(tmp_path / "m", executable)
    deepest = max(path.count("down") for path in paths)
    assert deepest == 891


def deep(folder: Path, depth: int) -> Path:
    """tests/programs/deep.c with another depth of its recursion."""
    source = folder / "deeper.c"
    text = (ROOT / "tests/programs/deep.c").read_text()
    source.write_text(text.replace("890", str(depth)).replace("< 100000", "< 1000000"))
    executable = folder / "deeper"
    subprocess.run(["gcc", "-O2", "-o", str(executable), str(source)], check=True)
    return executable


def test_deeper_recursion_keeps_both_ends(tmp_path: Path) -> None:
    """The outermost and the innermost frames are there, and what is between is counted."""
    executable = deep(tmp_path, 10_000)
    record(tmp_path / "first", [executable, 0.1])
    summary = record(tmp_path / "m", [executable, 1])
    assert truncated_late(summary) == 0
    # Such a walk takes half a millisecond, in which other firings are due: that is said.
    samples = summary["samples"]
    assert samples["walking"] > 0.03 * samples["expected"] and samples["unexplained"] == 0
    with open_measurement(tmp_path / "m") as measurement:
        names = Names(measurement, executable)
        omitted = frames.omitted_count(measurement.cct.frame)
        deepest = int(np.argmax(omitted))
        # _start, two of the C library and main are beyond the recursion.
        assert int(omitted[deepest]) + 1024 == 10_001 + 4
        outer = names.path(deepest)[:-1]
        assert len(outer) == 256 and outer[0] == "_start" and outer[3] == "main"
        assert set(outer[4:]) == {"down"}


def test_frame_limit_is_said(tmp_path: Path) -> None:
    """Deeper than 16,384 frames: marked, never passed off as whole."""
    executable = deep(tmp_path, 20_000)
    summary = record(tmp_path / "m", [executable, 1])
    assert summary["unwind"]["truncated"]["deeper than the frame limit"] > 20
    paths = call_paths(tmp_path / "m", executable)
    limited = [path for path in paths if path[0] == "!7"]
    assert limited and all(path.count("down") <= 1024 for path in limited)


def test_exceptions_and_templates_are_whole(tmp_path: Path, build: Callable[..., Path]) -> None:
    # One sample in 4,000 falls where libgcc, about to jump to a handler, has its return address in
    # a register or the handler's frame in place of its own: of few samples one in 1,000 may.
    executable = build("templates.cpp")
    prepare_tables(executable, *libraries_of(executable))
    summary = record(tmp_path / "m", [executable, 2], "-F", 3989)
    assert summary["unwind"]["complete"] >= 0.98 * summary["samples"]["recorded"]
    assert truncated_late(summary) <= 0.001 * summary["samples"]["recorded"], summary["unwind"]
