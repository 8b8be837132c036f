"""Text and profiles of other tools become measurements with the same sums."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import zstandard

from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.analysis.merge.stages import merge
from hpcd.errors import FormatError
from hpcd.interchange.input.input_file import NO_LINE_END
from hpcd.interchange.pprof.pprof_message import PprofWriter, encode_stack
from hpcd.measurement.check import check_measurement
from hpcd.measurement.reader import open_measurement
from tests.support.imported import DATA, imported, sums
from tests.support.recorded import HPCD


def perf_text_sums(text: str) -> dict[str, Counter[tuple[str, ...]]]:
    """Sum perf script's text, read in the plainest way."""
    totals: dict[str, Counter[tuple[str, ...]]] = {}
    for sample in text.strip().split("\n\n"):
        header, *lines = sample.split("\n")
        match = re.fullmatch(r".+?\d+/\d+ +[\d.]+: +(\d+) +(\S+): *", header)
        assert match, header
        names = []
        for line in lines:
            _, name, module = (
                line.strip().split(" ", 1)[0],
                *line.strip()[:-1].split(" ", 1)[1].rsplit(" (", 1),
            )
            name = re.sub(r"\+0x[0-9a-f]+$", "", name)
            if name == "[unknown]" and module != "[unknown]":
                name = f"[{module.rpartition('/')[2].strip('[]')}]"
            names.append(name)
        totals.setdefault(match[2], Counter())[tuple(reversed(names))] += int(match[1])
    return totals


def test_perf_script_text_keeps_every_path_and_period(tmp_path: Path) -> None:
    source = DATA / "perf-script.txt.gz"
    result = imported(source, tmp_path / "m")
    text = gzip.decompress(source.read_bytes()).decode()
    expected = perf_text_sums(text)
    assert result.format == "perf-script" and result.times == "recorded"
    assert result.samples == text.count("cpu-clock:") + text.count("page-faults:") == 538
    for name, counter in sums(tmp_path / "m").items():
        # Deep garbage paths are cut; no other path differs.
        assert counter == expected[name]
    with open_measurement(tmp_path / "m") as measurement:
        assert {thread.name for thread in measurement.threads.values()} == {"fp"}
        assert len({thread.process for thread in measurement.threads.values()}) == 1
        times = np.concatenate([part.time_ns for part in measurement.record_chunks()])
        stamps = [float(stamp) for stamp in re.findall(r" (\d+\.\d+): ", text)]
        assert int(times.min()) == round(min(stamps) * 1e9)
        assert int(times.max()) == round(max(stamps) * 1e9)
    assert check_measurement(tmp_path / "m") == []


@pytest.mark.parametrize(
    "text",
    [
        "            fp 117 [001]  22.646076:    2004008 cpu-clock:    561c leaf_a+0x2 (/tmp/fp)\n"
        "             q 118 [001]  22.646077:    2004008 cpu-clock:    561d leaf_b+0x2 (/tmp/fp)\n",
        "fp 117/117 22.646076: 2004008 cpu-clock:u: \n        561c leaf_a+0x1 (/tmp/fp)\n\n"
        "fp 117/118 22.646076: 2004008 cpu-clock:u: \n        561c leaf_b (/tmp/fp)\n\n",
        "fp 117/117 22.646076: 2004008 cpu-clock:u: \r\n\t561c leaf_a+0x1 (/tmp/fp)\r\n\r\n"
        "# comment\nfp 117/118 22.646076: 2004008 cpu-clock:u: \r\n\t561c leaf_b (/tmp/fp)\r\n\r\n",
    ],
    ids=["single lines", "spaces", "carriage returns"],
)
def test_layouts_of_perf_script(tmp_path: Path, text: str) -> None:
    (tmp_path / "perf.txt").write_bytes(text.encode())
    imported(tmp_path / "perf.txt", tmp_path / "m")
    (totals,) = sums(tmp_path / "m").values()
    assert totals == {("leaf_a",): 2004008, ("leaf_b",): 2004008}


