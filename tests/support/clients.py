"""Requests to a service as users make them: by programs of their own, with nothing of hpcd's."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

# Of no account of this machine.
ALICE, MALLORY = 48_001, 48_002

_ASK = """
import json, os, socket, struct, sys, time
began = time.monotonic()
s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1])
data = sys.argv[2].encode()
s.sendall(struct.pack("<I", len(data)) + data)
head, fds, _, _ = socket.recv_fds(s, 4, 1)
answer = json.loads(s.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))
if fds:
    directory = os.open(sys.argv[3], int(sys.argv[4]))
    socket.send_fds(socket.socket(fileno=fds[0]), [b"d"], [directory])
    size = struct.unpack("<I", s.recv(4, socket.MSG_WAITALL))[0]
    answer = json.loads(s.recv(size, socket.MSG_WAITALL))
print(json.dumps([time.monotonic() - began, answer]))
"""


def ask(
    path: str,
    content: dict[str, object],
    uid: int = MALLORY,
    *,
    output: object = None,
    flags: int = 0,
    within: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The answer to a request of ``uid``'s at the socket ``path``, with ``output`` handed over, if
    there is one, opened with ``flags``; ``within`` is a command that runs commands somewhere else.
    """
    words = [path, json.dumps(content)]
    if output is not None:
        words[1] = json.dumps({"output": str(output), **content})
        words += [str(output), str(flags)]
    done = subprocess.run(
        [*within, sys.executable, "-c", _ASK, *words],
        capture_output=True, text=True, cwd="/", user=uid, group=uid, extra_groups=[], timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    _, answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer
