"""The whole node recorded under mixed load: what hpcd costs, beside perf record and offcputime.

python -m benchmarks node               a minute each
HPCD_BENCH_SECONDS=600 python -m benchmarks node
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
from rich.table import Table

from benchmarks.workloads import HPCD, build, scratch, sized
from tests.support.lammps import ENVIRONMENT, MPIRUN

SECONDS = int(os.environ.get("HPCD_BENCH_SECONDS", sized("60", "1")))
PROGRAM = Path(__file__).resolve().parent.parent / "tests" / "programs" / "imbalance.c"


@contextmanager
def load(folder: Path) -> Iterator[None]:
    """Programs that compute, wait, start others and read files, for a third of two CPUs each."""
    parallel = folder / "imbalance"
    subprocess.run(["mpicc.openmpi", "-O2", "-o", parallel, PROGRAM], check=True)
    ever = str(10 * SECONDS + 600)
    commands = [
        [build(folder, "waits.c"), ever, "20", str(folder / "file")],
        [build(folder, "churn.c"), ever, "200", "10", "0", "-"],
        [*MPIRUN, str(parallel), "1000000", "5"],
        ["sh", "-c", "while :; do sleep 0.2; xz -0 -c /bin/bash >/dev/null; done"],
    ]
    with ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=ENVIRONMENT,
                start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def run() -> Table:
    """The table. CPU is the recorder's own processes' from when it samples on, preparation apart;
    of the kernel's part only hpcd tells."""
    table = Table(title=f"The node under mixed load, {SECONDS} s each; CPU as a share of all CPUs")
    for heading in (
        "recorder",
        "its CPU",
        "to prepare",
        "in the kernel",
        "memory, MB",
        "written, MB",
        "lost",
    ):
        table.add_column(heading, justify="left" if heading == "recorder" else "right")
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        folder = Path(name)
        with load(folder):
            for rate in sized(("99", "997"), ("99",)):
                table.add_row(*hpcd(folder / f"hpcd-{rate}", rate))
                table.add_row(*perf(folder / f"perf-{rate}", rate))
            table.add_row(*offcputime(folder / "offcputime"))
    return table


def hpcd(output: Path, rate: str) -> list[str]:
    """``hpcd attach --all``, waits included."""
    command = [
        *HPCD,
        "attach",
        "--all",
        "--json",
        "-F",
        rate,
        "-d",
        str(SECONDS),
        "-o",
        str(output),
    ]
    out, cpu, before, memory = watched(command, ready="attached")
    summary = json.loads(out)
    return [
        f"hpcd attach --all -F {rate}",
        share(cpu - before),
        f"{before:.1f} s",
        share(summary["overhead"]["bpf_s"]),
        memory,
        megabytes(output),
        f"{sum(summary['samples']['dropped'].values()):,} of {summary['samples']['taken']:,}",
    ]


def perf(output: Path, rate: str) -> list[str]:
    """``perf record -a -g``: CPU samples only, paths by frame pointers."""
    command = ["perf", "record", "-q", "-a", "-g", "-e", "cpu-clock", "-F", rate, "-o", str(output),
               "--", "sleep", str(SECONDS)]  # fmt: skip
    _, cpu, _, memory = watched(command)
    return [f"perf record -a -g -F {rate}", share(cpu), "", "?", memory, megabytes(output), ""]


def offcputime(output: Path) -> list[str]:
    """bcc's ``offcputime``: waits only, summed by path."""
    out, cpu, _, memory = watched(["offcputime-bpfcc", "-f", str(SECONDS)])
    output.write_text(out)
    return ["offcputime-bpfcc", share(cpu), "", "?", memory, megabytes(output), ""]


def watched(command: list[str], ready: str = "") -> tuple[str, float, float, str]:
    """What a command prints, its CPU seconds, those of them before it said ``ready``, its memory
    in MB at four moments from then on."""
    process = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    before = 0.0
    if ready:
        assert ready in process.stderr.readline()
        times = [member.cpu_times() for member in (process, *process.children(recursive=True))]
        own = times[0]
        before = sum(time.user + time.system for time in times)
        before += own.children_user + own.children_system
    held: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SECONDS / 5):
            with suppress(psutil.Error):
                held.append(process.memory_info().rss / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out = process.stdout.read()
    process.stderr.read()
    _, _, usage = os.wait4(process.pid, 0)
    ended.set()
    watcher.join()
    cpu = usage.ru_utime + usage.ru_stime
    return out, cpu, before, " → ".join(f"{seconds:.0f}" for seconds in held[:4])


def share(seconds: float) -> str:
    """Of all CPUs in the time of a recording."""
    return f"{100 * seconds / SECONDS / (os.cpu_count() or 1):.2f}%"


def megabytes(path: Path) -> str:
    """Size of a file or directory."""
    files = path.iterdir() if path.is_dir() else [path]
    return f"{sum(file.stat().st_size for file in files) / 1e6:.2f}"