def test_odd_frames_of_perf_script(tmp_path: Path) -> None:
    (tmp_path / "perf.txt").write_text(
        "a b (c) 7/8 [000] 1.5: 3 cpu/event=0x3c,umask=1/ukp: \n"
        "\t  561c operator()(int (*)(char))+0x2b (/tmp/gone dir/fp (deleted))\n"
        "\t  561d small (inlined)\n"
        "  file.cpp:12\n"
        "\t  561e jitted (/tmp/perf-8.map)\n"
        "\t  561f [unknown] (/lib/libc.so.6)\n"
        "\tffffffff81000000 sys_read ([kernel.kallsyms])\n"
        "\t  5620 [unknown] ([unknown])\n\n"
        "a b (c) 7/8 [000] 1.6: sched:sched_switch: prev_comm=x 1/2 3.4: 5 cycles: \n"
        "\t  561f main (/tmp/x)\n\n"
    )
    imported(tmp_path / "perf.txt", tmp_path / "m")
    totals = sums(tmp_path / "m")
    path = ("[unknown]", "sys_read", "[libc.so.6]", "jitted", "small", "operator()(int (*)(char))")
    assert totals == {
        "cpu/event=0x3c,umask=1/ukp": {path: 3},
        "sched:sched_switch": {("main",): 1},
    }
    with open_measurement(tmp_path / "m") as measurement:
        modules = {module.path: module.kind for module in measurement.modules.values()}
        assert modules == {
            "/tmp/gone dir/fp (deleted)": "named",
            "[inlined]": "named",
            "[jit]": "named",
            "/lib/libc.so.6": "named",
            "kernel": "named-kernel",
            "/tmp/x": "named",
        }
        assert [thread.name for thread in measurement.threads.values()] == ["a b (c)"]


def leaves(measurement: Path) -> Counter[str]:
    """Sums of the only event by innermost procedure."""
    (paths,) = sums(measurement).values()
    totals: Counter[str] = Counter()
    for path, value in paths.items():
        totals[path[-1]] += value
    return totals


def test_frames_without_modules_are_kept(tmp_path: Path) -> None:
    """Only those with a module were: all time was that of a library's function."""
    result = imported(DATA / "perf-script-without-modules.txt.gz", tmp_path / "m")
    assert (result.samples, result.left_out, result.notes) == (500, {}, [])
    assert leaves(tmp_path / "m") == {"render": 167 * 250_000, "update": 333 * 250_000}
    (paths,) = sums(tmp_path / "m").values()
    assert {path[:2] for path in paths} == {("__libc_start_main", "main")}


def test_brackets_in_paths_of_modules(tmp_path: Path) -> None:
    imported(DATA / "perf-script-brackets-in-path.txt", tmp_path / "m")
    assert sums(tmp_path / "m") == {
        "cpu-clock": {("__libc_start_main", "main", "update(int)"): 4 * 250_000}
    }
    with open_measurement(tmp_path / "m") as measurement:
        paths = {module.path for module in measurement.modules.values()}
    assert paths == {"/opt/My Game (x86)/bin/game", "/usr/lib/libc.so.6"}


@pytest.mark.parametrize(
    ("line", "name", "module"),
    [
        ("\t  401000 f(int)+0x10 (/opt/My Game (x86)/game)", "f(int)", "/opt/My Game (x86)/game"),
        ("\t  401000 f(int) (/opt/My :) Game/game)", "f(int)", "/opt/My :) Game/game"),
        ("\t  401000 (anonymous namespace)::f (/a (b)/c)", "(anonymous namespace)::f", "/a (b)/c"),
        ("\t  401000 f (Game (x86).exe)", "f", "Game (x86).exe"),
        ("\t  401000 [unknown] (/a (b)/c (d))", "[c (d)]", "/a (b)/c (d)"),
        ("\t          401000 (/a (b)/c)", "[c]", "/a (b)/c"),
        ("\t  401000 operator()(int)", "operator()(int)", "[imported]"),
        ("\t  401000 f", "f", "[imported]"),
        ("\tf+0x10 (/opt/My Game (x86)/game)", "f", "/opt/My Game (x86)/game"),
        ("\tadd (/bin/calculate)", "add", "/bin/calculate"),
        ("\tfade", "fade", "[imported]"),
        (" f1+0x1 (/bin/calculate)", "f1", "/bin/calculate"),
        ("        f(int)", "f(int)", "[imported]"),
    ],
)
def test_frames_with_fields_missing(tmp_path: Path, line: str, name: str, module: str) -> None:
    for number, text in enumerate((f"app 7/7 1.5: 3 cycles: \n{line}\n\n",
                                   f"app 7/7 1.5: 3 cycles: \n{line}\n  a.c:5\n\n")):  # fmt: skip
        (tmp_path / "perf.txt").write_text(text)
        assert not imported(tmp_path / "perf.txt", tmp_path / f"m{number}").left_out
        assert sums(tmp_path / f"m{number}") == {"cycles": {(name,): 3}}
        with open_measurement(tmp_path / f"m{number}") as measurement:
            assert [row.path for row in measurement.modules.values()] == [module]


