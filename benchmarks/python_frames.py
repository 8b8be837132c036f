"""Python frames in call paths: how many paths have them, how many are impossible, and how much a
tight loop slows down, beside other tools; and by version of CPython.

``tests/support/python_pairs.py`` says what is impossible. A path is whole if it begins where its
thread does. The rate is that of samples: a second of CPU time where the tool samples CPUs (hpcd,
perf), a second of the recording where it visits the process; visits that failed count as paths that
are not whole. hpcd's paths are those of samples and of waits. Loop turns are counted by second in
which the loop ran or was stopped, in turns with and without the tool.

Of the other tools those that the machine has are tried: py-spy, perf with an interpreter that is
started with ``-X perf``, and the profiler that 3.15 brings.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.table import Table

from benchmarks.workloads import HPCD, ROOT, sized
from tests.support.interpreters import interpreters
from tests.support.python_pairs import PAIRS, PairCounts, begins_thread, count_pairs, impossible

_PACE = ROOT / "tests/programs/python_pace.py"
_SECONDS, _TURNS = sized((4, 5), (1, 1))
_RATE = 1000
# Where the tables by tool are made: the last that py-spy reads and perf has names of, and the last.
_COMPARED = ("3.12", "3.15")
# By version, until there are so many samples and so many waits.
_RECORDS, _RECORDS_RATE, _RECORDS_SECONDS = sized((100_000, 9999, 10), (100, 2000, 1))
_SPY_FRAME = re.compile(r"(\S+) \(.*?python_pairs\.py:\d+\)")
_PERF_FRAME = re.compile(r"py::(\S+?):.*python_pairs\.py")
_OWN_FRAME = re.compile(r"python_pairs\.py:(.*):\d+")


@dataclass
class _Reading:
    """``counts`` of the pairs of the paths that a tool recorded, ``rate`` in samples a second."""

    counts: PairCounts
    rate: float


@dataclass(frozen=True)
class _Tool:
    """``command`` has the interpreter, a pid and the file that is written; ``read`` that file and
    what the command said. ``options`` are the interpreter's."""

    command: Callable[[list[str], int, Path], list[str]]
    read: Callable[[Path, str], _Reading]
    options: tuple[str, ...] = ()


def _hpcd(_: list[str], pid: int, output: Path) -> list[str]:
    return [*HPCD, "attach", "--json", "-p", str(pid), "-F", str(_RATE), "-d", str(_SECONDS),
            "-o", str(output)]  # fmt: skip


def _py_spy(_: list[str], pid: int, output: Path) -> list[str]:
    return ["py-spy", "record", "-p", str(pid), "-r", str(_RATE), "-d", str(_SECONDS),
            "-f", "raw", "-o", str(output)]  # fmt: skip


def _perf(_: list[str], pid: int, output: Path) -> list[str]:
    # It says the CPU time of each thread while it records.
    times = f"cat /proc/{pid}/task/*/schedstat"
    script = f"{times}; echo; sleep {_SECONDS}; {times}"
    return ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(_RATE), "-g", "-p", str(pid),
            "-o", str(output), "--", "sh", "-c", script]  # fmt: skip


def _own(python: list[str], pid: int, output: Path) -> list[str]:
    return [*python, "-m", "profiling.sampling", "attach", "-a", "-r", str(_RATE),
            "-d", str(_SECONDS), "--collapsed", "-o", str(output), str(pid)]  # fmt: skip


def _counted(paths: Iterable[tuple[list[str], int]]) -> PairCounts:
    """Count the impossible pairs of paths, each of the program's functions, the outermost first."""
    counts = PairCounts()
    for path, number in paths:
        counts.records += number
        counts.with_program += number if path else 0
        counts.whole += number if begins_thread(path) else 0
        if path and (what := impossible(path, whole=False)):
            counts.impossible[what] += number
    return counts


def _of_rows(output: Path, frame: re.Pattern[str], failed: int) -> PairCounts:
    """The paths of a file with one a line, frames between semicolons, then its number."""
    rows = (line.rpartition(" ") for line in output.read_text().splitlines())
    paths: Counter[tuple[str, ...]] = Counter({(): failed})
    for frames, _, number in rows:
        named = (frame.fullmatch(text.strip()) for text in frames.split(";"))
        paths[tuple(match[1].rpartition(".")[2] for match in named if match)] += int(number)
    return _counted((list(path), number) for path, number in paths.items())


def _number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    return float(match[1]) if match else 0.0


def _of_hpcd(output: Path, said: str) -> _Reading:
    samples = json.loads(said.splitlines()[-1])["samples"]
    counts = count_pairs(output, metrics=("cpu_time", "blocked_time"))
    return _Reading(counts, _RATE * samples["taken"] / max(samples["expected"], 1))


def _of_py_spy(output: Path, said: str) -> _Reading:
    taken, failed = _number(r"Samples: (\d+)", said), _number(r"Errors: (\d+)", said)
    return _Reading(_of_rows(output, _SPY_FRAME, int(failed)), taken / _SECONDS)


def _of_own(output: Path, said: str) -> _Reading:
    taken = _number(r"Captured (\d+) samples", said)
    failed = taken * _number(r"Error rate: ([\d.]+)", said) / 100
    return _Reading(_of_rows(output, _OWN_FRAME, int(failed)), (taken - failed) / _SECONDS)


