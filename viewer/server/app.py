"""The viewer's web application: everything the page shows is an answer of this API.

``docs/viewer-api.md`` documents it. Arrays travel as little-endian binary, compressed in a way the
browser undoes by itself; their shapes are in the answer's first words.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hpcd.analysis import Database
from hpcd.errors import HpcdError, NotFoundError, UsageError
from hpcd.viewer.palette import colours
from hpcd.viewer.server.guard import Guard

WEB = Path(__file__).parent.parent / "web"
# Twice the largest screens: a request for more is a mistake or mischief.
_MOST_PIXELS = 16_000_000
_MOST_LINES = 10_000
_LEVEL = 1  # of zlib: a grid compresses tenfold, at memory speed


def create_app(databases: Mapping[str, Database], token: str, host: str) -> Starlette:
    """The application for ``databases`` by name, served at ``host`` (address:port)."""
    views = _Views(databases)
    return Starlette(
        routes=[
            Route("/", lambda _: FileResponse(WEB / "index.html")),
            Route("/api/v1/databases", views.databases),
            Route("/api/v1/db/{name}", views.summary),
            Route("/api/v1/db/{name}/cct", views.cct),
            Route("/api/v1/db/{name}/lines", views.lines),
            Route("/api/v1/db/{name}/grid", views.grid),
            Route("/api/v1/db/{name}/metric/{metric}", views.metric),
            Mount("/", StaticFiles(directory=WEB)),
        ],
        middleware=[Middleware(Guard, token=token, host=host)],
        exception_handlers={HpcdError: _failed},
    )


async def _failed(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, NotFoundError) else 400
    return JSONResponse({"error": str(error)}, status)


class _Views:
    """The answers. Work on arrays is done in threads, so that no request waits for another's."""

    def __init__(self, databases: Mapping[str, Database]) -> None:
        self._databases = databases

    def _database(self, request: Request) -> Database:
        found = self._databases.get(request.path_params["name"])
        if found is None:
            raise NotFoundError("no such database")
        return found

    async def databases(self, _: Request) -> Response:
        """Names of the databases that are open."""
        return JSONResponse({"databases": list(self._databases)})

    async def summary(self, request: Request) -> Response:
        """What a database holds; names and colours of its procedures."""
        db = self._database(request)
        return await _json(lambda: _summary(db))

    async def cct(self, request: Request) -> Response:
        """The tree: u32 n, then parent u32[n], procedure u32[n]."""
        db = self._database(request)
        return await _binary(
            lambda: [
                np.array([len(db.cct)], np.uint32),
                np.asarray(db.cct.parent, np.uint32),
                np.asarray(db.procedure_of_node, np.uint32),
            ]
        )

    async def lines(self, request: Request) -> Response:
        """Labels of ``count`` trace lines from ``from`` on."""
        db = self._database(request)
        first = _whole(request, "from", 0, len(db.lines))
        count = _whole(request, "count", 1, _MOST_LINES)
        chosen = range(first, min(first + count, len(db.lines)))
        return await _json(lambda: {"labels": db.lines.labels(chosen)})

    async def grid(self, request: Request) -> Response:
        """A picture: u32 h, u32 w, then line u32[h], then node u32[h, w].

        Of lines ``l0`` to ``l1`` over ``t0`` to ``t1`` ns, at most ``h`` by ``w``.
        """
        db = self._database(request)
        t0, t1 = (_whole(request, name, -(1 << 62), 1 << 62) for name in ("t0", "t1"))
        l0 = _whole(request, "l0", 0, len(db.lines))
        l1 = _whole(request, "l1", 0, len(db.lines))
        height, width = _whole(request, "h", 1, 10_000), _whole(request, "w", 1, 10_000)
        if height * width > _MOST_PIXELS or l1 <= l0 or t1 <= t0:
            raise UsageError("a picture needs lines, time, and not too many pixels")
        chosen = np.arange(l0, l1)

        def sample() -> list[npt.NDArray[Any]]:
            nodes = db.sample_grid(chosen, t0, t1, height, width)
            lines = db.sample_lines(chosen, height)
            return [
                np.array([len(lines), width], np.uint32), lines.astype(np.uint32), nodes.ravel()
            ]  # fmt: skip

        return await _binary(sample)

    async def metric(self, request: Request) -> Response:
        """A metric's exclusive sums over all lines: u32 n, u32 0, then f64[n]."""
        db = self._database(request)
        name = request.path_params["metric"]
        if name not in db.metrics.names:
            raise NotFoundError("no such metric")
        return await _binary(
            lambda: [
                np.array([len(db.cct), 0], np.uint32),
                np.asarray(db.metrics.exclusive(name), np.float64),
            ]
        )


def _summary(db: Database) -> dict[str, object]:
    names = db.procedure_names
    rgb = colours(names).astype(np.uint32)
    return {
        "name": db.path.name,
        "lines": len(db.lines),
        "duration_ns": db.duration_ns,
        "origin_ns": db.origin_ns,
        "nodes": len(db.cct),
        "records": len(db.trace),
        "measurements": [each.name for each in db.measurements],
        "metrics": [
            {"name": name, "unit": unit}
            for name, unit in zip(db.metrics.names, db.metrics.units, strict=True)
        ],
        "procedures": names,
        "colours": (rgb[:, 0] | rgb[:, 1] << 8 | rgb[:, 2] << 16).tolist(),
    }


def _whole(request: Request, name: str, least: int, most: int) -> int:
    text = request.query_params.get(name, "")
    try:
        value = int(text) if len(text) < 24 else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}")
    return value


async def _json(make: Callable[[], object]) -> Response:
    return JSONResponse(await run_in_threadpool(make))


async def _binary(make: Callable[[], list[npt.NDArray[Any]]]) -> Response:
    def compressed() -> bytes:
        return zlib.compress(b"".join(part.tobytes() for part in make()), _LEVEL)

    return Response(
        await run_in_threadpool(compressed),
        media_type="application/octet-stream",
        headers={"content-encoding": "deflate"},
    )