@pytest.mark.parametrize(
    "module",
    ["[kernel.kallsyms]", "/usr/lib/debug/boot/vmlinux-6.1.0", "/lib/modules/6.1/build/vmlinux",
     "[kernel.vmlinux]", "/proc/kcore", "/proc/kallsyms", "/boot/vmlinuz-6.1", "vmlinux"],
)  # fmt: skip
def test_the_kernel_by_all_its_names(tmp_path: Path, module: str) -> None:
    """Its addresses may be those of the file."""
    (tmp_path / "perf.txt").write_text(
        f"app 7/7 1.5: 3 cycles: \n\t  20d4ad7 vfs_read+0x7 ({module})\n"
        "\t  20d4 ext4_read ([ext4])\n\t  4 f (/lib/modules/6.1/ext4.ko.xz)\n\t  5 g (/app)\n\n"
    )
    imported(tmp_path / "perf.txt", tmp_path / "m")
    with open_measurement(tmp_path / "m") as measurement:
        modules = {row.path: str(row.kind) for row in measurement.modules.values()}
    assert modules["kernel"] == modules["/lib/modules/6.1/ext4.ko.xz"] == "named-kernel"
    assert modules["/app"] == "named" and len(modules) == 4


def test_what_else_perf_recorded_is_no_sample(tmp_path: Path) -> None:
    (tmp_path / "perf.txt").write_text(
        "swapper     0     0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x1) @ 0]: x [k]\n"
        "PERF_RECORD_FINISHED_ROUND\n"
        "a 7 [001] 1.400000: PERF_RECORD_MMAP2 7/7: [0x1(0x1) @ 0 fe:00 1 2]: r-xp /my: game (x)\n"
        "a 7 [001] 1.400001: PERF_RECORD_NAMESPACES 7/7 - nr_namespaces: 7\n"
        "\t\t[0/net: 0/0, 1/uts: 0/0, 2/ipc: 0/0, 3/pid: 0/0, \n\t\t 4/user: 0/0, 5/mnt: 0/0]\n"
        "a 7 [001] 1.400002: PERF_RECORD_FORK(7:8):(7:7)\n"
        "a 7 [001] 1.400003: PERF_RECORD_SWITCH_CPU_WIDE OUT preempt  next pid/tid:  8/8   \n"
        "a 7 [001] 1.400004: PERF_RECORD_LOST_SAMPLES lost 3\n"
        "a 7 [001] 1.500000: 3 cycles: \n\t  401000 f (/app)\n\n"
        "a 7 [001] 1.600000: PERF_RECORD_EXIT(7:8):(7:7)\n"
    )
    result = imported(tmp_path / "perf.txt", tmp_path / "m")
    assert (result.samples, result.left_out) == (1, {"lost by perf": 3})
    assert sums(tmp_path / "m") == {"cycles": {("f",): 3}}


TEXTS = {
    "perf-script": (b"app 7/7 1.5: 3 cycles: \n\t  401000 f (/app)\n\n", b"what is this?\n"),
    "collapsed": (b"main;f 3\n", b"what is this?\n"),
    "py-spy": (b"f (a.py:1) 3\n", b"what is this?\n"),
    "austin": (b"P7;T7;a.py:f:1 3\n", b"what is this?\n"),
}


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize(("samples", "notes"), [(2000, 0), (30, 1)])
def test_lines_that_are_not_understood_are_counted(
    tmp_path: Path, kind: str, samples: int, notes: int
) -> None:
    line, strange = TEXTS[kind]
    before = samples // 2
    text = line * before + strange + line * (samples - before) + strange
    (tmp_path / "text").write_bytes(text)
    result = imported(tmp_path / "text", tmp_path / "m")
    assert (result.format, result.left_out) == (kind, {"lines not understood": 2})
    lines, first = text.count(b"\n"), (line * before).count(b"\n") + 1
    said = f"2 of {lines:,} lines are not understood, the first is line {first}"
    assert result.notes == [said] * notes


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-8"])
@pytest.mark.parametrize("pack", [None, gzip.compress])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_texts_of_any_encoding_are_read(
    tmp_path: Path, encoding: str, pack: object, end: str
) -> None:
    """Line ends are those of Windows, too."""
    for kind, (line, _) in TEXTS.items():
        text = line.decode().replace("f", "größe").replace("\n", end)
        data = ("\ufeff" if encoding.endswith("be") else "") + text
        content = data.encode(encoding)
        (tmp_path / kind).write_bytes(pack(content) if callable(pack) else content)
        result = imported(tmp_path / kind, tmp_path / f"m-{kind}")
        assert (result.format, result.left_out) == (kind, {})
        ((path, value),) = next(iter(sums(tmp_path / f"m-{kind}").values())).items()
        assert path[-1] == "größe" and value == 3


