"""Probes on real programs: every call there was, with its values, its duration and its path."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcd.measurement.call_codec import Calls
from hpcd.measurement.reader import open_measurement
from tests.support.paths import ROOT
from tests.support.probed_server import first_byte
from tests.support.recorded import HPCD, Names, call_paths, hpcd, record

pytestmark = pytest.mark.root
SOURCE = ROOT / "tests/programs/probed.cpp"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("probed") / "probed"
    subprocess.run(["g++", "-O1", "-g", "-o", str(path), str(SOURCE)], check=True)
    return path


@dataclass
class Recorded:
    """Calls by function's name, what the summary says of each, and the lines about problems."""

    calls: dict[str, Calls]
    functions: dict[str, dict[str, Any]]
    problems: list[str]
    paths: dict[str, set[tuple[str, ...]]]


def calls_of(folder: Path, summary: dict[str, Any], program: Path) -> Recorded:
    with open_measurement(folder) as measurement:
        chunks = list(measurement.call_chunks())
        joined = Calls.joined(chunks) if chunks else None
        names = Names(measurement, program)
        calls, paths = {}, {}
        for number, function in measurement.functions.items():
            if joined is None or not (joined.function == number).any():
                continue
            rows = joined[joined.function == number]
            calls[function.name] = rows[np.argsort(rows.time, kind="stable")]
            paths[function.name] = {
                tuple(names.path(node)) for node in np.unique(rows.node).tolist() if node
            }
    probes = summary["probes"]
    functions = {row["name"]: row for row in probes["functions"]}
    return Recorded(calls, functions, probes["problems"], paths)


def recorded(folder: Path, program: Path, mode: str, *probes: str, **more: Any) -> Recorded:
    options = [word for probe in probes for word in ("--probe", probe)]
    summary = record(folder / "m", [program, mode], *options, *more.get("options", ()))
    return calls_of(folder / "m", summary, program)


def test_every_call_has_its_arguments_and_its_result(tmp_path: Path, program: Path) -> None:
    seen = recorded(
        tmp_path, program, "values",
        "probed:work(int n, void *box, u64 size = *(u64*)(arg2+24),"
        " u64 after = *(u64*)(box+24) @return) -> int",
        "probed:outer(int n) -> int",
        "probed:seventh(int, int, int, int, int, int, short a, unsigned char b) -> long",
    )  # fmt: skip
    assert not seen.problems
    work, outer = seen.calls["work"], seen.calls["outer"]
    number = np.repeat(np.arange(50), 2) + np.tile([0, 1], 50)
    before = 100 + np.concatenate([[0], np.cumsum(number)[:-1]])
    values = work.value.astype(np.int64)
    assert values[:, 0].tolist() == number.tolist()
    assert values[:, 2].tolist() == before.tolist()
    assert values[:, 3].tolist() == (before + number).tolist()
    assert values[:, 4].tolist() == (-number).tolist()
    assert outer.value.astype(np.int64)[:, 1].tolist() == [-2 * n - 1 for n in range(50)]
    (row,) = seen.calls["seventh"].value.astype(np.int64).tolist()
    assert row[:3] == [-7, 200, -6800]
    # Nested: two calls of work within each of outer, which has the time of both.
    inner = work.duration.reshape(-1, 2).sum(axis=1)
    assert (outer.duration > inner).all()
    assert (work.time.reshape(-1, 2)[:, 0] > outer.time).all()
    assert all(path[-2:] == ("outer", "work") for path in seen.paths["work"])
    assert all("main" in path for path in seen.paths["work"])


def test_recursion_of_10000_calls_is_paired_throughout(tmp_path: Path, program: Path) -> None:
    seen = recorded(tmp_path, program, "recursion", "probed:recurse(int depth) -> int")
    calls = seen.calls["recurse"]
    assert len(calls) == 10_001
    assert seen.functions["recurse"]["returned"] == 10_001
    depth, result = calls.value[:, 0].astype(np.int64), calls.value[:, 1].astype(np.int64)
    assert sorted(depth.tolist()) == list(range(10_001))
    assert (result == depth + 1).all()
    by_depth = calls.duration[np.argsort(depth)]
    assert (np.diff(by_depth.astype(np.int64)) > 0).all()


def test_exceptions_pass_through_probed_functions(tmp_path: Path, program: Path) -> None:
    options = ["--probe", "probed:middle", "--probe", "probed:thrower(int n) -> int"]
    done = hpcd("run", "-o", tmp_path / "m", "--json-file", tmp_path / "s", *options, "--", program,
                "exceptions")  # fmt: skip
    assert done.stdout.strip() == "20"
    with open_measurement(tmp_path / "m") as measurement:
        assert measurement.summary and measurement.summary.probes
        rows = {row.name: row for row in measurement.summary.probes.functions}
    for name in ("middle", "thrower"):
        counted = rows[name]
        assert (counted.hits, counted.returned, counted.left) == (40, 20, 20)


