"""The viewer's web application: everything the page shows is an answer of this API.

``docs/viewer-api.md`` documents it. Arrays travel as little-endian binary, compressed in a way the
browser undoes by itself; their shapes are in the answer's first words.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from zstandard import ZstdCompressor

from hpcd.analysis import Database
from hpcd.analysis.parallel.findings import findings, scene
from hpcd.analysis.parallel.ranks import main_program
from hpcd.analysis.profile.formula import parse_formula
from hpcd.analysis.trace.pixel_runs import pixel_runs
from hpcd.analysis.trace.pixel_samples import choose_lines
from hpcd.errors import HpcdError, NotFoundError, UsageError
from hpcd.viewer.live_revisions import LiveRevisions
from hpcd.viewer.marks import marks
from hpcd.viewer.palette import colours, parse_patterns
from hpcd.viewer.server.access_guard import AccessGuard
from hpcd.viewer.server.comparison_api import Comparisons, comparison_request, packed
from hpcd.viewer.server.open_database import GoneError, OpenDatabase
from hpcd.viewer.server.page_files import PageFiles
from hpcd.viewer.server.profile_api import heat, over_lines
from hpcd.viewer.server.query_params import QueryParameters
from hpcd.viewer.server.selection import Choice
from hpcd.viewer.server.stacks_api import PresentStacks, stacks_at, stacks_now

WEB = Path(__file__).parent.parent / "web"
# Twice the largest screens: a request for more is a mistake or mischief.
_MOST_PIXELS = 16_000_000
_MOST_LINES = 10_000
_LONGEST_TEXT = 4000
# Cells of a communication matrix each way, and what says which ranks it has.
_MOST_CELLS, _SPANS = 512, 4
# The status of an answer that nobody waits for any more; nginx has it too.
_GONE = 499
# Files that may stay mapped between pictures: what is looked at next is there at once.
_MOST_MAPPED = 128 << 20
_LEVEL = 1  # a grid compresses tenfold, at memory speed


# What a page says that knows one state of a database that grows.
_REVISION_HEADER = "x-hpcd-revision"


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
    views = _Views(databases, folders, present)
    # A page asks for the first one first, and the browser is not there yet.
    Thread(target=views.prepare, name="prepare").start()
    return Starlette(
        routes=[
            Route("/api/v1/databases", views.databases),
            Route("/api/v1/opening", views.opening),
            Route("/api/v1/programs", views.programs),
            Route("/api/v1/compare", views.compare),
            Route("/api/v1/compare/calls", views.compared_calls),
            Route("/api/v1/db/{name}", views.summary),
            Route("/api/v1/db/{name}/live", views.live),
            Route("/api/v1/db/{name}/cct", views.cct),
            Route("/api/v1/db/{name}/lines", views.lines),
            Route("/api/v1/db/{name}/depths", views.depths),
            Route("/api/v1/db/{name}/findings", views.findings),
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
            Route("/api/v1/db/{name}/stacks", views.stacks),
            Route("/api/v1/db/{name}/messages", views.messages),
            Route("/api/v1/db/{name}/messages/matrix", views.matrix),
            Route("/api/v1/db/{name}/calls", views.calls),
            Route("/api/v1/db/{name}/phases", views.phases),
            Route("/api/v1/db/{name}/memory", views.memory),
            Route("/api/v1/db/{name}/call-marks", views.call_marks),
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
    """The answers. Work on arrays is done in threads, so that no request waits for another's."""

    def __init__(
        self,
        databases: Mapping[str, Database | LiveRevisions],
        folders: Sequence[Path],
        present: PresentStacks | None,
    ) -> None:
        self._drawing = asyncio.Lock()
        self._folders = folders
        self._present = present
        self._databases = {
            name: database if isinstance(database, LiveRevisions) else OpenDatabase(database)
            for name, database in databases.items()
        }
        # One that grows is compared when it has ended.
        self._comparisons = Comparisons(
            {
                name: database
                for name, database in databases.items()
                if isinstance(database, Database)
            }
        )

    def prepare(self) -> None:
        """Make what a page of the first database asks for first."""
        database = next(iter(self._databases.values()))
        if isinstance(database, OpenDatabase):
            # What is wrong with it is said when it is asked for.
            with contextlib.suppress(HpcdError):
                database.prepare()

    def _database_and_parameters(self, request: Request) -> tuple[OpenDatabase, QueryParameters]:
        """The database, of one that grows the revision the page knows, or else the newest; and the
        request's parameters."""
        revision = request.headers.get(_REVISION_HEADER, "")
        database = self._database(request.path_params["name"], revision)
        return database, QueryParameters(request.query_params)

    def _database(self, name: str, revision: str) -> OpenDatabase:
        database = self._databases.get(name)
        if database is None:
            raise NotFoundError("no such database")
        return database.at(revision) if isinstance(database, LiveRevisions) else database

    async def databases(self, _: Request) -> Response:
        """Names of the databases that are open."""
        return JSONResponse({"databases": list(self._databases)})

    async def programs(self, _: Request) -> Response:
        """What each database is a recording of: the path of its main program.

        Of a recording that is still written this is not known.
        """
        return await _json(
            lambda: {
                name: main_program(database.db) if isinstance(database, OpenDatabase) else ""
                for name, database in self._databases.items()
            }
        )

    async def summary(self, request: Request) -> Response:
        """What a database holds; names, colours and marks of its procedures."""
        database, _ = self._database_and_parameters(request)
        return await _json(lambda: self._summary_of(request.path_params["name"], database))

    def _summary_of(self, name: str, database: OpenDatabase) -> dict[str, object]:
        recording = self._databases[name]
        live = recording.state() if isinstance(recording, LiveRevisions) else None
        return {
            **_summary(database.db),
            "rows": len(database.selection.order(Choice(fold=True))),
            "live": live and {**live, "revision": database.revision},
            "recorded": database.calls.groups(),
            "present": self._can_read(name),
        }

    async def opening(self, request: Request) -> Response:
        """What a page shows at once of the database ``db``, or of the first if there is no such:
        u32 n, JSON of n bytes, and the tree as :meth:`cct` has it."""
        name = QueryParameters(request.query_params).text("db")
        if name not in self._databases:
            name = next(iter(self._databases))
        database = self._database(name, "")

        def make() -> list[npt.NDArray[Any]]:
            head = {
                "databases": list(self._databases),
                "db": name,
                "summary": self._summary_of(name, database),
                "depths": database.made_depths(),
            }
            text = json.dumps(head).encode()
            text += b" " * (-len(text) % 4)
            size = np.array([len(text)], np.uint32)
            return [size, np.frombuffer(text, np.uint8), *_tree(database.db)]

        return await _binary(request, make)

    async def live(self, request: Request) -> Response:
        """How far a measurement being written is: its newest revision, whether more will come; and
        what lines of an older revision are now."""
        recording = self._databases.get(request.path_params["name"])
        if not isinstance(recording, LiveRevisions):
            raise NotFoundError("not a database that grows")
        parameters = QueryParameters(request.query_params)
        lines = recording.moved(
            parameters.whole("revision", 1, 1 << 40), parameters.numbers("lines")
        )
        return JSONResponse({**recording.state(), "lines": lines})

    async def compare(self, request: Request) -> Response:
        """Several runs, or parts of one, as one tree; see :func:`.comparison_api.packed`."""
        wanted = comparison_request(QueryParameters(request.query_params))
        return await _binary(request, lambda: packed(*self._comparisons.aligned(wanted)))

    async def compared_calls(self, request: Request) -> Response:
        """How often what called what on each side."""
        wanted = comparison_request(QueryParameters(request.query_params))
        return await _json(lambda: self._comparisons.calls(wanted))

    async def cct(self, request: Request) -> Response:
        """The tree: u32 n, then parent u32[n], procedure u32[n]."""
        db = self._database_and_parameters(request)[0].db
        return await _binary(request, lambda: _tree(db))

    async def selection(self, request: Request) -> Response:
        """How many lines a choice of lines has."""
        database, parameters = self._database_and_parameters(request)

        def make() -> object:
            return {
                "count": len(database.selection.order(parameters.choice())),
                "of": len(database.db.lines),
            }

        return await _json(make)

    async def lines(self, request: Request) -> Response:
        """Labels, numbers and groups of ``count`` rows of a choice, from ``from`` on; how many
        lines each stands for."""
        database, parameters = self._database_and_parameters(request)

        def make() -> object:
            db, choice = database.db, parameters.choice()
            order = database.selection.order(choice)
            first = parameters.whole("from", 0, len(order))
            chosen = order[first : first + parameters.whole("count", 1, _MOST_LINES)].tolist()
            return {
                "labels": database.selection.labels(chosen, choice),
                "lines": chosen,
                "folded": database.selection.folded(chosen, choice),
                "processes": db.lines.process[chosen].tolist(),
                "groups": database.selection.groups(chosen, choice.group),
                "measurements": db.trace.measurements(chosen),
            }

        return await _json(make)

    async def depths(self, request: Request) -> Response:
        """What each call path depth would show of the recording, and the one that tells most."""
        database, _ = self._database_and_parameters(request)
        # It opens the parts that the first picture, asked for at the same time, needs too.
        async with self._drawing:
            return await _json(database.depths)

    async def findings(self, request: Request) -> Response:
        """What was recorded and what stands out, in sentences."""
        database, _ = self._database_and_parameters(request)

        def make() -> object:
            db = database.db
            return {
                "scene": scene(db),
                "findings": [dataclasses.asdict(finding) for finding in findings(db)],
            }

        return await _json(make)

    async def stacks(self, request: Request) -> Response:
        """Where threads stand ``at`` ns, or with ``now`` at this moment."""
        database, parameters = self._database_and_parameters(request)
        kernel = parameters.has("kernel")

        def make() -> object:
            db = database.db
            if not parameters.has("now"):
                return stacks_at(db, parameters.whole("at", 0, db.duration_ns), kernel=kernel)
            if self._present is None or not self._can_read(request.path_params["name"]):
                raise UsageError("the processes of this recording are not being recorded now")
            return stacks_now(db, self._present, kernel=kernel)

        return await _json(make)

    async def messages(self, request: Request) -> Response:
        """What the ranks in view sent and waited for in the time in view."""
        database, parameters = self._database_and_parameters(request)
        return await _json(
            lambda: database.traffic.get().summary(
                database.all_lines(parameters), *parameters.interval()
            )
        )

    async def matrix(self, request: Request) -> Response:
        """u32 rows, u32 columns, u32 ranks of a cell each way, u32 0, then f64[2, rows, columns]:
        messages and bytes, or waits and seconds."""
        database, parameters = self._database_and_parameters(request)

        def make() -> list[npt.NDArray[Any]]:
            ranks = parameters.numbers("ranks")
            if len(ranks) != _SPANS:
                raise UsageError("ranks must be four numbers")
            s0, s1, d0, d1 = ranks
            step, cells = database.traffic.get().matrix(
                parameters.text("kind"), database.all_lines(parameters), *parameters.interval(),
                (s0, s1, d0, d1), parameters.whole("cells", 1, _MOST_CELLS),
            )  # fmt: skip
            return [np.array([*cells.shape[1:], step, 0], np.uint32), cells.ravel()]

        return await _binary(request, make)

    async def calls(self, request: Request) -> Response:
        """Totals of recorded calls in view by what they have in common."""
        database, parameters = self._database_and_parameters(request)
        return await _json(
            lambda: database.calls.totals(
                database.all_lines(parameters), *parameters.interval(), parameters.text("by"),
                parameters.text("of"), parameters.text("function"), parameters.text("phase"),
            )
        )  # fmt: skip

    async def phases(self, request: Request) -> Response:
        """What the phases that calls mark cost in the time in view."""
        database, parameters = self._database_and_parameters(request)
        return await _json(
            lambda: database.phases.table(
                parameters.text("phase"), database.all_lines(parameters), *parameters.interval()
            )
        )

    async def memory(self, request: Request) -> Response:
        """Growth and peak of the memory of the processes in view."""
        database, parameters = self._database_and_parameters(request)
        return await _json(
            lambda: database.calls.memory(database.all_lines(parameters), *parameters.interval())
        )

    async def call_marks(self, request: Request) -> Response:
        """Calls, messages, collective operations and phases over the rows in view, or how many
        they are."""
        database, parameters = self._database_and_parameters(request)

        def make() -> object:
            rows, interval = database.rows(parameters), parameters.interval()
            phase = parameters.text("phase")
            none = {"phases": None, "phase": None}
            phases = database.phases.bands(phase, rows, *interval) if phase else none
            return {**database.calls.marks(rows, *interval), **phases}

        return await _json(make)

    def _can_read(self, name: str) -> bool:
        """Whether the stacks of a recording's processes can be read now."""
        recording = self._databases[name]
        return (
            self._present is not None
            and isinstance(recording, LiveRevisions)
            and bool(recording.state()["recording"])
        )

    async def grid(self, request: Request) -> Response:
        """A picture: u32 h, w, b, then line u32[h], place u32[h], node[h, w].

        Nodes have b bytes: 2, or 4 where there are many. Of a choice's lines ``l0`` to ``l1``, or
        of the row of ``line`` alone, over ``t0`` to ``t1`` ns. With ``folds`` folded u32[h], how
        many lines each row stands for, comes before the nodes. With ``runs`` n u32 comes before
        the lines: 0, or the nodes are those of n runs of pixels, with end u16[n] behind them.
        """
        database, parameters = self._database_and_parameters(request)

        def sample() -> list[npt.NDArray[Any]]:
            db = database.db
            t0, t1 = parameters.interval()
            height, width = parameters.whole("h", 1, 10_000), parameters.whole("w", 1, 10_000)
            if height * width > _MOST_PIXELS:
                raise UsageError(f"a picture has at most {_MOST_PIXELS} pixels")
            if parameters.has("line"):
                place = np.zeros(1, np.int64)
                lines = np.array([parameters.whole("line", 0, len(db.lines) - 1)])
            else:
                order = database.selection.order(parameters.choice())
                l0, l1 = parameters.rows(len(order))
                place = choose_lines(np.arange(l0, l1), height, len(order))
                lines = order[place]
            nodes = database.selection.sample(lines, parameters.choice(), t0, t1, width)
            kind = np.uint16 if len(db.cct) < np.iinfo(np.uint16).max else np.uint32
            folded: list[npt.NDArray[Any]] = []
            if parameters.has("folds"):
                counts = database.selection.folded(lines.tolist(), parameters.choice())
                folded = [np.array(counts, np.uint32)]
            head = [len(lines), width, np.dtype(kind).itemsize]
            pixels: list[npt.NDArray[Any]] = []
            if parameters.has("runs"):
                node, end = pixel_runs(nodes)
                shorter = len(node) * (head[2] + end.itemsize) < nodes.size * head[2]
                head.append(len(node) if shorter else 0)
                pixels = [node.astype(kind, copy=False), end] if shorter else []
            return [
                np.array(head, np.uint32),
                lines.astype(np.uint32),
                place.astype(np.uint32),
                *folded,
                *(pixels or [nodes.ravel().astype(kind, copy=False)]),
            ]

        database.drawn = True
        # One after the other: side by side they wait for the interpreter's lock, and hold twice
        # the memory. Who has moved on meanwhile wants none.
        async with self._drawing:
            if await request.is_disconnected():
                return Response(status_code=_GONE)
            answer = await _binary(request, sample)
        answer.background = BackgroundTask(database.db.trace.release_beyond, _MOST_MAPPED)
        return answer

    async def profile(self, request: Request) -> Response:
        """Costs by context: u32 n, u32 m, u32 kind, u32 pixels, then f64[m, n], exclusive."""
        database, parameters = self._database_and_parameters(request)

        def make() -> list[npt.NDArray[Any]]:
            profile = database.profile(parameters)
            return [
                np.array(
                    [len(database.db.cct), len(profile.value), profile.kind, profile.pixels],
                    np.uint32,
                ),
                np.asarray(profile.value, np.float64).ravel(),
            ]

        return await _binary(request, make)

    async def tree(self, request: Request) -> Response:
        """A view's tree: u32 n, u32 c, parent u32[n], entity u32[n], place u32[c]."""
        database, parameters = self._database_and_parameters(request)

        def make() -> list[npt.NDArray[Any]]:
            contexts = database.trees.of(parameters.text("view"))
            return [
                np.array([len(contexts.tree), len(contexts.place)], np.uint32),
                np.asarray(contexts.tree.parent, np.uint32),
                contexts.tree.frame.astype(np.uint32),
                np.asarray(contexts.place, np.uint32),
            ]

        return await _binary(request, make)

    async def entities(self, request: Request) -> Response:
        """What the nodes of a view's tree are."""
        database, parameters = self._database_and_parameters(request)
        return await _json(lambda: database.trees.summary(parameters.text("view")))

    async def colours(self, request: Request) -> Response:
        """u32[n]: colours of the procedures, or of a view's entities, with a person's patterns."""
        database, parameters = self._database_and_parameters(request)

        def make() -> list[npt.NDArray[Any]]:
            patterns = parse_patterns(
                parameters.text("patterns", longest=_LONGEST_TEXT).split("\n")
            )
            view = parameters.text("view")
            names = database.trees.coloured_as(view) if view else database.db.procedure_names
            return [_words(colours(names, patterns))]

        return await _binary(request, make)

    async def formula(self, request: Request) -> Response:
        """A derived metric, understood."""
        database, parameters = self._database_and_parameters(request)

        def make() -> object:
            metrics = database.db.metrics
            text = parameters.text("text", longest=_LONGEST_TEXT)
            return parse_formula(text, metrics.names, metrics.units).as_json()

        return await _json(make)

    async def source(self, request: Request) -> Response:
        """A procedure's source lines with what they cost in the window."""
        database, parameters = self._database_and_parameters(request)

        def make() -> object:
            profile = database.profile(parameters)
            file = parameters.whole("file", 0, 1 << 30) if parameters.has("file") else None
            procedure = parameters.whole("procedure", 0, 1 << 30)
            lines = database.sources.lines(procedure, profile.value, file, self._folders)
            return {"kind": profile.kind, "pixels": profile.pixels, **lines}

        return await _json(make)

    async def assembly(self, request: Request) -> Response:
        """A procedure's instructions with what they cost in the window."""
        database, parameters = self._database_and_parameters(request)

        def make() -> object:
            profile = database.profile(parameters)
            procedure = parameters.whole("procedure", 0, 1 << 30)
            code = database.sources.code(procedure, profile.value)
            return {"kind": profile.kind, "pixels": profile.pixels, **code}

        return await _json(make)

    async def over(self, request: Request) -> Response:
        """A context's cost over lines: statistics, histogram, sorted curve."""
        database, parameters = self._database_and_parameters(request)

        def make() -> object:
            inside = database.trees.inside(parameters.text("context", longest=_LONGEST_TEXT))
            lines, metric = database.all_lines(parameters), parameters.text("metric")
            phase = parameters.text("phase")
            cost = database.phases.over_lines(phase, lines, metric, inside) if phase else None
            return over_lines(database.db, lines, metric, inside, cost)

        return await _json(make)

    async def heat(self, request: Request) -> Response:
        """Lines x procedures: u32 h, u32 w, line u32[h], procedure u32[w], f32[h, w]."""
        database, parameters = self._database_and_parameters(request)

        def make() -> list[npt.NDArray[Any]]:
            height, width = parameters.whole("h", 1, 2_000), parameters.whole("w", 1, 500)
            db, lines, phase = database.db, database.own_rows(parameters), parameters.text("phase")
            within = database.phases.costs(phase, lines, 0, db.duration_ns) if phase else None
            cells = heat(db, lines, parameters.text("metric"), height, width, within)
            size = np.array([len(cells.line), len(cells.procedure)], np.uint32)
            return [size, cells.line, cells.procedure, cells.value.ravel()]

        return await _binary(request, make)


def _summary(db: Database) -> dict[str, object]:
    names = db.procedure_names
    return {
        "name": db.path.name,
        "lines": len(db.lines),
        "duration_ns": db.duration_ns,
        "origin_ns": db.origin_ns,
        "nodes": len(db.cct),
        "records": int(db.metrics.exclusive("samples").sum()),
        "losses": db.losses,
        "measurements": [measurement.name for measurement in db.measurements],
        "metrics": [
            {"name": name, "unit": unit}
            for name, unit in zip(db.metrics.names, db.metrics.units, strict=True)
        ],
        "procedures": names,
        "marks": marks(names).tolist(),
        "colours": _words(colours(names)).tolist(),
    }


def _tree(db: Database) -> list[npt.NDArray[Any]]:
    return [
        np.array([len(db.cct)], np.uint32),
        np.asarray(db.cct.parent, np.uint32),
        np.asarray(db.procedure_of_node, np.uint32),
    ]


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