@pytest.mark.parametrize("name", ["bom.folded", "utf16.folded"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path, name: str) -> None:
    imported(DATA / name, tmp_path / "m")
    assert sums(tmp_path / "m") == {"samples": {("main", "solve"): 60, ("main", "io"): 40}}


STACKS = "main;work;inner 7\nmain;work 2\nmain;other;inner 1\nmain;work;inner 3\n"


@pytest.mark.parametrize("pack", [None, gzip.compress, lzma.compress, zstandard.compress])
def test_collapsed_stacks_compressed_or_not(tmp_path: Path, pack: object) -> None:
    data = STACKS.encode()
    (tmp_path / "stacks").write_bytes(pack(data) if callable(pack) else data)
    result = imported(tmp_path / "stacks", tmp_path / "m")
    assert (result.format, result.samples, result.times) == ("collapsed", 13, "synthetic")
    (totals,) = sums(tmp_path / "m").values()
    assert totals == {
        ("main", "work", "inner"): 10,
        ("main", "work"): 2,
        ("main", "other", "inner"): 1,
    }


def test_standard_input(tmp_path: Path) -> None:
    text = gzip.decompress((DATA / "perf-script.txt.gz").read_bytes())
    command = [*HPCD, "import", "-", "-o", str(tmp_path / "m"), "--json"]
    done = subprocess.run(command, input=text, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 538


def test_a_frequency_makes_counts_cpu_time(tmp_path: Path) -> None:
    (tmp_path / "stacks").write_text(STACKS)
    imported(tmp_path / "stacks", tmp_path / "m", frequency=100.0)
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        assert db.metrics.exclusive("cpu_time").sum() == pytest.approx(0.13)
        # Laid end to end, each as long as it took: 0 to 0.13 s.
        assert db.duration_ns == pytest.approx(0.13e9, rel=0.01)


@pytest.mark.parametrize(("frequency", "metric", "unit"), [(0, "count", 1), (10, "cpu_time", 0.1)])
def test_fractions_of_counts_are_kept(
    tmp_path: Path, frequency: float, metric: str, unit: float
) -> None:
    (tmp_path / "stacks").write_text("main;a 4\nmain;b 0.25\nmain;a 18.25\nmain;c 3\n")
    assert imported(tmp_path / "stacks", tmp_path / "m", frequency=frequency).samples == 26
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        names = np.array(db.procedures.name)[db.procedure_of_node]
        cost = db.metrics.exclusive(metric)
        costs = {str(name): float(cost[names == name].sum()) for name in "abc"}
    assert costs == pytest.approx({"a": 22.25 * unit, "b": 0.25 * unit, "c": 3 * unit})


def test_numbers_at_the_end_of_some_names_are_no_second_counts(tmp_path: Path) -> None:
    (tmp_path / "stacks").write_text("main;worker 3 5\nmain;worker 4 6\nmain;a 7\n")
    imported(tmp_path / "stacks", tmp_path / "m")
    assert leaves(tmp_path / "m") == {"worker 3": 5, "worker 4": 6, "a": 7}


CUT = "at the end, where the text seems to be cut off"


def test_a_last_line_without_a_line_end_counts_and_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stacks").write_text("main;a 3\nmain;b 4")
    assert main(["import", str(tmp_path / "stacks"), "-o", str(tmp_path / "m")]) == 0
    output = capsys.readouterr()
    assert "7 samples" in output.out and "left out" not in output.out
    assert output.err.splitlines()[0] == ("note: the last line has no line end: it may be cut off")
    assert sums(tmp_path / "m") == {"samples": {("main", "a"): 3, ("main", "b"): 4}}
    with open_measurement(tmp_path / "m") as measurement:
        assert measurement.summary and not measurement.summary.samples.dropped


@pytest.mark.parametrize(
    "source", ["perf-script.txt.gz", "py-spy-threads.raw", "austin-wall.txt.gz"]
)
def test_text_cut_off_within_a_line_is_remarked_on(tmp_path: Path, source: str) -> None:
    raw = (DATA / source).read_bytes()
    text = gzip.decompress(raw) if source.endswith(".gz") else raw
    perf = source.startswith("perf")
    # Austin's ends in a comment.
    text = text[: text.find(b"\n#", 1000)] if "austin" in source else text
    whole = text.rstrip() + b"\n\n"
    for name, data, count in (("whole", whole, 0), ("cut", whole[:-4], 1), ("head", text[:900], 1)):
        (tmp_path / name).write_bytes(data)
        result = imported(tmp_path / name, tmp_path / f"m-{name}")
        assert result.left_out.get(CUT, 0) == (count if perf else 0), name
        assert result.notes.count(NO_LINE_END) == (0 if perf else count), name
        with open_measurement(tmp_path / f"m-{name}") as measurement:
            dropped = measurement.summary.samples.dropped if measurement.summary else {}
            assert dropped.get(CUT, 0) == (count if perf else 0)


@pytest.mark.parametrize("indent", ["\t", "        "])
def test_frames_that_no_empty_line_ends_are_no_call_path(tmp_path: Path, indent: str) -> None:
    sample = f"fp 7/7 1.5: 5 cycles: \n{indent}561c leaf (/x)\n{indent}561d main (/x)\n\n"
    for lost in (1, 17, 30, 50):
        (tmp_path / "perf.txt").write_text((2 * sample)[:-lost])
        output = tmp_path / f"m{lost}"
        assert imported(tmp_path / "perf.txt", output).left_out == {CUT: 1}
        assert sums(output) == {"cycles": {("main", "leaf"): 5}}


def test_annotations_of_collapsed_stacks(tmp_path: Path) -> None:
    (tmp_path / "stacks").write_text("app;libc.so.6`read;do_read_[k] 5\napp;Lfoo_[j] 6\n")
    imported(tmp_path / "stacks", tmp_path / "m")
    (totals,) = sums(tmp_path / "m").values()
    assert totals == {("app", "read", "do_read"): 5, ("app", "Lfoo"): 6}
    with open_measurement(tmp_path / "m") as measurement:
        kinds = {module.path: module.kind for module in measurement.modules.values()}
        assert kinds["kernel"] == "named-kernel" and kinds["libc.so.6"] == "named"


def test_py_spy_has_threads_and_files(tmp_path: Path) -> None:
    result = imported(DATA / "py-spy-threads.raw", tmp_path / "m")
    assert (result.format, result.samples, result.lines) == ("py-spy", 173, 2)
    (totals,) = sums(tmp_path / "m").values()
    assert totals["<module>", "größe", "outer", "inner"] == 92
    with open_measurement(tmp_path / "m") as measurement:
        assert [thread.name for thread in measurement.threads.values()] == ["MainThread", "second"]
        (process,) = measurement.processes.values()
        assert (process.name, process.pid) == ("py-spy-threads.raw", 0)
        assert "w2.py" in {module.path for module in measurement.modules.values()}
    imported(DATA / "py-spy-threads.raw", tmp_path / "lines", lines=True)
    (totals,) = sums(tmp_path / "lines").values()
    assert totals["<module>:11", "größe:9", "outer:7", "inner:4"] == 92


def test_speedscope_files_of_py_spy(tmp_path: Path) -> None:
    """The file is py-spy 0.4.3's, ``record --format speedscope --threads --rate 50``."""
    source = DATA / "py-spy.speedscope.json"
    result = imported(source, tmp_path / "m")
    assert (result.format, result.samples, result.lines, result.left_out) == (
        "speedscope",
        70,
        2,
        {},
    )
    (totals,) = sums(tmp_path / "m").values()
    profiles = json.loads(source.read_text())["profiles"]
    assert totals.total() == round(sum(profile["endValue"] for profile in profiles) * 1e9)
    assert max(totals, key=lambda path: totals[path])[-3:] == ("größe", "outer", "inner")
    with open_measurement(tmp_path / "m") as measurement:
        threads = {(thread.name, thread.tid) for thread in measurement.threads.values()}
        assert threads == {("MainThread", 22916), ("second", 22976)}
        (process,) = measurement.processes.values()
        assert process.name == "py-spy.speedscope.json"
        times = np.concatenate([part.time_ns for part in measurement.record_chunks()])
        assert int(times.max()) == round(max(profile["endValue"] for profile in profiles) * 1e9)


def test_speedscope_files_of_events(tmp_path: Path) -> None:
    """Call paths are intervals between events; nothing is recorded where no frame is open."""
    source = DATA / "evented.speedscope.json"
    result = imported(source, tmp_path / "m")
    assert (result.format, result.lines, result.left_out) == ("speedscope", 1, {})
    milliseconds = {("Main",): 20, ("Main", "Compute"): 60, ("Main", "Write"): 20}
    assert sums(tmp_path / "m") == {
        "time (milliseconds, intervals)": {path: n * 10**6 for path, n in milliseconds.items()}
    }
    with open_measurement(tmp_path / "m") as measurement:
        assert [thread.name for thread in measurement.threads.values()] == ["Thread (1234)"]
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        assert db.duration_ns == 10**8
        assert db.metrics.exclusive("time").sum() == pytest.approx(0.1)
    document = json.loads(source.read_text())
    profile = document["profiles"][0]
    profile |= {"unit": "none", "endValue": 110}
    profile["events"][-1]["at"] = 90
    profile["events"].append({"type": "O", "frame": 2, "at": 105})
    (tmp_path / "amounts").write_text(json.dumps(document))
    imported(tmp_path / "amounts", tmp_path / "m2")
    (amounts,) = sums(tmp_path / "m2").values()
    assert amounts == {("Main",): 10 * 10**6, ("Main", "Compute"): 60 * 10**6,
                       ("Main", "Write"): 20 * 10**6, ("Write",): 5 * 10**6}  # fmt: skip


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([("O", 0, 1), ("O", 1, 2), ("C", 0, 3)], "closes a frame that is not the innermost"),
        ([("C", 0, 1)], "closes a frame that is not the innermost"),
        ([("O", 0, 2), ("C", 0, 1)], "not in order of time"),
        ([("O", 7, 2)], "not follow speedscope's schema"),
        ([("O", -1, 2)], "not follow speedscope's schema"),
        ([("O", 0, -1)], "out of range"),
        ([("O", 0, 1)] * 20_000, "more than 16,384 frames"),
    ],
)
def test_events_of_speedscope_that_cannot_be_are_refused(
    tmp_path: Path, events: list[tuple[str, int, int]], says: str
) -> None:
    document = json.loads((DATA / "evented.speedscope.json").read_text())
    document["profiles"][0]["events"] = [
        {"type": kind, "frame": frame, "at": at} for kind, frame, at in events
    ]
    (tmp_path / "file").write_text(json.dumps(document))
    with pytest.raises(FormatError, match=says):
        imported(tmp_path / "file", tmp_path / "m")


