"""Exports of a database, read by readers that know only the formats' descriptions."""

from __future__ import annotations

import gzip
import json
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.profile.filters import Filter
from hpcd.errors import FormatError
from hpcd.interchange.fitted_names import readable
from hpcd.interchange.formats import FORMATS
from hpcd.interchange.otf2 import otf2_archive, otf2_library
from hpcd.interchange.output import trace_blocks
from hpcd.interchange.output.context_table import Detail
from hpcd.interchange.output.export_selection import ExportSelection
from hpcd.measurement.summary import Summary
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.exports import READERS
from tests.support.imported import imported, sums
from tests.support.made import TWO_RANKS, make
from tests.support.paths import ROOT
from tests.support.perfetto_rules import parsed
from tests.support.protobuf_reader import message
from tests.support.random_measurements import long_measurement, write_measurement

OPTIONS = [
    [],
    ["time=0.05-0.3"],
    ["time=0.1-0.15", "time=0.32-0.4"],
    ["procedure=solve"],
    ["rank=1", "module=libmpi.so"],
    ["rank=0", "time=0.2-", "procedure=main"],
]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks that compute and wait, with threads that sleep; rank 1 recurses."""
    return make(tmp_path_factory.mktemp("export") / "db", TWO_RANKS, helper=True, weight=2)


@pytest.fixture
def db(database: Path) -> Database:
    return hpcd.analysis.open(database)


def totals(costs: dict[str, Counter[tuple[str, ...]]]) -> dict[str, float]:
    return {metric: sum(by_path.values()) for metric, by_path in costs.items()}


def wanted(db: Database, filters: list[str]) -> dict[str, float]:
    exclusive = Filter.parse(filters).exclusive(db)
    return dict(zip(db.metrics.names, exclusive.sum(axis=1).tolist(), strict=True))


@pytest.mark.parametrize("filters", OPTIONS, ids=" ".join)
@pytest.mark.parametrize("kind", READERS)
def test_totals_are_those_of_the_report(
    db: Database, tmp_path: Path, kind: str, filters: list[str]
) -> None:
    options = [word for text in filters for word in ("--filter", text)]
    output = tmp_path / "out"
    assert main(["export", str(db.path), "--format", kind, "-o", str(output), *options]) == 0
    exported = totals(READERS[kind](output))
    expected = wanted(db, filters)
    assert exported.keys() <= expected.keys()
    assert exported or not any(expected.values())
    for metric, total in expected.items():
        # Whole numbers, where a window cuts a wait that is one sample.
        if kind == "pprof" and metric == "records" and "time" in "".join(filters):
            assert exported[metric] == pytest.approx(total, abs=3)
        elif metric in exported or kind not in ("collapsed", "firefox", "perfetto", "otf2"):
            assert exported.get(metric, 0.0) == pytest.approx(total, rel=1e-6, abs=2e-6), metric


@pytest.mark.parametrize("kind", READERS)
def test_costs_are_those_of_call_paths(db: Database, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "out"
    assert main(["export", str(db.path), "--format", kind, "-o", str(output)]) == 0
    expected: Counter[tuple[str, ...]] = Counter()
    cost = db.metrics.exclusive("cpu_time")
    for node in np.flatnonzero(cost).tolist():
        names = [db.procedure_names[db.procedure_of_node[n]] for n in db.cct.path(node)]
        expected[tuple(names)] += float(cost[node])
    exported = READERS[kind](output)["cpu_time"]
    assert {path: cost for path, cost in exported.items() if cost} == pytest.approx(dict(expected))


@pytest.mark.parametrize("kind", READERS)
def test_depth_and_metric(db: Database, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "out"
    words = ["export", str(db.path), "--format", kind, "-o", str(output)]
    assert main([*words, "--depth", "2", "--metric", "cpu_time"]) == 0
    costs = READERS[kind](output)
    assert costs.keys() <= {"cpu_time"} | ({"records"} if kind == "csv" else set())
    expected = float(db.metrics.exclusive("cpu_time").sum())
    assert sum(costs["cpu_time"].values()) == pytest.approx(expected, rel=1e-6)
    assert max(map(len, costs["cpu_time"])) <= 2


@pytest.mark.parametrize("kind", READERS)
def test_a_count_alone(db: Database, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "out"
    words = ["export", str(db.path), "--format", kind, "-o", str(output), "--metric", "records"]
    assert main(words) == 0
    if kind == "collapsed":
        counts = [int(line.rpartition(" ")[2]) for line in output.read_text().splitlines()]
        exported = {"records": float(sum(counts))}
    else:
        exported = totals(READERS[kind](output))
    assert exported == {"records": db.metrics.exclusive("records").sum()}


def test_long_traces_are_read_in_pieces(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading piece by piece gives the whole trace."""
    monkeypatch.setattr(trace_blocks, "_BLOCKS_AT_ONCE", 1)
    selection = ExportSelection(db)
    for line in range(len(db.lines)):
        blocks = list(selection.trace(line))
        records = db.records(line)
        for name in ("time", "node", "event"):
            joined = np.concatenate([getattr(block, name) for block in blocks])
            assert joined.tolist() == getattr(records, name).tolist()


