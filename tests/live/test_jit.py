"""Call paths and names of code made at run time, and of the languages people run for real."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hpcd.analysis as hpcd_analysis
from hpcd.analysis.database.check import check_database
from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from hpcd.model.identity import ModuleKind
from tests.support.recorded import call_paths, hpcd, record
from tests.support.tables import libraries_of_python, prepare_tables

pytestmark = pytest.mark.root

Path_ = tuple[str, ...]

_JAVASCRIPT = """
function innermost(n) {
  let s = 0;
  for (let i = 0; i < 5000; i++) s = (s * 31 + i * n) % 1000003;
  return s;
}
function middle(n) { return innermost(n) + innermost(n + 1); }
function outermost(n) { let t = 0; for (let i = 0; i < 50; i++) t += middle(n + i); return t; }
let sum = 0;
while (process.cpuUsage().user < 1.5e6) sum += outermost(sum % 7);
"""

_JAVA = """
public class Hot {
    static long innermost(long n) {
        long s = 0;
        for (int i = 0; i < 5000; i++) s = (s * 31 + i * n) % 1000003;
        return s;
    }
    static long middle(long n) { return innermost(n) + innermost(n + 1); }
    static long outermost(long n) {
        long t = 0;
        for (int i = 0; i < 50; i++) t += middle(n + i);
        return t;
    }
    public static void main(String[] args) throws Exception {
        long sum = 0;
        int calls = Integer.parseInt(args[0]);
        for (int i = 0; i < calls; i++) sum += outermost(sum % 7);
        System.out.println(sum);
    }
}
"""

_FORTRAN = """
module work
contains
  recursive subroutine descend(depth, x)
    integer, intent(in) :: depth
    real(8), intent(inout) :: x(:)
    integer :: i
    if (depth == 0) then
      do i = 1, 2000
        x = sqrt(abs(x) + dble(i))
      end do
      return
    end if
    call descend(depth - 1, x)
    x(1) = x(1) + depth
  end subroutine
end module
program hot
  use work
  real(8) :: x(64)
  real :: now, stop
  integer :: i
  x = 1
  call cpu_time(now)
  stop = now + 1
  do while (now < stop)
    do i = 1, 100
      call descend(5, x)
    end do
    call cpu_time(now)
  end do
  print *, sum(x)
end program
"""

_NUMPY = """
import time
import numpy
a = numpy.random.rand(200, 200)
def outermost():
    while time.thread_time() < 1.5:
        numpy.linalg.svd(a @ a)
        sorted(range(20000), key=lambda x: -x)
