"""perf.data of this machine, imported: what perf report says of it."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hpcd.__main__ import main
from hpcd.errors import FormatError
from hpcd.interchange.input.tool_process import tool_output
from hpcd.measurement.reader import open_measurement
from tests.support.imported import imported, sums

PROGRAM = """
#include <pthread.h>
static volatile double sum;
#define KEPT __attribute__((noinline, noclone))
KEPT void leaf_a(long n) { for (long i = 0; i < n; i++) sum += i * 0.5; }
KEPT void leaf_b(long n) { for (long i = 0; i < n; i++) sum -= i * 0.25; }
KEPT void recursion(int depth) { if (depth) recursion(depth - 1); else leaf_b(20000000); sum++; }
static void *thread(void *unused) { leaf_a(20000000); recursion(3); return unused; }
int main(void) {
    pthread_t other;
    pthread_create(&other, 0, thread, 0);
    leaf_a(30000000);
    recursion(20);
    pthread_join(other, 0);
}
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A perf.data with call paths, two events and two threads."""
    if not shutil.which("perf"):
        pytest.skip("perf is not installed")
    folder = tmp_path_factory.mktemp("perf") / "My Game (x86)"
    folder.mkdir()
    (folder / "program.c").write_text(PROGRAM)
    options = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread"]
    program = folder / "program"
    subprocess.run(["gcc", *options, "-o", program, folder / "program.c"], check=True)
    data = folder / "perf.data"
    command = ["perf", "record", "-g", "-F", "997", "-e", "cpu-clock,page-faults", "-o", data]
    done = subprocess.run([*command, program], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf may not record here: {done.stderr.strip()[-200:]}")
    return data


def reported(data: Path) -> dict[str, Counter[tuple[str, ...]]]:
    """Periods by event and call path, from perf report."""
    command = ["perf", "report", "-f", "-i", data, "--stdio", "--no-children", "--no-inline",
               "--max-stack", "65535", "-F", "period,sym",
               "-g", "folded,0,caller,function,period"]  # fmt: skip
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    events: dict[str, Counter[tuple[str, ...]]] = {}
    for line in out.splitlines():
        if match := re.match(r"# Samples: .* of event '(.+)'", line):
            paths = events.setdefault(match[1], Counter())
        elif match := re.match(r"(\d+) (\S.*)$", line):
            paths[tuple(match[2].split(";"))] += int(match[1])
    return events


def test_totals_and_call_paths_are_those_of_perf_report(recording: Path, tmp_path: Path) -> None:
    result = imported(recording, tmp_path / "m")
    assert (result.format, result.times) == ("perf-data", "recorded")
    expected, actual = reported(recording), sums(tmp_path / "m")
    assert actual.keys() == expected.keys() == {"cpu-clock", "page-faults"}
    for name, paths in expected.items():
        # Of what has no symbol perf report prints the address.
        known = {path: value for path, value in paths.items() if not _addresses(path)}
        ours = {path: value for path, value in actual[name].items() if not _unnamed(path)}
        assert ours == known
        assert actual[name].total() == paths.total()
    clock = actual["cpu-clock"]
    # Without its frame pointer a function called last hides its caller.
    assert max(path.count("recursion") for path in clock if path[-1] == "leaf_b") >= 20


def _addresses(path: tuple[str, ...]) -> bool:
    return any(re.fullmatch(r"0x[0-9a-f]+|[0-9a-f]+", name) for name in path)


def _unnamed(path: tuple[str, ...]) -> bool:
    return any(name.startswith("[") for name in path)


def test_who_was_recorded_is_kept(recording: Path, tmp_path: Path) -> None:
    imported(recording, tmp_path / "m", job="j", rank=3, size=4)
    with open_measurement(tmp_path / "m") as measurement:
        assert measurement.host.hostname == os.uname().nodename
        assert measurement.host.kernel == os.uname().release
        (process,) = measurement.processes.values()
        assert (process.name, process.job, process.rank, process.size) == ("program", "j", 3, 4)
        tids = {thread.tid for thread in measurement.threads.values()}
        assert len(tids) == 2 and process.pid in tids
        origin = measurement.options["imported"]
        assert isinstance(origin, dict)
        assert origin["tool"].startswith("perf ") and "cpu-clock" in origin["command"]
        (pair,) = measurement.clock_pairs.tolist()
        assert abs(pair[1] - recording.stat().st_mtime_ns) < 10**9


def test_threads_are_there_from_their_first_to_their_last_sample(
    recording: Path, tmp_path: Path
) -> None:
    imported(recording, tmp_path / "m")
    with open_measurement(tmp_path / "m") as measurement:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for part in measurement.record_chunks():
            for place, line in enumerate(part.line.tolist()):
                times = part.time_ns[part.start[place] : part.start[place + 1]].tolist()
                first.setdefault(line, times[0])
                last[line] = times[-1]
        threads = measurement.threads.values()
        assert len(threads) == 2
        assert {t.line: t.start_ns for t in threads} == first
        assert {t.line: t.end_ns for t in threads} == last


def script(data: Path, *options: str, config: str = "") -> bytes:
    """The text of perf script."""
    (data.parent / "perfconfig").write_text(config)
    environment = {**os.environ, "PERF_CONFIG": str(data.parent / "perfconfig")}
    command = ["perf", "script", "-f", "-i", data, *options]
    return subprocess.run(command, capture_output=True, check=True, env=environment).stdout


def named_sums(measurement: Path) -> dict[str, Counter[tuple[str, ...]]]:
    """Sums by event and path, in which frames without a symbol are alike."""
    totals: dict[str, Counter[tuple[str, ...]]] = {}
    for event, paths in sums(measurement).items():
        for path, value in paths.items():
            names = tuple("[unknown]" if name.startswith("[") else name for name in path)
            totals.setdefault(event, Counter())[names] += value
    return totals


# With --show-round-events perf does not put events in order.
ALL_EVENTS = [
    f"--show-{kind}-events"
    for kind in ("mmap", "task", "switch", "namespace", "bpf", "cgroup", "lost")
]


@pytest.mark.parametrize(
    "options",
    ["", "--ns", "--header", "-F -dso", "-F -symoff", "-F +srcline", "-F +srcline,-dso",
     "-F +srccode", "-F +insn", "-F +insnlen", "-F +misc", "-F +flags", "-F +pid", "-F -comm",
     "-F -tid", "-F -comm,-tid", "-F -tid --show-mmap-events", "--deltatime", "--reltime",
     "--full-source-path -F +srcline", "--show-mmap-events", " ".join(ALL_EVENTS),
     " ".join(["--deltatime", *ALL_EVENTS])],
)  # fmt: skip
def test_what_perf_script_prints_besides_changes_no_call_path(
    recording: Path, tmp_path: Path, options: str
) -> None:
    for name, config in (("callee", ""), ("caller", "[call-graph]\n\torder = caller\n")):
        (tmp_path / name).write_bytes(script(recording, *options.split(), config=config))
        result = imported(tmp_path / name, tmp_path / f"m-{name}")
        assert result.format == "perf-script" and not result.left_out
        assert any("outermost" in note for note in result.notes) == (name == "caller")
        assert any("--deltatime" in note for note in result.notes) == ("delta" in options)
        (tmp_path / "plain").write_bytes(script(recording))
        imported(tmp_path / "plain", tmp_path / f"plain-{name}")
        assert named_sums(tmp_path / f"m-{name}") == named_sums(tmp_path / f"plain-{name}")
        spans = []
        for kind in ("m", "plain"):
            with open_measurement(tmp_path / f"{kind}-{name}") as measurement:
                threads = measurement.threads.values()
                first = min(thread.start_ns for thread in threads)
                spans.append(max(thread.end_ns or 0 for thread in threads) - first)
        # Rounded to a microsecond for each event.
        assert abs(spans[0] - spans[1]) <= 1000 * result.samples * (2 if "delta" in options else 1)


def test_a_long_heading_hides_no_samples(recording: Path, tmp_path: Path) -> None:
    """It has a line for each program that the kernel had loaded."""
    (tmp_path / "long").write_bytes(b"# bpf_prog_info of id 1\n" * 1000 + script(recording))
    assert imported(tmp_path / "long", tmp_path / "m").format == "perf-script"


@pytest.mark.parametrize("options", ["-F -period", "-F -event", "-F time,event,ip,sym,dso",
                                     "-F time,ip,sym", "-F tid,time,ip,sym,dso"])  # fmt: skip
def test_samples_are_counted_where_their_period_or_event_is_missing(
    recording: Path, tmp_path: Path, options: str
) -> None:
    (tmp_path / "text").write_bytes(script(recording, *options.split()))
    imported(tmp_path / "text", tmp_path / "m")
    (tmp_path / "plain").write_bytes(script(recording, "-F", "comm,tid,time,event,ip,sym,dso"))
    imported(tmp_path / "plain", tmp_path / "plain-m")
    actual, expected = named_sums(tmp_path / "m"), named_sums(tmp_path / "plain-m")
    if options not in ("-F -period", "-F time,event,ip,sym,dso"):
        assert actual.keys() == {"event"}
        assert actual["event"].keys() == {path for paths in expected.values() for path in paths}
    else:
        assert actual == expected


def test_samples_without_times_are_refused_with_the_reason(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ("-F -time", "-F ip,sym,dso", "-G -F -time"):
        (tmp_path / "text").write_bytes(script(recording, *options.split()))
        assert main(["import", str(tmp_path / "text"), "-o", str(tmp_path / "m")]) == 7
        assert "no times in it: perf script -F +time" in capsys.readouterr().err


@pytest.mark.parametrize("options", ["", "-F +srcline", "-F -dso", "-F -symoff", "-F +misc"])
def test_samples_in_one_line_have_their_innermost_frame(
    recording: Path, tmp_path: Path, options: str
) -> None:
    (tmp_path / "text").write_bytes(script(recording, "-G", *options.split()))
    assert not imported(tmp_path / "text", tmp_path / "m").left_out
    (tmp_path / "plain").write_bytes(script(recording))
    imported(tmp_path / "plain", tmp_path / "plain-m")
    for event, paths in named_sums(tmp_path / "plain-m").items():
        leaves: Counter[tuple[str, ...]] = Counter()
        for path, value in paths.items():
            leaves[path[-1:]] += value
        assert named_sums(tmp_path / "m")[event] == leaves


def test_a_path_with_brackets_is_that_of_the_module(recording: Path, tmp_path: Path) -> None:
    """Its last bracket was taken for the one around it."""
    program = str(recording.parent / "program")
    for number, options in enumerate(("", "-F -symoff", "-v")):
        (tmp_path / "text").write_bytes(script(recording, *options.split()))
        imported(tmp_path / "text", tmp_path / f"m{number}")
    imported(recording, tmp_path / "m3")
    for number in range(4):
        with open_measurement(tmp_path / f"m{number}") as measurement:
            (module,) = {
                module.path for module in measurement.modules.values() if "Game" in module.path
            }
            assert module == program


def test_perf_data_may_not_be_compressed(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data.gz").write_bytes(gzip.compress(recording.read_bytes()))
    assert main(["import", str(tmp_path / "data.gz"), "-o", str(tmp_path / "m")]) == 7
    assert "not compressed" in capsys.readouterr().err


def test_perf_data_cut_off_or_damaged_gets_one_line(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = recording.read_bytes()
    # struct perf_file_header: where the samples lie. What perf knows of BPF programs comes behind.
    offset, size = struct.unpack_from("<QQ", whole, 40)
    for number, data in enumerate(
        (whole[:1000], whole[: offset + size // 10], whole[:104] + bytes(len(whole) - 104),
         whole[:8] + os.urandom(4000))
    ):  # fmt: skip
        path = tmp_path / f"{number}.data"
        path.write_bytes(data)
        assert main(["import", str(path), "-o", str(tmp_path / "m")]) == FormatError.exit_code
        error = capsys.readouterr().err
        assert error.startswith(f"hpcd: {path}: ") and error.count("\n") == 1
        assert not (tmp_path / "m").exists()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="drops root's rights")
def test_tools_run_without_root_rights(recording: Path, tmp_path: Path) -> None:
    """A program run in a tool's place reports its user, and cannot write root's files."""
    stand_in = tmp_path / "perf"
    tmp_path.chmod(0o755)
    stand_in.write_text(
        f"#!/bin/sh\ntouch {tmp_path}/written\n"
        "grep -E '^(Uid|CapEff|NoNewPrivs)' /proc/self/status\n"
    )
    stand_in.chmod(0o755)
    keeps = ("dac_read_search", "syslog")
    with tool_output(recording, [str(stand_in)], "stand-in", keeps) as output:
        status = dict(line.split(":", 1) for line in output.read().decode().splitlines())
    assert status["Uid"].split() == ["65534"] * 4
    # CAP_DAC_READ_SEARCH and CAP_SYSLOG.
    assert int(status["CapEff"], 16) == 1 << 2 | 1 << 34
    assert status["NoNewPrivs"].strip() == "1"
    assert not (tmp_path / "written").exists()


def test_a_process_is_named_after_its_program(tmp_path: Path) -> None:
    """The main thread renames itself, and a thread with a name of its own works."""
    if not shutil.which("perf"):
        pytest.skip("perf is not installed")
    (tmp_path / "named.c").write_text("""
#define _GNU_SOURCE
#include <pthread.h>
static volatile double sum;
static void *work(void *unused) {
    pthread_setname_np(pthread_self(), "worker");
    for (long i = 0; i < 100000000; i++) sum += i;
    return unused;
}
int main(void) {
    pthread_t other;
    pthread_setname_np(pthread_self(), "idler");
    pthread_create(&other, 0, work, 0);
    pthread_join(other, 0);
}
""")
    subprocess.run(
        ["gcc", "-O1", "-pthread", "-o", tmp_path / "named", tmp_path / "named.c"], check=True
    )
    data = tmp_path / "perf.data"
    command = ["perf", "record", "-e", "cpu-clock:u", "-F", "997", "-o", data, tmp_path / "named"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf may not record here: {done.stderr.strip()[-200:]}")
    imported(data, tmp_path / "m")
    with open_measurement(tmp_path / "m") as measurement:
        assert [process.name for process in measurement.processes.values()] == ["named"]
        assert "worker" in {thread.name for thread in measurement.threads.values()}
