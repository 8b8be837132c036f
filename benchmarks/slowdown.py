"""What sampling costs the sampled program: work done a CPU second, with and without a recorder."""

from __future__ import annotations

import mmap
import random
import signal
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, build

ROUNDS = 20
SLOT_SECONDS = 1.5
DEPTHS = (15, 64)


class Pace:
    """A program that counts its work; how fast it is can be asked at any moment."""

    def __init__(self, folder: Path, depth: int) -> None:
        counter = folder / "count"
        self.program = subprocess.Popen([build(folder, "pace.c"), str(counter), str(depth)])
        while not counter.exists() or counter.stat().st_size < 8:
            time.sleep(0.01)
        with counter.open("rb") as file:
            self._count = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)

    def _reading(self) -> tuple[int, int]:
        ran = Path(f"/proc/{self.program.pid}/schedstat").read_text().split()[0]
        return struct.unpack("<Q", self._count[:])[0], int(ran)

    def slot(self) -> float:
        """Work done a CPU second in the next :data:`SLOT_SECONDS`: waiting does not count."""
        count, ran = self._reading()
        time.sleep(SLOT_SECONDS)
        count_then, ran_then = self._reading()
        return (count_then - count) / (ran_then - ran) * 1e9

    def close(self) -> None:
        """End the program."""
        self.program.kill()
        self.program.wait()


@contextmanager
def recording(command: list[str], ready: str | None) -> Iterator[None]:
    """A recorder at work; ``ready`` is in the line it says when it is (None: half a second)."""
    recorder = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert recorder.stderr
    try:
        if ready is None:
            time.sleep(0.5)
        else:
            for line in recorder.stderr:
                if ready in line:
                    break
        yield
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.stderr.read()
        recorder.wait()


def run() -> Table:
    """The table: slots with each recorder between slots without, in random order."""
    table = Table(title=f"Slowdown at 997 Hz, {ROUNDS} slots of {SLOT_SECONDS} s between bare ones")
    for heading in ("call depth", "recorder", "median slowdown", "standard error", "quartiles"):
        table.add_column(heading, justify="left" if heading == "recorder" else "right")
    for depth in DEPTHS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            pace = Pace(folder, depth)
            pid = str(pace.program.pid)
            output = str(folder / "out")
            perf = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "997", "-p", pid, "-o", output]
            recorders = {
                "hpcd attach": ([*HPCD, "attach", "--pid", pid, "-o", output], "attached"),
                "perf record -g": ([*perf, "-g"], None),
                "perf record dwarf": ([*perf, "--call-graph", "dwarf,8192"], None),
            }
            slowdowns: dict[str, list[float]] = {label: [] for label in recorders}
            try:
                before = pace.slot()
                for _ in range(ROUNDS):
                    for label in random.sample(list(recorders), len(recorders)):
                        command, ready = recorders[label]
                        subprocess.run(["rm", "-rf", output], check=True)
                        with recording(command, ready):
                            speed = pace.slot()
                        after = pace.slot()
                        slowdowns[label].append((before + after) / 2 / speed - 1)
                        before = after
            finally:
                pace.close()
        for label, values in slowdowns.items():
            low, _, high = statistics.quantiles(values, n=4)
            error = 1.25 * statistics.stdev(values) / len(values) ** 0.5
            table.add_row(
                str(depth + 3), label, f"{statistics.median(values):.2%}", f"{error:.2%}",
                f"{low:.2%} to {high:.2%}",
            )  # fmt: skip
    return table