def _of_perf(output: Path, said: str) -> _Reading:
    ran = [[int(row.split()[0]) for row in part.splitlines()] for part in said.split("\n\n")]
    command = ["perf", "script", "-i", str(output), "-F", "comm,ip,sym"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    samples = (sample.splitlines() for sample in text.split("\n\n") if sample.strip())
    named = ([_PERF_FRAME.search(line) for line in lines] for lines in samples)
    counts = _counted(
        ([match[1].rpartition(".")[2] for match in reversed(row) if match], 1) for row in named
    )
    return _Reading(counts, counts.records * 1e9 / max(sum(ran[1]) - sum(ran[0]), 1))


_TOOLS = {
    "hpcd": _Tool(_hpcd, _of_hpcd),
    "py-spy": _Tool(_py_spy, _of_py_spy),
    "py-spy --native": _Tool(lambda *of: [*_py_spy(*of), "--native"], _of_py_spy),
    "profiling.sampling": _Tool(_own, _of_own),
    "perf -g, -X perf": _Tool(_perf, _of_perf, ("-X", "perf")),
}


def _has(tool: str, python: list[str]) -> bool:
    if tool == "profiling.sampling":
        command = [*python, "-c", "import profiling.sampling"]
        return not subprocess.run(command, capture_output=True).returncode
    return tool == "hpcd" or shutil.which(tool.split()[0]) is not None


def _pairs(tool: _Tool, python: list[str], folder: Path) -> _Reading | None:
    """Return what a tool has of the program with known callers; None if it fails."""
    program = [*python, *tool.options, str(PAIRS), "600"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            if not process.stdout or process.stdout.readline() != "ready\n":
                return None
            command = tool.command(python, process.pid, folder / "pairs")
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode or not (folder / "pairs").exists():
                return None
            return tool.read(folder / "pairs", done.stdout or done.stderr)
        finally:
            process.kill()


def _slowdown(tool: _Tool, python: list[str], folder: Path) -> float:
    """The share of a tight loop's pace that is lost while the tool records, the median of turns."""
    program = [*python, *tool.options, str(_PACE), str(_SECONDS / 16)]
    lost = []
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            for turn in range(_TURNS):
                alone = [float(process.stdout.readline()) for _ in range(7)][1:]
                with subprocess.Popen(
                    tool.command(python, process.pid, folder / str(turn)),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                ) as recorder:
                    # The first are from before it records.
                    beside = []
                    while recorder.poll() is None:
                        beside.append(float(process.stdout.readline()))
                inside = beside[3:-2] or beside
                lost.append(1 - statistics.median(inside) / statistics.median(alone))
        finally:
            process.kill()
    return statistics.median(lost)


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for heading in headings:
        left = heading in ("CPython", "tool")
        table.add_column(heading, justify="left" if left else "right")
    return table


def _share(number: int, counts: PairCounts) -> str:
    return f"{number / max(counts.records, 1):.2%}"


def _beside_other_tools(folder: Path) -> Table:
    table = _table(
        f"Python frames, {_SECONDS} s at {_RATE} Hz; a tight loop's loss of pace",
        "CPython", "tool", "paths", "samples/s", "whole", "impossible", "slower",
    )  # fmt: skip
    starts = interpreters()
    for version in [v for v in _COMPARED if v in starts] or list(starts)[-1:]:
        # Unpacked interpreters are started by a loader, of which other tools know nothing.
        python = [str(word) for word in starts[version]]
        for name, tool in _TOOLS.items():
            if not _has(name, python):
                continue
            print(f"CPython {version}: {name}", flush=True)
            own = Path(tempfile.mkdtemp(dir=folder))
            reading = _pairs(tool, python, own)
            if reading is None:
                table.add_row(version, name, "fails", "", "", "", "")
                continue
            counts = reading.counts
            table.add_row(
                version,
                name,
                f"{counts.records:,}",
                f"{reading.rate:,.0f}",
                _share(counts.whole, counts),
                f"{counts.impossible.total():,}",
                f"{_slowdown(tool, python, own):.1%}",
            )
    return table


def _sum(one: PairCounts, other: PairCounts) -> PairCounts:
    return PairCounts(
        one.records + other.records,
        one.with_python + other.with_python,
        one.with_program + other.with_program,
        one.whole + other.whole,
        one.gone + other.gone,
        one.impossible + other.impossible,
    )


def _by_version(folder: Path) -> Table:
    table = _table(
        f"hpcd by version of CPython, at {_RECORDS_RATE} Hz",
        "CPython", "samples", "whole", "impossible", "waits", "whole", "impossible",
    )  # fmt: skip
    for version, start in interpreters().items():
        counts = {"cpu_time": PairCounts(), "blocked_time": PairCounts()}
        program = [*map(str, start), str(PAIRS), "100000"]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                process.stdout.readline()
                while any(of.records < _RECORDS for of in counts.values()):
                    output = folder / f"{version}-{counts['cpu_time'].records}"
                    options = ["-F", str(_RECORDS_RATE), "-d", str(_RECORDS_SECONDS)]
                    command = ["attach", "-p", str(process.pid), *options, "-o", str(output)]
                    subprocess.run([*HPCD, *command], capture_output=True, check=True)
                    for metric, of in counts.items():
                        counts[metric] = _sum(of, count_pairs(output, metrics=(metric,)))
                    shutil.rmtree(output)
                    progress = [
                        f"{of.records:,} records of {metric}, {of.impossible.total()} impossible"
                        for metric, of in counts.items()
                    ]
                    print(f"CPython {version}: {', '.join(progress)}", flush=True)
            finally:
                process.kill()
        columns = [
            [f"{of.records:,}", _share(of.whole, of), f"{of.impossible.total():,}"]
            for of in counts.values()
        ]
        table.add_row(version, *columns[0], *columns[1])
    return table


def run() -> Group:
    """The tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return Group(_beside_other_tools(folder), _by_version(folder))
