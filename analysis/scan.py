"""What is in a measurement besides its records, and how a part keeps it.

Identities travel from the worker that read them to the merge; the tree, the sums and the symbols,
which may be big, stay in the part and only its place travels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis.archive import unpack_array, unpack_bytes
from hpcd.analysis.part import Part
from hpcd.analysis.sparse import Cells
from hpcd.errors import FormatError
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.measurement.reader import read_row
from hpcd.model.cct import CCT
from hpcd.model.identity import Event, Module, Node, Process, Thread

U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

SymbolRow = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Scan:
    """A measurement's identities and the extent of its records.

    ``lines`` ``uint32[k]`` ascending are the measurement's trace lines, with or without records;
    ``counts``, ``first_ns``, ``last_ns`` ``int64[k]`` their entries in the trace and those'
    monotonic times (0 without). ``size`` is how many bytes the measurement had: one still being
    written may have more later. ``part`` is where the rest of it is.
    """

    path: Path
    part: Path
    size: int
    id: int
    node: Node
    options: dict[str, Any]
    events: dict[int, Event]
    processes: dict[int, Process]
    threads: dict[int, Thread]
    modules: dict[int, Module]
    symbols: frozenset[int]
    clock_pairs: I64
    summary: dict[str, Any] | None
    closed: bool
    damage: tuple[str, ...]
    nodes: int
    lines: U32
    counts: I64
    first_ns: I64
    last_ns: I64
    events_used: frozenset[int]

    @property
    def records(self) -> int:
        """Entries in the trace of all lines."""
        return int(self.counts.sum())

    @property
    def window_ns(self) -> tuple[int, int]:
        """Monotonic times between which the measurement watched."""
        seen = self.counts > 0
        moments = [self.clock_pairs[:, 0], self.first_ns[seen], self.last_ns[seen]]
        known = np.concatenate(moments)
        return (int(known.min()), int(known.max())) if len(known) else (0, 0)


def pack_scan(
    scan: Scan, tree: CCT, cells: Cells, symbols: Mapping[int, list[SymbolRow]]
) -> dict[str, Array | bytes]:
    """What a part's archive holds of a measurement. ``cells`` are by row, not by line."""
    identity = {
        "path": scan.path.name,
        "size": scan.size,
        "id": scan.id,
        "node": asdict(scan.node),
        "options": scan.options,
        "events": [asdict(row) for row in scan.events.values()],
        "processes": [asdict(row) for row in scan.processes.values()],
        "threads": [asdict(row) for row in scan.threads.values()],
        "modules": [asdict(row) for row in scan.modules.values()],
        "summary": scan.summary,
        "closed": scan.closed,
        "damage": scan.damage,
        "events_used": sorted(scan.events_used),
    }
    archive: dict[str, Array | bytes] = {
        "identity": json.dumps(identity).encode(),
        "clock": scan.clock_pairs.astype("<i8").ravel(),
        "parent": tree.parent.astype("<u4"),
        "frame": tree.frame.astype("<u8"),
        "cell_row": cells.line.astype("<u4"),
        "cell_node": cells.node.astype("<u4"),
        "cell_event": cells.event.astype("<u2"),
        "cell_records": cells.records.astype("<u8"),
        "cell_value": cells.value.astype("<u8"),
    }
    for module, rows in symbols.items():
        # Hostile sizes are cut to what an address can be.
        bounds = [[min(max(part, 0), (1 << 63) - 1) for part in row[:2]] for row in rows]
        names = [row[2].replace("\0", "") for row in rows]
        archive[f"symbols-{module}"] = json.dumps([bounds, names]).encode()
    return archive


def read_scan(part: Part) -> Scan:
    """The scan a part was made with. Raises :class:`FormatError`."""
    archive = part.archive()
    try:
        known = json.loads(unpack_bytes(archive["identity"]))
        clock = unpack_array(archive["clock"], np.int64).reshape(-1, 2)
        nodes = len(unpack_array(archive["parent"], np.uint32))
        return Scan(
            path=Path(known["path"]),
            part=part.path,
            size=int(known["size"]),
            id=int(known["id"]),
            node=read_row(Node, known["node"]),
            options=dict(known["options"]),
            events={row["id"]: read_row(Event, row) for row in known["events"]},
            processes={row["id"]: read_row(Process, row) for row in known["processes"]},
            threads={row["line"]: read_row(Thread, row) for row in known["threads"]},
            modules={row["id"]: read_row(Module, row) for row in known["modules"]},
            symbols=frozenset(
                int(name.removeprefix("symbols-")) for name in archive if name.startswith("symb")
            ),
            clock_pairs=clock,
            summary=known["summary"],
            closed=bool(known["closed"]),
            damage=tuple(known["damage"]),
            nodes=nodes,
            lines=part.lines.source.astype(np.uint32),
            counts=part.lines.records.astype(np.int64),
            first_ns=part.lines.first * TIME_UNIT_NS,
            last_ns=part.lines.last * TIME_UNIT_NS,
            events_used=frozenset(known["events_used"]),
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FormatError(f"{part.path}: damaged") from None


def load_tree(part: Path) -> CCT:
    """The measurement's calling context tree, from its part. Raises :class:`FormatError`."""
    archive = Part(part).archive()
    try:
        tree = CCT(
            unpack_array(archive["parent"], np.uint32), unpack_array(archive["frame"], np.uint64)
        )
    except KeyError:
        raise FormatError(f"{part}: damaged") from None
    tree.validate(str(part))
    return tree


def load_cells(part: Path) -> Cells:
    """The sums of a part: ``line`` is the row in it. Raises :class:`FormatError`."""
    archive = Part(part).archive()
    try:
        cells = Cells(
            unpack_array(archive["cell_row"], np.uint32),
            unpack_array(archive["cell_node"], np.uint32),
            unpack_array(archive["cell_event"], np.uint16),
            unpack_array(archive["cell_records"], np.uint64),
            unpack_array(archive["cell_value"], np.uint64),
        )
    except KeyError:
        raise FormatError(f"{part}: damaged") from None
    columns = (cells.line, cells.node, cells.event, cells.records, cells.value)
    if len({len(column) for column in columns}) != 1:
        raise FormatError(f"{part}: damaged")
    return cells


def load_symbols(part: Path, module: int) -> list[SymbolRow]:
    """The symbols (start, size, name) a measurement brought along for ``module``."""
    try:
        bounds, names = json.loads(unpack_bytes(Part(part).archive()[f"symbols-{module}"]))
        return [(int(a), int(b), str(name)) for (a, b), name in zip(bounds, names, strict=True)]
    except (KeyError, ValueError, TypeError, RecursionError):
        raise FormatError(f"{part}: damaged") from None
