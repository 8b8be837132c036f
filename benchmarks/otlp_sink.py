"""A receiver of OpenTelemetry's profiles that counts them: for agents that must send to a receiver.

It answers every unary gRPC call with success and an empty message. HTTP/2 as far as that needs (RFC
9113): what is in a request's headers is not looked at, and answers use no compression of theirs.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
# What may be under way before a window is opened further.
_WINDOW = 1 << 24
_INITIAL_WINDOW_SIZE = 4


@dataclass
class Received:
    """The port listened at (127.0.0.1), and the calls answered and their bytes so far."""

    port: int
    calls: int = 0
    bytes: int = 0


@contextmanager
def receiver() -> Iterator[Received]:
    """Receives while the context lasts."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        received = Received(server.getsockname()[1])
        threading.Thread(target=_accept, args=(server, received), daemon=True).start()
        try:
            yield received
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)


def _accept(server: socket.socket, received: Received) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve, args=(connection, received), daemon=True).start()


def _serve(connection: socket.socket, received: Received) -> None:
    with suppress(OSError, EOFError), connection, connection.makefile("rb") as stream:
        _exactly(stream.read(len(_PREFACE)), len(_PREFACE))
        window = struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WINDOW)
        connection.sendall(_frame(_SETTINGS, 0, 0, window) + _more(0, _WINDOW))
        while True:
            head = _exactly(stream.read(9), 9)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            number = int.from_bytes(head[5:], "big")
            body = _exactly(stream.read(length), length)
            if kind == _SETTINGS and not flags & _ACK:
                connection.sendall(_frame(_SETTINGS, _ACK, 0))
            elif kind == _PING and not flags & _ACK:
                connection.sendall(_frame(_PING, _ACK, 0, body))
            elif kind == _DATA:
                received.bytes += length
                if length:
                    connection.sendall(_more(0, length) + _more(number, length))
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                received.calls += 1
                connection.sendall(_answer(number))


def _exactly(data: bytes, length: int) -> bytes:
    if len(data) < length:
        raise EOFError
    return data


def _answer(number: int) -> bytes:
    """Headers, an empty message, trailers."""
    # 0x88 is ":status: 200" of HPACK's static table; 0 begins a field that is spelt out.
    headers = b"\x88" + _field(b"content-type", b"application/grpc")
    return (
        _frame(_HEADERS, _END_HEADERS, number, headers)
        + _frame(_DATA, 0, number, bytes(5))
        + _frame(_HEADERS, _END_HEADERS | _END_STREAM, number, _field(b"grpc-status", b"0"))
    )


def _field(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def _more(number: int, length: int) -> bytes:
    return _frame(_WINDOW_UPDATE, 0, number, struct.pack(">I", length))


def _frame(kind: int, flags: int, number: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", number) + body
