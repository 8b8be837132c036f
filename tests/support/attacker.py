"""A user who attacks the service: ``python attacker.py SOCKET STORE FOLDER FUSE SEED``.

One attack after another, at random, each for a moment, until it is killed. FOLDER is the user's own
and empty; FUSE is a file that the user serves, which answers nothing any more, or "-". Prints how
often each attack was begun, as a line of JSON, once a second or more rarely.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SOCKET, STORE, FOLDER, FUSE = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
RANDOM = random.Random(int(sys.argv[5]))
NAMES = ["[/x]", "\x1b]0;owned\x07", "<script>", "=cmd|' '!A0", "../../etc", "a" * 4000, "\u202e"]
BRIEF = 3.0


def connect() -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(BRIEF)
    connection.connect(SOCKET)
    return connection


def ask(content: object, fds: tuple[int, ...] = ()) -> dict[str, Any]:
    with connect() as connection:
        connection.settimeout(40)
        data = json.dumps(content).encode()
        # With the request, which nobody expects, and where a directory is asked for.
        socket.send_fds(connection, [struct.pack("<I", len(data)) + data], fds)
        head, channels, _, _ = socket.recv_fds(connection, 4, 1)
        answer = json.loads(connection.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))
        for channel in channels:
            with socket.socket(fileno=channel) as recorder:
                socket.send_fds(recorder, [b"d"], fds)
            size = struct.unpack("<I", connection.recv(4, socket.MSG_WAITALL))[0]
            answer = json.loads(connection.recv(size, socket.MSG_WAITALL))
        return answer if isinstance(answer, dict) else {}


@contextlib.contextmanager
def child(*command: object) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
    )
    try:
        yield process
    finally:
        # It may be waiting for the file system: not waited for here.
        process.kill()


def first_line(process: subprocess.Popen[bytes]) -> None:
    """Wait for its first line, if it ever writes one: it may wait for its own file system."""
    select.select([process.stdout], [], [], BRIEF)


def in_python(code: str, *words: object) -> contextlib.AbstractContextManager[Any]:
    return child(sys.executable, "-c", code, *words)


# --- connections and requests ---


def slow_connections() -> None:
    held = []
    with contextlib.suppress(OSError):
        for _ in range(200):
            held.append(connect())
            held[-1].sendall(b"\x40")
    for _ in range(int(BRIEF)):
        time.sleep(1)
        for connection in held:
            with contextlib.suppress(OSError):
                connection.sendall(b"\0")
    for connection in held:
        connection.close()


def garbage() -> None:
    for _ in range(100):
        with connect() as connection:
            connection.sendall(RANDOM.randbytes(RANDOM.randrange(1, 500)))


def odd_requests() -> None:
    deep: object = "x"
    for _ in range(500):
        deep = [deep]
    for content in (
        {"verb": "attach", "pids": [1] * 1024}, {"verb": "attach", "all": True},
        {"verb": "attach", "pids": [2**70, -5]}, {"verb": "detach", "id": 1}, deep,
        {"verb": "attach", "names": NAMES * 9, "frequency": 10**9}, {"verb": ["attach"]},
        {"verb": "attach", "users": ["0"]}, {"verb": "snapshot"}, {"verb": "status", "id": 1},
        {"verb": "attach", "jobs": ["1"], "duration": 1e308}, {"verb": "attach", "held": 1},
        {"verb": "attach", "names": ["x"], "probes": ["*:*"], "mpi": True},
        {"verb": "attach", "names": ["x"], "probe_files": [["a", "x = " + "[" * 9_999]]},
    ):  # fmt: skip
        ask(content)


def odd_descriptors() -> None:
    """Also: the path of somebody else's measurement as the name of one's own directory."""
    folder = FOLDER / f"out-{RANDOM.random()}"
    folder.mkdir()
    claim = str(STORE / str(RANDOM.randrange(48_000, 48_020)))
    for path, flags in ((folder, os.O_PATH), ("/dev/null", os.O_RDONLY), (folder, os.O_RDONLY)):
        fd = os.open(path, flags)
        answer = ask({"verb": "attach", "names": ["x"], "duration": BRIEF, "output": claim}, (fd,))
        os.close(fd)
        if "id" in answer:
            with contextlib.suppress(OSError):
                folder.rename(FOLDER / f"moved-{RANDOM.random()}")
            ask({"verb": "detach", "id": answer["id"]})


def recordings() -> None:
    """As many as allowed, and one that is dropped as soon as it is asked for."""
    begun = []
    for name in NAMES:
        begun.append(ask({"verb": "attach", "names": [name], "duration": BRIEF, "held": False}))
    with contextlib.suppress(OSError):
        connect().close()
    for answer in begun:
        if "id" in answer:
            ask({"verb": "detach", "id": answer["id"]})


# --- measurements ---


def spoilt_measurement() -> None:
    answer = ask({"verb": "attach", "names": ["none"], "duration": 60})
    if "id" not in answer:
        return
    ask({"verb": "detach", "id": answer["id"]})
    path = Path(answer["measurement"])
    with contextlib.suppress(OSError):
        kind = RANDOM.randrange(4)
        if kind == 0:
            at = os.open(path, os.O_RDONLY)
            for _ in range(1_100):
                os.mkdir("d", dir_fd=at)
                inner = os.open("d", os.O_RDONLY, dir_fd=at)
                os.close(at)
                at = inner
            os.close(at)
        elif kind == 1:
            with (path / "segment-000001.hpcd").open("wb") as file:
                file.truncate(1 << 40)
            os.utime(path / "segment-000001.hpcd", (4e9, 4e9))
        elif kind == 2:
            for number in range(20_000):
                (path / str(number)).touch()
        else:
            end = time.monotonic() + BRIEF
            while time.monotonic() < end:
                (path / "segment-000000.hpcd").rename(path / "x")
                (path / "x").rename(path / "segment-000000.hpcd")


# --- processes ---


def many_mappings() -> None:
    code = """
