"""A small HTTP server that keeps what is posted to it."""

from __future__ import annotations

import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple


class Received(NamedTuple):
    """A request; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Listens on a loopback port while it is open. ``answers`` are the status codes of the next
    requests; then all are taken."""

    def __init__(self) -> None:
        self.requests: list[Received] = []
        self.answers: deque[int] = deque()
        self._arrived = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                with receiver._arrived:
                    status = receiver.answers.popleft() if receiver.answers else 200
                    receiver.requests.append(Received(self.path, headers, body))
                    receiver._arrived.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, requests: int, seconds: float = 30.0) -> list[Received]:
        """The requests, as soon as there are so many."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.requests) >= requests, seconds), (
                f"{len(self.requests)} of {requests} requests arrived"
            )
            return list(self.requests)
