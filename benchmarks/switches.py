"""Slowdown of a program that does nothing but switch, beside recorders of waits.

Pairs of threads pass a byte to and fro. What a recorder costs them is in the CPU time that an
exchange takes, which other programs on the machine hardly change. Recorders take turns, each in
another place of every round, and the median of the rounds counts.
"""

from __future__ import annotations

import signal
import statistics
import struct
import subprocess
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, build, scratch, sized

ROUNDS, SECONDS, PAIRS = sized(7, 1), sized(1.0, 0.1), 3
# Peers do not say when they begin: bcc's compile their programs first.
PEER_SECONDS = sized(8.0, 0.5)
_OTHERS = "hpcd attach, of another program"
_PEERS = {
    "perf sched record": ["perf", "sched", "record", "-o", "{output}"],
    "wakeuptime": ["wakeuptime-bpfcc", "-f", "-p", "{pid}"],
    "offwaketime": ["offwaketime-bpfcc", "-f", "-p", "{pid}"],
}
_ALL = {
    "none": [],
    "hpcd attach --no-blocked": ["--no-blocked"],
    "hpcd attach --no-wakers": ["--no-wakers"],
    "hpcd attach": [],
    f"{_OTHERS} --no-wakers": ["--no-wakers"],
    _OTHERS: [],
    **_PEERS,
}
RECORDERS = dict(sized([*_ALL.items()], [*_ALL.items()][:4]))


class Exchanges:
    """The program, and another one that sleeps."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._counter = folder / "count"
        command = [build(folder, "exchanges.c"), str(self._counter), str(PAIRS)]
        self.pid, self.other = (
            self._start(stack, words) for words in (command, ["sleep", "1000000"])
        )

    @staticmethod
    def _start(stack: ExitStack, command: list[str]) -> int:
        process = subprocess.Popen(command)
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process.pid

    def reading(self) -> tuple[int, int]:
        """(exchanges, CPU time in ns) so far."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        ran = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
        return sum(struct.unpack(f"<{PAIRS}Q", self._counter.read_bytes())), ran

    def cost(self) -> tuple[float, float]:
        """(ns of CPU time for an exchange, exchanges a second) from now on for a while."""
        begun, (before, ran_before) = time.monotonic(), self.reading()
        time.sleep(SECONDS)
        count, ran = self.reading()
        done = max(count - before, 1)
        return (ran - ran_before) / done, done / (time.monotonic() - begun)


def beside(label: str, program: Exchanges, folder: Path) -> tuple[float, float] | None:
    """:meth:`Exchanges.cost` beside a recorder; None where that does not work here."""
    if label == "none":
        return program.cost()
    pid = program.other if label.startswith(_OTHERS) else program.pid
    words = RECORDERS[label]
    if label in _PEERS:
        command = [word.format(output=folder / "m", pid=pid) for word in words]
    else:
        command = [*HPCD, "attach", *words, "-p", str(pid), "-o", str(folder / "m")]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        if label in _PEERS:
            time.sleep(PEER_SECONDS)
        else:
            process.stderr.readline()
        measured = program.cost() if process.poll() is None else None
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    return measured


def run() -> Table:
    """The table. The first column is the CPU time of an exchange by that of the program alone."""
    table = Table(
        title=f"{PAIRS} pairs of threads that pass a byte to and fro; {ROUNDS} rounds in turns"
    )
    for heading in ("beside", "CPU time", "least, most", "ns an exchange", "switches a second"):
        table.add_column(heading, justify="left" if heading == "beside" else "right")
    costs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    labels = [*RECORDERS]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch())))
        program = Exchanges(folder, stack)
        for turn in range(ROUNDS):
            for label in labels[turn % len(labels) :] + labels[: turn % len(labels)]:
                with tempfile.TemporaryDirectory(dir=folder) as name:
                    measured = beside(label, program, Path(name))
                if measured:
                    costs[label].append(measured)
    alone = statistics.median(cost for cost, _ in costs["none"])
    for label in labels:
        if not costs[label]:
            table.add_row(label, "does not work here")
            continue
        cost, rate = (statistics.median(column) for column in zip(*costs[label], strict=True))
        ratios = sorted(one / alone for one, _ in costs[label])
        table.add_row(
            label, f"{cost / alone:.2f}", f"{ratios[0]:.2f}, {ratios[-1]:.2f}", f"{cost:,.0f}",
            f"{2 * rate:,.0f}",
        )  # fmt: skip
    return table