import mmap, os, sys, time
fd = os.open(sys.executable, os.O_RDONLY)
held = [mmap.mmap(fd, 4096, prot=5, offset=4096 * (i % 50)) for i in range(4000)]
print("x", flush=True)
time.sleep(9)
"""
    with in_python(code) as process:
        first_line(process)
        recorded(process.pid)


def odd_programs() -> None:
    """Files that are no ELF files, or ELF files with damage, mapped by hundreds."""
    whole = Path("/bin/sleep").read_bytes()
    code = """
import mmap, os, sys, time
for name in os.listdir(sys.argv[1]):
    fd = os.open(sys.argv[1] + "/" + name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        globals()[name] = mmap.mmap(fd, 4096, prot=5)
    except (OSError, ValueError):
        pass
    os.close(fd)
print("x", flush=True)
end = time.monotonic() + 4
while time.monotonic() < end:
    sum(range(1000))
"""
    folder = FOLDER / f"odd-{RANDOM.random()}"
    folder.mkdir()
    for number in range(200):
        data = bytearray(whole)
        for _ in range(RANDOM.randrange(1, 40)):
            data[RANDOM.randrange(len(data))] = RANDOM.randrange(256)
        (folder / f"f{number}").write_bytes(data)
    os.mkfifo(folder / "fifo")
    with (folder / "sparse").open("wb") as file:
        file.write(whole)
        file.truncate(300 << 30)
    with in_python(code, folder) as process:
        first_line(process)
        recorded(process.pid)
    shutil.rmtree(folder)


JIT = """
import ctypes, mmap, os, sys, time
path = f"/tmp/perf-{os.getpid()}.map"
kind = sys.argv[1]
if kind == "link":
    os.symlink("/etc/shadow", path)
elif kind == "fifo":
    os.mkfifo(path)
elif kind == "sparse":
    with open(path, "wb") as file:
        file.truncate(1 << 40)
else:
    with open(path, "wb") as file:
        file.write(b"9 1 x\\n" * (4 << 20))
# ret, at many places of code made at run time
code = mmap.mmap(-1, 1 << 20, prot=7)
code.write(b"\\xf3\\x90" * 2000 + b"\\xc3")
call = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print("x", flush=True)
end = time.monotonic() + 3
while time.monotonic() < end:
    call()
os.unlink(path)
"""


def jit_maps() -> None:
    with in_python(JIT, RANDOM.choice(["link", "fifo", "sparse", "long"])) as process:
        first_line(process)
        recorded(process.pid)
        Path(f"/tmp/perf-{process.pid}.map").unlink(missing_ok=True)


HOLD = """
import ctypes, os, sys, threading, time
fd = os.open(sys.argv[1], os.O_RDWR)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
page = libc.mmap(None, 4096, 7, 1, fd, 0)
ctypes.memset(page, 65, 4096)
print("x", flush=True)
threading.Thread(target=libc.munmap, args=(ctypes.c_void_p(page), 4096), daemon=True).start()
def change():
    while True:
        libc.munmap(ctypes.c_void_p(libc.mmap(None, 4096, 3, 0x22, -1, 0)), 4096)
threading.Thread(target=change, daemon=True).start()
time.sleep(9)
"""


HELD: list[str] = []


def held_address_space() -> None:
    """A process that maps a file which is served by who answers nothing."""
    if FUSE != "-" and len(HELD) < 5:
        HELD.append(FUSE)
        with in_python(HOLD, FUSE) as process:
            first_line(process)
            recorded(process.pid)


def threads_and_processes() -> None:
    end = time.monotonic() + BRIEF
    while time.monotonic() < end:
        for _ in range(20):
            threading.Thread(target=int).start()
        if not os.fork():
            os._exit(0)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)


def gone_at_once() -> None:
    """Processes that have ended by the time they are attached to, their pids somebody else's."""
    for _ in range(5):
        process = subprocess.Popen(["/bin/sleep", "9"])
        threading.Timer(RANDOM.random() / 2, process.kill).start()
        answer = ask({"verb": "attach", "pids": [process.pid], "duration": 1})
        process.wait()
        if "id" in answer:
            ask({"verb": "detach", "id": answer["id"]})


def namespaces() -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            ["unshare", "-Urpf", "--mount-proc", sys.executable, "-c",
             f"import sys; sys.argv[1:] = {sys.argv[1:]!r}\n"
             "import runpy; runpy.run_path({!r})['odd_requests']()".format(__file__)],
            timeout=20, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        )  # fmt: skip


def recorded(pid: int) -> None:
    """Have the service record a process of one's own for a moment."""
    answer = ask({"verb": "attach", "pids": [pid], "duration": BRIEF})
    time.sleep(BRIEF)
    if "id" in answer:
        ask({"verb": "detach", "id": answer["id"]})


ATTACKS: list[Callable[[], None]] = [
    slow_connections, garbage, odd_requests, odd_descriptors, recordings, spoilt_measurement,
    many_mappings, odd_programs, jit_maps, held_address_space, threads_and_processes, gone_at_once,
    namespaces,
]  # fmt: skip


def main() -> None:
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    done: Counter[str] = Counter()
    while True:
        attack = RANDOM.choice(ATTACKS)
        done[attack.__name__] += 1
        try:
            attack()
        except Exception as error:
            done[f"{attack.__name__}: {type(error).__name__}"] += 1
        for folder in FOLDER.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
