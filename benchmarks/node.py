"""The whole node recorded beside a parallel build and an MPI program: what that costs, and what
perf, OpenTelemetry's eBPF profiler and offcputime cost beside the same load.

python -m benchmarks node               25 s each
HPCD_BENCH_SECONDS=600 python -m benchmarks node

OpenTelemetry's profiler is run where it is installed as ``ebpf-profiler``; what it sends is taken
and counted (:mod:`benchmarks.otlp_sink`). What is not installed is left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.table import Table

from benchmarks.otlp_sink import receiver
from benchmarks.workloads import HPCD, build, scratch, sized
from hpcd.bpf.kernel import libbpf
from tests.support.lammps import ENVIRONMENT, melt

SECONDS = int(os.environ.get("HPCD_BENCH_SECONDS", sized("25", "1")))
# What has been recorded before is prepared once: the first recording is thrown away.
WARM_SECONDS = sized(10, 0)
UNITS = 24
SWITCHES = "sched:sched_switch"
_UNIT = """
#include <algorithm>
#include <map>
#include <string>
#include <vector>
template <int N> struct Part {{
    std::map<std::string, std::vector<int>> held;
    int sum() const {{
        int total = N;
        for (const auto &[name, values] : held)
            total += std::count_if(values.begin(), values.end(), [](int v) {{ return v > N; }});
        return total;
    }}
}};
int unit{number}(int a)
{{
    Part<{number}> part;
    part.held[std::to_string(a)].push_back(a);
    return part.sum();
}}
"""
_NAMES = (
    "recorder",
    "its CPU",
    "to begin, end",
    "BPF programs",
    "memory, MB",
    "written, MB",
    "samples",
    "lost",
)


@contextmanager
def load(folder: Path) -> Iterator[None]:
    """A build of C++ and C sources (make -j 2) over and over, LAMMPS on two ranks, and a program
    that waits in every way."""
    with ExitStack() as stack:
        for command in _commands(folder):
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                env=ENVIRONMENT, start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
        yield


def _commands(folder: Path) -> list[list[str]]:
    for number in range(UNITS):
        (folder / f"unit{number}.cpp").write_text(_UNIT.format(number=number))
        (folder / f"part{number}.c").write_text(
            f"int part{number}(int a) {{ return a * {number}; }}\n"
        )
    objects = " ".join(f"unit{number}.o part{number}.o" for number in range(UNITS))
    (folder / "Makefile").write_text(
        f"all: {objects}\n"
        "%.o: %.cpp\n\t@test -f $< && g++ -O1 -c $< -o $@\n"
        "%.o: %.c\n\t@test -f $< && gcc -O1 -c $< -o $@\n"
    )
    return [
        ["sh", "-c", "while make -B -j2; do :; done"],
        melt(folder, steps=100_000_000),
        [build(folder, "waits.c"), str(10 * SECONDS + 600), "20", str(folder / "file")],
    ]


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def run() -> Table:
    """The table. CPU is that of the recorder's own processes from when it samples until it is told
    to end; what the kernel does for it by itself (interrupts, copies of stacks) is not in it, but
    for the BPF programs it runs, of which the kernel keeps account."""
    table = Table(
        title=f"A node beside make -j 2 and LAMMPS on 2 ranks, {SECONDS} s each; shares of all CPUs"
    )
    for heading in _NAMES:
        table.add_column(heading, justify="left" if heading == "recorder" else "right")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch())))
        stack.callback(os.close, libbpf.enable_stats())
        stack.enter_context(load(folder))
        if WARM_SECONDS:
            hpcd(folder / "first", "99", WARM_SECONDS)
        for rate in sized(("99", "997"), ("99",)):
            table.add_row(*hpcd(folder / f"hpcd-{rate}", rate))
            table.add_row(*hpcd(folder / f"hpcd-cpu-{rate}", rate, SECONDS, "--no-blocked"))
            table.add_row(*perf(folder / f"perf-{rate}", rate, "fp"))
            table.add_row(*perf(folder / f"perf-dwarf-{rate}", rate, "dwarf"))
            table.add_row(*perf(folder / f"perf-waits-{rate}", rate, "fp", SWITCHES))
            if shutil.which("ebpf-profiler"):
                table.add_row(*opentelemetry(rate))
        table.add_row(*offcputime(folder / "offcputime"))
    if not shutil.which("ebpf-profiler"):
        table.caption = "OpenTelemetry's profiler is left out: no ebpf-profiler is installed."
    return table


def hpcd(output: Path, rate: str, seconds: int = SECONDS, *options: str) -> list[str]:
    """``hpcd attach --all``."""
    command = [*HPCD, "attach", "--all", "--json", "-F", rate, "-o", str(output), *options]
    used = watched(command, seconds, ready="attached")
    summary = json.loads(used.out)
    taken, dropped = summary["samples"]["taken"], summary["samples"]["dropped"]
    return [
        " ".join(["hpcd attach --all -F", rate, *options]),
        *used.columns(),
        megabytes(output),
        f"{taken:,}",
        f"{sum(dropped.values()):,}",
    ]


def perf(output: Path, rate: str, paths: str, *events: str) -> list[str]:
    """``perf record -a``: CPU samples, paths by frame pointers, or from copies of stacks that are
    unwound when they are read; with :data:`SWITCHES` a path for each wait, too, as hpcd has."""
    # A rate for all would be that of context switches, too.
    selected = [word for event in (f"cpu-clock/freq={rate}/", *events) for word in ("-e", event)]
    command = ["perf", "record", "-a", "--call-graph", paths, *selected,
               "-o", str(output), "--", "sleep", "1000"]  # fmt: skip
    used = watched(command, SECONDS)
    match = re.search(r"\((\d+) samples\)", used.err)
    return [
        " ".join(["perf record -a --call-graph", paths, *selected]),
        *used.columns(),
        megabytes(output),
        f"{int(match[1]):,}" if match else "?",
        "",
    ]


def opentelemetry(rate: str) -> list[str]:
    """OpenTelemetry's eBPF profiler: CPU samples only, paths by unwind tables as hpcd's."""
    with receiver() as received:
        command = ["ebpf-profiler", "-disable-tls", f"-collection-agent=127.0.0.1:{received.port}",
                   "-samples-per-second", rate]  # fmt: skip
        used = watched(command, SECONDS, ready="Attached sched monitor")
        sent = f"{received.bytes / 1e6:.2f}"
    return [f"ebpf-profiler (OpenTelemetry) {rate} Hz", *used.columns(), sent, "?", "?"]


def offcputime(output: Path) -> list[str]:
    """bcc's ``offcputime``: waits only, summed by path."""
    used = watched(["offcputime-bpfcc", "-f", "1000"], SECONDS)
    output.write_text(used.out)
    return ["offcputime-bpfcc", *used.columns(), megabytes(output), "", ""]