def test_speedscope_files_of_hpcd_come_back(tmp_path: Path) -> None:
    imported(DATA / "perf-script.txt.gz", tmp_path / "m")
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    output = tmp_path / "db.speedscope.json"
    words = ["export", str(tmp_path / "db"), "--format", "speedscope", "-o", str(output)]
    assert main(words) == 0
    imported(output, tmp_path / "again")
    merge([tmp_path / "again"], tmp_path / "after", workers=1)
    with Database(tmp_path / "db") as before, Database(tmp_path / "after") as after:
        for metric in ("cpu_time", "page-faults"):
            total = before.metrics.exclusive(metric).sum()
            assert after.metrics.exclusive(metric).sum() == pytest.approx(total)


def test_py_spys_subprocesses_have_their_command_lines(tmp_path: Path) -> None:
    head = 'process 12:"python a.py";thread (12): MainThread;f (a.py:1)'
    child = f'{head.partition(";")[0]};process 13:"python b.py";thread (14): pool;g (b.py:1)'
    (tmp_path / "p.raw").write_text(f"{head} 3\n{child} 4\n")
    imported(tmp_path / "p.raw", tmp_path / "m")
    with open_measurement(tmp_path / "m") as measurement:
        names = {process.pid: process.name for process in measurement.processes.values()}
        assert names == {12: "python a.py", 13: "python b.py"}
        assert {thread.name for thread in measurement.threads.values()} == {"MainThread", "pool"}


