"""An overlay of a user's, in a user namespace of its own, whose lower layer is a FUSE file system.

As a program (``python layered_fuse.py DEVICE FOLDER CONTENTS``, in new user and mount namespaces)
it mounts both in FOLDER, and the overlay on /tmp as well. A process that sees that one runs code
made at run time, whose names are in a ``perf-PID.map`` there, and maps a file with CONTENTS.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Beside this file, which is a program of its own too.
sys.path.append(str(Path(__file__).parents[2]))

from tests.support.paths import let_all_users_reach
from tests.support.stalling_fuse import CODE

# Python, as a user can start it who sees nothing in /tmp any more.
_TARGET = """
import ctypes, mmap, os, signal, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
held = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
libc = ctypes.CDLL(None)
libc.prctl(1, 9)  # PR_SET_PDEATHSIG: with the server, its parent
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
code = libc.mmap(int(sys.argv[2]), 4096, 7, 0x100022, -1, 0)  # MAP_FIXED_NOREPLACE
if code != int(sys.argv[2]):
    os.kill(os.getppid(), signal.SIGTERM)  # who waits for this process shall not
    sys.exit("the address is taken")
# dec %edi; jne -4; ret: some work at one place of code made at run time
ctypes.memmove(code, b"\\xff\\xcf\\x75\\xfc\\xc3", 5)
work = ctypes.CFUNCTYPE(None, ctypes.c_int)(code)
print(os.getpid(), flush=True)
while True:
    work(10_000_000)
"""
_MS_NOSUID, _MS_NODEV, _MS_BIND = 2, 4, 4096


@contextlib.contextmanager
def target(folder: Path, uid: int, contents: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The pid of a process of ``uid``'s that lives on such a file system, which holds
    ``contents``, and the server's process: a line to it stalls it
    (:func:`tests.support.stalling_fuse.stall`)."""
    let_all_users_reach(folder)
    device = folder / "fuse"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(10, 229))
    device.chmod(0o666)  # as udev has it
    for name in ("lower", "empty", "top"):
        (folder / name).mkdir()
    with subprocess.Popen(
        ["unshare", "-Urm", sys.executable, __file__, device, folder, contents],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        user=uid, group=uid, extra_groups=[],
    ) as process:  # fmt: skip
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            pid = process.stdout.readline()
            yield int(pid.split()[0]), process
        finally:
            process.kill()


def _mount(source: object, target: object, kind: str, flags: int, options: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [str(word).encode() for word in (source, target, kind)]
    if libc.mount(*words, flags, options.encode()):
        raise OSError(ctypes.get_errno(), f"cannot mount {kind}")


def main(device: str, folder: Path, contents: Path) -> None:
    # The interpreter itself: an environment of its may be in /tmp, which is soon another one.
    python = os.path.realpath(sys.executable)
    fd = os.open(device, os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0"
    _mount("test", folder / "lower", "fuse", _MS_NOSUID | _MS_NODEV, options)
    if not os.fork():
        try:
            _mount("test", folder / "top", "overlay", 0, f"lowerdir={folder}/lower:{folder}/empty")
            _mount(folder / "top", "/tmp", "", _MS_BIND)
            os.close(fd)
            os.execv(python, [python, "-c", _TARGET, "/tmp/file", str(CODE)])
        except OSError:
            os.kill(os.getppid(), signal.SIGTERM)  # who waits for the process shall not
            raise
    os.set_inheritable(fd, True)
    server = str(Path(__file__).with_name("stalling_fuse.py"))
    os.execv(sys.executable, [sys.executable, server, str(fd), str(contents)])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
