"""What the in-kernel walk costs a sample, beside the kernel's own frame pointer walk.

The two take turns, and of each the median round counts: whoever else uses the processor's caches
changes what a walk costs from one second to the next.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from rich.table import Table

from benchmarks.workloads import HPCD
from hpcd.bpf import syscalls
from hpcd.bpf.loader import Programs

_SECONDS = 2
_ROUNDS = 5
_SOURCE = "frame_pointers.bpf.c"
_CHAIN = """
#include <stdlib.h>
#include <time.h>
__attribute__((noinline, noclone)) unsigned long down(int depth, unsigned long n)
{
	volatile char buffer[24];
	buffer[0] = (char)depth;
	if (depth == 0) {
		for (int i = 0; i < 100000; i++)
			n = n * 6364136223846793005UL + 1;
		return n;
	}
	unsigned long r = down(depth - 1, n + 1);
	__asm__ volatile("" : "+r"(r));
	return r + buffer[0];
}
int main(int argc, char **argv)
{
	unsigned long sum = 0;
	time_t end = time(NULL) + atoi(argv[1]);
	while (time(NULL) < end)
		sum += down(atoi(argv[2]), sum);
	return sum == 42;
}
"""


def compile_chain(folder: Path, *flags: str) -> str:
    """A program that spends its time at a given depth."""
    source, target = folder / "chain.c", folder / f"chain{len(flags)}{flags[0]}"
    source.write_text(_CHAIN)
    subprocess.run(["gcc", "-O2", *flags, "-o", str(target), str(source)], check=True)
    return str(target)


def walk_cost(program: str, depth: int, folder: Path) -> float:
    """µs of BPF time a sample while ``program`` runs at ``depth``."""
    import json

    output = folder / f"m{depth}-{time.monotonic_ns()}"
    done = subprocess.run(
        [*HPCD, "run", "--json", "-o", str(output), "--", program, str(_SECONDS), str(depth)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    summary = json.loads(done.stdout.splitlines()[-1])
    overhead = summary["overhead"]
    seconds = float(overhead["bpf_s"]) - float(overhead["bpf_switches_s"])
    return 1e6 * seconds / int(summary["samples"]["taken"])


def frame_pointer_cost(program: str, depth: int) -> float:
    """The same for a program that has frame pointers and a sampler that follows those."""
    programs = Programs(str(Path(__file__).with_name(_SOURCE)), {}, ["frame_pointers"], [], [])
    stats = syscalls.enable_stats()
    process = subprocess.Popen([program, str(_SECONDS), str(depth)])
    event = syscalls.PerfEvent(
        syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, 997, flags=syscalls.DISABLED
    )
    fd = syscalls.perf_event_open(event, process.pid, -1)
    syscalls.perf_attach(fd, programs.fds["frame_pointers"])
    syscalls.perf_enable(fd)
    process.wait()
    info = syscalls.program_info(programs.fds["frame_pointers"])
    for each in (fd, stats):
        import os

        os.close(each)
    programs.close()
    return info.run_ns / 1e3 / max(info.runs, 1)


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
        for frames in (12, 19, 68, 200):
            rounds = [
                (walk_cost(without, frames - 5, folder),
                 frame_pointer_cost(with_pointers, frames - 5))
                for _ in range(_ROUNDS)
            ]  # fmt: skip
            ratio = statistics.median(mine / theirs for mine, theirs in rounds)
            mine, theirs = (statistics.median(each) for each in zip(*rounds, strict=True))
            table.add_row(f"{frames}", f"{mine:.2f}", f"{theirs:.2f}", f"{ratio:.2f}")
    return table
