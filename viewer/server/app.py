"""The viewer's web application: everything the page shows is an answer of this API.

``docs/viewer-api.md`` documents it. Arrays travel as little-endian binary, compressed in a way the
browser undoes by itself; their shapes are in the answer's first words.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
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
from zstandard import ZstdCompressor

from hpcd.analysis import Database
from hpcd.analysis.formula import parse_formula
from hpcd.analysis.grid import choose_lines
from hpcd.errors import HpcdError, NotFoundError, UsageError
from hpcd.viewer.live import Live
from hpcd.viewer.marks import marks
from hpcd.viewer.palette import colours, parse_patterns
from hpcd.viewer.server.asked import Asked
from hpcd.viewer.server.comparison import Comparisons, packed, question
from hpcd.viewer.server.guard import Guard
from hpcd.viewer.server.opened import GoneError, Opened
from hpcd.viewer.server.profile import heat, over_lines

WEB = Path(__file__).parent.parent / "web"
# Twice the largest screens: a request for more is a mistake or mischief.
_MOST_PIXELS = 16_000_000
_MOST_LINES = 10_000
_LONGEST_TEXT = 4000
_LEVEL = 1  # a grid compresses tenfold, at memory speed


# What a page says that knows one state of a database that grows.
_REVISION_HEADER = "x-hpcd-revision"


def create_app(
    databases: Mapping[str, Database | Live], token: str, host: str, folders: Sequence[Path] = ()
) -> Starlette:
    """The application for ``databases`` by name, served at ``host`` (address:port).

    Source files are looked for in ``folders`` too.
    """
    views = _Views(databases, folders)
    return Starlette(
        routes=[
            Route("/", lambda _: FileResponse(WEB / "index.html")),
            Route("/api/v1/databases", views.databases),
            Route("/api/v1/compare", views.compare),
            Route("/api/v1/compare/calls", views.compared_calls),
            Route("/api/v1/db/{name}", views.summary),
            Route("/api/v1/db/{name}/live", views.live),
            Route("/api/v1/db/{name}/cct", views.cct),
            Route("/api/v1/db/{name}/lines", views.lines),
            Route("/api/v1/db/{name}/grid", views.grid),
            Route("/api/v1/db/{name}/selection", views.selection),
            Route("/api/v1/db/{name}/profile", views.profile),
            Route("/api/v1/db/{name}/tree", views.tree),
            Route("/api/v1/db/{name}/entities", views.entities),
            Route("/api/v1/db/{name}/colours", views.colours),
            Route("/api/v1/db/{name}/formula", views.formula),
            Route("/api/v1/db/{name}/source", views.source),
            Route("/api/v1/db/{name}/assembly", views.assembly),
            Route("/api/v1/db/{name}/over", views.over),
            Route("/api/v1/db/{name}/heat", views.heat),
            Mount("/", StaticFiles(directory=WEB)),
        ],
        middleware=[Middleware(Guard, token=token, host=host)],
        exception_handlers={HpcdError: _failed},
    )


async def _failed(_: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, NotFoundError) else 400
    if isinstance(error, GoneError):
        status = 409
    return JSONResponse({"error": str(error)}, status)


class _Views:
    """The answers. Work on arrays is done in threads, so that no request waits for another's."""

    def __init__(self, databases: Mapping[str, Database | Live], folders: Sequence[Path]) -> None:
        self._folders = folders
        self._databases = {
            name: each if isinstance(each, Live) else Opened(each)
            for name, each in databases.items()
        }
        # One that grows is compared when it has ended.
        self._comparisons = Comparisons(
            {name: each for name, each in databases.items() if isinstance(each, Database)}
        )

    def _asked(self, request: Request) -> tuple[Opened, Asked]:
        """The database, of one that grows the revision the page knows, or else the newest; and what
        is asked of it."""
        found = self._databases.get(request.path_params["name"])
        if found is None:
            raise NotFoundError("no such database")
        if isinstance(found, Live):
            found = found.at(request.headers.get(_REVISION_HEADER, ""))
        return found, Asked(request.query_params)

    async def databases(self, _: Request) -> Response:
        """Names of the databases that are open."""
        return JSONResponse({"databases": list(self._databases)})

    async def summary(self, request: Request) -> Response:
        """What a database holds; names, colours and marks of its procedures."""
        found = self._databases.get(request.path_params["name"])
        opened, _ = self._asked(request)
        live = found.state() if isinstance(found, Live) else None
        return await _json(lambda: {**_summary(opened.db), "live": live and {
            **live, "revision": opened.revision}})  # fmt: skip

    async def live(self, request: Request) -> Response:
        """How far a measurement being written is: its newest revision, whether more will come; and
        what lines of an older revision are now."""
        found = self._databases.get(request.path_params["name"])
        if not isinstance(found, Live):
            raise NotFoundError("not a database that grows")
        asked = Asked(request.query_params)
        lines = found.moved(asked.whole("revision", 1, 1 << 40), asked.numbers("lines"))
        return JSONResponse({**found.state(), "lines": lines})

    async def compare(self, request: Request) -> Response:
        """Several runs, or parts of one, as one tree; see :func:`comparison.packed`."""
        asked = question(Asked(request.query_params))
        return await _binary(request, lambda: packed(*self._comparisons.aligned(asked)))

    async def compared_calls(self, request: Request) -> Response:
        """How often what called what on each side."""
        asked = question(Asked(request.query_params))
        return await _json(lambda: self._comparisons.calls(asked))

    async def cct(self, request: Request) -> Response:
        """The tree: u32 n, then parent u32[n], procedure u32[n]."""
        db = self._asked(request)[0].db
        return await _binary(
            request,
            lambda: [
                np.array([len(db.cct)], np.uint32),
                np.asarray(db.cct.parent, np.uint32),
                np.asarray(db.procedure_of_node, np.uint32),
            ],
        )

    async def selection(self, request: Request) -> Response:
        """How many lines a choice of lines has."""
        opened, asked = self._asked(request)

        def make() -> object:
            return {
                "count": len(opened.selection.order(asked.choice())),
                "of": len(opened.db.lines),
            }

        return await _json(make)

    async def lines(self, request: Request) -> Response:
        """Labels, numbers and groups of ``count`` lines of a choice, from ``from`` on."""
        opened, asked = self._asked(request)

        def make() -> object:
            db, choice = opened.db, asked.choice()
            order = opened.selection.order(choice)
            first = asked.whole("from", 0, len(order))
            chosen = order[first : first + asked.whole("count", 1, _MOST_LINES)].tolist()
            return {
                "labels": db.lines.labels(chosen),
                "lines": chosen,
                "groups": opened.selection.groups(chosen, choice.group),
                "measurements": db.trace.measurements(chosen),
            }

        return await _json(make)

    async def grid(self, request: Request) -> Response:
        """A picture: u32 h, w, b, then line u32[h], place u32[h], node[h, w].

        Nodes have b bytes: 2, or 4 where there are many. Of a choice's lines ``l0`` to ``l1``, or
        of ``line`` alone, over ``t0`` to ``t1`` ns.
        """
        opened, asked = self._asked(request)

        def sample() -> list[npt.NDArray[Any]]:
            db = opened.db
            t0, t1 = asked.interval()
            height, width = asked.whole("h", 1, 10_000), asked.whole("w", 1, 10_000)
            if height * width > _MOST_PIXELS:
                raise UsageError(f"a picture has at most {_MOST_PIXELS} pixels")
            if asked.has("line"):
                place = np.zeros(1, np.int64)
                lines = np.array([asked.whole("line", 0, len(db.lines) - 1)])
            else:
                order = opened.selection.order(asked.choice())
                l0, l1 = asked.rows(len(order))
                place = choose_lines(np.arange(l0, l1), height, len(order))
                lines = order[place]
            nodes = db.sample_grid(lines, t0, t1, len(lines), width)
            kind = np.uint16 if len(db.cct) < np.iinfo(np.uint16).max else np.uint32
            return [
                np.array([len(lines), width, np.dtype(kind).itemsize], np.uint32),
                lines.astype(np.uint32),
                place.astype(np.uint32),
                nodes.ravel().astype(kind, copy=False),
            ]

        return await _binary(request, sample)

    async def profile(self, request: Request) -> Response:
        """Costs by context: u32 n, u32 m, u32 kind, u32 pixels, then f64[m, n], exclusive."""
        opened, asked = self._asked(request)

        def make() -> list[npt.NDArray[Any]]:
            made = opened.profile(asked)
            return [
                np.array([len(opened.db.cct), len(made.value), made.kind, made.pixels], np.uint32),
                np.asarray(made.value, np.float64).ravel(),
            ]

        return await _binary(request, make)

    async def tree(self, request: Request) -> Response:
        """A view's tree: u32 n, u32 c, parent u32[n], entity u32[n], place u32[c]."""
        opened, asked = self._asked(request)

        def make() -> list[npt.NDArray[Any]]:
            found = opened.trees.of(asked.text("view"))
            return [
                np.array([len(found.tree), len(found.place)], np.uint32),
                np.asarray(found.tree.parent, np.uint32),
                found.tree.frame.astype(np.uint32),
                np.asarray(found.place, np.uint32),
            ]

        return await _binary(request, make)

    async def entities(self, request: Request) -> Response:
        """What the nodes of a view's tree are."""
        opened, asked = self._asked(request)
        return await _json(lambda: opened.trees.summary(asked.text("view")))

    async def colours(self, request: Request) -> Response:
        """u32[n]: colours of the procedures, or of a view's entities, with a person's patterns."""
        opened, asked = self._asked(request)

        def make() -> list[npt.NDArray[Any]]:
            patterns = parse_patterns(asked.text("patterns", longest=_LONGEST_TEXT).split("\n"))
            view = asked.text("view")
            names = opened.trees.coloured_as(view) if view else opened.db.procedure_names
            return [_words(colours(names, patterns))]

        return await _binary(request, make)

    async def formula(self, request: Request) -> Response:
        """A derived metric, understood."""
        opened, asked = self._asked(request)

        def make() -> object:
            metrics = opened.db.metrics
            text = asked.text("text", longest=_LONGEST_TEXT)
            return parse_formula(text, metrics.names, metrics.units).as_json()

        return await _json(make)

    async def source(self, request: Request) -> Response:
        """A procedure's source lines with what they cost in the window."""
        opened, asked = self._asked(request)

        def make() -> object:
            made = opened.profile(asked)
            file = asked.whole("file", 0, 1 << 30) if asked.has("file") else None
            procedure = asked.whole("procedure", 0, 1 << 30)
            found = opened.sources.lines(procedure, made.value, file, self._folders)
            return {"kind": made.kind, "pixels": made.pixels, **found}

        return await _json(make)

    async def assembly(self, request: Request) -> Response:
        """A procedure's instructions with what they cost in the window."""
        opened, asked = self._asked(request)

        def make() -> object:
            made = opened.profile(asked)
            procedure = asked.whole("procedure", 0, 1 << 30)
            found = opened.sources.code(procedure, made.value)
            return {"kind": made.kind, "pixels": made.pixels, **found}

        return await _json(make)

    async def over(self, request: Request) -> Response:
        """A context's cost over lines: statistics, histogram, sorted curve."""
        opened, asked = self._asked(request)

        def make() -> object:
            inside = opened.trees.inside(asked.text("context", longest=_LONGEST_TEXT))
            return over_lines(opened.db, opened.rows(asked), asked.text("metric"), inside)

        return await _json(make)

    async def heat(self, request: Request) -> Response:
        """Lines x procedures: u32 h, u32 w, line u32[h], procedure u32[w], f32[h, w]."""
        opened, asked = self._asked(request)

        def make() -> list[npt.NDArray[Any]]:
            height, width = asked.whole("h", 1, 2_000), asked.whole("w", 1, 500)
            made = heat(opened.db, opened.rows(asked), asked.text("metric"), height, width)
            size = np.array([len(made.line), len(made.procedure)], np.uint32)
            return [size, made.line, made.procedure, made.value.ravel()]

        return await _binary(request, make)