def test_austin_times_are_sums_of_durations(tmp_path: Path) -> None:
    source = DATA / "austin-wall.txt.gz"
    result = imported(source, tmp_path / "m")
    lines = gzip.decompress(source.read_bytes()).decode().splitlines()
    samples = [line.rsplit(" ", 1) for line in lines if line.startswith("P")]
    assert (result.format, result.samples, result.times) == ("austin", len(samples), "summed")
    totals = sums(tmp_path / "m")["time"]
    assert sum(totals.values()) == sum(int(metric) for _, metric in samples)
    path = ("Thread._bootstrap", "Thread._bootstrap_inner", "Thread.run", "outer", "inner")
    assert totals[path] == sum(
        int(metric) for stack, metric in samples
        if stack.count(";") == 6 and "_bootstrap:" in stack and stack.endswith(":inner:4")
    )  # fmt: skip
    duration_us = int(lines[-1 if lines[-1] else -2].removeprefix("# duration: "))
    with open_measurement(tmp_path / "m") as measurement:
        last_ns = max(int(part.time_ns.max()) for part in measurement.record_chunks())
    assert last_ns / 1000 == pytest.approx(duration_us, rel=0.02)


def test_all_metrics_of_austin(tmp_path: Path) -> None:
    source = DATA / "austin-full.txt.gz"
    imported(source, tmp_path / "m")
    lines = gzip.decompress(source.read_bytes()).decode().splitlines()
    metrics = [
        [int(value) for value in line.rsplit(" ", 1)[1].split(",")]
        for line in lines if line.startswith("P")
    ]  # fmt: skip
    totals = {name: sum(counter.values()) for name, counter in sums(tmp_path / "m").items()}
    assert totals["time"] == sum(time for time, _, _ in metrics)
    assert totals["cpu-time"] == sum(time for time, idle, _ in metrics if not idle)
    assert totals["memory_allocated"] == sum(size for _, _, size in metrics if size > 0)
    assert totals.get("memory_freed", 0) == -sum(size for _, _, size in metrics if size < 0)


