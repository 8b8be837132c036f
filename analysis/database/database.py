"""Reading a database: ``hpcd.analysis.open(path)``.

Opening maps the columns and reads the small tables; records are touched only where they are asked
for. Arrays handed out may be read-only views of the files.

    >>> db = hpcd.analysis.open("run.db")                                  # doctest: +SKIP
    >>> hot = int(db.metrics.exclusive("cpu_time").argmax())               # doctest: +SKIP
    >>> db.path_names(hot)                                                 # doctest: +SKIP
    >>> db.sample_grid(None, 0, db.duration_ns, height=600, width=800)     # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.arrays.column_files import are_below, open_column
from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import column_bounds, directory
from hpcd.analysis.database.folding import fold
from hpcd.analysis.database.measurement_rows import Loss, MeasurementRow, losses_of
from hpcd.analysis.database.metrics import Metrics, require_costs
from hpcd.analysis.database.recorded_calls import RecordedCalls
from hpcd.analysis.database.recorded_waits import RecordedInterference, RecordedWaits
from hpcd.analysis.database.scopes import Scopes
from hpcd.analysis.database.sqlite_reader import BoundedConnection, connect, each_row
from hpcd.analysis.database.statistics import Statistics
from hpcd.analysis.database.thread_functions import ThreadFunctions
from hpcd.analysis.roles.role_table import role_table
from hpcd.analysis.symbols.frame_names import python_name
from hpcd.analysis.trace import pixel_samples
from hpcd.analysis.trace.records import Records, Trace, TraceMap
from hpcd.analysis.trace.trace_lines import LineColumns, Lines
from hpcd.array_types import F64, I64, U32, U64, Mask
from hpcd.errors import FormatError, PlatformError
from hpcd.model.cct import CCT
from hpcd.model.identity import KERNEL_KINDS, SOURCE_KINDS, ModuleKind
from hpcd.model.scope import ScopeKind

# Numbers of things that a manifest has.
_COUNTS = ("measurements", "parts", "lines", "records", "nodes", "procedures", "cells")
# The types of these are checked as they are made arrays of.
_CHECKED_ELSEWHERE = {"procedure", "scope", "cct"}


class ModuleRow(NamedTuple):
    """A load module. ``symbols`` says in words where its names came from, or why it has none."""

    id: int
    kind: str
    path: str
    build_id: str
    symbols: str


@dataclass(frozen=True)
class ProcedureTable:
    """The procedures of a database; index by procedure id.

    ``name`` is demangled; ``module`` ``uint32[n]`` the module id or 0; ``address`` ``uint64[n]``
    where it begins in the module; ``kernel`` ``bool[n]``; ``file`` and ``line`` are empty and 0
    where they are not known.
    """

    name: list[str]
    module: U32
    address: U64
    size: U64
    kernel: Mask
    file: list[str]
    line: U32

    def __len__(self) -> int:
        return len(self.name)


def _functions_of(database: weakref.ref[Database], lines: Sequence[int]) -> dict[int, str]:
    """Return names for nameless threads of ``lines``, none once their database is closed."""
    opened = database()
    return opened.thread_functions.of(lines) if opened else {}


class Database:
    """One merged database, read-only.

    ``cct`` is the canonical tree: ``parent`` never decreases, so the children of a node, and
    each level, are contiguous. Times are ns since the origin; ``origin_ns`` is the origin's
    realtime and ``duration_ns`` the end of the last line.

    The frames of Python's interpreter are folded (:mod:`.folding`) unless it is opened ``native``:
    parents then precede their children, no more, and siblings may be equal.
    """

    def __init__(self, path: Path | str, *, native: bool = False) -> None:
        self.path = Path(path)
        self.native = native
        self.manifest = directory.read_manifest(self.path)
        try:
            counts = {name: int(self.manifest[name]) for name in _COUNTS}
            self.origin_ns = int(self.manifest["origin_ns"])
            self.duration_ns = int(self.manifest["duration_ns"])
        except (KeyError, TypeError, ValueError):
            raise FormatError(
                f"{self.path / directory.MANIFEST}: damaged (no sizes, or no origin and duration)"
            ) from None
        self._sqlite = self.path / directory.SQLITE
        if max(self.duration_ns, abs(self.origin_ns)) > column_bounds.LATEST_NS:
            raise FormatError(f"{self.path / directory.MANIFEST}: damaged (times out of range)")
        if not self._sqlite.is_file():
            raise FormatError(f"{self._sqlite}: missing")
        self._connection = connect(self._sqlite)
        self._checked_tables: set[str] = set()
        nodes = counts["nodes"]
        folder = self.path / "cct"
        self.cct = CCT(
            open_column(folder / "parent.npy", np.uint32, nodes),
            open_column(folder / "frame.npy", np.uint64, nodes),
        )
        self.procedure_of_node: U32 = open_column(folder / "procedure.npy", np.uint32, nodes)
        self.scope_of_node: U32 = open_column(folder / "scope.npy", np.uint32, nodes)
        # What everything else indexes by is checked here; `hpcd check` looks at the rest.
        self.cct.validate(str(self.path))
        if bool((self.cct.parent[1:-1] > self.cct.parent[2:]).any()):
            raise FormatError(f"{self.path}: calling context tree is not numbered by levels")
        if not are_below(self.procedure_of_node, counts["procedures"]):
            raise FormatError(f"{self.path}: a node's procedure does not exist")
        self._columns = LineColumns.load(self.path / "lines", counts["lines"], counts["records"])
        trace = self.path / "trace"
        # First, as it knows that there are as many parts as the manifest says.
        mapping = TraceMap.load(
            trace, counts["parts"], counts["measurements"], counts["lines"], counts["nodes"]
        )
        parts = [trace / directory.part_name(number) for number in range(counts["parts"])]
        self.trace = Trace(parts, mapping, self._columns.first)
        self.metrics = Metrics(
            self.path / "metrics",
            self.cct,
            counts["lines"],
            counts["cells"],
            [(str(row[0]), str(row[1])) for row in self.rows(
                "SELECT name, unit FROM metric ORDER BY id")],
        )  # fmt: skip
        ((events,),) = self.rows("SELECT count(*) FROM event")
        if not are_below(mapping.event, events) or self.metrics.events != events:
            raise FormatError(f"{trace}: damaged (events that do not exist)")
        rows = partial(each_row, self._connection, self._sqlite)
        column_bounds.require_lines(self._columns, rows, self.path)
        # Its files are closed with the last reference to it: its lines have none.
        self.lines = Lines(self._columns, rows, partial(_functions_of, weakref.ref(self)))
        if not native:
            self._fold()

    def _fold(self) -> None:
        kinds = ["", *(row.kind for row in self.modules)]
        if not {*SOURCE_KINDS}.intersection(kinds):
            return
        folded = fold(
            self.cct,
            self.procedure_of_node,
            self.procedures.module,
            kinds,
            ["", *(row.path for row in self.modules)],
            self.procedures.name,
            self.roles,
        )
        self.cct = folded.cct
        self.procedure_of_node = self.procedure_of_node[folded.shown]
        self.scope_of_node = self.scope_of_node[folded.shown]
        self.metrics.use_tree(self.cct)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the SQLite file. Arrays stay valid."""
        self._connection.close()

    def sql(self) -> BoundedConnection:
        """A new read-only connection to the tables of ``docs/database.md``."""
        return connect(self._sqlite)

    def rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a query. Raises :class:`FormatError` where the tables are damaged: each but
        the largest is checked when it is first read."""
        tables = column_bounds.tables_of(query) - self._checked_tables - _CHECKED_ELSEWHERE
        if tables:
            self._checked_tables |= tables
            ask = partial(each_row, self._connection, self._sqlite)
            for what in column_bounds.damaged_columns(ask, tables):
                self._checked_tables -= tables
                raise FormatError(f"{self._sqlite}: {what}")
        return list(each_row(self._connection, self._sqlite, query, *parameters))

    @cached_property
    def calls(self) -> RecordedCalls:
        """Recorded calls; none where no measurement recorded any. Raises :class:`FormatError`."""
        folder = self.path / directory.CALLS
        return RecordedCalls(
            folder, len(self.lines), len(self.cct), self._counted("calls"), self.rows
        )

    @cached_property
    def waits(self) -> RecordedWaits:
        """Waits with their wakers, if they were recorded. Raises :class:`FormatError`."""
        folder = self.path / directory.WAITS
        return RecordedWaits(
            folder, len(self.lines), len(self.cct), self._counted("waits"), self.rows
        )

    @cached_property
    def interference(self) -> RecordedInterference:
        """Waits for a CPU by interferer, if recorded. Raises :class:`FormatError`."""
        folder = self.path / directory.INTERFERENCE
        return RecordedInterference(
            folder, len(self.lines), len(self.cct), self._counted("interference"), self.rows
        )

    def _counted(self, what: str) -> int:
        try:
            return int(self.manifest.get(what, 0))
        except (TypeError, ValueError):
            raise FormatError(f"{self.path / directory.MANIFEST}: damaged ({what})") from None

    # --- names ---

    @cached_property
    def procedures(self) -> ProcedureTable:
        """All procedures, by id."""
        rows = self.rows(
            "SELECT procedure.name, module, address, size, source_file, source_line, kind"
            " FROM procedure LEFT JOIN module ON module.id = module ORDER BY procedure.id"
        )
        if len(rows) != self.manifest["procedures"]:
            raise FormatError(f"{self._sqlite}: procedures are missing")
        try:
            procedures = ProcedureTable(
                name=[str(row[0]) for row in rows],
                module=np.array([row[1] or 0 for row in rows], np.uint32),
                address=np.array([row[2] or 0 for row in rows], np.uint64),
                size=np.array([row[3] or 0 for row in rows], np.uint64),
                file=[str(row[4] or "") for row in rows],
                line=np.array([row[5] or 0 for row in rows], np.uint32),
                kernel=np.array([row[6] in KERNEL_KINDS for row in rows], bool),
            )
        except (TypeError, ValueError, OverflowError):
            raise FormatError(f"{self._sqlite}: procedure table is damaged") from None
        if int(procedures.module.max(initial=0)) > len(self.modules):
            raise FormatError(f"{self._sqlite}: a procedure's module does not exist")
        return procedures

    @cached_property
    def roles(self) -> I64:
        """``int64[procedures]``: the :class:`~hpcd.analysis.roles.role.Role` of each."""
        paths = ["", *(module.path for module in self.modules)]
        procedures = self.procedures
        return role_table().of_procedures(
            procedures.name,
            procedures.kernel.tolist(),
            [paths[number] for number in procedures.module.tolist()],
        )

    @cached_property
    def thread_functions(self) -> ThreadFunctions:
        """Names for threads that have none of their own."""
        named = [not name.startswith("[") for name in self.procedures.name]
        return ThreadFunctions(
            self.cct,
            self.procedure_of_node,
            self.procedure_names,
            self.roles,
            np.array(named, bool) & ~self.procedures.kernel,
            self.metrics,
            self._columns,
        )

    @cached_property
    def scopes(self) -> Scopes:
        """All scopes inside procedures, by id; 0 is none."""
        rows = self.rows(
            "SELECT parent, kind, procedure, name, source_file, source_line, id FROM scope"
            " ORDER BY id"
        )
        try:
            numbers = np.array([row[6] for row in rows], np.int64)
            scopes = Scopes(
                parent=np.array([0, *(row[0] or 0 for row in rows)], np.uint32),
                kind=np.array(
                    [ScopeKind.PROCEDURE, *(ScopeKind[str(row[1]).upper()] for row in rows)],
                    np.uint8,
                ),
                procedure=np.array([0, *(row[2] for row in rows)], np.uint32),
                name=["", *(str(row[3] or "") for row in rows)],
                file=["", *(str(row[4] or "") for row in rows)],
                line=np.array([0, *(row[5] or 0 for row in rows)], np.uint32),
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            raise FormatError(f"{self._sqlite}: scope table is damaged") from None
        count = len(scopes)
        if (
            not np.array_equal(numbers, np.arange(1, count))
            or bool((scopes.parent[1:] >= np.arange(1, count)).any())
            or not are_below(scopes.procedure, len(self.procedures))
            or not are_below(self.scope_of_node, count)
            or not scopes.has_sound_loops()
        ):
            raise FormatError(f"{self._sqlite}: scopes and contexts do not agree")
        return scopes

    @cached_property
    def procedure_names(self) -> list[str]:
        """Display names by procedure id: kernel procedures end in ``[k]``."""
        kernel = self.procedures.kernel.tolist()
        return [
            f"{name} [k]" if inside else name
            for name, inside in zip(self.procedures.name, kernel, strict=True)
        ]

    @cached_property
    def is_python(self) -> Mask:
        """``bool[procedures]``: which are Python functions."""
        python = np.array([False, *(row.kind == ModuleKind.PYTHON for row in self.modules)])
        own: Mask = python[self.procedures.module]
        return own

    @cached_property
    def procedure_labels(self) -> list[str]:
        """Names by procedure id as :attr:`procedure_names` has them, those of Python functions with
        file and line: many files have a ``main`` or a ``<module>``."""
        labels, procedures = list(self.procedure_names), self.procedures
        for at in np.flatnonzero(self.is_python).tolist():
            labels[at] = python_name(labels[at], procedures.file[at], int(procedures.line[at]))
        return labels

    def path_names(self, node: int) -> list[str]:
        """Return the procedures on the call path of a CCT node, the outermost first."""
        procedures = self.procedure_of_node[self.cct.path(node)]
        return [self.procedure_names[procedure] for procedure in procedures.tolist()]

    @cached_property
    def modules(self) -> list[ModuleRow]:
        """Load modules; the one with id ``m`` has index ``m - 1``."""
        return [
            ModuleRow(*row)
            for row in self.rows("SELECT id, kind, path, build_id, symbols FROM module ORDER BY id")
        ]

    @cached_property
    def measurements(self) -> list[MeasurementRow]:
        """The measurements it was made of."""
        rows = self.rows(
            "SELECT measurement.id, uid, name, hostname, start_ns, end_ns, records, closed, damage,"
            " options, summary FROM measurement JOIN host ON host.id = measurement.host"
            " ORDER BY measurement.id"
        )
        try:
            return [MeasurementRow.read(row) for row in rows]
        except (ValueError, TypeError, FormatError):
            raise FormatError(f"{self._sqlite}: measurement table is damaged") from None

    @cached_property
    def losses(self) -> list[Loss]:
        """When samples were dropped, as well as it is known: between two of a recorder's summaries,
        a second apart; of a database that was made without, some time in its measurement."""
        rows = self.rows("SELECT clock_offset_ns FROM measurement ORDER BY id")
        shifts = [int(offset) - self.origin_ns for (offset,) in rows]
        return losses_of(self.measurements, shifts)

    def statistics(self, metric: str | int, node: int, by: str = "line") -> Statistics:
        """Return the inclusive cost of ``node`` on each ``line`` (of the trace), ``rank``,
        ``job`` or ``host``, with mean, extremes and spread.

        By rank, only lines of processes with one count, as "job rank". Raises
        :class:`UsageError`. O(cells of the subtree).
        """
        value = self.metrics.over_lines(metric, node)
        if by == "line":
            return Statistics(range(len(value)), value)
        index, names = self.lines.groups(by)
        grouped = index >= 0
        return Statistics(names, sum_by(index[grouped], value[grouped], len(names)))

    def line_totals(self, metric: str | int) -> F64:
        """``float64[lines]``: what each trace line cost in all. O(lines).

        Raises :class:`UsageError` when there is no such metric.
        """
        total = np.zeros(len(self.lines))
        rows = self.rows(
            "SELECT trace_line, total FROM trace_line_metric WHERE metric = ?",
            self.metrics.number(metric),
        )
        try:
            for line, cost in rows:
                total[line] = cost
        except (IndexError, TypeError, ValueError):
            raise FormatError(f"{self._sqlite}: totals of trace lines are damaged") from None
        require_costs(total, str(self._sqlite))
        return total

    def frame(self, query: str) -> Any:
        """The rows of an SQL ``query`` (tables: ``docs/database.md``) as a pandas DataFrame.

        Raises :class:`PlatformError` without pandas.
        """
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise PlatformError("tables need pandas: pip install pandas") from None
        with self._connection.lock:
            return pandas.read_sql_query(query, self._connection)

    # --- trace ---

    def records(self, line: int, t0: int | None = None, t1: int | None = None) -> Records:
        """Records of trace line ``line`` with ``t0 <= time < t1``."""
        return self.trace.records(line, t0, t1)

    def sample_lines(
        self, lines: Sequence[int] | npt.NDArray[np.integer] | None, height: int
    ) -> I64:
        """The lines :meth:`sample_grid` shows, one per row: ``int64[h]``, ``h <= height``."""
        return pixel_samples.choose_lines(lines, height, len(self.lines))

    def sample_grid(
        self,
        lines: Sequence[int] | npt.NDArray[np.integer] | None,
        t0: int,
        t1: int,
        height: int,
        width: int,
    ) -> U32:
        """Return the pixels, ``uint32[h, width]``, of ``lines`` (None: all) over [t0, t1).

        ``h`` is ``min(height, len(lines))``; :meth:`sample_lines` names the rows' lines. A pixel is
        a CCT node and the state of the thread there, which ``nodes_of`` and ``states_of`` of
        :mod:`hpcd.analysis.trace.states` give; NO_NODE where a line did not exist or was not
        watched. O(h · w · log t).
        """
        return pixel_samples.sample_grid(self.trace, self._columns, lines, t0, t1, height, width)

    def sample_rows(
        self, rows: Sequence[npt.NDArray[np.integer]], t0: int, t1: int, width: int
    ) -> U32:
        """Return a picture like :meth:`sample_grid`'s, ``uint32[len(rows), width]``: a row is of
        several lines, of which one lives at a time. No row is without a line.
        """
        return pixel_samples.sample_rows(self.trace, self._columns, rows, t0, t1, width)


def open(path: Path | str, *, native: bool = False) -> Database:
    """Open a database, with ``native`` as it was recorded: with the frames of interpreters.

    Raises :class:`NotFoundError` when there is none, :class:`FormatError` when it is not one,
    damaged, or of another version.
    """
    return Database(path, native=native)
