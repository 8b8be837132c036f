"""A FUSE file system of a user's that holds one file, and answers as long as it likes to.

As a program (``python stalling_fuse.py FD FILE``) it serves the descriptor of /dev/fuse: its root
has the entry ``file``, with the contents of FILE, and a ``perf-PID.map`` of any process; who writes
to a file is never answered. It says ``ready`` once it is mounted. Of a line on its standard input
on it answers nothing more: whoever asks it anything waits until another line comes, or it is
killed. If the line is one of :data:`KINDS` it goes on with all but requests of that kind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 16, 17, 18
_FLUSH, _INIT, _OPENDIR, _ACCESS = 25, 26, 27, 34
_HEADER = struct.Struct("<IIQQIIII")
_DIRECTORY, _REGULAR = 0o040755, 0o100755
KINDS = {
    "reads": (_WRITE, _READ, _GETATTR, _STATFS),
    "opens": (_WRITE, _OPEN, _LOOKUP),
    "closes": (_WRITE, _FLUSH, _RELEASE),
}
"""Requests by the words of :func:`take`. What is written is never answered."""
_ENOSYS, _ENOENT = 38, 2
_INVALIDATE = 2  # FUSE_NOTIFY_INVAL_INODE: what is in memory of the file is so no more
_MS_NOSUID, _MS_NODEV = 2, 4
_MAP_NAME = re.compile(rb"perf-\d+\.map")
CODE = 0x2_0000_0000
"""Address of the function that the map of any process names: beyond where the heap of a program
with a fixed address may begin, which is up to 1 GiB behind it (arch_randomize_brk, Linux 6.9)."""
_MAP = b"%x 1000 made_at_run_time\n" % CODE
# As long as a file system may have its answers kept.
_FOR_EVER = 1 << 30


HOLD = """
import ctypes, os, sys, threading, time
fd = os.open(sys.argv[1], os.O_RDWR)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long]
page = libc.mmap(None, 4096, 3, 1, fd, 0)
ctypes.memset(page, 65, 4096)
print("ready", flush=True)
sys.stdin.readline()
# What was written goes to who serves the file, the address space locked; and who wants to change
# that waits, and lets nobody by.
threading.Thread(target=libc.munmap, args=(ctypes.c_void_p(page), 4096), daemon=True).start()
def change():
    while True:
        libc.munmap(ctypes.c_void_p(libc.mmap(None, 4096, 3, 0x22, -1, 0)), 4096)
threading.Thread(target=change, daemon=True).start()
time.sleep(600)
"""
"""A program (its argument is a file that is served) that, of a line on its standard input on, holds
its address space locked once the server is stalled."""


@contextlib.contextmanager
def mounted(folder: Path, uid: int, contents: Path) -> Iterator[subprocess.Popen[str]]:
    """Have ``uid`` serve ``folder``, for all users: as fusermount mounts it where /etc/fuse.conf
    says user_allow_other. Raises :class:`OSError` where there is no FUSE. The server; a line to it
    stalls it."""
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    try:
        options = f"fd={device},rootmode=40000,user_id={uid},group_id={uid},allow_other"
        if libc.mount(b"test", str(folder).encode(), b"fuse", _MS_NOSUID | _MS_NODEV,
                      options.encode()):  # fmt: skip
            raise OSError(ctypes.get_errno(), "cannot mount FUSE")
        with subprocess.Popen(
            [sys.executable, __file__, str(device), str(contents)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            user=uid, group=uid, extra_groups=[], pass_fds=[device],
        ) as server:  # fmt: skip
            os.close(device)
            device = -1
            try:
                assert server.stdout and server.stdout.readline() == "ready\n"
                yield server
            finally:
                server.kill()
    finally:
        if device >= 0:
            os.close(device)
        libc.umount2(str(folder).encode(), 2)  # MNT_DETACH


def stall(server: subprocess.Popen[str]) -> None:
    """Have it answer nothing from now on."""
    assert server.stdin and server.stdout
    server.stdin.write("stall\n")
    server.stdin.flush()
    assert server.stdout.readline() == "stalled\n"


def take(server: subprocess.Popen[str], kind: str) -> None:
    """Have it take requests of a ``kind`` of :data:`KINDS` from now on and never answer these: who
    asks cannot be killed then, as long as the server lives (request_wait_answer in Linux 6.18)."""
    assert server.stdin and server.stdout
    server.stdin.write(f"{kind}\n")
    server.stdin.flush()
    assert server.stdout.readline() == "stalled\n"


def answer(server: subprocess.Popen[str]) -> None:
    """Have a stalled one answer what it was asked, and all that it is asked from now on."""
    assert server.stdin
    server.stdin.write("answer\n")
    server.stdin.flush()


def _attributes(node: int, size: int) -> bytes:
    mode = _DIRECTORY if node == 1 else _REGULAR
    # fuse_attr: owned by root, as far as it says.
    return struct.pack("<6Q10I", node, size, (size + 511) // 512, 1, 1, 1, 0, 0, 0, mode, 1, 0, 0,
                       0, 4096, 0)  # fmt: skip


def _answer(kind: int, node: int, body: bytes, contents: bytes) -> bytes | int:
    """Return the answer to a request, or the number of an error."""
    if kind == _INIT:
        return struct.pack("<4I2HI2H8I", 7, 31, 65536, 0, 12, 10, 65536, 1, 16, 0, *[0] * 7)
    if kind == _LOOKUP:
        name = body.rstrip(b"\0")
        if name != b"file" and not _MAP_NAME.fullmatch(name):
            return _ENOENT
        node = 2 if name == b"file" else 3
        head = struct.pack("<4Q2I", node, 0, _FOR_EVER, 0, 0, 0)
        return head + _attributes(node, len(contents if node == 2 else _MAP))
    if kind == _GETATTR:
        size = {2: len(contents), 3: len(_MAP)}.get(node, 4096)
        return struct.pack("<Q2I", 0, 0, 0) + _attributes(node, size)
    if kind in (_OPEN, _OPENDIR):
        return struct.pack("<Q2I", 1, 0, 0)
    if kind == _READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        return (contents if node == 2 else _MAP)[offset : offset + size]
    if kind == _STATFS:
        return struct.pack("<5Q4I", 1, 1, 1, 1, 1, 4096, 255, 4096, 0).ljust(80, b"\0")
    if kind in (_RELEASE, _FLUSH, _ACCESS):
        return b""
    return _ENOSYS


def _serve(device: int, contents: bytes) -> None:
    silent: tuple[int, ...] = (_WRITE,)
    while True:
        ready, _, _ = select.select([device, 0], [], [])
        if 0 in ready:
            line = sys.stdin.readline().strip()
            if not line:
                return
            if line in KINDS:
                silent = KINDS[line]
                with contextlib.suppress(OSError):  # nobody has looked at the file yet
                    os.write(device, struct.pack("<IiQQqq", 40, _INVALIDATE, 0, 2, 0, 0))
            print("stalled", flush=True)
            if line in KINDS:
                continue
            if not sys.stdin.readline():
                return
            continue
        request = os.read(device, 1 << 17)
        _, kind, unique, node, *_ = _HEADER.unpack_from(request)
        if kind == _FORGET or kind in silent:
            continue
        output = _answer(kind, node, request[_HEADER.size :], contents)
        error, data = (-output, b"") if isinstance(output, int) else (0, output)
        os.write(device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        if kind == _INIT:
            print("ready", flush=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), Path(sys.argv[2]).read_bytes())