def test_processes_of_several_hosts_are_apart(tmp_path: Path) -> None:
    for number, host in enumerate(("node0", "node1")):
        write_measurement(tmp_path / host, seed=number, host=host, threads=2, records=20)
    merge([tmp_path / "node0", tmp_path / "node1"], tmp_path / "db")
    apart: dict[str, set[tuple[str, str]]] = {}
    for kind in ("firefox", "perfetto"):
        words = ["export", str(tmp_path / "db"), "--format", kind, "-o", str(tmp_path / kind)]
        assert main(words) == 0
    threads = json.loads((tmp_path / "firefox").read_text())["threads"]
    apart["firefox"] = {(thread["pid"], str(thread["tid"])) for thread in threads}
    trace = parsed(tmp_path / "perfetto")
    tasks = [task for p in trace.packet for task in p.interned_data.stack_sample_task_contexts]
    apart["perfetto"] = {(str(task.pid), str(task.tid)) for task in tasks}
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert len(set(db.lines.pid.tolist())) == 2
        for places in apart.values():
            assert len(places) == len(db.lines) == 8
            assert len({pid for pid, _ in places}) == 4


def test_pieces_of_a_line_with_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_measurement(tmp_path / "m", records=5000)
    merge([tmp_path / "m"], tmp_path / "db")
    monkeypatch.setattr(trace_blocks, "_BLOCKS_AT_ONCE", 1)
    with hpcd.analysis.open(tmp_path / "db") as db:
        begin, end = db.duration_ns // 3, db.duration_ns // 2
        for windows, whole in (((), db.records(1)), (((begin, end),), db.records(1, begin, end))):
            blocks = list(ExportSelection(db, Filter(windows=windows)).trace(1))
            assert len(blocks) > 1
            assert max(map(len, blocks)) <= 2048
            times = np.concatenate([block.time for block in blocks])
            assert times.tolist() == whole.time.tolist()
            nodes = np.concatenate([block.node for block in blocks])
            assert nodes.tolist() == whole.node.tolist()


# --- names ---

WEIRD = [
    "solve<" + "std::vector<double>, " * 3200 + ">(int)",
    "línea\nnueva\t\"zitiert\" 'x'",
    "a;b => c C [{f.c} {1,2}]",
    "=cmd|' C calc'!A0",
    "\x00\x1b[31m\u2028\u202egnp.exe",
    "名前 \U0001f600 \\n \\",
    " ",
    "[truncated]",
    "</script><b>&amp;",
    "broken \udcff\udc80 bytes",
]


