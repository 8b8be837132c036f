"""Messages over the control socket.

A message is a length (u32, little-endian) and as many bytes of JSON; a request is an object with
``verb``, an answer one with either ``error`` (text, and ``code``, the exit code of the command) or
the result. One request a connection. A request may carry one file descriptor. Lengths are bounded,
and so is the time a peer may take; the peer is who the kernel says it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpcd.errors import FormatError, HpcdError

MAX_REQUEST = 64 << 10
MAX_ANSWER = 16 << 20
# A recording that ends takes the service up to 25 s.
_ANSWER_SECONDS = 30.0
_LENGTH = struct.Struct("<I")
_CREDENTIALS = struct.Struct("3i")
# include/uapi/asm-generic/socket.h, since Linux 4.13; Python takes no more than 1,024 bytes.
_SO_PEERGROUPS = 59
_MOST_GROUPS = 256


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a socket (SO_PEERCRED, in this process' namespaces)."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """Its supplementary groups."""


def peer_of(connection: socket.socket) -> Peer:
    """The peer's credentials, as they were when it connected."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    try:
        groups = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MOST_GROUPS)
    except OSError:
        groups = b""  # more than that: by its group alone it has fewer rights, not more
    return Peer(pid, uid, gid, struct.unpack(f"{len(groups) // 4}I", groups))


class EncodedAnswer(bytes):
    """An answer that is JSON already."""


def send(
    connection: socket.socket, message: dict[str, Any] | EncodedAnswer, fd: int | None = None
) -> None:
    """Send ``message``, with the descriptor ``fd`` if there is one."""
    data: bytes = message if isinstance(message, EncodedAnswer) else encoded(message)
    head = _LENGTH.pack(len(data))
    if fd is None:
        connection.sendall(head + data)
    else:
        socket.send_fds(connection, [head], [fd])
        connection.sendall(data)


def encoded(message: dict[str, Any]) -> EncodedAnswer:
    """``message`` as it is sent."""
    return EncodedAnswer(json.dumps(message, separators=(",", ":")).encode())


def receive(
    connection: socket.socket, limit: int, seconds: float
) -> tuple[dict[str, Any], int | None]:
    """The next message and the descriptor that came with it, which is the caller's to close.

    Raises :class:`FormatError` for anything that is no message of at most ``limit`` bytes, and
    :class:`TimeoutError` when it is not there, whole, within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    connection.settimeout(seconds)
    head, fds, _, _ = socket.recv_fds(connection, _LENGTH.size, 8)
    for extra in fds[1:]:
        os.close(extra)
    fd = fds[0] if fds else None
    try:
        head += _exactly(connection, _LENGTH.size - len(head), deadline)
        (length,) = _LENGTH.unpack(head)
        if not 2 <= length <= limit:
            raise FormatError(f"a message of {length} bytes; at most {limit} are taken")
        message = json.loads(_exactly(connection, length, deadline))
        if not isinstance(message, dict):
            raise FormatError("a message is a JSON object")
        return message, fd
    except (ValueError, RecursionError):
        _close(fd)
        raise FormatError("a message is not JSON") from None
    except BaseException:
        _close(fd)
        raise


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


def _exactly(connection: socket.socket, size: int, deadline: float) -> bytes:
    parts = []
    while size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the message is not sent in time")
        connection.settimeout(left)
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise FormatError("the message is cut off")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class ServiceError(HpcdError):
    """The service refused; ``exit_code`` is the one it names."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = code


class NoServiceError(HpcdError):
    """No service listens."""


def ask(path: str, request: dict[str, Any], fd: int | None = None) -> dict[str, Any]:
    """One request to the service at the socket ``path``; its answer.

    Raises :class:`NoServiceError` when none listens, :class:`ServiceError` when it refuses.
    """
    with held(path, request, fd) as answer:
        return answer


@contextlib.contextmanager
def held(path: str, request: dict[str, Any], fd: int | None = None) -> Iterator[dict[str, Any]]:
    """Send a request as :func:`ask` does; the connection lasts as long as the block: a recording
    requested with ``held`` ends with it, however this process ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        # Blocking: when others have filled the queue, one that does not block is refused at once.
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_ANSWER_SECONDS), 0)
        )
        try:
            connection.connect(path)
            connection.settimeout(_ANSWER_SECONDS)
        except OSError as error:
            raise NoServiceError(
                f"no hpcd service answers at {path} ({error.strerror}); start it with"
                " systemctl start hpcd, or record as root without it"
            ) from None
        try:
            send(connection, request, fd)
            answer, _ = receive(connection, MAX_ANSWER, _ANSWER_SECONDS)
        except OSError as error:
            raise ServiceError(f"the hpcd service did not answer: {error}") from None
        if "error" in answer:
            raise ServiceError(str(answer["error"]), int(answer.get("code", 1)))
        yield answer
