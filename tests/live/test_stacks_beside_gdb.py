"""``hpcd stacks`` finds what gdb's ``thread apply all bt`` finds, where a debugger gets hold of a
thread only once it may go on, and in ranks of MPI; and who deviates in jobs of several ranks."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import stalling_fuse
from tests.support.debugger import by_gdb, in_files, places_of
from tests.support.paths import let_all_users_reach
from tests.support.recorded import hpcd
from tests.support.standing import asleep, stacks, states, switches_of, user_functions
from tests.support.waiting import started

pytestmark = pytest.mark.root

MALLORY = 65533
SINGLE_RANK = (
    "OMPI_MCA_ess_singleton_isolated=1", "OMPI_MCA_mpi_yield_when_idle=1",
    "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
)  # fmt: skip
needs_mpi = pytest.mark.skipif(not shutil.which("mpicc.openmpi"), reason="needs libopenmpi-dev")


def thread_called(pid: int, name: str, state: str = "D") -> int:
    """The thread of ``pid`` with this name, when it sleeps (D: where no signal wakes it)."""
    while True:
        for task in Path(f"/proc/{pid}/task").iterdir():
            _, _, rest = task.joinpath("stat").read_text().rpartition(")")
            if task.joinpath("comm").read_text() == f"{name}\n" and rest.split()[0] == state:
                return int(task.name)
        time.sleep(0.002)


@contextmanager
def told_to(process: subprocess.Popen[str], name: str, state: str) -> Iterator[tuple[int, int]]:
    """Its pid, and its thread ``name``, which begins now and sleeps."""
    try:
        assert process.stdin and process.stdout
        process.stdin.write("x\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ready\n"
        thread = thread_called(process.pid, name, state)
        while states(process.pid) < 2:
            time.sleep(0.002)
        yield process.pid, thread
    finally:
        process.kill()


def equal_to_gdb(
    pid: int, thread: int, script: Path, release: Callable[[], object], *, faulted: bool
) -> dict[str, object]:
    """Return the row of ``hpcd stacks`` for ``thread``, after checking that all threads of ``pid``
    stand where gdb finds them and none has noticed."""
    before = switches_of(pid)
    document, places = stacks("--no-children", "--pid", pid), places_of(pid)
    assert switches_of(pid) == before
    counters = by_gdb(pid, script, held=thread, release=release)
    assert thread in counters
    assert places == {
        tid: in_files(pid, addresses, faulted=faulted and tid == thread)
        for tid, addresses in counters.items()
    }
    (row,) = (row for row in document["threads"] if row["tid"] == thread)
    return dict(row)


def test_a_page_fault_on_a_mapping_of_a_slow_file_system(
    build: Callable[..., Path], tmp_path: Path
) -> None:
    if not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    let_all_users_reach(tmp_path)
    served = tmp_path / "served"
    served.mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(stalling_fuse.mounted(served, MALLORY, Path("/bin/sleep")))
        process = started(build("asleep.c"), "fault", served / "file")
        stack.callback(process.communicate)
        stack.callback(server.kill)  # who waits for it goes on
        stalling_fuse.stall(server)
        pid, thread = stack.enter_context(told_to(process, "fault", "S"))
        waiter = equal_to_gdb(
            pid, thread, tmp_path / "frames.py", lambda: stalling_fuse.answer(server), faulted=True
        )
    assert user_functions(waiter)[:2] == ["waits_for_page", "in_fault"]
    assert waiter["wait"]["kind"] == "memory"  # type: ignore[index]


def test_a_vfork_parent(build: Callable[..., Path], tmp_path: Path) -> None:
    with asleep(build("asleep.c"), "vfork", threads=2) as pid:
        thread = thread_called(pid, "vfork")
        (child,) = map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        waiter = equal_to_gdb(
            pid, thread, tmp_path / "frames.py", lambda: os.kill(child, signal.SIGKILL),
            faulted=False,
        )  # fmt: skip
    assert {"waits_for_child", "in_vfork"} <= set(user_functions(waiter))
    assert waiter["activity"] == "asleep, uninterruptibly"
    assert waiter["wait"]["holders"] == [child]  # type: ignore[index]


def test_a_write_to_a_frozen_file_system(build: Callable[..., Path], tmp_path: Path) -> None:
    """As a disk that does not answer: no signal, not even that which kills, wakes the thread."""
    folder, image = tmp_path / "mounted", tmp_path / "image"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(8 << 20)
    with ExitStack() as stack:
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        if subprocess.run(["mount", "-o", "loop", str(image), str(folder)], check=False).returncode:
            pytest.skip("no loop devices here")
        stack.callback(subprocess.run, ["umount", str(folder)], check=True)
        (folder / "file").touch()
        process = started(build("asleep.c"), "write", folder / "file")
        stack.callback(process.communicate)
        subprocess.run(["fsfreeze", "-f", str(folder)], check=True)

        def thaw() -> None:
            subprocess.run(["fsfreeze", "-u", str(folder)], check=False)

        stack.callback(thaw)
        pid, thread = stack.enter_context(told_to(process, "write", "D"))
        waiter = equal_to_gdb(pid, thread, tmp_path / "frames.py", thaw, faulted=False)
    assert waiter["activity"] == "asleep, uninterruptibly"
    functions = user_functions(waiter)
    at = functions.index("waits_in_write")
    assert functions[at : at + 2] == ["waits_in_write", "in_write"]
    assert "mounted/file" in waiter["wait"]["text"]  # type: ignore[index]


@needs_mpi
def test_a_rank_asleep_in_a_receive(build: Callable[..., Path], tmp_path: Path) -> None:
    program = build("receives.c", "-rdynamic", compiler="mpicc.openmpi")
    with asleep(Path("/usr/bin/env"), *SINGLE_RANK, program, "asleep") as pid:
        while states(pid) < 1 or "poll" not in Path(f"/proc/{pid}/wchan").read_text():
            time.sleep(0.002)
        before = switches_of(pid)
        document, places = stacks("--pid", pid), places_of(pid)
        after = switches_of(pid)
        assert after[pid] == before[pid]  # the library's own threads have timers
        counters = by_gdb(pid, tmp_path / "frames.py")
        assert places[pid] == in_files(pid, counters[pid])
        assert places.keys() == counters.keys()
    (main,) = (row for row in document["threads"] if row["tid"] == pid)
    functions = user_functions(main)
    at = functions.index("waits_to_receive")
    assert functions[at - 1] in ("MPI_Recv", "PMPI_Recv")
    assert functions[at : at + 2] == ["waits_to_receive", "main"]
    assert "sched_yield" in functions[: at - 1]


@needs_mpi
def test_a_rank_that_spins_in_a_receive(build: Callable[..., Path], tmp_path: Path) -> None:
    """The innermost frames differ from moment to moment; those down to the call are gdb's."""
    program = build("receives.c", "-rdynamic", compiler="mpicc.openmpi")
    with asleep(Path("/usr/bin/env"), *SINGLE_RANK, program, "spins") as pid:
        places = places_of(pid)[pid]
        (main,) = (t for t in stacks("--pid", pid)["threads"] if t["tid"] == pid)
        counters = in_files(pid, by_gdb(pid, tmp_path / "frames.py")[pid])
    functions = user_functions(main)
    receive = functions.index("waits_to_receive") - 1
    assert functions[receive] in ("MPI_Recv", "PMPI_Recv")
    outer = len(functions) - receive - 1
    assert places[-outer:] == counters[-outer:]
    # Both were inside the call, in the library that has it.
    assert len(places) > outer and len(counters) > outer
    assert places[-outer - 1][0] == counters[-outer - 1][0]
    assert main["activity"] in ("running", "waiting for a CPU")