@pytest.mark.parametrize("mode", ["wall", "full"])
def test_mojo_is_what_its_converter_makes_of_it(tmp_path: Path, mode: str) -> None:
    """The text is mojo2austin's (austin-python), which leaves out invalid frames and, of full
    samples, all metrics but the time."""
    assert imported(DATA / f"austin-{mode}.mojo.gz", tmp_path / "m").format == "austin-mojo"
    assert imported(DATA / f"austin-{mode}.mojo.txt.gz", tmp_path / "t").format == "austin"
    binary, text = sums(tmp_path / "m"), sums(tmp_path / "t")
    valid: Counter[tuple[str, ...]] = Counter()
    for path, value in binary["time"].items():
        valid[tuple(name for name in path if name != "[invalid]")] += value
    assert valid == text["time"] and valid.total() > 500_000
    if mode == "full":
        assert binary.keys() == {"time", "cpu-time", "memory_allocated", "memory_freed"}
        assert 0 < binary["cpu-time"].total() < valid.total()
    lines = []
    for name in "mt":
        with open_measurement(tmp_path / name) as measurement:
            threads = measurement.threads.values()
            lines.append([(t.tid, t.name, t.start_ns, t.end_ns) for t in threads])
    assert lines[0] == lines[1] and len(lines[0]) == 2


def test_pprof_of_go_is_what_go_tool_pprof_shows(tmp_path: Path) -> None:
    result = imported(DATA / "go-cpu.pb.gz", tmp_path / "m")
    assert (result.format, result.samples) == ("pprof", 29)
    totals = sums(tmp_path / "m")
    time = totals["cpu/nanoseconds"]
    # go tool pprof -top, -traces
    assert sum(time.values()) == 290_000_000 and sum(totals["samples/count"].values()) == 29
    assert time["runtime.main", "main.main", "main.(*Größe[...]).rechne"] == 170_000_000
    assert time["runtime.main", "main.main", "main.other"] == 10_000_000
    inlined = ("runtime.main", "main.main", "main.other", "math.Sin", "math.sin", "math.IsNaN")
    assert time[inlined] == 10_000_000


