"""The programs that are measured, and the peers they are measured with."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.support.lammps import ENVIRONMENT, MPIRUN, melt

ROOT = Path(__file__).parents[1]
HPCD = [sys.executable, "-m", "hpcd"]

# Set by ``python -m benchmarks --smallest`` before any benchmark is imported.
SMALLEST = "HPCD_BENCH_SMALLEST"

NUMPY = """
import numpy, time
end = time.monotonic() + {seconds}
a = numpy.random.rand(250, 250)
while time.monotonic() < end:
    numpy.linalg.svd(a @ a)
    sorted(range(20000), key=lambda x: -x)
"""


_Size = TypeVar("_Size")


def sized(usual: _Size, smallest: _Size) -> _Size:
    """A benchmark's size: ``usual``, or ``smallest`` where it is only to be seen to work."""
    return smallest if os.environ.get(SMALLEST) else usual


@dataclass(frozen=True)
class Workload:
    """A command and the folder it runs in."""

    name: str
    command: list[str]
    folder: Path


def scratch() -> Path:
    """A folder on a disk, as /tmp need not be, that git does not look into."""
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    return folder


def build(folder: Path, source: str, compiler: str = "") -> str:
    """Compile tests/programs/``source`` as distributions do: optimised, without frame pointers; by
    ``compiler``, else that of its language."""
    target = folder / Path(source).stem
    compiler = compiler or ("g++" if source.endswith(".cpp") else "gcc")
    flags = ["-O2", "-fomit-frame-pointer", "-pthread", "-o", str(target)]
    subprocess.run([compiler, *flags, str(ROOT / "tests/programs" / source)], check=True)
    return str(target)


def hpcc(folder: Path, size: int = 3500) -> Workload:
    """HPC Challenge on two ranks."""
    demo = (ROOT / "setup/demo.sh").read_text()
    text = demo.split("<<'INPUT'\n")[1].split("INPUT\n")[0].replace("3500", str(size))
    (folder / "hpccinf.txt").write_text(text)
    return Workload("hpcc (mpirun -n 2)", [*MPIRUN, "hpcc"], folder)


def lammps(folder: Path, steps: int = 3000) -> Workload:
    """A Lennard-Jones melt on two ranks."""
    return Workload("lammps (mpirun -n 2)", melt(folder, steps), folder)


def real_programs(folder: Path, seconds: int = sized(10, 3)) -> list[Workload]:
    """The programs whose call paths must be whole."""
    xz = "head -c 90000000 /dev/urandom | xz -T2 -3 > /dev/null"
    commands = {
        "C++ templates, exceptions": [build(folder, "templates.cpp"), str(seconds)],
        "pthread, qsort, recursion": [build(folder, "paths.c"), str(seconds), "1"],
        "xz -T2": ["sh", "-c", xz],
        "CPython with numpy": ["/usr/bin/python3", "-c", NUMPY.format(seconds=seconds)],
    }
    own = [Workload(name, command, folder) for name, command in commands.items()]
    return sized([hpcc(folder), lammps(folder), *own], own[:1])


def run(workload: Workload, *prefix: str) -> float:
    """CPU seconds of the program and its children, ``prefix`` before its command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*prefix, *workload.command],
        cwd=workload.folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def hpcd_attach(workload: Workload, frequency: int = 997) -> tuple[dict[str, Any], int]:
    """(summary, bytes on disk) of a recording that begins when the program is under way."""
    folder = Path(tempfile.mkdtemp())
    program = subprocess.Popen(
        workload.command, cwd=workload.folder, env=ENVIRONMENT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(1)  # its libraries are loaded by then: what is measured is not how it starts
        done = subprocess.run(
            [*HPCD, "attach", "--json", "-F", str(frequency), "-o", str(folder / "m"),
             "--pid", str(program.pid)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        size = sum(file.stat().st_size for file in (folder / "m").iterdir())
        return json.loads(done.stdout.splitlines()[-1]), size
    finally:
        program.kill()
        program.wait()
        shutil.rmtree(folder)