outermost()
"""


def program(name: str, package: str) -> str:
    """The path of a command; skips the test when its Debian package is not there."""
    executable = shutil.which(name)
    if executable is None:
        pytest.skip(f"needs {name}: apt-get install {package}")
    return executable


def named_paths(output: Path) -> Counter[Path_]:
    """Paths whose frames in code made at run time, and of Java, are named; others by module or
    ``!ending``."""
    with open_measurement(output) as measurement:
        cct = measurement.cct
        module, offset = frames.module_of(cct.frame), frames.offset_of(cct.frame)
        marker = frames.is_marker(cct.frame)
        names = []
        for number, where, marked in zip(
            module.tolist(), offset.tolist(), marker.tolist(), strict=True
        ):
            load_module = measurement.modules.get(number)
            name = (
                f"!{where}" if marked else f"[{Path(load_module.path).name if load_module else ''}]"
            )
            if load_module and load_module.kind in (ModuleKind.JIT, ModuleKind.JAVA) and not marked:
                rows = measurement.symbols.get(number, [])
                name = next((n for s, size, n in rows if s <= where < s + size), "?")
            names.append(name)
        count = np.zeros(len(cct), np.int64)
        for part in measurement.record_chunks():
            np.add.at(count, part.node, 1)
        paths: Counter[Path_] = Counter()
        for node in np.flatnonzero(count).tolist():
            paths[tuple(names[ancestor] for ancestor in cct.path(node))] += int(count[node])
        return paths


def chained(paths: Counter[Path_], *parts: str) -> int:
    """Samples of paths in which frames that contain ``parts`` follow each other directly."""
    matching = 0
    for path, number in paths.items():
        for at in range(len(path) - len(parts) + 1):
            if all(part in path[at + i] for i, part in enumerate(parts)):
                matching += number
                break
    return matching


def whole(paths: Counter[Path_]) -> int:
    return sum(number for path, number in paths.items() if not path[0].startswith("!"))


def test_jitdump_names_and_frames(tmp_path: Path, build: Callable[..., Path]) -> None:
    """A compiler of one function that writes jitdump, moves its code and calls back into C."""
    executable = build("jitting.c")
    record(tmp_path / "first", [executable, 0.2, tmp_path], "--no-blocked")
    paths = named_paths(tmp_path / "first")
    assert chained(paths, "made_outer", "made_inner") > 0.9 * sum(paths.values()) > 0
    # Without waits: how often it waits for a CPU, and where, is not its own doing.
    summary = record(tmp_path / "m", [executable, 1.5, tmp_path], "--no-blocked")
    paths = named_paths(tmp_path / "m")
    samples = sum(paths.values())
    assert chained(paths, "made_outer", "made_inner") > 0.9 * samples
    assert chained(paths, "made_inner", "jitting") > 0.5 * samples, "through it into C again"
    assert whole(paths) > 0.95 * samples, summary["unwind"]
    assert chained(paths, "?") == 0


def inclusive(folder: Path, *names: str) -> list[float]:
    """CPU seconds in each of these procedures and below, of the recording ``folder/m``."""
    hpcd("merge", folder / "m", "-o", folder / "db")
    assert check_database(folder / "db") == []
    with hpcd_analysis.open(folder / "db") as db:
        name = np.array(db.procedure_names)[db.procedure_of_node]
        cost = db.metrics.inclusive("cpu_time")
        return [float(cost[name == one].sum()) for one in names]


@pytest.mark.parametrize("form", [[], ["endbr64"]], ids=["plain", "endbr64"])
def test_a_trampolines_caller_is_in_the_path(
    tmp_path: Path, build: Callable[..., Path], form: list[str]
) -> None:
    """Code in memory that leads on by a jump makes no frame: the frame pointer is the caller's."""
    executable = build("trampoline.c", "-fno-omit-frame-pointer")
    prepare_tables(executable)
    with subprocess.Popen([executable, "60", *form]) as program:
        try:
            options = ("--duration", 3, "--no-blocked", "-o", tmp_path / "m")
            hpcd("attach", "--pid", program.pid, *options)
        finally:
            program.kill()
    everything, calls, innermost = inclusive(tmp_path, "main", "call_many", "called")
    # By the frame pointer half of them, as by stacks that are copied until the programs are loaded.
    assert calls > 0.6 * everything > 0
    assert 0 < innermost < calls


@pytest.mark.parametrize(
    ("form", "memory"),
    [("dump", ""), ("map", ""), ("map", "shared"), ("map", "zero"), ("map", "memfd")],
)
def test_code_at_one_address_has_the_name_it_had_then(
    tmp_path: Path, build: Callable[..., Path], form: str, memory: str
) -> None:
    executable = build("reused_code.c")
    # A map that is written anew sooner may not have been read before.
    record(tmp_path / "m", [executable, form, 1, tmp_path, memory], "--no-blocked")
    older, newer = inclusive(tmp_path, "older__", "newer__")
    # 3,000 samples: three standard errors. A map says when it was written, in ticks of 4 ms.
    assert abs(older / (older + newer) - 1 / 3) < 0.03
    assert abs(older + newer - 3) < 0.3


@pytest.mark.parametrize(
    ("memory", "options"),
    [
        ("memfd", []),
        ("memory", []),
        # Text that begins with the file's head, text at a fixed place, and segments whose
        # addresses are not those of the file plus one number.
        ("memory", ["-Wl,-z,noseparate-code"]),
        ("memory", ["-no-pie"]),
        ("memory", ["-fuse-ld=lld"]),
    ],
)
def test_text_that_was_copied_to_memory(
    tmp_path: Path, build: Callable[..., Path], memory: str, options: list[str]
) -> None:
    executable = build("moved_text.c", *options)
    summary = record(tmp_path / "m", [executable, memory, 1], "--no-blocked")
    step, assemble, solve = inclusive(tmp_path, "step", "assemble", "solve")
    # 1,000 samples: four standard errors.
    assert abs(step - 1) < 0.13 and abs(assemble + solve - step) < 0.05
    assert abs(solve / step - 1 / 4) < 0.055
    assert whole(call_paths(tmp_path / "m", executable)) > 0.95 * summary["unwind"]["paths"]


