"""``hpcd stacks``: where sleeping threads stand, what they wait for, and that none notices."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.bpf.wire import Wanted
from hpcd.daemon.access.processes import descendants, name_of, thread_ids
from hpcd.daemon.access.thread_reading import ThreadReading
from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from tests.support import recorded, stalling_fuse
from tests.support.debugger import by_gdb, in_files, places_of
from tests.support.lammps import ENVIRONMENT, melt
from tests.support.machine import stolen_seconds
from tests.support.paths import let_all_users_reach
from tests.support.recorded import HPCD
from tests.support.standing import asleep, stacks, states, switches_of, user_functions
from tests.support.waiting import Recorder, seconds_by_function, started

pytestmark = pytest.mark.root

MALLORY = 65533

# In each thread of "places", by its name: its own functions, innermost first, and its wait's kind.
PLACES = {
    "condition": (["waits_for_condition", "in_condition"], "condition"),
    "poll": (["waits_in_poll", "in_poll"], "files"),
    "read": (["waits_in_read", "in_read"], "file"),
    "sleep": (["waits_in_sleep", "in_sleep"], "timer"),
    "join": (["waits_for_thread", "in_join"], "thread"),
}


def test_threads_stand_where_gdb_finds_them_and_do_not_notice(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    with asleep(build("asleep.c"), "places", threads=6) as pid:
        before = switches_of(pid)
        document, places = stacks("--pid", pid), places_of(pid)
        assert switches_of(pid) == before
        assert all("TracerPid:\t0" in lines for lines in before.values())
        counters = by_gdb(pid, tmp_path / "frames.py")
        # What gdb does to them is seen by the same figures.
        assert switches_of(pid) != before
        assert len(counters) == 6
        assert places == {tid: in_files(pid, addresses) for tid, addresses in counters.items()}
    named = {thread["name"]: thread for thread in document["threads"]}
    for name, (functions, kind) in PLACES.items():
        path = user_functions(named[name])
        at = path.index(functions[0])
        assert path[at : at + 2] == functions
        assert named[name]["wait"]["kind"] == kind, named[name]
        assert 0 <= named[name]["since_s"] < 60
    assert named["join"]["wait"]["holders"] == [named["sleep"]["tid"]]
    assert f"written by process {pid} " in named["read"]["wait"]["text"]


def test_a_vfork_parent_which_no_debugger_can_stop(build: Callable[..., Path]) -> None:
    with asleep(build("asleep.c"), "vfork", threads=2) as pid:
        threads = stacks("--pid", pid)["threads"]
        (parent,) = (t for t in threads if t["pid"] == pid and t["tid"] != pid)
        (child,) = (t for t in threads if t["pid"] != pid)
    assert {"waits_for_child", "in_vfork"} <= set(user_functions(parent))
    assert {"waits_for_child", "in_vfork"} <= set(user_functions(child))
    assert (parent["wait"]["kind"], parent["wait"]["holders"]) == ("child", [child["tid"]])
    assert parent["activity"] == "asleep, uninterruptibly"


def test_since_when_it_sleeps(build: Callable[..., Path]) -> None:
    with asleep(build("asleep.c"), "many", 1, threads=2) as pid:
        asleep_by, stolen = time.monotonic_ns(), stolen_seconds()
        command = [*HPCD, "stacks", "--json", "-p", str(pid), "--watch", "0.5", "--rounds", "2"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        first, second = map(json.loads, lines.splitlines())
        since = {thread["tid"]: thread["since_s"] for thread in first["threads"]}
        # The scheduler's clock stands still while the hypervisor has the CPU.
        stolen = stolen_seconds() - stolen
        for thread in second["threads"]:
            passed = (second["time_ns"] - first["time_ns"]) / 1e9
            assert thread["since_s"] == pytest.approx(
                since[thread["tid"]] + passed, abs=0.1 + stolen
            )
            # The programs are loaded, and the threads were asleep before, for no time worth it.
            asleep_for = (second["time_ns"] - asleep_by) / 1e9
            assert asleep_for - 0.02 - stolen <= thread["since_s"] < asleep_for + 5
            assert thread["moved"] == "not run"


@pytest.mark.parametrize("in_namespace", [False, True])
def test_a_deadlock_is_named(build: Callable[..., Path], in_namespace: bool) -> None:
    """Also where the program knows its threads by other numbers."""
    executable = build("asleep.c")
    with contextlib.ExitStack() as stack:
        if in_namespace:
            outer = started(Path("/usr/bin/unshare"), "--pid", "--fork", executable, "deadlock")
            stack.callback(outer.communicate)
            children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
            pid = int(children[0])
            stack.callback(os.kill, pid, signal.SIGKILL)
            while states(pid) != 4:
                time.sleep(0.002)
        else:
            pid = stack.enter_context(asleep(executable, "deadlock", threads=4))
        document = stacks("--pid", pid)
        by_function = {
            name: thread for thread in document["threads"] for name in user_functions(thread)
        }
        ada, bob, cleo = (
            by_function[name]["tid"] for name in ("holds_first", "holds_second", "comes_third")
        )
        assert [sorted(ring) for ring in document["deadlocks"]] == [sorted([ada, bob])]
        assert document["chains"] == [{"threads": [cleo, ada], "waiters": 1}]
        ends = [by_function[name]["wait"]["address"] for name in ("holds_second", "comes_third")]
        assert ends[0] == ends[1]
        text = subprocess.run([*HPCD, "stacks", "-p", str(pid)], capture_output=True, text=True)
        assert "deadlock: 2 threads wait for each other" in text.stdout
        assert f"held by thread {bob} (" in text.stdout


def test_a_chain_of_waiters_leads_to_who_sleeps(build: Callable[..., Path]) -> None:
    with asleep(build("asleep.c"), "chain", 5, threads=6) as pid:
        document = stacks("--pid", pid)
        (chain,) = document["chains"]
        links = sorted(thread["tid"] for thread in document["threads"] if thread["tid"] != pid)
        assert chain == {"threads": links[::-1], "waiters": 4}
        last = next(t for t in document["threads"] if t["tid"] == links[0])
        assert "waits_in_sleep" in user_functions(last)


def test_thousands_of_threads_take_less_than_a_second(build: Callable[..., Path]) -> None:
    with asleep(build("asleep.c"), "many", 5000, threads=5001) as pid:
        document = stacks("--pid", pid)
        functions = [user_functions(t) for t in document["threads"] if t["tid"] != pid]
        assert len(functions) == 5000
        assert all("waits_for_condition" in names for names in functions)


OWN = {"keeps_coming", "ends_soon", "start", "main", "executes_itself", "waits_in_sleep"}


@pytest.mark.parametrize(("what", "number"), [("coming", 10), ("execs", 0)])
def test_what_changes_while_it_is_read_is_marked_not_invented(
    build: Callable[..., Path], what: str, number: int
) -> None:
    with asleep(build("asleep.c"), what, *([number] if number else [])) as pid:
        command = [*HPCD, "stacks", "--json", "-p", str(pid), "--watch", "0.1", "--rounds", "4"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    readings = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(readings) == 4
    paths = [user_functions(t) for reading in readings for t in reading["threads"]]
    seen = {name for names in paths for name in names}
    # What executes itself all the time may never be met between two programs.
    assert seen & OWN or what == "execs"
    for names in paths:
        # Whole paths begin where threads and programs do, or in the dynamic loader before that;
        # others say why they are not.
        begins = ("clone3", "_start", "_dl_start_user")
        assert not names or names[-1] in begins or names[-1].startswith("["), names
    own = {name for name in seen if name in ("waits_in_read", "takes_first", "link_of_chain")}
    assert not own, "functions that never ran"


def test_frames_that_lie_far_apart(build: Callable[..., Path]) -> None:
    """64 KiB of each stack are copied."""
    with asleep(build("asleep.c"), "large", threads=2) as pid:
        (thread,) = (t for t in stacks("--pid", pid)["threads"] if t["tid"] != pid)
    functions = user_functions(thread)
    assert functions[functions.index("waits_in_sleep") :] == [
        "waits_in_sleep", *["has_large_frames"] * 5, "in_large_frames", "start_thread", "clone3"
    ]  # fmt: skip


def test_a_stack_that_lies_is_marked(build: Callable[..., Path]) -> None:
    with asleep(build("asleep.c"), "lies", threads=2) as pid:
        (liar,) = (t for t in stacks("--pid", pid)["threads"] if t["tid"] != pid)
    assert user_functions(liar)[0] == "stands_on_lies"
    assert user_functions(liar)[-1].startswith("[truncated: ")
    assert liar["wait"]["kind"] == "timer"


def test_stopped_processes_and_zombies(build: Callable[..., Path]) -> None:
    with asleep(build("asleep.c"), "many", 1, threads=2) as pid:
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        document = stacks("--pid", pid)
        assert {t["activity"] for t in document["threads"]} == {"stopped"}
        assert any("waits_for_condition" in user_functions(t) for t in document["threads"])
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    (zombie,) = stacks("--pid", process.pid)["threads"]
    assert (zombie["activity"], zombie["wait"]["holders"]) == ("ended", [os.getpid()])
    process.wait()
    done = subprocess.run(
        [*HPCD, "stacks", "--pid", str(process.pid)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (3, f"hpcd: no process {process.pid}\n")


def test_a_thread_that_runs_is_met_where_it_runs(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    counts = tmp_path / "counts"
    with subprocess.Popen([str(build("pace.c")), str(counts), "5"]) as process:
        try:
            while not counts.exists() or not any(counts.read_bytes()):
                time.sleep(0.002)
            (thread,) = stacks("--pid", process.pid)["threads"]
        finally:
            process.kill()
    assert thread["activity"] in ("running", "waiting for a CPU")
    functions = user_functions(thread)
    at = functions.index("down")
    assert (functions[at : at + 7], functions[:at]) in (
        (["down"] * 6 + ["main"], ["work"]),
        (["down"] * 6 + ["main"], []),
    )


def test_a_recording_has_the_paths_of_those_that_slept_when_it_began(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    executable = build("asleep.c")
    with asleep(executable, "places", threads=6) as pid:
        before = switches_of(pid)
        read = stacks("--pid", pid)
        summary = Recorder(tmp_path / "m", "-p", pid, "-d", 1).wait()
        assert switches_of(pid) == before
    assert summary["unwind"]["deferred"]["walked"] == 6
    seconds = seconds_by_function(tmp_path / "m", executable)
    lived = summary["time"]["lifetime"] / 6
    for functions, _ in PLACES.values():
        for name in functions:
            assert seconds[name]["blocked_time"] == pytest.approx(lived, rel=0.1), name
    with open_measurement(tmp_path / "m") as measurement:
        names = {name for rows in measurement.symbols.values() for *_, name in rows}
        assert "__schedule" in names
        marker = frames.marker_frame(UnwindStatus.BEFORE_ATTACH)
        assert marker not in measurement.cct.frame.tolist()
    database = tmp_path / "db"
    recorded.hpcd("merge", tmp_path / "m", "-o", database)
    command = [*HPCD, "stacks", str(database), "--at", "0.5", "--json"]
    document = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    named = {thread["name"]: thread for thread in document["threads"]}
    with hpcd.analysis.open(database) as db:
        ((offset,),) = db.sql().execute("SELECT clock_offset_ns FROM measurement")
        at_s = (db.origin_ns - offset) / 1e9 + 0.5
    # It has slept since long before it was attached to, and that is when its wait began.
    slept = {
        thread["name"]: read["time_ns"] / 1e9 - thread["since_s"] for thread in read["threads"]
    }
    for name, (functions, _) in PLACES.items():
        path = user_functions(named[name])
        at = path.index(functions[0])
        assert path[at : at + 2] == functions
        assert named[name]["activity"] == "asleep"
        assert at_s - named[name]["since_s"] == pytest.approx(slept[name], abs=0.1), name
        assert named[name]["pid"] == pid


def test_a_process_that_holds_its_address_space_locked_keeps_nobody_waiting(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    """Its kernel frames are shown, and whoever was selected beside it is read as ever."""
    if not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    let_all_users_reach(tmp_path)
    served = tmp_path / "served"
    served.mkdir()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(stalling_fuse.mounted(served, MALLORY, Path("/bin/sleep")))
        holder = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", stalling_fuse.HOLD, served / "file"],
                user=MALLORY, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        stack.callback(server.kill)
        stack.callback(holder.kill)
        assert holder.stdin and holder.stdout and holder.stdout.readline() == "ready\n"
        other = stack.enter_context(asleep(build("asleep.c"), "many", 3, threads=4))
        # The process may begin to hold it after its mappings were read: that is another wait.
        reading = ThreadReading()
        stack.callback(reading.close)
        both = {holder.pid: Wanted.USER, other: Wanted.USER}
        assert {record.tgid for record in reading.read(both)} == both.keys()
        stalling_fuse.stall(server)
        holder.stdin.write("go\n")
        holder.stdin.flush()
        while holder.pid not in reading.withheld:
            records = reading.read(both)
        assert {record.tgid for record in records} == both.keys()
        assert sum(record.size > 0 for record in records if record.tgid == other) == 4
        began = time.monotonic()
        document = stacks("--pid", holder.pid, "--pid", other)
        assert time.monotonic() - began < 30
        held = [t for t in document["threads"] if t["pid"] == holder.pid]
        assert held and all(any(f["kernel"] for f in t["path"]) for t in held)
        assert not any(f["name"] == "munmap" for t in held for f in t["path"])
        read = [user_functions(t) for t in document["threads"] if t["pid"] == other]
        assert sum("waits_for_condition" in functions for functions in read) == 3


@pytest.mark.skipif(not shutil.which("lmp"), reason="LAMMPS is not installed")
def test_what_is_recorded_under_way_waits_on_whole_paths(tmp_path: Path) -> None:
    """Threads of MPI and of LAMMPS that slept when hpcd came are most of the blocked time."""
    with subprocess.Popen(
        melt(tmp_path, steps=1_000_000),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as job:
        try:
            while not (ranks := [p for p in descendants(job.pid) if name_of(p) == "lmp"]) or any(
                len(thread_ids(rank)) < 2 for rank in ranks
            ):
                assert job.poll() is None
                time.sleep(0.05)
            Recorder(tmp_path / "m", "-p", job.pid, "-d", 3).wait()
        finally:
            os.killpg(job.pid, signal.SIGKILL)
    recorded.hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        blocked = db.metrics.exclusive("blocked_time")
        outermost = db.cct.frame[db.cct.ancestor_at(1)]
        cut = float(blocked[frames.is_marker(outermost)].sum())
        assert float(blocked.sum()) > 3 * len(ranks)
        # On a machine with nothing else to do 0.02 %; on one that starts others, one wait more.
        assert cut <= 0.01 * float(blocked.sum())
