"""Files and processes that keep who looks at them waiting for ever."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcd.daemon.access import patience as patience_module
from hpcd.daemon.access.file_status import cached_status, status_of
from hpcd.daemon.access.patience import Patience, WithheldError
from hpcd.daemon.access.processes import executable_regions
from hpcd.daemon.access.target_files import (
    MappedFile,
    ServedError,
    mapped_file,
    mapped_files,
    open_file,
    open_folder,
)
from hpcd.daemon.targets.process_identity import command_of
from tests.support import stalling_fuse
from tests.support.paths import let_all_users_reach

MALLORY = 48_002


def of_program(mapped: list[MappedFile], name: str) -> MappedFile:
    return next(file for file in mapped if file.region.path.endswith(name))


def test_a_file_is_known_without_asking_for_its_status(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1234)
    os.utime(path, ns=(5, 1_600_000_000_123_456_789))
    with path.open() as opened:
        status, truth = status_of(opened.fileno()), path.stat()
    assert status == (
        truth.st_mode, truth.st_dev, truth.st_ino, 1234, 1_600_000_000_123_456_789, truth.st_uid,
        truth.st_ctime_ns,
    )  # fmt: skip
    with open_file(str(path), os.getpid()) as file:
        assert file.read() == b"x" * 1234
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for other in (fifo, tmp_path, Path("/dev/null")):
        with pytest.raises(OSError, match="regular"):
            open_file(str(other), os.getpid())


def test_folders_are_walked_without_following_links(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to("inner")
    fd = open_folder(os.getpid(), str(tmp_path / "inner"))
    assert os.fstat(fd).st_ino == (tmp_path / "inner").stat().st_ino
    os.close(fd)
    with pytest.raises(NotADirectoryError):
        open_folder(os.getpid(), str(tmp_path / "link"))


def wait_asleep(pid: int) -> None:
    """Until the process sleeps in a system call: what it maps does not change then."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "S":
        pass


def test_a_process_maps_what_it_maps() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        try:
            # Not yet this program, or its library is not there yet.
            while b"libc" not in Path(f"/proc/{process.pid}/maps").read_bytes() or (
                b"sleep" not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
            ):
                pass
            wait_asleep(process.pid)
            mapped = mapped_files(process.pid, lambda _: False)
            again = mapped_files(process.pid, lambda _: True)
        finally:
            process.kill()
    program = of_program(mapped, "/sleep")
    assert program.file and program.file.read(4) == b"\x7fELF"
    assert of_program(again, "/sleep").file is None
    assert {mapping.status for mapping in again} == {mapping.status for mapping in mapped}


def test_a_file_mapped_where_another_was_is_not_taken_for_it(tmp_path: Path) -> None:
    """mpirun tries its components one by one, and each is mapped where the last one was."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    executable, private, fixed = 5, 2, 16

    def map_file(name: str, at: int | None) -> int:
        path = tmp_path / name
        path.write_bytes(name.encode().ljust(4096, b"."))
        with path.open("rb") as file:
            flags = private | (fixed if at else 0)
            place = libc.mmap(
                ctypes.c_void_p(at), ctypes.c_size_t(4096), executable, flags, file.fileno(),
                ctypes.c_long(0),
            )  # fmt: skip
        assert isinstance(place, int) and place > 0
        return place

    pid = os.getpid()
    place = map_file("first", None)
    try:
        region = next(region for region in executable_regions(pid) if region.start == place)
        before = mapped_file(pid, region, lambda _: False)
        assert before.file and before.file.read(5) == b"first"
        map_file("second", place)
        for known in (False, True):
            after = mapped_file(pid, region, lambda _, known=known: known)
            assert after.status is None and after.file is None
    finally:
        libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(4096))


def test_memory_files_have_no_mount_and_are_read() -> None:
    fd = os.memfd_create("code")
    os.write(fd, b"code")
    with open_file(f"/proc/self/fd/{fd}", os.getpid()) as file:
        assert file.read() == b"code"
    os.close(fd)


# --- FUSE ---


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A file that a user serves, with the contents of sleep, and the server."""
    if os.getuid() != 0 or not Path("/dev/fuse").exists():
        pytest.skip("no FUSE here")
    let_all_users_reach(tmp_path)
    folder = tmp_path / "served"
    folder.mkdir()
    program = tmp_path / "contents"
    shutil.copy("/bin/sleep", program)
    with stalling_fuse.mounted(folder, MALLORY, program) as server:
        yield folder / "file", server


pytest_fuse = pytest.mark.root


@pytest_fuse
def test_the_status_of_a_path_asks_no_file_server(
    served: tuple[Path, subprocess.Popen[str]],
) -> None:
    file, server = served
    contents = file.parents[1] / "contents"
    size = contents.stat().st_size  # the kernel knows its path from now on
    assert cached_status(str(contents)).st_size == size
    stalling_fuse.stall(server)
    with pytest.raises(BlockingIOError):
        cached_status(str(file))


