"""Worker processes that are ended while they are waited for."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcd.errors import FormatError
from hpcd.sandbox.worker_process import LateError, WorkerProcess

ASLEEP = ["-c", "import time; time.sleep(60)"]


def test_one_that_is_ended_tells_who_waits_for_it_and_is_not_started_again() -> None:
    worker = WorkerProcess("reader", ASLEEP, 30)
    output: list[str] = []
    asked = threading.Event()

    def ask() -> None:
        with Path(os.devnull).open("rb") as file:
            worker.ask(file.fileno(), "f", b"?")
            asked.set()
            for _ in range(2):
                with pytest.raises(FormatError) as raised:
                    worker.reply("f", 10)
                output.append(str(raised.value))

    asking = threading.Thread(target=ask)
    asking.start()
    assert asked.wait(30)
    worker.end()
    asking.join(20)
    assert len(output) == 2 and output[1] == "f: the reader died (it has been ended)"
    assert not worker.running


def test_one_that_cannot_start_says_how_it_ended() -> None:
    worker = WorkerProcess("reader", ["-m", "no_such_module"], 30)
    why = re.escape("f: the reader died (it ended with code 1; HPCD_DEBUG=1 shows why)")
    with Path(os.devnull).open("rb") as file, pytest.raises(FormatError, match=why):
        worker.ask(file.fileno(), "f", b"?")
        worker.reply("f", 10)


def test_two_threads_may_end_one_at_once() -> None:
    worker = WorkerProcess("reader", ASLEEP, 30)
    worker.channel()
    process = worker.process
    assert process
    kill = process.kill

    def interrupted() -> None:
        worker.end()  # another thread, between the two steps of this one
        kill()

    process.kill = interrupted  # type: ignore[method-assign]
    worker.close()
    assert process.returncode is not None and worker.process is None


_LATE = """
import os, socket, sys, time
from hpcd.sandbox.worker_process import serve
def spin(file, body):
    end = time.monotonic() + float(body)
    while time.monotonic() < end:
        pass
    return b"late"
def sleep(file, body):
    time.sleep(float(body))
    return b"late"
def copy(file, body):
    spin(file, body)
    return os.dup(file)
with socket.socket(fileno=int(sys.argv[1])) as end:
    serve(end, {"r": spin, "s": sleep, "0": lambda *_: b""}, files={"c": copy})
"""


@pytest.fixture
def late() -> Iterator[WorkerProcess]:
    """A worker that has started: it answers after the seconds of a request, for ``r`` and ``c``
    runnable, for ``s`` asleep."""
    worker = WorkerProcess("reader", ["-c", _LATE], 60)
    with Path(os.devnull).open("rb") as file:
        worker.ask(file.fileno(), "f", b"0")
    worker.reply("f", 10)
    yield worker
    worker.close()


def ask_late(worker: WorkerProcess, kind: bytes, seconds: float) -> None:
    worker.timeout = 0.05
    worker.channel().settimeout(worker.timeout)
    with Path(os.devnull).open("rb") as file:
        worker.ask(file.fileno(), "f", kind, str(seconds).encode())


def test_one_that_is_late_but_runnable_is_waited_for(late: WorkerProcess) -> None:
    late.runnable_seconds = 60
    ask_late(late, b"r", 0.3)
    assert late.reply("f", 10) == b"late"
    ask_late(late, b"c", 0.3)
    os.close(late.reply_file("f"))


@pytest.mark.parametrize(("kind", "runnable_seconds"), [(b"s", 60), (b"r", 0), (b"r", 0.2)])
def test_one_that_is_late_is_ended(
    late: WorkerProcess, kind: bytes, runnable_seconds: float
) -> None:
    """A worker that sleeps, or that was runnable for as long as allowed."""
    late.runnable_seconds = runnable_seconds
    ask_late(late, kind, 60)
    with pytest.raises(LateError):
        late.reply("f", 10)
    assert not late.running
