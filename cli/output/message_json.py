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
    db: Database, exchange: Communication, delays: Delays, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return all results; times in seconds, sizes in bytes, ranks of the job; ``notes`` are what to
    know before it is believed."""
    paths = _Paths(db)
    sums = totals(exchange.operations, exchange.waits, exchange.size)
    return {
        "database": str(db.path),
        "implementation": exchange.recorded.flavour.name,
        "ranks": exchange.ranks.tolist(),
        "sampled": exchange.is_sampled,
        "notes": list(notes),
        "in_mpi": exchange.in_mpi,
        "messages": {
            "sent": len(exchange.sends),
            "matched": len(exchange.messages),
            "matched_by_time": int(exchange.messages.guessed.sum()),
        },
        "guessed_worlds": exchange.communicators.guessed_worlds.tolist(),
        "unknown_communicators": exchange.unknown_communicators,
        "point_to_point": _matrix(exchange.point_to_point),
        "one_sided": _matrix(exchange.one_sided),
        "collective_flow": _matrix(exchange.collective_flow),
        "sizes": _sizes(exchange),
        "communicators": list(map(_communicator, exchange.communicators.all)),
        "collectives": _collectives(exchange),
        "waiting": {kind.label: exchange.waits.seconds(kind) for kind in WaitKind},
        "waiting_by_rank": sums.by_waiter.tolist(),
        "waiting_caused_by_rank": sums.by_delayer.tolist(),
        "waits": _waits(exchange, paths),
        "delays": _rows(
            {
                "rank": delays.rank.tolist(),
                "path": map(paths.of, delays.node.tolist()),
                "seconds": delays.seconds.tolist(),
            }
        ),
        "delays_unexplained": delays.unexplained,
        "clocks": _clocks(exchange.clocks),
    }


class _Paths:
    """Call paths by node, as names, outermost first."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._names = db.procedure_names

    def of(self, node: int) -> list[str]:
        procedures = self._db.procedure_of_node[self._db.cct.path(node)]
        return [self._names[procedure] for procedure in procedures.tolist()][1:]


def _sizes(exchange: Communication) -> list[dict[str, Any]]:
    sizes = message_sizes(exchange.sends, exchange.messages)
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


def _collectives(exchange: Communication) -> list[dict[str, Any]]:
    return [
        {
            "function": row.function,
            "communicator": row.communicator,
            "operations": row.instances,
            "calls": row.calls,
            "seconds": row.seconds,
            "bytes": row.bytes if row.bytes >= 0 else None,
        }
        for row in exchange.by_function()
    ]


def _waits(exchange: Communication, paths: _Paths) -> list[dict[str, Any]]:
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
        for group in by_path(exchange.operations, exchange.waits)
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
