"""``hpcd messages --json``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpcd.analysis.database import Database
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.delays import Delays
from hpcd.analysis.messages.traffic import Matrix, message_sizes
from hpcd.analysis.messages.wait_states import WaitKind, by_path, totals


def as_json(
    db: Database, found: Communication, delays: Delays, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything that was found; times in seconds, sizes in bytes, ranks of the job; ``notes`` are
    what to know before it is believed."""
    names = db.procedure_names

    def path(node: int) -> list[str]:
        return [names[db.procedure_of_node[at]] for at in db.cct.path(node).tolist()][1:]

    sums = totals(found.operations, found.waits, found.size)
    sizes = message_sizes(found.sends, found.messages)
    clocks = found.clocks
    return {
        "database": str(db.path),
        "implementation": found.recorded.flavour.name,
        "ranks": found.ranks.tolist(),
        "sampled": found.is_sampled,
        "notes": list(notes),
        "in_mpi": found.in_mpi,
        "messages": {
            "sent": len(found.sends),
            "matched": len(found.messages),
            "matched_by_time": int(found.messages.guessed.sum()),
        },
        "guessed_worlds": found.communicators.guessed_worlds.tolist(),
        "unknown_communicators": found.unknown_communicators,
        "point_to_point": _matrix(found.point_to_point),
        "one_sided": _matrix(found.one_sided),
        "collective_flow": _matrix(found.collective_flow),
        "sizes": [
            {"least": least, "most": most, "messages": messages, "bytes": volume}
            for least, most, messages, volume in zip(
                sizes.least.tolist(), sizes.most.tolist(), sizes.messages.tolist(),
                sizes.bytes.tolist(), strict=True,
            )
        ],
        "communicators": [
            {
                "number": one.number,
                "name": one.name,
                "parent": one.parent if one.parent >= 0 else None,
                "members": one.members.tolist(),
                "remote": None if one.remote is None else one.remote.tolist(),
                "ordered": one.ordered,
                "dims": list(one.dims),
                "periods": [bool(period) for period in one.periods],
            }
            for one in found.communicators.all
        ],
        "collectives": [
            {
                "function": row.function,
                "communicator": row.communicator,
                "operations": row.instances,
                "calls": row.calls,
                "seconds": row.seconds,
                "bytes": row.bytes if row.bytes >= 0 else None,
            }
            for row in found.by_function()
        ],
        "waiting": {kind.label: found.waits.seconds(kind) for kind in WaitKind},
        "waiting_by_rank": sums.by_waiter.tolist(),
        "waiting_caused_by_rank": sums.by_delayer.tolist(),
        "waits": [
            {
                "kind": group.kind.label,
                "path": path(group.node),
                "delaying_rank": group.delaying_rank,
                "delaying_path": path(group.delaying_node),
                "count": group.count,
                "seconds": group.seconds,
                "longest": group.longest,
            }
            for group in by_path(found.operations, found.waits)
        ],
        "delays": [
            {"rank": rank, "path": path(node), "seconds": seconds}
            for rank, node, seconds in zip(
                delays.rank.tolist(), delays.node.tolist(), delays.seconds.tolist(), strict=True
            )
        ],
        "delays_unexplained": delays.unexplained,
        "clocks": [
            {
                "offset": offset / 1e9,
                "drift": drift,
                "residual": residual / 1e9 if math.isfinite(residual) else None,
                "contradictions": wrong,
            }
            for offset, drift, residual, wrong in zip(
                clocks.offset.tolist(), clocks.drift.tolist(), clocks.residual.tolist(),
                clocks.contradictions.tolist(), strict=True,
            )
        ],
    }  # fmt: skip


def _matrix(matrix: Matrix) -> list[dict[str, Any]]:
    columns = (matrix.source, matrix.target, matrix.messages, matrix.bytes, matrix.unknown)
    names = ("from", "to", "messages", "bytes", "of_unknown_size")
    return [
        dict(zip(names, row, strict=True))
        for row in zip(*(column.tolist() for column in columns), strict=True)
    ]