@dataclass
class Used:
    """Cost of a recorder: CPU seconds until it recorded, until it was asked to end, and at its end;
    seconds in BPF programs and MB of memory, each at some moments."""

    before: float
    until: float = 0.0
    total: float = 0.0
    seconds: float = SECONDS
    kernel: float = 0.0
    held: list[float] = field(default_factory=list)
    out: str = ""
    err: str = ""

    def columns(self) -> Sequence[str]:
        """CPU, that of beginning and ending, that of BPF programs, memory."""
        return (
            share(self.until - self.before, self.seconds),
            f"{self.before:.1f}, {self.total - self.until:.1f} s",
            share(self.kernel, self.seconds) if self.kernel else "",
            " → ".join(f"{size:.0f}" for size in self.held),
        )


def watched(command: list[str], seconds: float, ready: str = "") -> Used:
    """Run a command that records, and interrupt it ``seconds`` after it has said ``ready``."""
    process = psutil.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []
    recording = threading.Event()
    if not ready:
        recording.set()

    def listen() -> None:
        for line in process.stderr:
            lines.append(line)
            if ready in line:
                recording.set()

    listener = threading.Thread(target=listen)
    listener.start()
    out: list[str] = []
    reader = threading.Thread(target=lambda: out.append(process.stdout.read()))
    reader.start()
    assert recording.wait(120), "".join(lines)
    began, programs = time.monotonic(), bpf_seconds(process.pid)
    used = Used(cpu_seconds(process) if ready else 0.0, seconds=seconds)
    for part in range(1, 4):
        time.sleep(max(began + seconds * part / 3 - time.monotonic(), 0))
        with suppress(psutil.Error):
            used.held.append(process.memory_info().rss / 1e6)
    used.seconds = time.monotonic() - began
    used.until, used.kernel = cpu_seconds(process), bpf_seconds(process.pid) - programs
    process.send_signal(signal.SIGINT)
    _, _, usage = os.wait4(process.pid, 0)
    reader.join()
    listener.join()
    used.total = usage.ru_utime + usage.ru_stime
    used.out, used.err = "".join(out), "".join(lines)
    return used


def cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process, its children and what these have waited for, so far."""
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            times = member.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def bpf_seconds(pid: int) -> float:
    """Seconds that the BPF programs of a process have run, by the kernel's account of them."""
    total = 0
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(OSError):
            match = re.search(r"^run_time_ns:\s+(\d+)", info.read_text(), re.MULTILINE)
            total += int(match[1]) if match else 0
    return total / 1e9


def share(cpu: float, seconds: float) -> str:
    """Format CPU seconds as a share of all CPUs over ``seconds``."""
    return f"{100 * cpu / seconds / (os.cpu_count() or 1):.2f}%"


def megabytes(path: Path) -> str:
    """Size of a file or directory."""
    files = path.iterdir() if path.is_dir() else [path]
    return f"{sum(file.stat().st_size for file in files) / 1e6:.2f}"
