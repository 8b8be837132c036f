"""The place where Prometheus reads figures: HTTP on a loopback address, with a bearer token.

Every user of the machine can connect there, and the kernel does not say who connects: so a few
workers serve a few connections, each for a short time, and further ones are closed at once.
"""

from __future__ import annotations

import hmac
import queue
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hpcd.daemon.service import journal
from hpcd.errors import HpcdError

_WORKERS = 2
# Connections that wait for a worker.
_WAITING = 8
# A request must be there, whole, within this time, and its answer taken within as much again.
# Prometheus gives up after 10 s.
_PATIENCE_SECONDS = 2.0
# Prometheus sends some 400 bytes.
_MOST_BYTES = 8192
# When there are no descriptors, the next connection is tried after this time.
_EXHAUSTED_SECONDS = 0.1


class MetricsSocket:
    """Serves what ``figures`` returns at ``/metrics``, to clients that have the token in the file
    ``token``, which is read for each request. Ends with the process."""

    def __init__(self, listener: socket.socket, token: Path, figures: Callable[[], str]) -> None:
        self._listener = listener
        self._token = token
        self._figures = figures
        self._waiting: queue.Queue[socket.socket] = queue.Queue(_WAITING)
        for target in (self._accept, *[self._work] * _WORKERS):
            threading.Thread(target=target, name="metrics", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                time.sleep(_EXHAUSTED_SECONDS)
                continue
            try:
                self._waiting.put_nowait(connection)
            except queue.Full:
                connection.close()

    def _work(self) -> None:
        while True:
            with self._waiting.get() as connection:
                try:
                    answer = self._answer(_request(connection))
                    connection.settimeout(_PATIENCE_SECONDS)
                    connection.sendall(answer)
                except OSError:
                    pass  # too late, or closed by a client that is not known
                except Exception as error:
                    # A request must never end its worker; that it could is a bug to report.
                    journal.log("internal error", journal.ERROR, where="metrics", error=repr(error))

    def _answer(self, request: bytes) -> bytes:
        first, *fields = request.split(b"\r\n")
        if first.split(b" ")[:2] != [b"GET", b"/metrics"]:
            return _response("404 Not Found")
        if not self._is_authorized(fields):
            return _response("401 Unauthorized", "WWW-Authenticate: Bearer")
        try:
            text = self._figures()
        except HpcdError as error:
            return _response("503 Service Unavailable", text=f"{error}\n")
        return _response("200 OK", "Content-Type: text/plain; version=0.0.4; charset=utf-8", text)

    def _is_authorized(self, fields: list[bytes]) -> bool:
        token = self._token.read_bytes().strip()
        for field in fields:
            name, _, value = field.partition(b":")
            if token and name.lower() == b"authorization":
                return hmac.compare_digest(value.strip(), b"Bearer " + token)
        return False


def _request(connection: socket.socket) -> bytes:
    """The head of a request; :class:`TimeoutError` if it is not there in time, or is too long."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    request = b""
    while b"\r\n\r\n" not in request:
        left = deadline - time.monotonic()
        if left <= 0 or len(request) >= _MOST_BYTES:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(_MOST_BYTES)
        if not part:
            raise ConnectionError
        request += part
    return request.partition(b"\r\n\r\n")[0]


def _response(status: str, field: str = "Content-Type: text/plain", text: str = "") -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\n{field}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"{head}\r\n".encode() + body