def _summary(db: Database) -> dict[str, object]:
    names = db.procedure_names
    return {
        "name": db.path.name,
        "lines": len(db.lines),
        "duration_ns": db.duration_ns,
        "origin_ns": db.origin_ns,
        "nodes": len(db.cct),
        "records": len(db.trace),
        "losses": db.losses,
        "measurements": [each.name for each in db.measurements],
        "metrics": [
            {"name": name, "unit": unit}
            for name, unit in zip(db.metrics.names, db.metrics.units, strict=True)
        ],
        "procedures": names,
        "marks": marks(names).tolist(),
        "colours": _words(colours(names)).tolist(),
    }


def _words(rgb: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    words = rgb.astype(np.uint32)
    return (words @ np.array([1, 1 << 8, 1 << 16], np.uint32)).astype(np.uint32)


async def _json(make: Callable[[], object]) -> Response:
    return JSONResponse(await run_in_threadpool(make))


async def _binary(request: Request, make: Callable[[], list[npt.NDArray[Any]]]) -> Response:
    # zstd takes a quarter of the time; not every client undoes it.
    modern = "zstd" in request.headers.get("accept-encoding", "")

    def compressed() -> bytes:
        packer = ZstdCompressor(_LEVEL).compressobj() if modern else zlib.compressobj(_LEVEL)
        parts = [packer.compress(part.tobytes()) for part in make()]
        return b"".join([*parts, packer.flush()])

    return Response(
        await run_in_threadpool(compressed),
        media_type="application/octet-stream",
        headers={"content-encoding": "zstd" if modern else "deflate"},
    )
