"""Python frames in call paths, beside other tools: how many paths have them, how many are
impossible, and how much a tight loop slows down.

``tests/support/python_pairs.py`` says what is impossible. Loop turns are counted by CPU second, in
turns with and without the tool. Of the other tools those that the machine has are tried; py-spy and
perf read samples only, hpcd waits too. perf needs an interpreter that is started with ``-X perf``.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, ROOT, sized
from tests.support.interpreters import interpreters
from tests.support.python_pairs import PAIRS, PairCounts, count_pairs, impossible

_PACE = ROOT / "tests/programs/python_pace.py"
_SECONDS, _TURNS = sized((3, 3), (1, 1))
_RATE = 1000
_SPY_FRAME = re.compile(r"(\S+) \(.*?python_pairs\.py:\d+\)")
_PERF_FRAME = re.compile(r"py::(\S+?):.*python_pairs\.py")


def _hpcd(pid: int, output: Path) -> list[str]:
    return [*HPCD, "attach", "-p", str(pid), "-F", str(_RATE), "--duration", str(_SECONDS),
            "-o", str(output)]  # fmt: skip


def _py_spy(pid: int, output: Path) -> list[str]:
    return ["py-spy", "record", "-p", str(pid), "-r", str(_RATE), "-d", str(_SECONDS),
            "-f", "raw", "-o", str(output)]  # fmt: skip


def _perf(pid: int, output: Path) -> list[str]:
    return ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(_RATE), "-g", "-p", str(pid),
            "-o", str(output), "--", "sleep", str(_SECONDS)]  # fmt: skip


def _counted(paths: Iterable[tuple[list[str], int]]) -> PairCounts:
    """Count the impossible pairs of paths, each of the program's functions, the outermost first."""
    counts = PairCounts()
    for path, number in paths:
        counts.records += number
        counts.with_program += number if path else 0
        if path and (what := impossible(path, whole=True)):
            counts.impossible[what] += number
    return counts


def _of_py_spy(output: Path) -> PairCounts:
    rows = (line.rpartition(" ") for line in output.read_text().splitlines())
    paths: Counter[tuple[str, ...]] = Counter()
    for frames, _, number in rows:
        named = (_SPY_FRAME.fullmatch(frame.strip()) for frame in frames.split(";"))
        paths[tuple(match[1].rpartition(".")[2] for match in named if match)] += int(number)
    return _counted((list(path), number) for path, number in paths.items())


def _of_perf(output: Path) -> PairCounts:
    command = ["perf", "script", "-i", str(output), "-F", "comm,ip,sym"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    samples = (sample.splitlines() for sample in text.split("\n\n") if sample.strip())
    named = ([_PERF_FRAME.search(line) for line in lines] for lines in samples)
    return _counted(
        ([match[1].rpartition(".")[2] for match in reversed(row) if match], 1) for row in named
    )


_Command = Callable[[int, Path], list[str]]
_TOOLS: dict[str, tuple[_Command, Callable[[Path], PairCounts], list[str]]] = {
    "hpcd": (_hpcd, count_pairs, []),
    "py-spy": (_py_spy, _of_py_spy, []),
    "py-spy --native": (lambda *of: [*_py_spy(*of), "--native"], _of_py_spy, []),
    "perf -X perf": (_perf, _of_perf, ["-X", "perf"]),
}


def _pairs(tool: str, python: list[str], folder: Path) -> PairCounts | None:
    """Return the counts of pairs by a tool; None if it fails."""
    command, read, options = _TOOLS[tool]
    output = folder / f"{tool.replace(' ', '')}-pairs"
    program = [*python, *options, str(PAIRS), "600"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            if not process.stdout or process.stdout.readline() != "ready\n":
                return None
            done = subprocess.run(command(process.pid, output), capture_output=True, text=True)
            return read(output) if done.returncode == 0 and output.exists() else None
        finally:
            process.kill()


def _slowdown(tool: str, python: list[str], folder: Path) -> float:
    """The share of a tight loop's pace that is lost while the tool records, the median of turns."""
    command, _, options = _TOOLS[tool]
    program = [*python, *options, str(_PACE), str(_SECONDS / 8)]
    lost = []
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            for turn in range(_TURNS):
                alone = [float(process.stdout.readline()) for _ in range(3)][1:]
                output = folder / f"{tool.replace(' ', '')}-{turn}"
                with subprocess.Popen(
                    command(process.pid, output),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                ) as recorder:
                    # The first are from before it records.
                    beside = []
                    while recorder.poll() is None:
                        beside.append(float(process.stdout.readline()))
                lost.append(1 - statistics.median(beside[2:-1] or beside) / statistics.mean(alone))
        finally:
            process.kill()
    return statistics.median(lost)


def run() -> Table:
    """The table."""
    table = Table(title=f"Python frames, {_SECONDS} s at {_RATE} Hz; a tight loop's loss of pace")
    for heading in ("CPython", "tool", "paths/s", "with Python", "impossible", "slower"):
        table.add_column(heading, justify="left" if heading in ("CPython", "tool") else "right")
    with tempfile.TemporaryDirectory() as name:
        for version, start in interpreters().items():
            # Unpacked interpreters are started by a loader, of which other tools know nothing.
            python = [str(word) for word in start]
            for tool in _TOOLS:
                if not shutil.which(tool.split()[0]) and tool != "hpcd":
                    continue
                folder = Path(tempfile.mkdtemp(dir=name))
                counts = _pairs(tool, python, folder)
                if counts is None:
                    table.add_row(version, tool, "fails", "", "", "")
                    continue
                loss = _slowdown(tool, python, folder)
                wrong = counts.impossible.total()
                table.add_row(
                    version,
                    tool,
                    f"{counts.records / _SECONDS:,.0f}",
                    f"{counts.with_program / max(counts.records, 1):.2%}",
                    f"{wrong:,} ({wrong / max(counts.with_program, 1):.2%})",
                    f"{loss:.1%}",
                )
    return table
