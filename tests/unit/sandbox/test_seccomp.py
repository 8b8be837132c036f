"""A decoder that was taken over can do nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcd.daemon.unwind.decoder_process import DecodeError, Decoder
from hpcd.daemon.unwind.table_cache import TableCache
from hpcd.errors import PlatformError
from hpcd.sandbox import seccomp

SMALL = Path("/usr/bin/true").resolve()
NUMBER = {
    "x86_64": {"ptrace": 101, "bpf": 321, "io_uring_setup": 425, "prlimit64": 302},
    "aarch64": {"ptrace": 117, "bpf": 280, "io_uring_setup": 425, "prlimit64": 261},
}

HOSTILE = """
import ctypes, mmap, os, socket, sys, threading
from hpcd.daemon.unwind import decoder_worker
libc = ctypes.CDLL(None, use_errno=True)
number = {number}
def work(request, fd):
    if request == ord("i"):
        return b"0" * 40
    {action}
    raise decoder_worker.FormatError("it went well")
decoder_worker.main(work)
"""

ATTEMPTS = {
    "read a file": 'os.open("/etc/passwd", os.O_RDONLY)',
    "write a file": 'os.open("/tmp/decoder-was-here", os.O_WRONLY | os.O_CREAT)',
    "open by the descriptor it has": 'os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)',
    "look for a file": 'os.stat("/etc/passwd")',
    "list a folder": 'os.listdir("/")',
    "remove a file": 'os.unlink("/tmp/decoder-was-here")',
    "open a socket": "socket.socket(socket.AF_INET)",
    "open a local socket": "socket.socket(socket.AF_UNIX)",
    "send to an address": 'socket.socket(fileno=int(sys.argv[1])).sendto(b"", "/run/x")',
    "fork": "os.fork()",
    "start a thread": "threading.Thread(target=print).start()",
    "execute": 'os.execv("/bin/true", ["true"])',
    "signal its parent": "os.kill(os.getppid(), 0)",
    "map memory to execute": (
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"
    ),
    "make memory executable": "libc.mprotect(ctypes.c_void_p(id(libc) & ~4095), 4096, 7)",
    "change a descriptor's flags": "os.set_blocking(fd, False)",
    "raise its limits": "libc.syscall(number['prlimit64'], 0, 0, 0, 0)",
    "trace": "libc.syscall(number['ptrace'], 0, 0, 0, 0)",
    "load BPF": "libc.syscall(number['bpf'], 0, 0, 0)",
    "go around by io_uring": "libc.syscall(number['io_uring_setup'], 1, 0)",
    "change users": "os.setuid(0)",
    "load a library": 'ctypes.CDLL("libresolv.so.2")',
}


Say = Callable[[str], str]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Say]:
    """Runs a worker that is a script; gives what the decoder says of a file, in a line."""
    decoder = Decoder(TableCache(tmp_path))

    def say(script: str) -> str:
        genuine = decoder._worker._arguments
        monkeypatch.setattr(decoder._worker, "_arguments", ["-c", script])
        with pytest.raises(DecodeError) as caught:
            ask(decoder)
        # The next module is decoded again.
        decoder._worker.close()
        monkeypatch.setattr(decoder._worker, "_arguments", genuine)
        decoder.cache = TableCache(tmp_path / "of what is genuine")
        ask(decoder)
        decoder._worker.close()
        assert str(SMALL) in str(caught.value) and "\n" not in str(caught.value)
        return str(caught.value)

    yield say
    decoder.close()


def ask(decoder: Decoder) -> None:
    fd = os.open(SMALL, os.O_RDONLY)
    try:
        assert len(decoder.table(fd, str(SMALL)).rows.words)
    finally:
        os.close(fd)


def hostile(action: str) -> str:
    return HOSTILE.format(number=NUMBER[platform.machine()], action=action)


@pytest.mark.parametrize("action", ATTEMPTS.values(), ids=ATTEMPTS)
def test_what_a_decoder_may_not_do_ends_it(said: Say, action: str) -> None:
    assert "made a system call that reading does not need" in said(hostile(action))
    assert not Path("/tmp/decoder-was-here").exists()


@pytest.mark.parametrize(
    "action",
    ["bytearray(64 << 20)", "mmap.mmap(fd, 100, prot=mmap.PROT_READ).close()", "os.fstat(fd)",
     "os.read(fd, 10)", "import hashlib"],
)  # fmt: skip
def test_what_decoding_needs_is_left(said: Say, action: str) -> None:
    assert "it went well" in said(hostile(action))


def test_lower_limits_than_those_of_a_decoder_stay(said: Say) -> None:
    lower = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (256 << 20, 256 << 20))\n"
    assert "it went well" in said(lower + hostile("pass"))


def test_a_decoder_that_cannot_be_confined_decodes_nothing(said: Say) -> None:
    script = """
from hpcd.daemon.unwind import decoder_worker
from hpcd.sandbox import seccomp
def install():
    raise OSError("seccomp: Invalid argument")
seccomp.install = install
decoder_worker.main()
"""
    assert "cannot be confined: seccomp: Invalid argument" in said(script)


def test_processors_without_a_table_are_refused() -> None:
    assert len(seccomp.program("x86_64")) == len(seccomp.program("aarch64"))
    with pytest.raises(PlatformError):
        seccomp.program("s390x")