@pytest.fixture(scope="module")
def weird(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose names are hostile, of a thread of a process of such names."""
    folder = tmp_path_factory.mktemp("weird")
    names = [name.encode("utf-8", "surrogateescape").decode(errors="replace") for name in WEIRD]
    writer = MeasurementWriter(folder / "m", Host("h\n;st", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_process(Process(0, 7, 1, names[1], "/" + names[5], (names[2],), 0, 10**9))
    writer.add_thread(Thread(0, 0, 7, names[2], 10**9))
    writer.add_thread(Thread(1, 0, 8, names[4], 10**9))
    writer.add_module(Module(1, ModuleKind.JIT, "/lib/" + names[1], process=0))
    writer.add_symbols(1, [(n * 16, 16, name) for n, name in enumerate(names)])
    writer.add_clock_pair(10**9, 2 * 10**18)
    count = len(names)
    frames = [module_frame(1, n * 16) for n in range(count)]
    writer.add_nodes(np.arange(count, dtype=np.uint32), np.array(frames, np.uint64))
    for line in range(2):
        times = 10**9 + 10**6 * np.arange(count)
        nodes = np.arange(1, count + 1, dtype=np.uint32)
        writer.add_records(np.full(count, line, np.uint32), times.astype(np.uint64), nodes, 0)
    writer.close()
    merge([folder / "m"], folder / "db")
    # A merge replaces control characters; readers must not depend on it.
    with sqlite3.connect(folder / "db" / "hpcd.sqlite") as tables:
        stored = tables.execute("SELECT id, name FROM procedure ORDER BY id").fetchall()
        for (number, _), name in zip(stored[1:], names, strict=True):
            tables.execute("UPDATE procedure SET name = ? WHERE id = ?", (name, number))
    tables.close()
    return folder / "db"


@pytest.mark.parametrize("kind", READERS)
def test_any_name_survives_or_is_escaped(weird: Path, tmp_path: Path, kind: str) -> None:
    output = tmp_path / "out"
    assert main(["export", str(weird), "--format", kind, "-o", str(output)]) == 0
    costs = READERS[kind](output)["cpu_time"]
    assert sum(costs.values()) == pytest.approx(2e-3 * len(WEIRD))
    costs = Counter({path: cost for path, cost in costs.items() if cost})
    assert len(costs) == len(WEIRD)
    names = set(max(costs, key=len))
    assert WEIRD[0] in names and WEIRD[5] in names
    with hpcd.analysis.open(weird) as db:
        stored = set(db.procedures.name)
    if kind in ("hpctoolkit", "otf2"):
        # Their strings end at the first NUL.
        stored = {name.replace("\0", "\\x00") for name in stored}
    escaped = {"collapsed", "csv", "tau"}
    if kind not in escaped:
        # The root, and what the names of threads and columns are, come besides.
        assert {name for name in stored if name != "[all]"} <= names
    else:
        assert not {letter for name in names for letter in name if not letter.isprintable()}


@pytest.mark.parametrize("kind", ["hpctoolkit", "otf2", "pprof"])
def test_any_name_comes_back_as_imports_escape_it(weird: Path, tmp_path: Path, kind: str) -> None:
    if kind == "otf2" and not shutil.which("otf2-print"):
        pytest.skip("otf2-print is not installed")
    output = tmp_path / "out"
    assert main(["export", str(weird), "--format", kind, "-o", str(output)]) == 0
    imported(output, tmp_path / "m")
    names = {name for by_path in sums(tmp_path / "m").values() for path in by_path for name in path}
    with hpcd.analysis.open(weird) as db:
        stored = {name for name in db.procedures.name if name != "[all]"}
    if kind != "pprof":
        # Their strings end at the first NUL.
        stored = {name.replace("\0", "\\x00") for name in stored}
    assert {readable(name) for name in stored} <= names


def test_every_format_is_documented_and_has_an_independent_reader() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `([\w.-]+)/?` \|", (ROOT / "docs/export.md").read_text(), re.M
    )
    assert rows and dict(rows) == {kind: entry.suffix for kind, entry in FORMATS.items()}
    # The tables that pyarrow reads are compared with those of csv.
    assert FORMATS.keys() - READERS.keys() == {"parquet", "arrow"}


@pytest.mark.parametrize("kind", FORMATS)
def test_nothing_recorded(tmp_path: Path, kind: str) -> None:
    if library := FORMATS[kind].library:
        pytest.importorskip(library)
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_clock_pair(10**9, 2 * 10**18)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    words = ["export", str(tmp_path / "db"), "--format", kind, "-o", str(tmp_path / "out")]
    assert main(words) == 0
    assert (tmp_path / "out").exists()


# --- the command ---


def test_what_is_there_is_not_replaced(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    words = ["export", str(database), "-o", str(output), "--format"]
    assert main([*words, "collapsed"]) == 0
    assert main([*words, "collapsed"]) == 6
    assert "exists already" in capsys.readouterr().err
    assert main([*words, "csv", "--force"]) == 0
    assert main([*words, "csv", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["format"] == "csv"
    shutil.rmtree(output)
    output.mkdir()
    (output / "mine").touch()
    assert main([*words, "csv", "--force"]) == 6
    assert "no export made" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [output]
    assert main([*words, "nothing"]) == 2
    assert main([*words, "csv", "--filter", "rank=99"]) == 2
    assert main([*words, "csv", "--depth", "0"]) == 2


FILES = [kind for kind, entry in FORMATS.items() if not entry.directory]


@pytest.mark.parametrize("kind", FILES)
def test_files_are_replaced_if_an_export_wrote_them(
    db: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    output = tmp_path / "out"
    words = ["export", str(db.path), "--format", kind, "-o", str(output)]
    assert main(words) == 0
    for other in FILES:
        assert main([*words, "--format", other, "--force"]) == 0
    whole = output.read_bytes()
    for content in (b"a thesis 1\nits second line\n", b"{}", b"\x1f\x8b\x08\x00", b"\n\0"):
        output.write_bytes(content)
        capsys.readouterr()
        assert main([*words, "--force"]) == 6
        assert "is a file that no export wrote" in capsys.readouterr().err
        assert output.read_bytes() == content
    output.write_bytes(b"")
    assert main([*words, "--format", other, "--force"]) == 0
    assert output.read_bytes() == whole


@pytest.mark.parametrize("kind", FILES)
def test_a_file_named_as_compressed_is_compressed_once(
    db: Database, tmp_path: Path, kind: str
) -> None:
    words = ["export", str(db.path), "--format", kind, "-o"]
    plain, packed = tmp_path / "out", tmp_path / "out.gz"
    assert main([*words, str(plain)]) == main([*words, str(packed)]) == 0
    content = plain.read_bytes()
    assert gzip.decompress(packed.read_bytes()) == (
        gzip.decompress(content) if kind == "pprof" else content
    )
    assert main([*words, str(packed), "--force"]) == 0


@pytest.mark.parametrize("kind", FILES)
def test_files_are_written_to_standard_output(db: Database, tmp_path: Path, kind: str) -> None:
    words = ["export", str(db.path), "--format", kind, "-o"]
    assert main([*words, str(tmp_path / "out")]) == 0
    for output in ("-", "/dev/stdout"):
        command = [sys.executable, "-m", "hpcd", *words, output]
        done = subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
        assert done.stdout == (tmp_path / "out").read_bytes()
    # What is there already stays.
    with (tmp_path / "log").open("ab") as log:
        log.write(b"before\n")
        log.flush()
        subprocess.run(command, stdout=log, cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_bytes() == b"before\n" + done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "out"]


def test_directories_are_not_written_to_standard_output(db: Database) -> None:
    assert main(["export", str(db.path), "--format", "csv", "-o", "-"]) == 2


@pytest.mark.parametrize("kind", ["firefox", "hpctoolkit", "otf2", "pprof"])
def test_what_cannot_be_written_is_one_line(db: Database, tmp_path: Path, kind: str) -> None:
    words = ["export", str(db.path), "--format", kind, "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-m", "hpcd", *words], capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)),
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert re.fullmatch(rf"hpcd: {tmp_path}/out: File (is )?too large\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_the_default_name(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(database), "--format", "pprof"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["db.pb.gz"]


def test_progress_is_reported(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_blocks, "_BLOCKS_AT_ONCE", 1)
    reported: list[tuple[str, int, int]] = []
    selection = ExportSelection(db, progress=lambda *step: reported.append(step))
    for line in selection.iterate_lines():
        for _ in selection.trace(line.number):
            pass
    total = len(db.trace) + len(db.lines)
    assert {(stage, whole) for stage, _, whole in reported} == {("export", total)}
    done = [done for _, done, _ in reported]
    assert done == sorted(done) and (done[0], done[-1]) == (0, total)
    # Lines of several blocks are told of on the way.
    assert len(reported) > 2 * len(db.lines)


def test_the_range_of_firefox_holds_what_stands_at_its_end(tmp_path: Path) -> None:
    """Sums of short waits are recorded when their thread ends."""
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "blocked, short", "ns", 1.0, "blocked_time"))
    writer.add_process(Process(0, 7, 1, "app", "/app", ("app",), 0, 10**9))
    writer.add_thread(Thread(0, 0, 7, "app", 10**9, 2 * 10**9))
    writer.add_module(Module(1, ModuleKind.JIT, "/app", process=0))
    writer.add_symbols(1, [(0, 16, "main")])
    writer.add_nodes(np.array([0], np.uint32), np.array([module_frame(1, 0)], np.uint64))
    writer.add_clock_pair(10**9, 2 * 10**18)
    times = np.array([10**9, 2 * 10**9], np.uint64)
    values = np.full(2, 4 * 10**6, np.uint64)
    writer.add_records(np.zeros(2, np.uint32), times, np.ones(2, np.uint32), 0, values)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    words = ["export", str(tmp_path / "db"), "--format", "firefox", "-o", str(tmp_path / "out")]
    assert main(words) == 0
    profile = json.loads((tmp_path / "out").read_text())
    (thread,) = profile["threads"]
    assert thread["samples"]["time"] == [0, 1000] and thread["samples"]["weight"] == [4, 4]
    assert 1000 < profile["meta"]["profilingEndTime"] < 1000.001


def test_the_period_of_pprof_is_that_of_its_samples(db: Database, tmp_path: Path) -> None:
    for metric, period in (("cpu_time", ("cpu_time", "nanoseconds", 1_000_000)),
                           ("records", ("records", "count", 1))):  # fmt: skip
        output = tmp_path / metric
        words = ["export", str(db.path), "--format", "pprof", "-o", str(output)]
        assert main([*words, "--metric", metric]) == 0
        profile = message(gzip.decompress(output.read_bytes()))
        strings = [text.decode() for text in profile[6]]
        kind = message(profile[11][0])
        assert (strings[kind[1][0]], strings[kind[2][0]], profile[12][0]) == period


@pytest.mark.skipif(not shutil.which("go"), reason="needs Go's pprof")
def test_pprof_itself_reads_it(db: Database, tmp_path: Path) -> None:
    output = tmp_path / "out.pb.gz"
    assert main(["export", str(db.path), "--format", "pprof", "-o", str(output)]) == 0
    for number, metric in enumerate(db.metrics.names):
        done = subprocess.run(
            ["go", "tool", "pprof", "-top", "-unit=ns", f"-sample_index={number}", str(output)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        # Asked for nanoseconds, it writes them behind counts, too.
        scale = 1e9 if db.metrics.units[number] == "s" else 1
        exclusive = db.metrics.exclusive(number)
        assert f"Type: {metric}" in done.stdout
        assert f"of {exclusive.sum() * scale:.0f}ns total" in done.stdout
        rows = [line.split(None, 5) for line in done.stdout.splitlines()[6:]]
        by_pprof = {row[5]: row[0] for row in rows if row[0] != "0"}
        by_name: Counter[str] = Counter()
        for node in np.flatnonzero(exclusive).tolist():
            by_name[db.procedure_names[db.procedure_of_node[node]]] += float(exclusive[node])
        assert by_pprof == {name: f"{cost * scale:.0f}ns" for name, cost in by_name.items()}


@pytest.mark.skipif(not shutil.which("otf2-print"), reason="needs otf2-tools")
def test_otf2_print_reads_it(db: Database, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert main(["export", str(db.path), "--format", "otf2", "-o", str(output)]) == 0
    done = subprocess.run(
        ["otf2-print", str(output / "traces.otf2")], capture_output=True, text=True, check=True
    )
    assert not done.stderr
    samples = done.stdout.count("CALLING_CONTEXT_SAMPLE")
    assert samples == db.metrics.exclusive("records").sum()
    for name, unit in zip(db.metrics.names[1:], db.metrics.units[1:], strict=True):
        values = re.findall(rf'\("{name}" <\d+>; UINT64; (\d+)\)', done.stdout)
        assert unit == "s"
        total = float(db.metrics.exclusive(name).sum())
        assert sum(map(int, values)) / 1e9 == pytest.approx(total)


def test_long_lines_are_flushed_to_otf2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otf2_archive, "_EVENT_CHUNK", 1 << 18)
    monkeypatch.setattr(otf2_library, "_EVENT_CHUNKS", 1)
    flushed = []
    flush = otf2_archive._flush
    monkeypatch.setattr(otf2_archive, "_flush", lambda *args: [flushed.append(args), flush()][1])
    long_measurement(tmp_path / "m", records=20_000)
    merge([tmp_path / "m"], tmp_path / "db")
    words = ["export", str(tmp_path / "db"), "--format", "otf2", "-o", str(tmp_path / "out")]
    assert main(words) == 0
    # Once in the middle of each line at least, and at its end.
    assert len(flushed) > 4
    costs = READERS["otf2"](tmp_path / "out")
    with hpcd.analysis.open(tmp_path / "db") as db:
        total = float(db.metrics.exclusive("cpu_time").sum())
    assert sum(costs["cpu_time"].values()) == pytest.approx(total)


def test_processes_are_named_by_what_tells_their_commands_apart(tmp_path: Path) -> None:
    """Compilers are named by the file they compile, ranks by their number."""
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_clock_pair(10**9, 2 * 10**18)
    for number, (words, job, rank) in enumerate(
        [(("/usr/cc1", "-O2", "-quiet", "a.c"), "", None),
         (("/usr/cc1", "-O2", "-quiet", "b.c"), "", None),
         (("/opt/lmp", "-in", "x"), "job", 3)]
    ):  # fmt: skip
        pid, name = 100 + number, Path(words[0]).name
        writer.add_process(Process(number, pid, 1, name, words[0], words, 0, 10**9, job, rank))
        writer.add_thread(Thread(number, number, pid, name, 10**9))
    writer.add_nodes(np.zeros(1, np.uint32), np.full(1, module_frame(0, 5), np.uint64))
    times = 10**9 + np.arange(3, dtype=np.uint64)
    writer.add_records(np.arange(3, dtype=np.uint32), times, np.ones(3, np.uint32), 0)
    writer.close(Summary())
    merge([tmp_path / "m"], tmp_path / "db")
    for kind in ("firefox", "perfetto"):
        words = ["export", str(tmp_path / "db"), "--format", kind, "-o", str(tmp_path / kind)]
        assert main(words) == 0
    expected = ["cc1 … a.c", "cc1 … b.c", "rank 3 lmp"]
    threads = json.loads((tmp_path / "firefox").read_text())["threads"]
    assert sorted(thread["processName"] for thread in threads) == expected
    tracks = [packet.track_descriptor for packet in parsed(tmp_path / "perfetto").packet]
    names = [track.process.process_name for track in tracks if track.HasField("process")]
    assert sorted(names) == expected


def test_perfettos_classes_read_it(db: Database, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert main(["export", str(db.path), "--format", "perfetto", "-o", str(output)]) == 0
    trace = parsed(output)
    counters: dict[int, str] = {}
    total: Counter[str] = Counter()
    threads = {}
    for packet in trace.packet:
        assert not packet.FindInitializationErrors()
        for counter in packet.interned_data.stack_sample_counter_descriptors:
            counters[counter.iid] = counter.name
        if packet.track_descriptor.HasField("thread"):
            thread = packet.track_descriptor.thread
            threads[thread.pid, thread.tid] = thread.thread_name
        if packet.HasField("stack_sample"):
            sample = packet.stack_sample
            total[counters[sample.primary_descriptor_iid]] += sample.primary_weight
            total["records"] += 1
    expected = {
        name: round(float(db.metrics.exclusive(name).sum()) * (1e9 if unit == "s" else 1))
        for name, unit in zip(db.metrics.names, db.metrics.units, strict=True)
    }
    assert dict(total) == expected
    assert list(threads.values()) == db.lines.label


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_arrow_tables_hold_what_the_csv_does(
    db: Database, weird: Path, tmp_path: Path, kind: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    output = tmp_path / "out"
    assert main(["export", str(db.path), "--format", kind, "-o", str(output)]) == 0
    read = {"parquet": parquet.read_table, "arrow": lambda p: pyarrow.ipc.open_file(p).read_all()}
    tables = {file.stem: read[kind](str(file)) for file in output.glob(f"*.{kind}")}
    for name, number in (("costs", len(db.lines)), ("trace", len(db.lines))):
        assert len(set(tables[name]["trace_line"].to_pylist())) == number
        for metric in db.metrics.names:
            total = sum(tables[name][metric].to_pylist())
            assert total == pytest.approx(float(db.metrics.exclusive(metric).sum()))
    assert len(tables["trace"]) == len(db.trace)
    assert main(["export", str(weird), "--format", kind, "-o", str(output), "--force"]) == 0
    names = read[kind](str(output / f"contexts.{kind}"))["name"].to_pylist()
    with hpcd.analysis.open(weird) as named:
        assert set(names) == set(named.procedures.name)


@pytest.mark.parametrize(("kind", "library"), [("otf2", "_otf2"), ("parquet", "pyarrow")])
def test_a_missing_library_is_named(
    db: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, kind: str, library: str,
) -> None:  # fmt: skip
    for module in ("otf2.otf2_archive", "otf2.otf2_library", "tables.arrow_tables"):
        monkeypatch.delitem(sys.modules, f"hpcd.interchange.{module}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    output = tmp_path / "out"
    assert main(["export", str(db.path), "--format", kind, "-o", str(output)]) == 5
    assert f"pip install {library.lstrip('_')}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_contexts_by_procedure_and_name(db: Database) -> None:
    for detail in Detail:
        table = ExportSelection(db).contexts(detail)
        assert table.frames.name[0] == "[all]"
        assert (table.parent[1:] < np.arange(1, len(table))).all()
        assert int(table.of_node.max()) < len(table)
        for node in range(1, len(db.cct)):
            context = int(table.of_node[node])
            path = [table.frames.name[table.frame[n]] for n in table.tree.path(context)]
            real = [db.procedure_names[db.procedure_of_node[n]] for n in db.cct.path(node)]
            assert path == real


@pytest.mark.parametrize("name", ["pprof", "collapsed"])
def test_costs_that_a_format_cannot_hold_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = make(tmp_path / "db", TWO_RANKS)
    for column in ("scale", "total-1", "total-2"):
        costs = np.load(path / f"metrics/{column}.npy")
        np.save(path / f"metrics/{column}.npy", 1e20 * costs)
    arguments = ["export", str(path), "--format", name, "-o", str(tmp_path / "out")]
    assert main(arguments) == FormatError.exit_code
    assert "is more than this format can hold" in capsys.readouterr().err
