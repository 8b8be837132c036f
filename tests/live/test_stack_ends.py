"""Stacks that do not begin at main are whole where they end, and end where they really do."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.go_programs import STRIPPED, needs_go
from tests.support.go_programs import build as build_go
from tests.support.programs import PROGRAMS
from tests.support.recorded import call_paths, record

pytestmark = pytest.mark.root

# Reasons that have to do with when a sample was taken, not with where a stack ends.
EARLY = {
    "module not yet analysed",
    "process not yet known",
    "address in no mapping",
    "registers changing for a signal",
}


def record_warm(folder: Path, executable: Path, *arguments: object) -> dict[str, Any]:
    """Record it twice: its tables are there the second time, whose summary is returned."""
    record(folder / "first", [executable, *arguments[:-1], 0.3])
    return record(folder / "m", [executable, *arguments])


def late(summary: dict[str, Any]) -> dict[str, int]:
    """Truncated paths by reason, but for the early ones."""
    reasons = summary["unwind"]["truncated"].items()
    return {reason: number for reason, number in reasons if reason not in EARLY}


def below(paths: Counter[tuple[str, ...]], leaf: str) -> dict[str, int]:
    """Outermost frames of whole paths that contain ``leaf``, with their samples."""
    outermost: Counter[str] = Counter()
    for path, number in paths.items():
        if leaf in path and not path[0].startswith("!"):
            outermost[path[0]] += number
    return dict(outermost)


@pytest.mark.parametrize(
    ("kind", "function", "ends"),
    [
        ("clone", "child", {"[libc.so.6]"}),
        ("clonevm", "child", {"[libc.so.6]"}),
        ("vfork", "burn", {"_start"}),
        ("sigstack", "handler", {"_start"}),
        ("context", "coroutine", {"[libc.so.6]"}),
    ],
)
def test_stacks_of_the_c_library_end(
    tmp_path: Path, build: Callable[..., Path], kind: str, function: str, ends: set[str]
) -> None:
    executable = build("children.c")
    summary = record_warm(tmp_path, executable, kind, 1.5)
    # A page of a stack may be out of reach at that moment, also of a new process.
    assert sum(late(summary).values()) <= 0.005 * summary["unwind"]["paths"]
    outermost = below(call_paths(tmp_path / "m", executable), function)
    assert set(outermost) == ends and sum(outermost.values()) > 50


@pytest.mark.parametrize("stack", [[], ["alternate"]])
def test_a_handler_that_returns_by_the_programs_own_code(
    tmp_path: Path, build: Callable[..., Path], stack: list[str]
) -> None:
    executable = build("restorer.c")
    record(tmp_path / "first", [executable, 0.3, *stack])
    record(tmp_path / "m", [executable, 1.5, *stack])
    paths = call_paths(tmp_path / "m", executable)
    # A stack copied before the tables were there is one of the two, and ends at the handler.
    working = Counter(
        {p: n for p, n in paths.items() if "handler_work" in p and not p[0].startswith("!")}
    )
    assert sum(working.values()) > 200
    callers = Counter[tuple[str, ...]]()
    for path, number in working.items():
        callers[path[: path.index("handler_work")]] += number
    assert {path[-2:] for path in callers} == {("own_restorer", "on_tick")}
    usual = sum(n for path, n in callers.items() if path[-4:-2] == ("main", "interrupted"))
    assert usual > 0.9 * sum(callers.values())  # else interrupted in the C library


@needs_go
@pytest.mark.parametrize("flags", [(), (STRIPPED,)], ids=["whole", "stripped"])
def test_goroutines_end_at_goexit(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Also what Go runs for a goroutine on the system stack: its garbage collector."""
    executable = build_go(tmp_path / "goroutines", *flags)
    summary = record_warm(tmp_path, executable, 2)
    assert late(summary) == {}
    # Stripping moves no code: addresses have the same names.
    paths = call_paths(tmp_path / "m", build_go(executable))
    assert set(below(paths, "main.spin")) == {"runtime.goexit.abi0"}
    marking = [path for path in paths if "runtime.systemstack.abi0" in path and path[0][0] != "!"]
    assert any(path[0] == "runtime.goexit.abi0" for path in marking)


@needs_go
def test_goroutines_that_call_the_vdso_have_callers(tmp_path: Path) -> None:
    """Go calls it on its system stack, and says so nowhere but in the instructions."""
    source, executable = tmp_path / "clock.go", tmp_path / "clock"
    source.write_text(
        'package main\nimport ("os"; "time")\n//go:noinline\nfunc ask(n int) (t time.Time) {\n'
        "  for i := 0; i < n; i++ { t = time.Now() }; return }\n"
        "func main() { for t := time.Now(); time.Since(t).Seconds() < float64(len(os.Args)); {"
        " ask(10000) } }\n"
    )
    build_go(executable, source=source)
    record_warm(tmp_path, executable, 2)
    paths = call_paths(tmp_path / "m", executable)
    asking = below(paths, "main.ask")
    clock = sum(number for path, number in paths.items() if "time.now" in path)
    assert set(asking) == {"runtime.goexit.abi0"}
    assert asking["runtime.goexit.abi0"] >= 0.95 * clock > 50