@pytest.mark.parametrize(
    ("unit", "seconds"),
    [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("nanoseconds", 1e-9),
     ("microseconds", 1e-6), ("milliseconds", 1e-3), ("seconds", 1.0)],
)  # fmt: skip
def test_units_of_time_of_pprof(tmp_path: Path, unit: str, seconds: float) -> None:
    parts: list[bytes] = []
    profile = PprofWriter(parts.append)
    profile.add_sample_type("cpu", unit)
    profile.add_function(1, "main")
    profile.add_location(1, 1)
    profile.add_sample(encode_stack([1]), [round(3 / seconds)], b"")
    profile.finish()
    (tmp_path / "profile.pb").write_bytes(b"".join(parts))
    imported(tmp_path / "profile.pb", tmp_path / "m")
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        assert db.metrics.exclusive("cpu_time").sum() == pytest.approx(3)


def test_equal_samples_of_pprof_are_added_up(tmp_path: Path) -> None:
    """Some encoders write each sample by itself: 64 MiB of them are read in seconds."""
    parts: list[bytes] = []
    profile = PprofWriter(parts.append)
    profile.add_sample_type("samples", "count")
    profile.add_sample_type("cpu", "nanoseconds")
    for number, name in enumerate(("leaf", "main"), 1):
        profile.add_function(number, name)
        profile.add_location(number, number)
    for _ in range(1000):
        profile.add_sample(encode_stack([1, 2]), [1, 10**7], b"")
        profile.add_sample(encode_stack([2]), [2, 3 * 10**7], b"")
    profile.finish()
    (tmp_path / "profile.pb").write_bytes(b"".join(parts))
    result = imported(tmp_path / "profile.pb", tmp_path / "m")
    assert (result.samples, result.left_out) == (3000, {}) and result.records < 10
    assert sums(tmp_path / "m") == {
        "samples/count": {("main", "leaf"): 1000, ("main",): 2000},
        "cpu/nanoseconds": {("main", "leaf"): 10**10, ("main",): 3 * 10**10},
    }


def test_several_imports_unite_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two ranks that met different procedures in different order."""
    for rank, text in enumerate(("main;a;b 5\nmain;c 1\n", "main;c 3\nmain;x;a 4\nmain;a;b 6\n")):
        (tmp_path / f"{rank}.txt").write_text(text)
        options = f"--frequency 10 --job j --rank {rank} --ranks 2".split()
        files = [str(tmp_path / f"{rank}.txt"), "-o", str(tmp_path / f"m{rank}")]
        assert main(["import", *files, *options]) == 0
    capsys.readouterr()
    result = merge([tmp_path / "m0", tmp_path / "m1"], tmp_path / "db", workers=1)
    assert result.nodes - 1 == 6
    assert any("synthetic" in note for note in result.notes)
    with Database(tmp_path / "db") as db:
        names = np.array(db.procedures.name)
        exclusive = db.metrics.exclusive("cpu_time")
        for name, seconds in (("b", 1.1), ("c", 0.4), ("a", 0.4)):
            mine = names[db.procedure_of_node] == name
            assert exclusive[mine].sum() == pytest.approx(seconds)
        assert db.duration_ns < 10e9


def test_an_import_is_a_measurement_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measurement, database = str(tmp_path / "m"), str(tmp_path / "db")
    assert main(["import", str(DATA / "perf-script.txt.gz"), "-o", measurement]) == 0
    assert main(["merge", measurement, "-o", database]) == 0
    for words in (
        ["report", database],
        ["report", database, "--view", "bottom-up"],
        ["compare", database, database],
        ["check", measurement, database],
        ["render", database, "-o", str(tmp_path / "trace.png")],
    ):
        capsys.readouterr()
        assert main(words) == 0, words
    capsys.readouterr()
    main(["report", database])
    out = capsys.readouterr().out
    assert "imported (perf-script)" in out and "leaf_a" in out
    with Database(tmp_path / "db") as db:
        (row,) = db.measurements
        assert row.origin["file"].endswith("perf-script.txt.gz")
        assert (row.origin["format"], row.origin["times"]) == ("perf-script", "recorded")
