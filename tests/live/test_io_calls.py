"""``--io``: what is recorded of system calls is what strace says they did."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.calls.totals import total_calls
from hpcd.analysis.database import open as open_database
from hpcd.bpf.calls.io_requests import AIO_REQUESTS, IO_REQUESTS, PREFIX
from hpcd.bpf.loading.request_tracepoints import request_constants
from hpcd.errors import PlatformError
from tests.support.recorded import HPCD, hpcd, record
from tests.support.strace import trace

pytestmark = pytest.mark.root


def escaped(path: str) -> str:
    """A path as hpcd has it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that is the same path in every run, so that what is compared has one name."""
    return tmp_path_factory.mktemp("io") / "work"


def test_bytes_of_every_file_are_those_of_strace(
    tmp_path: Path, folder: Path, build: Callable[..., Path]
) -> None:
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    program = build("mixed_io.c", "-pthread")
    folder.mkdir()
    truth = trace([program, folder], tmp_path / "log")
    shutil.rmtree(folder)
    folder.mkdir()
    summary = record(tmp_path / "m", [program, folder], "--io")
    assert summary["calls"]["dropped"] == {}
    assert summary["calls"]["taken"] == summary["calls"]["recorded"]
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "m")
    hpcd("check", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        by_function = total_calls(db, "function")
        files = total_calls(db, "file")
        calls = dict(zip(by_function.name, by_function.calls.tolist(), strict=True))
        errors = dict(zip(by_function.name, by_function.errors.tolist(), strict=True))
        kinds = {row.name: row.kind for row in db.calls.objects.values()}
        # Of memory mappings only those of files are input or output.
        truth.calls["mmap"] = calls["mmap"]
        assert calls == {name: truth.calls[name] for name in calls}
        assert errors == {name: truth.errors[name] for name in calls}
        for have, want in ((files.read, truth.read), (files.written, truth.written)):
            recorded = Counter(dict(zip(files.name, have.tolist(), strict=True)))
            regular = {name for name, kind in kinds.items() if kind == "file"}
            # strace has the names of now, hpcd those by which files were met first.
            want[f"{folder}/folder/before"] += want.pop(f"{folder}/folder/after", 0)
            wanted = +Counter({escaped(n): b for n, b in want.items() if n.startswith("/")})
            assert {n: b for n, b in recorded.items() if b and n in regular} == dict(wanted)
            # Pipes and sockets have other numbers in every run.
            rest = sum(recorded.values()) - sum(wanted.values())
            assert rest == sum(want.values()) - sum(wanted.values())
        assert {calls[name] for name in ("sendfile", "copy_file_range", "sendmmsg")} == {1}
        assert any(name.endswith("odd\\n\\x1b[31m\\xff name") for name in files.name)
        paths = total_calls(db, "path", [db.calls.find("fsync")])
        assert paths.calls.tolist() == [4]
        assert "writer" in paths.name[0]


def test_both_ends_of_a_connection_are_known(tmp_path: Path, build: Callable[..., Path]) -> None:
    work = tmp_path / "work"
    work.mkdir()
    record(tmp_path / "m", [build("mixed_io.c", "-pthread"), work], "--io")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        peers = total_calls(db, "peer")
        sent = sum(100 * number for number in range(1, 21))
        inet = [
            (int(peers.read[at]), int(peers.written[at]))
            for at, name in enumerate(peers.name)
            if name.startswith("127.0.0.1:") and peers.read[at] + peers.written[at]
        ]
        assert sorted(inet) == sorted([(sent + 5, 300), (300, sent + 5)])


def test_requests_to_io_uring_are_those_the_program_counts(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    """Bytes by file, calls and failures by opcode, with the call path of who submitted them."""
    work = tmp_path / "work"
    work.mkdir()
    program = build("uring.c")
    try:
        request_constants()
        subprocess.run([program, work], check=True, stdout=subprocess.DEVNULL)
    except (subprocess.CalledProcessError, PlatformError):
        pytest.skip("needs io_uring")
    with (tmp_path / "said").open("wb") as output:
        command = [*HPCD, "run", "--io", "-o", tmp_path / "m", "--json-file", tmp_path / "summary"]
        subprocess.run([*map(str, command), "--", program, work], stdout=output, check=True)
    truth = json.loads((tmp_path / "said").read_text())
    summary = json.loads((tmp_path / "summary").read_text())["calls"]
    assert (summary["dropped"], summary["not_recorded"]) == ({}, [])
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "m")
    hpcd("check", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        names = {request.name for request in IO_REQUESTS}
        requests = [function for function in db.calls.functions if function.name in names]
        by_opcode = total_calls(db, "function", requests)
        columns = (by_opcode.calls.tolist(), by_opcode.errors.tolist())
        assert dict(zip(by_opcode.name, zip(*columns, strict=True), strict=True)) == {
            IO_REQUESTS[int(opcode)].name: tuple(counts)
            for opcode, counts in truth["opcodes"].items()
        }
        files = total_calls(db, "file", requests)
        moved = {Path(name).name: at for at, name in enumerate(files.name)}
        for name, (read, written) in truth["files"].items():
            assert (files.read[moved[name]], files.written[moved[name]]) == (read, written), name
        total = total_calls(db, "function", [db.calls.find(f"{PREFIX}recv")])
        assert total.read.tolist() == [truth["received"]]
        paths = total_calls(db, "path", [db.calls.find(f"{PREFIX}write")])
        written = {
            place: sum(
                int(paths.written[at]) for at, name in enumerate(paths.name) if place in name
            )
            for place in ("plain", "linked")
        }
        # What is asked for in plain() is submitted there, by finish().
        assert written == {"plain": truth["files"]["plain"][1] - 30, "linked": 777}
        assert all("finish" in name for name in paths.name if "plain" in name)
        # What the ring opened, and where what it spliced came from.
        opens = total_calls(db, "file", [db.calls.find(f"{PREFIX}openat")])
        assert [Path(name).name for name in opens.name] == ["opened"]
        spliced = total_calls(db, "file", [db.calls.find(f"{PREFIX}splice")])
        read = dict(zip(spliced.name, spliced.read.tolist(), strict=True))
        assert {Path(name).name: size for name, size in read.items() if size} == {"plain": 1234}


def test_requests_of_io_submit_are_those_the_program_counts(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with (tmp_path / "said").open("wb") as output:
        command = [*HPCD, "run", "--io", "-o", tmp_path / "m", "--json-file", "/dev/null"]
        done = [*map(str, command), "--", build("aio.c"), work]
        subprocess.run(done, stdout=output, check=True)
    truth = json.loads((tmp_path / "said").read_text())
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        names = {request.name for request in AIO_REQUESTS}
        requests = [function for function in db.calls.functions if function.name in names]
        files = total_calls(db, "file", requests)
        assert [Path(name).name for name in files.name] == ["data"]
        assert files.read.tolist() == [truth["read"]]
        assert files.written.tolist() == [truth["written"]]
        assert files.calls.tolist() == [truth["ended"]]
        assert files.errors.tolist() == [truth["failed"]] == [1]
        (path,) = total_calls(db, "path", requests).name
        assert "submit < main" in path


def test_calls_that_are_passed_over_are_stood_for(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    count = 2_000_000
    program = [build("reads.c"), "/etc/passwd", count]
    summary = record(tmp_path / "m", program, "--io", "--overhead", "1%")
    assert summary["calls"]["passed_over"] > count // 4
    assert summary["calls"]["rates"][0]["function"] == "pread64"
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        calls = db.calls.select(functions=[db.calls.find("pread64")])
        weight = calls["weight"].astype(np.int64)
        error = float((weight * (weight - 1)).sum()) ** 0.5
        if not summary["calls"]["dropped"]:
            assert abs(int(weight.sum()) - count) < 5 * error + 10
        assert len(calls) < count


def test_a_file_that_was_open_before_is_known(tmp_path: Path, build: Callable[..., Path]) -> None:
    process = subprocess.Popen([build("reads.c"), "/etc/passwd", str(1 << 40)])
    try:
        hpcd("attach", "--io", "-d", 1, "-p", process.pid, "-o", tmp_path / "m")
    finally:
        process.kill()
        process.wait()
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        files = total_calls(db, "file")
        assert files.name == ["/etc/passwd"]
        assert files.read[0] == 64 * files.calls[0] > 0


def test_without_the_object_calls_cannot_be_recorded(tmp_path: Path) -> None:
    done = hpcd("run", "--io", "--loader", "bcc", "-o", tmp_path / "m", "--", "true", check=False)
    assert done.returncode not in (0, 70)
    (line,) = [row for row in done.stderr.splitlines() if "needs the BPF object" in row]
    assert line.startswith("hpcd: ")
    assert not (tmp_path / "m").exists()


def test_calls_of_32_bit_programs_are_recorded(tmp_path: Path, build: Callable[..., Path]) -> None:
    flags = ("-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie", "-fno-stack-protector")
    try:
        program = build("write32.c", *flags)
        subprocess.run([program], check=True, stdout=subprocess.DEVNULL)
    except (subprocess.CalledProcessError, OSError):
        pytest.skip("needs a compiler and a kernel for 32-bit programs")
    with (tmp_path / "out").open("wb") as out:
        command = [*HPCD, "run", "--io", "-o", tmp_path / "m", "--json-file", "/dev/null", "--"]
        subprocess.run([*map(str, command), str(program)], stdout=out, check=True)
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with open_database(tmp_path / "db") as db:
        files = total_calls(db, "file")
        assert files.name == [str(tmp_path / "out")]
        assert (files.calls[0], files.written[0]) == (10, 1000)
