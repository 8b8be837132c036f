"""Cost of the in-kernel walk a sample, beside the kernel's own frame pointer walk; and with Python
frames.

The two take turns, and the median round of each counts: other users of the processor's caches
change what a walk costs from one second to the next.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD, ROOT, sized
from hpcd.bpf.kernel import libbpf, syscalls
from hpcd.bpf.loading.loader import Programs
from tests.support.interpreters import interpreters

_SECONDS, _ROUNDS = sized((2, 5), (1, 1))
_FRAMES = sized((12, 19, 68, 200), (12,))
_PACE = ROOT / "tests/programs/python_pace.py"
_SOURCE = "frame_pointers.bpf.c"


def compile_chain(folder: Path, *flags: str) -> str:
    """A program that spends its time at a given depth."""
    source, target = ROOT / "tests/programs/deep.c", folder / f"chain{len(flags)}{flags[0]}"
    subprocess.run(["gcc", "-O2", *flags, "-o", str(target), str(source)], check=True)
    return str(target)


def walk_cost(program: str, depth: int, folder: Path) -> float:
    """µs of BPF time a sample while ``program`` runs at ``depth``."""
    return _cost(folder, "run", "--", program, str(_SECONDS), str(depth))


def python_cost(python: list[str], folder: Path) -> float:
    """µs of BPF time a sample of a loop at about 20 native and 20 Python frames."""
    # It ends by itself, as the recording is to have no part of an attachment's time.
    program = [*python, str(_PACE), str(_SECONDS / 4), "4"]
    return _cost(folder, "run", "--no-blocked", "--", *program)


def _cost(folder: Path, command: str, *arguments: str) -> float:
    output = folder / f"m{time.monotonic_ns()}"
    recorded = [*HPCD, command, "--json", "-o", str(output), *arguments]
    done = subprocess.run(recorded, capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    overhead = summary["overhead"]
    seconds = float(overhead["bpf_s"]) - float(overhead["bpf_switches_s"])
    return 1e6 * seconds / int(summary["samples"]["taken"])


def frame_pointer_cost(program: str, depth: int) -> float:
    """Measure a program that has frame pointers with a sampler that follows those."""
    programs = Programs(str(Path(__file__).with_name(_SOURCE)), {}, ["frame_pointers"], [], [])
    stats = libbpf.enable_stats()
    process = subprocess.Popen([program, str(_SECONDS), str(depth)])
    event = syscalls.PerfEvent(
        syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, 997, flags=syscalls.DISABLED
    )
    fd = syscalls.perf_event_open(event, process.pid, -1)
    syscalls.perf_attach(fd, programs.fds["frame_pointers"])
    syscalls.perf_enable(fd)
    process.wait()
    info = libbpf.program_info(programs.fds["frame_pointers"])
    for descriptor in (fd, stats):
        os.close(descriptor)
    programs.close()
    return info.run_time_ns / 1e3 / max(info.run_cnt, 1)


def run() -> Table:
    """The table."""
    table = Table(title=f"BPF time a sample (kernel's statistics), µs, median of {_ROUNDS} rounds")
    for heading in ("frames", "hpcd (no frame pointers)", "frame pointer walk", "ratio"):
        table.add_column(heading, justify="right")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        without = compile_chain(folder, "-fomit-frame-pointer")
        with_pointers = compile_chain(
            folder, "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"
        )
        # _start, __libc_start_main, __libc_start_call_main and main come before the chain.
        for frames in _FRAMES:
            rounds = [
                (walk_cost(without, frames - 5, folder),
                 frame_pointer_cost(with_pointers, frames - 5))
                for _ in range(_ROUNDS)
            ]  # fmt: skip
            ratio = statistics.median(own / kernel for own, kernel in rounds)
            own, kernel = (statistics.median(costs) for costs in zip(*rounds, strict=True))
            table.add_row(f"{frames}", f"{own:.2f}", f"{kernel:.2f}", f"{ratio:.2f}")
        for version, start in interpreters().items():
            python = [str(word) for word in start]
            own = statistics.median(python_cost(python, folder) for _ in range(_ROUNDS))
            table.add_row(f"20 + 20 of Python {version}", f"{own:.2f}")
    return table