@needs_mpi
def test_of_eight_ranks_the_one_that_deviates_is_named_first(build: Callable[..., Path]) -> None:
    program = build("deviating.c", compiler="mpicc.openmpi")
    launch = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", "8",
              "--mca", "mpi_yield_when_idle", "1", "--mca", "btl", "self,vader"]  # fmt: skip
    with subprocess.Popen(
        [*launch, str(program), "5"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        try:
            assert job.stdout
            assert [job.stdout.readline() for _ in range(8)] == ["ready\n"] * 8
            output = hpcd("stacks", "--comm", program.name).stdout.splitlines()
        finally:
            os.killpg(job.pid, signal.SIGKILL)
    assert output[0].startswith("8 processes (8 ranks)")
    assert output[2] == "1 of 8 ranks is not in MPI_Allreduce:"
    assert output[3].startswith("  rank 5 in io_write, waits for clock_nanosleep")


def swapped_out(pid: int, thread: int) -> int:
    """Bytes of the mapping that ``thread`` has its stack in which are swapped out."""
    pointer = int(Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()[-2], 16)
    inside = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            low, high = (int(bound, 16) for bound in words[0].split("-"))
            inside = low <= pointer < high
        elif inside and words[0] == "Swap:":
            return int(words[1]) * 1024
    return 0


def page_out(pid: int) -> None:
    """Have all of the private memory of ``pid`` swapped out (MADV_PAGEOUT)."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.pidfd_open(pid)
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split()
        if words[1].startswith("rw") and words[-1] != "[vvar]":
            low, high = (int(bound, 16) for bound in words[0].split("-"))
            vector = (ctypes.c_uint64 * 2)(low, high - low)
            libc.syscall(440, descriptor, vector, ctypes.c_size_t(1), 21, 0)
    os.close(descriptor)


def test_a_stack_that_is_swapped_out(build: Callable[..., Path], tmp_path: Path) -> None:
    swap = tmp_path / "swap"
    with swap.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 16 << 20)
    swap.chmod(0o600)
    subprocess.run(["mkswap", str(swap)], check=True, capture_output=True)
    if subprocess.run(["swapon", str(swap)], check=False, capture_output=True).returncode:
        pytest.skip("nothing can be swapped out here")
    try:
        with asleep(build("asleep.c"), "places", threads=6) as pid:
            whole = places_of(pid)
            page_out(pid)
            threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
            if not any(swapped_out(pid, thread) for thread in threads):
                pytest.skip("nothing was swapped out")
            assert places_of(pid) == whole
            (reader,) = (t for t in stacks("--pid", pid)["threads"] if t["name"] == "read")
            assert "waits_in_read" in user_functions(reader)
    finally:
        subprocess.run(["swapoff", str(swap)], check=True)