@pytest_fuse
def test_what_a_user_serves_is_not_opened(served: tuple[Path, subprocess.Popen[str]]) -> None:
    """Nor is the server asked anything: it answers nothing."""
    file, server = served
    with subprocess.Popen([file, "60"], user=MALLORY, cwd="/") as process:
        try:
            stalling_fuse.stall(server)
            program = of_program(mapped_files(process.pid, lambda _: False), "/served/file")
            assert program.file is None and "FUSE" in program.refused
            assert program.status and program.status.st_size == Path("/bin/sleep").stat().st_size
            with pytest.raises(ServedError):
                open_folder(os.getpid(), str(file.parent))
            # Its mount gone, it could be anything.
            subprocess.run(["umount", "-l", file.parent], check=True)
            program = of_program(mapped_files(process.pid, lambda _: False), "/file")
            assert program.file is None and "gone" in program.refused
        finally:
            process.kill()


@pytest_fuse
def test_a_process_that_holds_its_address_space_is_given_up(
    served: tuple[Path, subprocess.Popen[str]],
) -> None:
    file, server = served
    with subprocess.Popen(
        [sys.executable, "-c", stalling_fuse.HOLD, file],
        user=MALLORY, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdin and process.stdout and process.stdout.readline() == "ready\n"
            stalling_fuse.stall(server)
            process.stdin.write("go\n")
            process.stdin.flush()
            patience = Patience()
            with pytest.raises(WithheldError):
                while True:
                    patience.ask(process.pid, lambda: mapped_files(process.pid, lambda _: False))
            assert patience.withheld == [process.pid]
            # Asked again while it has not answered, it is not waited for.
            with pytest.raises(WithheldError):
                patience.ask(process.pid, lambda: None)
            assert patience.ask(os.getpid(), lambda: 5) == 5
            # Its command line, by whoever identifies it.
            assert command_of(process.pid) == ()
            assert command_of(os.getpid()) != ()
        finally:
            process.kill()
            server.kill()


# --- who keeps others waiting ---


def test_what_is_asked_is_answered_or_raised() -> None:
    patience = Patience()
    assert patience.ask(os.getpid(), lambda: threading.current_thread().name) == "asker"
    with pytest.raises(ZeroDivisionError):
        patience.ask(os.getpid(), lambda: 1 // 0)
    assert patience.withheld == []


def test_who_does_not_answer_is_waited_for_ever_less() -> None:
    """All that a user's processes together can cost is bounded, and so are the threads."""
    patience = Patience()
    answer = threading.Event()
    rest = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(12)]
    try:
        before = threading.active_count()
        for process in rest:
            with pytest.raises(WithheldError):
                patience.ask(process.pid, answer.wait)
        assert threading.active_count() - before <= 8
        given_up = patience.withheld
        assert len(given_up) == 8
    finally:
        answer.set()
        for process in rest:
            process.kill()
            process.wait()
    while patience.withheld:
        pass  # they answer now


def test_a_question_that_is_late_but_runnable_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience_module, "_FIRST_SECONDS", 0.01)
    monkeypatch.setattr(patience_module, "RUNNABLE_PERIODS", 10_000)
    answer, looks = threading.Event(), []

    def looked_at(thread: str) -> bool:
        looks.append(thread)
        if len(looks) == 3:
            answer.set()
        return True

    monkeypatch.setattr(patience_module, "is_runnable", looked_at)
    patience = Patience()
    who = patience.ask(os.getpid(), lambda: (answer.wait(), threading.get_native_id())[1])
    assert {*looks} == {f"self/task/{who}"} and len(looks) >= 3
    assert patience.withheld == []


def test_an_answer_that_was_not_given_counts_for_ten_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(patience_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    # One that is not answered is all that a user's processes are waited for.
    monkeypatch.setattr(patience_module, "_FIRST_SECONDS", 0.1)
    monkeypatch.setattr(patience_module, "_LEAST_SECONDS", 0.09)
    patience = Patience()
    answer = threading.Event()
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        try:
            with pytest.raises(WithheldError):
                patience.ask(process.pid, answer.wait)
            # As long as it takes a thread, too.
            now[0] = 1601.0
            with pytest.raises(WithheldError):
                patience.ask(os.getpid(), lambda: 5)
            (outcome,) = patience._open.values()
            # From here on one that is asked has all the time that an idle thread may need.
            monkeypatch.setattr(patience_module, "_FIRST_SECONDS", 60.0)
            monkeypatch.setattr(patience_module, "_LEAST_SECONDS", 31.0)
            answer.set()
            assert isinstance(outcome, threading.Event) and outcome.wait(60)
            for seconds, over in ((599.0, False), (601.0, True)):
                now[0] = 1000.0 + seconds
                with contextlib.nullcontext() if over else pytest.raises(WithheldError):
                    assert patience.ask(os.getpid(), lambda: 5) == 5
        finally:
            answer.set()
            process.kill()
