"""Messages and wait states as JSON: ``hpcd messages --json``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from hpcd.analysis.database import Database
from hpcd.analysis.messages.clock_offsets import HostClocks
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.communicators import Communicator
from hpcd.analysis.messages.delays import Delays
from hpcd.analysis.messages.traffic import Matrix, message_sizes
from hpcd.analysis.messages.wait_states import WaitKind, by_path, totals


def as_json(
    db: Database, analysed: Communication, delays: Delays, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return all results; times in seconds, sizes in bytes, ranks of the job; ``notes`` are what to
    know before it is believed."""
    paths = _Paths(db)
    sums = totals(analysed.operations, analysed.waits, analysed.size)
    return {
        "database": str(db.path),
        "implementation": analysed.recorded.flavour.name,
        "ranks": analysed.ranks.tolist(),
        "sampled": analysed.is_sampled,
        "notes": list(notes),
        "in_mpi": analysed.in_mpi,
        "messages": {
            "sent": len(analysed.sends),
            "matched": len(analysed.messages),
            "matched_by_time": int(analysed.messages.guessed.sum()),
        },
        "guessed_worlds": analysed.communicators.guessed_worlds.tolist(),
        "unknown_communicators": analysed.unknown_communicators,
        "point_to_point": _matrix(analysed.point_to_point),
        "one_sided": _matrix(analysed.one_sided),
        "collective_flow": _matrix(analysed.collective_flow),
        "sizes": _sizes(analysed),
        "communicators": list(map(_communicator, analysed.communicators.all)),
        "collectives": _collectives(analysed),
        "waiting": {kind.label: analysed.waits.seconds(kind) for kind in WaitKind},
        "waiting_by_rank": sums.by_waiter.tolist(),
        "waiting_caused_by_rank": sums.by_delayer.tolist(),
        "waits": _waits(analysed, paths),
        "delays": _rows(
            {
                "rank": delays.rank.tolist(),
                "path": map(paths.of, delays.node.tolist()),
                "seconds": delays.seconds.tolist(),
            }
        ),
        "delays_unexplained": delays.unexplained,
        "clocks": _clocks(analysed.clocks),
    }


class _Paths:
    """Call paths by node, as names, outermost first."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._names = db.procedure_names

    def of(self, node: int) -> list[str]:
        procedures = self._db.procedure_of_node[self._db.cct.path(node)]
        return [self._names[procedure] for procedure in procedures.tolist()][1:]


def _sizes(analysed: Communication) -> list[dict[str, Any]]:
    sizes = message_sizes(analysed.sends, analysed.messages)
    return _rows(
        {
            "least": sizes.least.tolist(),
            "most": sizes.most.tolist(),
            "messages": sizes.messages.tolist(),
            "bytes": sizes.bytes.tolist(),
        }
    )


def _communicator(communicator: Communicator) -> dict[str, Any]:
    remote = communicator.remote
    return {
        "number": communicator.number,
        "name": communicator.name,
        "parent": communicator.parent if communicator.parent >= 0 else None,
        "members": communicator.members.tolist(),
        "remote": None if remote is None else remote.tolist(),
        "ordered": communicator.ordered,
        "dims": list(communicator.dims),
        "periods": [bool(period) for period in communicator.periods],
    }


def _collectives(analysed: Communication) -> list[dict[str, Any]]:
    return [
        {
            "function": row.function,
            "communicator": row.communicator,
            "operations": row.instances,
            "calls": row.calls,
            "seconds": row.seconds,
            "bytes": row.bytes if row.bytes >= 0 else None,
        }
        for row in analysed.by_function()
    ]


def _waits(analysed: Communication, paths: _Paths) -> list[dict[str, Any]]:
    return [
        {
            "kind": group.kind.label,
            "path": paths.of(group.node),
            "delaying_rank": group.delaying_rank,
            "delaying_path": paths.of(group.delaying_node),
            "count": group.count,
            "seconds": group.seconds,
            "longest": group.longest,
        }
        for group in by_path(analysed.operations, analysed.waits)
    ]


def _clocks(clocks: HostClocks) -> list[dict[str, Any]]:
    residuals = (clocks.residual / 1e9).tolist()
    return _rows(
        {
            "offset": (clocks.offset / 1e9).tolist(),
            "drift": clocks.drift.tolist(),
            "residual": [seconds if math.isfinite(seconds) else None for seconds in residuals],
            "contradictions": clocks.contradictions.tolist(),
        }
    )


def _matrix(matrix: Matrix) -> list[dict[str, Any]]:
    return _rows(
        {
            "from": matrix.source.tolist(),
            "to": matrix.target.tolist(),
            "messages": matrix.messages.tolist(),
            "bytes": matrix.bytes.tolist(),
            "of_unknown_size": matrix.unknown.tolist(),
        }
    )


def _rows(columns: dict[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """Return columns of one length as a list of objects."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