def test_node_with_a_perf_map(tmp_path: Path) -> None:
    node = program("node", "nodejs")
    script = tmp_path / "hot.js"
    script.write_text(_JAVASCRIPT)
    # Functions are called, not inlined, so that there is a path to see.
    options = ["--perf-basic-prof", "--no-turbo-inlining", "--no-use-osr",
               "--no-logfile-per-isolate", f"--logfile={tmp_path / 'v8.log'}"]  # fmt: skip
    prepare_tables(node)
    record(tmp_path / "m", [node, *options, script])
    paths = named_paths(tmp_path / "m")
    samples = sum(paths.values())
    assert samples > 200
    assert chained(paths, "outermost", "middle", "innermost") > 0.5 * chained(paths, "middle")
    assert chained(paths, "[node]", "outermost") > 0.9 * chained(paths, "outermost")
    # Through the machine's own code made ahead of time, of which there is no information.
    hot = Counter({p: n for p, n in paths.items() if any("outermost" in name for name in p)})
    assert whole(hot) > 0.97 * sum(hot.values())


@pytest.mark.parametrize("calls", [100, 1600])
def test_java_with_a_perf_map(tmp_path: Path, calls: int) -> None:
    """Frame pointers and a map at the end, as ``jcmd PID Compiler.perfmap`` writes it, too; also of
    a program that ends before the names of the first code are looked for."""
    java = program("java", "default-jdk-headless")
    javac = program("javac", "default-jdk-headless")
    source = tmp_path / "Hot.java"
    source.write_text(_JAVA)
    subprocess.run([javac, "-d", tmp_path, source], check=True)
    options = ["-XX:+PreserveFramePointer", "-XX:+UnlockDiagnosticVMOptions",
               "-XX:+DumpPerfMapAtExit", "-XX:CompileCommand=quiet",
               "-XX:CompileCommand=dontinline,Hot.*", "-Xshare:auto"]  # fmt: skip
    (machine,) = Path(java).resolve().parents[1].rglob("libjvm.so")
    prepare_tables(str(machine))
    record(tmp_path / "m", [java, *options, "-cp", tmp_path, "Hot", calls])
    paths = named_paths(tmp_path / "m")
    samples = sum(paths.values())
    assert samples > 200
    # The short one is interpreted in part.
    parts = ["Hot.outermost", "Hot.middle", "Hot.innermost"] if calls > 100 else ["Hot.innermost"]
    assert chained(paths, *parts) > 0.3 * samples
    hot = Counter({p: n for p, n in paths.items() if any("Hot." in name for name in p)})
    assert whole(hot) > 0.95 * sum(hot.values())


def test_fortran(tmp_path: Path) -> None:
    compiler = program("gfortran", "gfortran")
    source, executable = tmp_path / "hot.f90", tmp_path / "hot"
    source.write_text(_FORTRAN)
    command = [compiler, "-O2", "-fno-inline", "-fomit-frame-pointer", "-J", str(tmp_path)]
    subprocess.run([*command, "-o", str(executable), str(source)], check=True)
    prepare_tables(executable, "/usr/lib/x86_64-linux-gnu/libc.so.6")
    record(tmp_path / "m", [executable])
    paths = call_paths(tmp_path / "m", executable)
    samples = sum(paths.values())
    deep = sum(n for path, n in paths.items() if path.count("__work_MOD_descend") == 6)
    assert deep > 0.8 * samples
    hot = Counter({path: n for path, n in paths.items() if "__work_MOD_descend" in path})
    assert whole(hot) > 0.95 * sum(hot.values())  # the first moments are before its tables
    assert all(path[path.index("MAIN__") - 1] == "main" for path in paths if "MAIN__" in path)


def test_python_with_numpy(tmp_path: Path) -> None:
    """The main thread of an interpreter, and hand-written BLAS kernels below it."""
    command: list[Any] = ["/usr/bin/python3", "-c", _NUMPY]
    # On a machine hpcd has never run on, the table of OpenBLAS takes seconds to make.
    prepare_tables(*libraries_of_python("numpy"))
    summary = record(tmp_path / "m", command)
    paths = named_paths(tmp_path / "m")
    # Its threads yield some 10,000 times a second: while OpenBLAS' table is read from the cache,
    # which takes a busy machine a second, there are more stacks than may be copied.
    early = sum(number for path, number in paths.items() if path[0] == f"!{UnwindStatus.NO_TABLE}")
    samples = sum(paths.values()) - early
    assert samples > 500 and whole(paths) > 0.95 * samples, summary["unwind"]
    python = [name for path in paths for name in path if name.startswith("[python3")]
    assert python and any("blas" in name for path in paths for name in path)
