"""The command ``hpcd``, in a child of a process that has its modules imported.

Most of the time of a command that reads small files is Python's start: a child begins after some
milliseconds. It has the arguments, environment, working directory and streams that
:func:`run_forked` was given, and no other state of the tests. What the start itself does, and what
records, is tested with processes of their own (:data:`tests.support.recorded.HPCD`).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from typing import Any

_FILES = 2  # standard output and standard error
_MOST_REQUEST = 1 << 20


def run_forked(
    *arguments: object, timeout: float | None = None, memory: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``hpcd`` with ``arguments``, in at most ``timeout`` seconds and ``memory`` bytes of data.
    Raises :class:`subprocess.TimeoutExpired`."""
    words = [str(argument) for argument in arguments]
    request = json.dumps({
        "words": words, "directory": str(Path.cwd()), "environment": dict(os.environ),
        "memory": memory,
    }).encode()  # fmt: skip
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(_FILES)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                fds = [*(stream.fileno() for stream in streams), theirs.fileno()]
                socket.send_fds(_server(), [request], fds)
            ours.settimeout(timeout)
            pid = int(ours.recv(32))
            try:
                code = int(ours.recv(32))
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout or 0) from None
        texts = []
        for stream in streams:
            stream.seek(0)
            texts.append(stream.read().decode())
    return subprocess.CompletedProcess(["hpcd", *words], code, *texts)


@cache
def _server() -> socket.socket:
    """Start the process that has the modules; it ends with this one, whose end of the socket is
    closed then."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_REQUEST)
    with theirs:
        subprocess.Popen(
            [sys.executable, "-P", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, cwd="/",
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip
    return ours


def _serve(requests: socket.socket) -> None:
    from matplotlib.backends import backend_agg, backend_svg  # noqa: F401

    import hpcd.analysis
    import hpcd.analysis.symbols.function_ranges  # noqa: F401
    from hpcd.__main__ import build_parser, main
    from hpcd.kernels.library import open_library

    build_parser(None)
    open_library()
    # Nothing of it is garbage, and looking for some would copy its memory.
    gc.freeze()
    # Each child waits for the command, its own child; the kernel removes the child when it ends.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, fds, _, _ = socket.recv_fds(requests, _MOST_REQUEST, _FILES + 1)
        if not request:
            return
        if not os.fork():
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _wait_for_command(json.loads(request), fds, main)
        for fd in fds:
            os.close(fd)


def _wait_for_command(request: dict[str, Any], fds: list[int], main: Any) -> None:
    pid = os.fork()
    answers = socket.socket(fileno=fds.pop())
    if pid:
        answers.send(b"%d" % pid)
        _, status = os.waitpid(pid, 0)
        answers.send(b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    answers.close()
    for to, fd in enumerate(fds, 1):
        os.dup2(fd, to)
        os.close(fd)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if request["memory"]:
        resource.setrlimit(resource.RLIMIT_DATA, (request["memory"],) * 2)
    sys.argv = ["hpcd", *request["words"]]
    code = 1
    try:
        code = main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        # As at Python's end, but that modules are not taken apart: that takes longer than most.
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
