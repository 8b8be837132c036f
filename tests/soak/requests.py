"""Requests of every kind to the viewer's server: answered or refused, and the server lives.

Ten clients at once send valid requests with invented values, paths that climb out of the database,
false tokens, and bytes that are no HTTP at all. No answer may be a server's error, show a traceback
or tell of a file that is not the page's.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil
import uvicorn

import hpcd.analysis
from hpcd.viewer.server.app import create_app
from tests.soak.confined import run_confined
from tests.support.viewer import eight_ranks, two_runs

ROUNDS = 10_000
CLIENTS = 10
_FIRST, _MOST_GROWTH = 20, 100_000_000
_ENDPOINTS = ["", "/cct", "/lines", "/selection", "/grid", "/profile", "/over", "/heat", "/tree",
              "/entities", "/colours", "/formula", "/source", "/assembly", "/none"]  # fmt: skip
_NAMES = ["t0", "t1", "l0", "l1", "h", "w", "from", "count", "line", "filter", "sort", "group",
          "metric", "context", "times", "view", "patterns", "text", "procedure",
          "file"]  # fmt: skip
_VALUES = ["", "0", "1", "7", "8", "100", "-1", "500000000", "999000000", "1e9", "nan", "9" * 30,
           "0x10", "\u0663", "\0", "\ud800", "../../manifest.json", "cpu_time", "records", "n0",
           "n1.2.3", "n99999999", "p0", "p4", "n", "n-1", "p1.", "rank", "label", "job", "process",
           "(", "(a+)+$", "((a{99}){99}){99}", "[", ".*", "host:.", "host:(", "\\C", "x" * 390,
           "flat:main", "lines:main", "flat:nobody", "none:main", ":n0", "flat:",
           "x = cpu_time / 0", "x = __import__('os')", "x = " + "-" * 300 + "cpu_time",
           "x = " + "(" * 390,
           "(a+)+$ = #ff0000", "\n" * 300, "main = red", "/etc/passwd", "../../../etc/shadow",
           "x" * 5000, "'; DROP TABLE thread; --", "%", "&", "<script>"]  # fmt: skip
_CLIMBS = ["../" * 8 + "etc/passwd", "..%2f" * 8 + "etc%2fpasswd", "%2e%2e/" * 8 + "etc/passwd",
           "/etc/passwd", "....//....//etc/passwd", "..\\..\\etc\\passwd", "%00", "app.js%00.html",
           "../server/app.py", "..%2fserver%2fapp.py", "%c0%ae%c0%ae/etc/passwd", "server/guard.py",
           "//etc/passwd", "api/v1/db/../../../etc/passwd", "file:///etc/passwd"]  # fmt: skip
_SECRETS = (b"Traceback", b"root:x:", b"import annotations", b"hpcd.sqlite")


def run(rounds: int, seed: int) -> list[str]:
    """Run the test; return what was wrong. A round is a request of every client, at once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        databases = [eight_ranks(folder), *two_runs(folder)]
        return run_confined(_Requests(databases, seed).try_one, -(-rounds // CLIENTS))


class _Requests:
    def __init__(self, databases: list[Path], seed: int) -> None:
        self._databases, self._seed = databases, seed
        self._url, self._process = "", 0
        self._rounds, self._before = 0, 0

    def try_one(self, number: int) -> Iterator[str]:
        """Send requests to a server in this process, which the first round starts."""
        if self._process != os.getpid():
            self._process, self._rounds = os.getpid(), 0
            self._url = _serve(self._databases)
        yield from attack(self._url, CLIENTS, self._seed * 1_000_000 + number * CLIENTS)
        yield ""
        memory = psutil.Process().memory_info().rss
        self._rounds += 1
        if self._rounds == _FIRST:  # what is made once is made
            self._before = memory
        if self._rounds > _FIRST and memory > self._before + _MOST_GROWTH:
            yield f"the server grew by {(memory - self._before) / 1e6:.1f} MB"
            self._before = memory


def _serve(databases: list[Path]) -> str:
    """Start a viewer of ``databases`` as ``hpcd view`` does, in a thread; return its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    host = f"127.0.0.1:{listener.getsockname()[1]}"
    app = create_app({path.name: hpcd.analysis.open(path) for path in databases}, "secret", host)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    return f"http://{host}/#token=secret"


def attack(url: str, rounds: int, seed: int) -> list[str]:
    """``rounds`` requests to the viewer at ``url`` by ten clients; what was found wrong."""
    with ThreadPoolExecutor(CLIENTS) as pool:
        share = -(-rounds // CLIENTS)
        parts = pool.map(lambda client: _client(url, share, seed * CLIENTS + client),
                         range(CLIENTS))  # fmt: skip
        findings = [finding for part in parts for finding in part]
    host, token = _where(url)
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", "/api/v1/db/run.db/selection", headers={"x-hpcd-token": token})
    answer = json.loads(connection.getresponse().read())
    if [answer[name] for name in ("count", "lines", "of")] != [8, 8, 8]:
        findings.append("it no longer answers")
    return findings


def _where(url: str) -> tuple[str, str]:
    return urlsplit(url).netloc, url.partition("#token=")[2]


def _client(url: str, rounds: int, seed: int) -> list[str]:
    choice = random.Random(seed)
    host, token = _where(url)
    findings = []
    for number in range(rounds):
        kind = choice.randrange(10)
        try:
            if kind == 0:
                output = _bytes(host, _garbage(choice, host, token))
            else:
                output = _ask(host, token, _path(choice, kind), _headers(choice, kind, host))
        except TimeoutError:
            output = "no answer"
        if output:
            findings.append(f"seed {seed}, round {number}: {output}")
    return findings


def _path(choice: random.Random, kind: int) -> str:
    if kind == 1:
        return "/" + choice.choice(_CLIMBS)
    if kind == 2:
        return "/api/v1/db/" + choice.choice(_CLIMBS)
    # Half of the values are what the name wants, so that most requests get far.
    good = {"t0": "0", "t1": "999000000", "l0": "0", "l1": "8", "h": "8", "w": "50", "from": "0",
            "count": "3", "metric": "cpu_time", "context": "n0", "view": "flat",
            "text": "x = cpu_time / 2", "patterns": "m.* = #d55e00", "procedure": "1"}  # fmt: skip
    names = choice.sample(_NAMES, choice.randrange(6)) + list(good)
    query = "&".join(
        f"{name}={good[name] if name in good and choice.random() < 0.8 else _value(choice)}"
        for name in names
    )
    if choice.random() < 0.2:
        return f"/api/v1/compare{choice.choice(['', '/calls'])}?{_compared(choice)}"
    return f"/api/v1/db/run.db{choice.choice(_ENDPOINTS)}?{query}"


def _compared(choice: random.Random) -> str:
    good = ["db=run.db&db=ranks-2.db", "db=run.db&window=0:500000000&window=500000000:999000000",
            "db=run.db&rank=0&rank=7", "db=ranks-2.db&iteration=1&iteration=3",
            "db=ranks-2.db&iteration=&phase=sweep", "db=run.db&pid=100&pid=107"]  # fmt: skip
    names = [
        "db",
        "window",
        "rank",
        "pid",
        "iteration",
        "phase",
        "metric",
        "within",
        "shares",
        "scopes",
    ]
    several = choice.randrange(3) * choice.randrange(5)
    bad = "".join(f"&{choice.choice(names)}={_value(choice)}" for _ in range(several))
    return choice.choice(good) + bad


def _value(choice: random.Random) -> str:
    value = choice.choice(_VALUES)
    return quote(value, errors="surrogatepass") if choice.random() < 0.9 else quote(value[:99:-1])


def _headers(choice: random.Random, kind: int, host: str) -> dict[str, str]:
    if kind != 3:
        return {}
    return choice.choice([
        {"x-hpcd-token": ""}, {"x-hpcd-token": "\xff" * 22}, {"x-hpcd-token": "x" * 60_000},
        {"origin": "http://evil.example"}, {"origin": "null"}, {"host": "evil.example"},
        {"host": f"{host}@evil.example"}, {"accept-encoding": "\xff"}, {"range": "bytes=0-99999"},
        {"content-length": "-1"},
    ])  # fmt: skip


def _ask(host: str, token: str, path: str, headers: dict[str, str]) -> str:
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        connection.putrequest("GET", path, skip_host="host" in headers, skip_accept_encoding=True)
        for name, value in ({"x-hpcd-token": token} | headers).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
    except http.client.InvalidURL:
        return ""  # not even this client sends it
    except (http.client.HTTPException, ConnectionError):
        return "" if headers else f"{path[:300]}: hung up"
    finally:
        connection.close()
    if answer.status >= 500:
        return f"{path[:300]}: {answer.status}"
    if {"host", "origin"} & headers.keys() and answer.status != 403:
        return f"{headers}: {answer.status}"
    # The page's own files are anybody's; nothing else may be told.
    secret = next((text for text in _SECRETS if text in body), None)
    return f"{path[:300]}: tells {secret!r}" if secret else ""


def _garbage(choice: random.Random, host: str, token: str) -> bytes:
    request = (
        f"GET /api/v1/db/run.db/grid?t0=0&t1=9&l0=0&l1=8&h=8&w=8 HTTP/1.1\r\nhost: {host}\r\n"
        f"x-hpcd-token: {token}\r\n\r\n"
    ).encode()
    kind = choice.randrange(5)
    if kind == 0:
        return choice.randbytes(choice.randrange(1, 2000))
    if kind == 1:
        return request[: choice.randrange(len(request))]
    if kind == 2:
        return b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000
    if kind == 3:
        return (b"POST /api/v1/databases HTTP/1.1\r\nhost: " + host.encode()
                + b"\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n")  # fmt: skip
    damaged = bytearray(request)
    for _ in range(choice.randrange(1, 6)):
        damaged[choice.randrange(len(damaged))] = choice.randrange(256)
    return bytes(damaged)


def _bytes(host: str, message: bytes) -> str:
    name, _, port = host.partition(":")
    with socket.create_connection((name, int(port)), timeout=60) as connection:
        try:
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            body = connection.recv(1 << 16)
        except TimeoutError:
            raise
        except OSError:
            return ""  # it hung up: its right
    if body.startswith(b"HTTP/1.1 5"):
        return f"{message[:200]!r}: {body[:30]!r}"
    return f"{message[:200]!r}: a traceback" if b"Traceback" in body else ""