def test_calls_left_by_longjmp_or_a_threads_end_are_counted(tmp_path: Path, program: Path) -> None:
    seen = recorded(tmp_path, program, "jumps", "probed:jumper(int depth)", "probed:work")
    assert seen.functions["jumper"]["left"] == len(seen.calls["jumper"]) == 100
    assert seen.functions["work"]["returned"] == 1
    assert not seen.functions["work"]["unpaired"]
    (tmp_path / "t").mkdir()
    seen = recorded(tmp_path / "t", program, "threads", "probed:dies")
    assert seen.functions["dies"]["left"] == 10
    assert (seen.calls["dies"].duration > 0).all()


def test_durations_are_those_of_the_calls(tmp_path: Path, program: Path) -> None:
    seen = recorded(tmp_path, program, "pauses", "probed:pauses(int ms)")
    duration = seen.calls["pauses"].duration / 1e6
    assert len(duration) == 20
    assert 5 <= duration.min() < 6  # others may be late: the machine is shared


@pytest.mark.parametrize("way", ["session", "multi", "perf"])
def test_children_are_recorded_from_their_first_call(
    tmp_path: Path, program: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCD_UPROBES", way)
    seen = recorded(tmp_path, program, "children", "probed:work(int n) -> int")
    assert len(seen.calls["work"]) == 150
    assert len(np.unique(seen.calls["work"].line)) == 5


def test_every_call_of_short_programs_that_are_named_by_path(tmp_path: Path, program: Path) -> None:
    """A shell's children, of which hpcd knows nothing before they run."""
    runs = 10
    script = ["sh", "-c", f"for i in $(seq {runs}); do {program} values; done"]
    summary = record(tmp_path / "m", script, "--probe", f"{program}:work")
    seen = calls_of(tmp_path / "m", summary, program)
    assert len(seen.calls["work"]) == runs * 100
    assert not seen.problems


def test_every_call_of_short_programs_of_a_shell_that_was_attached_to(
    tmp_path: Path, program: Path
) -> None:
    runs = 10
    script = f"read line; for i in $(seq {runs}); do {program} values; done"
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE) as shell:
        options = ["--json", "-o", tmp_path / "m", "--probe", f"{program}:work"]
        recorder = subprocess.Popen(
            [*HPCD, "attach", "-p", str(shell.pid), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert recorder.stderr and recorder.stderr.readline().strip() == "hpcd: attached"
        shell.communicate(b"\n")
    out, _ = recorder.communicate()
    seen = calls_of(tmp_path / "m", json.loads(out.splitlines()[-1]), program)
    assert len(seen.calls["work"]) == runs * 100
    assert not seen.problems


def test_short_programs_that_began_before_their_probes_are_counted(
    tmp_path: Path, program: Path
) -> None:
    runs = 40
    script = ["sh", "-c", f"for i in $(seq {runs}); do {program} values; done"]
    summary = record(tmp_path / "m", script, "--probe", "probed:work")
    (problem,) = summary["probes"]["problems"]
    late, of, all_of_them = problem.split()[:3]
    assert (of, int(all_of_them)) == ("of", runs)
    hits = sum(function["hits"] for function in summary["probes"]["functions"])
    assert (runs - int(late)) * 100 <= hits < runs * 100
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    assert problem in hpcd("report", tmp_path / "db", "--width", "300").stdout


@pytest.mark.parametrize("way", ["session", "multi", "perf"])
def test_samples_in_the_kernels_trap_at_a_return_are_whole(
    tmp_path: Path, program: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCD_UPROBES", way)
    options = ["--probe", "probed:work(int n) -> int"]
    unwind = record(tmp_path / "m", [program, "often"], *options)["unwind"]
    # Not those taken after the kernel has written its address and before it notes the one replaced.
    assert unwind["paths"] > 100
    assert unwind["complete"] >= 0.97 * unwind["paths"]


def test_samples_after_a_probed_instruction_have_their_callers(
    tmp_path: Path, program: Path
) -> None:
    """The kernel executes a copy of it elsewhere; most samples are of the trap that follows."""
    record(tmp_path / "m", [program, "moves stack"], "--probe", "probed:moves_stack")
    paths = call_paths(tmp_path / "m", program)
    probed = {path: count for path, count in paths.items() if "moves_stack" in path}
    assert sum(probed.values()) > 100
    called = sum(count for path, count in probed.items() if "main" in path)
    # Not those taken after the kernel has written its address and before it notes the one replaced.
    assert called >= 0.97 * sum(probed.values())


def test_a_running_program_is_attached_to_and_left_alone(tmp_path: Path, program: Path) -> None:
    with subprocess.Popen(
        [program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as target:
        assert target.stdin and target.stdout

        def call(times: int) -> None:
            for _ in range(times):
                os.write(target.stdin.fileno(), b"a")
                assert os.read(target.stdout.fileno(), 1) == b"a"

        call(3)
        recorder = subprocess.Popen(
            [*HPCD, "attach", "-p", str(target.pid), "-o", tmp_path / "m", "--json",
             "--probe", "probed:work(int n) -> int"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert recorder.stderr and recorder.stderr.readline().strip() == "hpcd: attached"
        call(20)
        recorder.send_signal(signal.SIGINT)
        recorder.communicate()
        assert recorder.returncode == 0
        call(3)
        target.stdin.close()
        assert target.wait() == 0
    with open_measurement(tmp_path / "m") as measurement:
        (calls,) = measurement.call_chunks()
        assert calls.value[:, 0].tolist() == [ord("a")] * 20


def test_probes_are_gone_when_the_recorder_is_killed(tmp_path: Path, program: Path) -> None:
    with subprocess.Popen(
        [program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as target:
        assert target.stdin and target.stdout
        recorder = subprocess.Popen(
            [*HPCD, "attach", "-p", str(target.pid), "-o", tmp_path / "m", "--json",
             "--probe", "probed:work"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert recorder.stderr and recorder.stderr.readline().strip() == "hpcd: attached"
        assert first_byte(target.pid, program) == 0xCC
        recorder.kill()
        recorder.wait()
        recorder.stderr.close()
        os.write(target.stdin.fileno(), b"a")
        assert os.read(target.stdout.fileno(), 1) == b"a"
        assert first_byte(target.pid, program) != 0xCC
        target.stdin.close()
        assert target.wait() == 0


def test_what_cannot_be_probed_is_one_line_each(tmp_path: Path, program: Path) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    seen = recorded(
        tmp_path, stripped, "values", "stripped:work", "libnothing:f", "libc:memcpy",
        "libc:getpidd", "usdt:libc:libc:nothing",
    )  # fmt: skip
    lines = "\n".join(seen.problems)
    assert "stripped names no functions" in lines or "stripped has no function work" in lines
    assert "no target has mapped libnothing" in lines
    assert "memcpy is not probed: its implementation is chosen when a program starts" in lines
    assert "getpidd; did you mean getpid" in lines
    assert "no static tracepoint libc:nothing" in lines
    assert len(seen.problems) == 5


@pytest.mark.parametrize("flags", ["", "-flto", "-gz", "-gdwarf-4"])
def test_calls_that_were_inlined_are_not_passed_over_in_silence(
    tmp_path: Path, build: Callable[..., Path], flags: str
) -> None:
    inlined = build("partly_inlined.c", "-g", *flags.split())
    names = (f"{inlined}:scale", f"{inlined}:always_inlined", f"{inlined}:main")
    seen = recorded(tmp_path, inlined, "", *names)
    assert seen.functions["scale"]["hits"] == 1000
    assert sorted(problem.removeprefix(f"{inlined}").lstrip(": ") for problem in seen.problems) == [
        "has no function always_inlined: it is inlined wherever it is called (2 places)",
        "scale is inlined at 1 place: calls there are not recorded",
    ]


def test_one_call_in_n_is_recorded_with_its_weight(tmp_path: Path, program: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'library = "probed"\n[[probe]]\nfunction = "recurse(int depth)"\none_in = 10\n'
    )
    seen = recorded(tmp_path, program, "recursion", options=["--probes", tmp_path / "own.toml"])
    assert seen.functions["recurse"]["hits"] == 10_001
    calls = seen.calls["recurse"]
    assert (calls.weight == 10).all()
    # 1 in n in the mean; the gaps are even from 1 to 2 n - 1.
    assert abs(int(calls.weight.sum()) - 10_001) < 4 * 10 * (10_001 / 10 / 3) ** 0.5


@pytest.mark.parametrize("way", ["session", "multi", "perf"])
def test_calls_that_go_on_are_counted_as_long_as_they_are_recorded(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel detaches probes long after the last one is recorded."""
    monkeypatch.setenv("HPCD_UPROBES", way)
    program = "import os, time\nwhile True: os.getppid(), time.sleep(1e-5)"
    with subprocess.Popen(["python3", "-c", program]) as target:
        try:
            options = ["--json", "--probe", "libc.so*:getp*", "--duration", "0.5"]
            done = hpcd("attach", "-p", target.pid, "-o", tmp_path / "m", *options)
        finally:
            target.kill()
    functions = json.loads(done.stdout)["probes"]["functions"]
    (hits,) = [row["hits"] for row in functions if row["name"] == "getppid"]
    with open_measurement(tmp_path / "m") as measurement:
        recorded = sum(len(calls) for calls in measurement.call_chunks())
    assert hits - 1 <= recorded <= hits > 100  # the last one may not have returned
