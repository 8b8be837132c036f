"""Reasons of waits, read from words of memory and descriptors of this very process."""

from __future__ import annotations

import ctypes
import os
import socket
import struct

import pytest

from hpcd.daemon.stacks.futex_waits import futex_wait
from hpcd.daemon.stacks.open_files import OpenFiles
from hpcd.daemon.stacks.system_calls import SystemCall
from hpcd.daemon.stacks.target_memory import TargetMemory
from hpcd.model.stack_snapshot import Wait

ME = os.getpid()
OTHER = 4242
WAITERS = 0x80000000
WAIT, LOCK_PI, PRIVATE = 0, 6, 128


@pytest.fixture
def memory() -> TargetMemory:
    return TargetMemory()


def threads(pid: int, number: int) -> int:
    return number if number in (ME, OTHER) else 0


def waiting(memory: TargetMemory, words: bytes, operation: int, value: int) -> Wait:
    """The wait at a futex with these words, in memory that is really there."""
    buffer = ctypes.create_string_buffer(words, max(len(words), 40))
    call = SystemCall("futex", (ctypes.addressof(buffer), operation, value, 0, 0, 0))
    return futex_wait(memory, ME, ME, call, threads)


def test_a_mutex_has_its_owner(memory: TargetMemory) -> None:
    wait = waiting(memory, struct.pack("<4I", 2, 0, OTHER, 1), WAIT | PRIVATE, 2)
    assert (wait.kind, wait.holders, wait.process) == ("mutex", (OTHER,), ME)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((2, 0, 7, 1), id="no such thread"),
        pytest.param((2, 0, OTHER, 0), id="nobody uses it"),
        pytest.param((1, 0, OTHER, 1), id="nobody waits for it"),
        pytest.param((0, 0, OTHER, 1), id="free"),
    ],
)
def test_who_cannot_be_the_owner_is_not_named(memory: TargetMemory, words: tuple[int, ...]) -> None:
    wait = waiting(memory, struct.pack("<4I", *words), WAIT | PRIVATE, words[0])
    assert (wait.kind, wait.holders) == ("futex", ())


def test_robust_and_inheriting_mutexes_have_it_in_the_word(memory: TargetMemory) -> None:
    word = OTHER | WAITERS
    assert waiting(memory, struct.pack("<I", word), WAIT, word).holders == (OTHER,)
    assert waiting(memory, struct.pack("<I", word), LOCK_PI, 0).holders == (OTHER,)


def test_a_thread_that_is_joined(memory: TargetMemory) -> None:
    wait = waiting(memory, struct.pack("<I", OTHER), WAIT, OTHER)
    assert (wait.kind, wait.text, wait.holders) == ("thread", f"thread {OTHER} to end", (OTHER,))
    assert waiting(memory, struct.pack("<I", ME), WAIT, ME).holders == ()  # nobody joins itself
    assert waiting(memory, struct.pack("<I", OTHER), WAIT, 1).holders == ()
    # What the kernel clears at a thread's end is no private futex.
    assert waiting(memory, struct.pack("<I", OTHER), WAIT | PRIVATE, OTHER).holders == ()


def test_memory_that_cannot_be_read_is_no_reason(memory: TargetMemory) -> None:
    for address in (0, 8, 1 << 47, (1 << 64) - 8):
        call = SystemCall("futex", (address, WAIT, 2, 0, 0, 0))
        wait = futex_wait(memory, ME, ME, call, threads)
        assert (wait.kind, wait.word, wait.holders) == ("futex", None, ())
        assert memory.read(ME, address, 16) is None
    assert memory.read(ME, 4096, 1 << 30) is None


def test_ends_of_pipes_and_sockets() -> None:
    read, write = os.pipe()
    left, right = socket.socketpair()
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    try:
        files = OpenFiles([ME])
        own = f"process {ME} ("
        assert f"written by {own}" in files.describe(ME, read, reading=True)
        assert f"read by {own}" in files.describe(ME, write, reading=False)
        assert f"to {own}" in files.describe(ME, left.fileno())
        assert "listening" in files.describe(ME, server.fileno())
        port = server.getsockname()[1]
        assert f"to 127.0.0.1:{port}" in files.describe(ME, client.fileno())
        assert files.describe(ME, 99_999) == "descriptor 99999"
    finally:
        os.close(read)
        os.close(write)
        for end in (left, right, server, client):
            end.close()


def test_a_file_by_its_path(tmp_path: object) -> None:
    with open(f"{tmp_path}/data", "w") as file:  # noqa: PTH123
        assert OpenFiles([ME]).describe(ME, file.fileno()).endswith(f"{tmp_path}/data")
