"""Messages over the control socket.

A message is a length (u32, little-endian) and as many bytes of JSON; a request is an object with
``verb``, an answer one with either ``error`` (text, and ``code``, the exit code of the command) or
the result. One request a connection. Lengths are bounded, and so is the time a peer may take; the
peer is who the kernel says it is.

No descriptor of a client's reaches the service: where a directory is to be handed over, an object
before the answer carries a socket, whose other end the recorder has.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
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

    def as_message(self) -> dict[str, object]:
        """Return the peer as the message by which one process of the service tells another."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Peer:
        """Return the peer that :meth:`as_message` describes."""
        return cls(**{**message, "groups": tuple(message["groups"])})


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
    connection: socket.socket,
    message: dict[str, object] | bytes,
    carried: socket.socket | None = None,
) -> None:
    """Send ``message``, with a socket if it is to carry one."""
    data = message if isinstance(message, bytes) else encoded(message)
    head = _LENGTH.pack(len(data))
    if carried is None:
        connection.sendall(head + data)
    else:
        socket.send_fds(connection, [head], [carried.fileno()])
        connection.sendall(data)


def encoded(message: dict[str, object]) -> EncodedAnswer:
    """``message`` as it is sent."""
    return EncodedAnswer(json.dumps(message, separators=(",", ":")).encode())


def receive(connection: socket.socket, limit: int, seconds: float | None) -> dict[str, Any]:
    """The next message. Descriptors that come with it are dropped by the kernel.

    Raises :class:`FormatError` for anything that is no message of at most ``limit`` bytes, and
    :class:`TimeoutError` when it is not there, whole, within ``seconds``.
    """
    return decoded(receive_bytes(connection, limit, seconds))


def receive_bytes(connection: socket.socket, limit: int, seconds: float | None) -> bytes:
    """The next message as it was sent, without its length; raises as :func:`receive` does."""
    deadline = _deadline(seconds)
    return _exactly(connection, _length(_exactly(connection, 4, deadline), limit), deadline)


def receive_with_socket(
    connection: socket.socket, limit: int, seconds: float | None
) -> tuple[bytes, socket.socket | None]:
    """The next message as :func:`receive_bytes` returns it, and the socket that it carries. For
    messages of the service alone."""
    deadline = _deadline(seconds)
    connection.settimeout(seconds)
    head, fds, _, _ = socket.recv_fds(connection, _LENGTH.size, 1)
    carried = socket.socket(fileno=fds[0]) if fds else None
    try:
        head += _exactly(connection, _LENGTH.size - len(head), deadline)
        return _exactly(connection, _length(head, limit), deadline), carried
    except BaseException:
        if carried:
            carried.close()
        raise


def decoded(message: bytes) -> dict[str, Any]:
    """The object that a message consists of; :class:`FormatError` if it is none."""
    try:
        content = json.loads(message)
    except (ValueError, RecursionError):
        raise FormatError("a message is not JSON") from None
    if not isinstance(content, dict):
        raise FormatError("a message is a JSON object")
    return content


def _length(head: bytes, limit: int) -> int:
    length: int = _LENGTH.unpack(head)[0]
    if not 2 <= length <= limit:
        raise FormatError(f"a message of {length} bytes; at most {limit} are taken")
    return length


def _deadline(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


def _exactly(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    parts = []
    while size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("the message is not sent in time")
        connection.settimeout(left)
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise CutOffError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class CutOffError(FormatError):
    """The other end was closed before a message was whole."""

    def __init__(self) -> None:
        super().__init__("the message is cut off")


class ServiceError(HpcdError):
    """The service refused; ``exit_code`` is the one it names."""


class NoServiceError(HpcdError):
    """No service listens."""


def ask(path: str, request: dict[str, Any], directory: int | None = None) -> dict[str, Any]:
    """One request to the service at the socket ``path``; its answer. ``directory`` is handed over
    to the recorder when the service asks for it.

    Raises :class:`NoServiceError` when none listens, :class:`ServiceError` when it refuses.
    """
    with held(path, request, directory) as answer:
        return answer


@contextlib.contextmanager
def held(
    path: str, request: dict[str, object], directory: int | None = None
) -> Iterator[dict[str, object]]:
    """Send a request as :func:`ask` does; the connection lasts as long as the block: a recording
    requested with ``held`` ends with it, however this process ends."""
    with socket.socket(socket.AF_UNIX) as connection:
        # Blocking: when others have filled the queue, a call that does not block fails.
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
            send(connection, request)
            message, channel = receive_with_socket(connection, MAX_ANSWER, _ANSWER_SECONDS)
            if channel:
                with channel, contextlib.suppress(BrokenPipeError):  # as the answer then says
                    socket.send_fds(channel, [b"d"], [] if directory is None else [directory])
                message = receive_bytes(connection, MAX_ANSWER, _ANSWER_SECONDS)
            answer = decoded(message)
        except OSError as error:
            raise ServiceError(f"the hpcd service did not answer: {error}") from None
        if "error" in answer:
            raise ServiceError(str(answer["error"]), int(answer.get("code", 1)))
        yield answer
