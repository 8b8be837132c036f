"""The viewer's web application: everything the page shows is an answer of this API.

``docs/viewer-api.md`` documents each path. Named arrays travel compressed in a way the browser
undoes by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Thread

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from zstandard import ZstdCompressor

from hpcd.analysis import Database
from hpcd.analysis.answers.json_form import json_form
from hpcd.analysis.arrays.named_arrays import Arrays, array_parts, json_bytes
from hpcd.analysis.parallel.ranks import main_program
from hpcd.errors import HpcdError, NotFoundError, UsageError
from hpcd.viewer.server.access_guard import AccessGuard
from hpcd.viewer.server.answers import (
    BINARY_ANSWERS,
    JSON_ANSWERS,
    BinaryAnswer,
    JsonAnswer,
    calling_contexts,
    describe,
    picture,
    source,
)
from hpcd.viewer.server.comparison_api import Comparisons, comparison_request
from hpcd.viewer.server.live_revisions import LiveRevisions
from hpcd.viewer.server.open_database import GoneError, OpenDatabase
from hpcd.viewer.server.page_files import PageFiles
from hpcd.viewer.server.query_params import QueryParameters
from hpcd.viewer.server.rendering import rendered_trace
from hpcd.viewer.server.selection import Choice
from hpcd.viewer.server.stacks_api import PresentStacks, stacks_at, stacks_now

WEB = Path(__file__).parent.parent / "web"
# The status of an answer whose client has gone; nginx has it too.
_GONE = 499
_LONGEST_LINES = 2000  # characters
# Files that may stay mapped between pictures: the next picture finds them at once.
_MOST_MAPPED = 128 << 20
_LEVEL = 1  # a grid compresses tenfold, at memory speed


# Header of a page that shows one revision of a database that grows.
_REVISION_HEADER = "x-hpcd-revision"

_Handler = Callable[[Request], Awaitable[Response]]


def create_app(
    databases: Mapping[str, Database | LiveRevisions],
    token: str,
    host: str,
    folders: Sequence[Path] = (),
    present: PresentStacks | None = None,
) -> Starlette:
    """The application for ``databases`` by name, served at ``host`` (address:port).

    Source files are looked for in ``folders`` too; ``present`` reads the stacks of processes that
    are being recorded.
    """
    views = _Views(databases, present)
    # A page requests the first one first, and the browser is not there yet.
    Thread(target=views.prepare, name="prepare").start()
    json_answers: dict[str, JsonAnswer] = {
        **JSON_ANSWERS,
        "source": lambda database, parameters: source(database, parameters, folders),
    }
    of_database: dict[str, _Handler] = {
        "": views.summary,
        "/live": views.live,
        "/depths": views.depths,
        "/grid": views.grid,
        "/render": views.render,
        "/stacks": views.stacks,
        **{f"/{name}": views.json(answer) for name, answer in json_answers.items()},
        **{f"/{name}": views.binary(answer) for name, answer in BINARY_ANSWERS.items()},
    }
    return Starlette(
        routes=[
            Route("/api/v1/databases", views.databases),
            Route("/api/v1/opening", views.opening),
            Route("/api/v1/programs", views.programs),
            Route("/api/v1/compare", views.compare),
            Route("/api/v1/compare/calls", views.compared_calls),
            *(Route(f"/api/v1/db/{{name}}{at}", handler) for at, handler in of_database.items()),
            Mount("/", PageFiles(WEB)),
        ],
        middleware=[Middleware(AccessGuard, token=token, host=host)],
        exception_handlers={HpcdError: _failed},
    )


async def _failed(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, NotFoundError) else 400
    if isinstance(error, GoneError):
        status = 409
    return JSONResponse({"error": str(error)}, status)


class _Views:
    """Finds the database of a request and computes its answer.

    Work on arrays is done in threads, so that no request waits for another's.
    """

    def __init__(
        self, databases: Mapping[str, Database | LiveRevisions], present: PresentStacks | None
    ) -> None:
        self._drawing = asyncio.Lock()
        self._present = present
        self._databases = {
            name: database if isinstance(database, LiveRevisions) else OpenDatabase(database)
            for name, database in databases.items()
        }
        self._comparisons = lru_cache(2)(self._compared)

    def _compared(self, native: bool) -> Comparisons:
        """Comparisons of the databases; a growing database is compared when it has ended."""
        return Comparisons(
            {
                name: database.shown(native=native).db
                for name, database in self._databases.items()
                if isinstance(database, OpenDatabase)
            }
        )

    def prepare(self) -> None:
        """Make what a page of the first database requests first."""
        database = next(iter(self._databases.values()))
        if isinstance(database, OpenDatabase):
            # Its damage is reported when it is requested.
            with contextlib.suppress(HpcdError):
                database.prepare()

    def json(self, answer: JsonAnswer) -> _Handler:
        async def handle(request: Request) -> Response:
            database, parameters = self._database_and_parameters(request)
            return await _json(lambda: answer(database, parameters))

        return handle

    def binary(self, answer: BinaryAnswer) -> _Handler:
        async def handle(request: Request) -> Response:
            database, parameters = self._database_and_parameters(request)
            return await _binary(request, lambda: answer(database, parameters))

        return handle

    def _database_and_parameters(self, request: Request) -> tuple[OpenDatabase, QueryParameters]:
        """The database (of a growing one the revision that the page knows, or the newest); and the
        request's parameters."""
        revision = request.headers.get(_REVISION_HEADER, "")
        parameters = QueryParameters(request.query_params)
        database = self._database(request.path_params["name"], revision)
        return database.shown(native=parameters.has("native")), parameters

    def _database(self, name: str, revision: str) -> OpenDatabase:
        database = self._databases.get(name)
        if database is None:
            raise NotFoundError("no such database")
        return database.at(revision) if isinstance(database, LiveRevisions) else database

    async def databases(self, _: Request) -> Response:
        return JSONResponse({"databases": list(self._databases)})

    async def programs(self, _: Request) -> Response:
        """The path of the main program of each database.

        Of a recording that is still written this is not known.
        """
        return await _json(
            lambda: {
                name: main_program(database.db) if isinstance(database, OpenDatabase) else ""
                for name, database in self._databases.items()
            }
        )

    async def summary(self, request: Request) -> Response:
        database, _ = self._database_and_parameters(request)
        return await _json(lambda: self._summary_of(request.path_params["name"], database))

    def _summary_of(self, name: str, database: OpenDatabase) -> dict[str, object]:
        recording = self._databases[name]
        live = recording.state() if isinstance(recording, LiveRevisions) else None
        return {
            **describe(database),
            "rows": len(database.selection.order(Choice(fold=True))),
            "live": live and {**live, "revision": database.revision},
            "recorded": database.calls.groups(),
            "present": self._can_read(name),
        }

    async def opening(self, request: Request) -> Response:
        parameters = QueryParameters(request.query_params)
        name = parameters.text("db")
        if name not in self._databases:
            name = next(iter(self._databases))
        database = self._database(name, "").shown(native=parameters.has("native"))

        def make() -> Arrays:
            head = {
                "databases": list(self._databases),
                "db": name,
                "summary": self._summary_of(name, database),
                "depths": database.depths() if database.depths.ready else None,
            }
            return {"head": json_bytes(head), **calling_contexts(database)}

        return await _binary(request, make)

    async def live(self, request: Request) -> Response:
        recording = self._databases.get(request.path_params["name"])
        if not isinstance(recording, LiveRevisions):
            raise NotFoundError("not a database that grows")
        parameters = QueryParameters(request.query_params)
        lines = recording.moved(
            parameters.whole("revision", 1, 1 << 40), parameters.numbers("lines", _LONGEST_LINES)
        )
        return JSONResponse({**recording.state(), "lines": lines})

    async def compare(self, request: Request) -> Response:
        parameters = QueryParameters(request.query_params)
        wanted, native = comparison_request(parameters), parameters.has("native")
        return await _binary(request, lambda: self._comparisons(native).aligned(wanted))

    async def compared_calls(self, request: Request) -> Response:
        parameters = QueryParameters(request.query_params)
        wanted, native = comparison_request(parameters), parameters.has("native")
        return await _json(lambda: self._comparisons(native).calls(wanted))

    async def depths(self, request: Request) -> Response:
        database, _ = self._database_and_parameters(request)
        # It opens the parts that the first picture, requested at the same time, needs too.
        async with self._drawing:
            return await _json(database.depths)

    async def stacks(self, request: Request) -> Response:
        database, parameters = self._database_and_parameters(request)
        kernel = parameters.has("kernel")

        def make() -> object:
            db = database.db
            if not parameters.has("now"):
                at = parameters.whole("at", 0, db.duration_ns)
                return json_form(stacks_at(db, at, kernel=kernel))
            if self._present is None or not self._can_read(request.path_params["name"]):
                raise UsageError("the processes of this recording are not being recorded now")
            return json_form(stacks_now(db, self._present, kernel=kernel))

        return await _json(make)

    def _can_read(self, name: str) -> bool:
        """Whether the stacks of a recording's processes can be read now."""
        recording = self._databases[name]
        return (
            self._present is not None
            and isinstance(recording, LiveRevisions)
            and bool(recording.state()["recording"])
        )

    async def render(self, request: Request) -> Response:
        database, parameters = self._database_and_parameters(request)
        content, kind = await run_in_threadpool(lambda: rendered_trace(database, parameters))
        return Response(content, media_type=kind)

    async def grid(self, request: Request) -> Response:
        database, parameters = self._database_and_parameters(request)
        database.drawn = True
        # One after the other: side by side they wait for the interpreter's lock, and hold twice
        # the memory. A client that is gone wants no picture.
        async with self._drawing:
            if await request.is_disconnected():
                return Response(status_code=_GONE)
            answer = await _binary(request, lambda: picture(database, parameters))
        answer.background = BackgroundTask(database.db.trace.release_beyond, _MOST_MAPPED)
        return answer


async def _json(make: Callable[[], object]) -> Response:
    return JSONResponse(await run_in_threadpool(make))


async def _binary(request: Request, make: Callable[[], Arrays]) -> Response:
    # zstd takes a quarter of the time; not every client undoes it.
    modern = "zstd" in request.headers.get("accept-encoding", "")

    def compressed() -> bytes:
        packer = ZstdCompressor(_LEVEL).compressobj() if modern else zlib.compressobj(_LEVEL)
        parts = [packer.compress(part) for part in array_parts(make())]
        return b"".join([*parts, packer.flush()])

    return Response(
        await run_in_threadpool(compressed),
        media_type="application/octet-stream",
        headers={"content-encoding": "zstd" if modern else "deflate"},
    )
