"""Worker processes that are ended while they are waited for."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from hpcd.errors import FormatError
from hpcd.sandbox.worker_process import WorkerProcess

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