@needs_go
@pytest.mark.parametrize("flags", [(), (STRIPPED,)], ids=["whole", "stripped"])
def test_c_code_that_go_calls_has_the_goroutines_callers(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Go calls it on its system stack."""
    source, executable = tmp_path / "calls_c.go", tmp_path / "calls_c"
    source.write_text(
        "package main\n// __attribute__((noinline)) static double burn(long n) {\n"
        "// double s = 1; for (long i = 0; i < n; i++) s = s * 0.99 + i; return s; }\n"
        'import "C"\nimport ("os"; "strconv"; "syscall")\n//go:noinline\n'
        "func ask() { C.burn(1000000) }\nfunc main() {\n"
        "  seconds, _ := strconv.ParseFloat(os.Args[1], 64)\n"
        "  for used := (syscall.Rusage{}); float64(used.Utime.Nano()) < seconds * 1e9; {\n"
        "    ask(); syscall.Getrusage(0, &used) } }\n"
    )
    build_go(executable, *flags, source=source)
    record_warm(tmp_path, executable, 2)
    paths = call_paths(tmp_path / "m", build_go(executable, source=source))
    burning = below(paths, "burn")
    assert set(burning) == {"runtime.goexit.abi0"}
    assert set(below(paths, "main.ask")) == {"runtime.goexit.abi0"}
    assert burning["runtime.goexit.abi0"] > 50


@pytest.mark.skipif(
    not Path("/usr/include/boost/context/fiber.hpp").exists(),
    reason="needs Boost.Context: apt install libboost-context-dev",
)
def test_fibers_end_where_boost_begins_them(tmp_path: Path) -> None:
    executable = tmp_path / "fibers"
    command = ["g++", "-O2", "-o", str(executable), str(PROGRAMS / "fibers.cpp")]
    subprocess.run([*command, "-lboost_context"], check=True)
    summary = record_warm(tmp_path, executable, 1.5)
    assert sum(late(summary).values()) <= 0.005 * summary["unwind"]["paths"]
    outermost = below(call_paths(tmp_path / "m", executable), "_Z4burni")
    assert {"_start", "[libboost_context.so.1.74.0]"} >= set(outermost)
    assert len(outermost) == 2


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("guess", "no unwind information"),
        ("zero", "frame pointer chain broken"),
        ("unreadable", "frame pointer chain broken"),
    ],
)
def test_where_nothing_says_that_a_stack_ends_it_does_not(
    tmp_path: Path, build: Callable[..., Path], kind: str, reason: str
) -> None:
    """As in code of Haskell, and in that which PHP and Erlang make at run time."""
    summary = record_warm(tmp_path, build("no_end.c"), kind, 1)
    truncated = late(summary)
    # Of paths, but for those of switches: where it loses its CPU is chance.
    assert truncated.keys() == {reason} and truncated[reason] > 0.9 * summary["samples"]["taken"]


def test_what_no_table_can_be_made_of_ends_no_path(tmp_path: Path) -> None:
    """Its text spans more than a table may. That the frame pointer is zero in main proves nothing:
    it is a register like any other there."""
    source = tmp_path / "far.c"
    source.write_text(
        "#include <time.h>\n"
        '__attribute__((section(".far"))) void far(void) {}\n'
        "__attribute__((noinline)) void burn(void) {\n"
        "  while (clock() < CLOCKS_PER_SEC)\n"
        "    for (volatile long turn = 0; turn < 1000000; turn++);\n"
        "}\n"
        "int main(void) { burn(); far(); return 0; }\n"
    )
    executable = tmp_path / "far"
    command = ["gcc", "-O2", "-fomit-frame-pointer", "-static", "-no-pie"]
    place = "-Wl,--section-start=.far=0x60000000"
    subprocess.run([*command, place, "-o", str(executable), str(source)], check=True)
    unwind = record(tmp_path / "m", [executable])["unwind"]
    assert "spans more than 1 GiB" in unwind["failures"][str(executable)]
    assert unwind["truncated"]["no unwind information"] > 100
    assert unwind["deferred"]["copied"] < 0.5 * unwind["paths"]
    # Those of the kernel alone, as while it is executed, are whole.
    assert unwind["complete"] < 0.1 * unwind["paths"]
