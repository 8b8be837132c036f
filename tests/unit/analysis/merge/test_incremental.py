"""Merges that add, that were killed, and that run elsewhere: always the same database."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import check
from hpcd.analysis.database.check import check_database
from hpcd.analysis.database.directory import SYMBOLS, VERSION
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.unite.united_symbols import table_of
from hpcd.errors import FormatError, StorageError
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.synthetic import Shape, Synthesizer
from hpcd.measurement.synthetic_source import built_in_source, recorded_source
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES, CalledFunction, Group
from hpcd.model.identity import Event, Host, Process, Thread
from tests.support.paths import ROOT
from tests.support.random_measurements import contents, write_measurement

S = 10**9
HPCD = [sys.executable, "-m", "hpcd"]
RECORDINGS = ROOT / "tests/data/recordings"


def inodes(database: Path) -> set[int]:
    return {path.stat().st_ino for path in (database / "trace").glob("*.part")}


def test_adding_gives_what_merging_all_at_once_gives(tmp_path: Path) -> None:
    for number in range(4):
        write_measurement(
            tmp_path / f"m{number}",
            seed=number,
            host=f"node{3 - number}",
            ranks=(number, number + 4),
            modules=("/lib/b.so", f"/lib/{number}.so"),
            events=1 + number % 2,
        )
    names = [tmp_path / f"m{number}" for number in range(4)]
    merge(names, tmp_path / "all")
    merge(names[1:3], tmp_path / "grown")
    before = inodes(tmp_path / "grown")
    merge([names[0]], tmp_path / "grown", add=True)
    merge([names[3]], tmp_path / "grown", add=True)
    assert before < inodes(tmp_path / "grown")
    assert contents(tmp_path / "grown") == contents(tmp_path / "all")
    assert check_database(tmp_path / "grown") == []
    again = merge(names[:2], tmp_path / "grown", add=True)
    assert again.measurements == 4
    assert [note for note in again.notes if "already" in note] == [
        f"{tmp_path / name}: already in the database" for name in ("m0", "m1")
    ]
    assert contents(tmp_path / "grown") == contents(tmp_path / "all")


def write_calls(path: Path, number: int) -> None:
    """A line with a record from 10 to 20 s, and one without; of both calls from 1 s to 30 s."""
    writer = MeasurementWriter(path, Host(f"n{number}", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-9, "cpu_time", 997))
    writer.add_clock_pair(10 * S, (number + 100) * S)
    writer.add_function(CalledFunction(0, "read", "", Group.IO, ()))
    writer.add_process(Process(0, 7, 1, "p", "/p", (), 0, 0))
    for line in (3, 5):
        writer.add_thread(Thread(line, 0, line, "t", 10 * S))
    writer.add_records(np.full(2, 3, np.uint32), np.array([10, 20], np.uint64) * S,
                       np.zeros(2, np.uint32), 0)  # fmt: skip
    for chunk in ([2, 15], [1, 25], [3, 4]):
        time = np.array([*chunk, *chunk], np.uint64) * S
        line = np.array([3, 3, 5, 5], np.uint32)
        rest = (np.full(4, size, kind) for size, kind in ((5 * S, "u8"), (0, "u4"), (0, "u2"),
                                                          (1, "u4")))  # fmt: skip
        writer.add_calls(Calls(line, time, *rest, np.zeros((4, MAX_VALUES), np.uint64)))
        writer.flush()
    writer.close()


def test_lines_last_from_the_first_to_the_last_of_their_records_and_calls(tmp_path: Path) -> None:
    """Calls before a line's first record were before the line's start, and before time 0."""
    names = [tmp_path / f"m{number}" for number in range(2)]
    for number, name in enumerate(names):
        write_calls(name, number)
    merge(names, tmp_path / "all")
    merge(names[1:], tmp_path / "grown")
    merge(names[:1], tmp_path / "grown", add=True)
    assert contents(tmp_path / "grown") == contents(tmp_path / "all")
    assert check_database(tmp_path / "all") == []
    with hpcd.analysis.open(tmp_path / "all") as db:
        assert (db.lines.start // S).tolist() == [0, 0, 1, 1]
        assert (db.lines.end // S).tolist() == [29, 29, 30, 30]
        assert int(db.calls.time.min()) == 0
        assert db.duration_ns == 30 * S
    start = tmp_path / "all/lines/start.npy"
    np.save(start, np.load(start) + S)
    with hpcd.analysis.open(tmp_path / "all") as db:
        assert check._check_calls(db) == ["calls begin before their trace line or end after it"]


def test_adding_keeps_the_symbols_and_sums_of_recordings(tmp_path: Path) -> None:
    shape = Shape(9, 60, ranks_per_node=3)
    synthesizer = Synthesizer(shape, recorded_source(RECORDINGS / "mpi"))
    names = [tmp_path / f"m{number}" for number in range(shape.measurements)]
    for number, name in enumerate(names):
        synthesizer.write(name, number)
    merge(names, tmp_path / "all")
    merge(names[:2], tmp_path / "grown")
    merge(names[2:], tmp_path / "grown", add=True)
    assert contents(tmp_path / "grown") == contents(tmp_path / "all")
    assert table_of(tmp_path / "all" / SYMBOLS)[1]
    assert check_database(tmp_path / "grown") == []


def test_adding_to_nothing_makes_a_database(tmp_path: Path) -> None:
    write_measurement(tmp_path / "m")
    assert main(["merge", "--add", str(tmp_path / "m"), "-o", str(tmp_path / "db")]) == 0
    assert check_database(tmp_path / "db") == []


def test_nothing_is_added_to_what_cannot_be_kept(tmp_path: Path) -> None:
    write_measurement(tmp_path / "m")
    write_measurement(tmp_path / "n", seed=1, host="n")
    merge([tmp_path / "m"], tmp_path / "db")
    manifest = tmp_path / "db" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace(f'"version": {VERSION}', '"version": 99'))
    with pytest.raises(FormatError, match="database format 99"):
        merge([tmp_path / "n"], tmp_path / "db", add=True)
    manifest.write_text(text)
    (part,) = (tmp_path / "db" / "trace").glob("*.part")
    part.rename(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="missing"):
        merge([tmp_path / "n"], tmp_path / "db", add=True)
    assert manifest.read_text() == text
    assert not (tmp_path / ".db.merging").exists()


def test_a_measurement_that_grew_is_read_again(tmp_path: Path) -> None:
    write_measurement(tmp_path / "m", close=False)
    whole = tmp_path / "m" / "segment-000000.hpcd"
    content = whole.read_bytes()
    whole.write_bytes(content[: len(content) * 2 // 3])
    first = merge([tmp_path / "m"], tmp_path / "db")
    whole.write_bytes(content)
    second = merge([tmp_path / "m"], tmp_path / "db", add=True)
    assert first.records < second.records == 400
    merge([tmp_path / "m"], tmp_path / "new")
    assert contents(tmp_path / "db") == contents(tmp_path / "new")


def test_two_merges_at_once_do_not_mix(tmp_path: Path) -> None:
    write_measurement(tmp_path / "m")
    failed: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage == "unite" and not failed:
            with pytest.raises(StorageError, match="another merge") as error:
                merge([tmp_path / "m"], tmp_path / "db")
            failed.append(str(error.value))

    merge([tmp_path / "m"], tmp_path / "db", progress=progress)
    assert failed
    assert check_database(tmp_path / "db") == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["db", "m"]


def test_little_memory_makes_shorter_blocks_and_the_same_records(tmp_path: Path) -> None:
    shape = Shape(ranks=600, records=800, ranks_per_node=600)
    Synthesizer(shape, built_in_source(200)).write(tmp_path / "m", 0)
    merge([tmp_path / "m"], tmp_path / "much")
    merge([tmp_path / "m"], tmp_path / "little", memory=1 << 20)
    with hpcd.analysis.open(tmp_path / "much") as a, hpcd.analysis.open(tmp_path / "little") as b:
        for line in (0, 5, 599):
            one, two = a.records(line), b.records(line)
            assert int((one.value > 0).sum()) == 800
            assert (one.time == two.time).all()
            assert (one.node == two.node).all()
        blocks = [len(db.trace.part(0).blocks.base) for db in (a, b)]
    assert 600 <= blocks[0] < blocks[1]


def test_a_merge_whose_worker_was_killed_goes_on(tmp_path: Path) -> None:
    source = built_in_source(500)
    Synthesizer(Shape(1, 2000, seed=1), source).write(tmp_path / "small", 0)
    Synthesizer(Shape(4, 2_000_000, seed=2), source).write(tmp_path / "big", 0)
    inputs = [str(tmp_path / "small"), str(tmp_path / "big")]
    command = [*HPCD, "merge", "-j", "2", *inputs, "-o", str(tmp_path / "db")]
    work = tmp_path / ".db.merging"
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    victims: list[psutil.Process] = []
    while not victims:
        assert running.poll() is None, "the merge was over before a worker could be killed"
        if not list(work.glob("parts/*.part")):
            continue
        for process in psutil.Process(running.pid).children(recursive=True):
            try:
                files = [file.path for file in process.open_files()]
            except psutil.Error:
                continue
            if any("/part-" in path for path in files):
                victims.append(process)
    victims[0].send_signal(signal.SIGKILL)
    _, errors = running.communicate()
    assert running.returncode == 1
    assert errors.count("\n") == 1
    assert "killed" in errors
    (kept,) = work.glob("parts/*.part")
    inode = kept.stat().st_ino
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "2 measurements" in again.stdout
    assert inode in inodes(tmp_path / "db")
    assert not work.exists()
    merge([tmp_path / "small", tmp_path / "big"], tmp_path / "whole", workers=1)
    assert contents(tmp_path / "db") == contents(tmp_path / "whole")


def test_a_merge_that_was_killed_itself_goes_on(tmp_path: Path) -> None:
    source = built_in_source(500)
    Synthesizer(Shape(1, 2000, seed=1), source).write(tmp_path / "small", 0)
    Synthesizer(Shape(4, 2_000_000, seed=2), source).write(tmp_path / "big", 0)
    # The biggest is read first: one worker would make its part first.
    command = [*HPCD, "merge", "-j", "2", str(tmp_path / "small"), str(tmp_path / "big"), "-o",
               str(tmp_path / "db")]  # fmt: skip
    running = subprocess.Popen(command, start_new_session=True)
    work = tmp_path / ".db.merging"
    while not list(work.glob("parts/*.part")):
        assert running.poll() is None
        time.sleep(0.001)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert list(work.glob("parts/*.part"))
    assert subprocess.run(command, check=True).returncode == 0
    assert check_database(tmp_path / "db") == []
    assert not work.exists()


@pytest.mark.parametrize("engine", ["mpi", "dask"])
def test_other_engines_make_the_same_database(tmp_path: Path, engine: str) -> None:
    for number in range(3):
        write_measurement(tmp_path / f"m{number}", seed=number, host=f"n{number}", ranks=(number,))
    names = [str(tmp_path / f"m{number}") for number in range(3)]
    merge([Path(name) for name in names], tmp_path / "here")
    command = [*HPCD, "merge", *names, "-o", str(tmp_path / "there"), "--engine", engine]
    if engine == "mpi":
        mpirun = shutil.which("mpirun.openmpi") or "mpirun"
        command = [mpirun, "--allow-run-as-root", "--oversubscribe", "-n", "4", *command]
    else:
        command += ["-j", "2"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_an_engine_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_measurement(tmp_path / "m")
    monkeypatch.setitem(sys.modules, "distributed", None)
    command = ["merge", str(tmp_path / "m"), "-o", str(tmp_path / "db"), "--engine", "dask"]
    assert main(command) == 2
    assert "hpcd[dask]" in capsys.readouterr().err
