"""The communication of a job: messages, wait states, delays, for ``hpcd messages``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcd.analysis.answers.json_form import json_form, rows
from hpcd.analysis.database import Database
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.communicators import Communicator
from hpcd.analysis.messages.delays import Delays
from hpcd.analysis.messages.traffic import CollectiveRow, Matrix, message_sizes
from hpcd.analysis.messages.wait_states import WaitKind, by_path, totals


@dataclass(frozen=True)
class JobMessages:
    """The communication of a job: times in seconds, sizes in bytes, ranks of the job; ``notes`` are
    what to know before it is believed, call paths names, the outermost first."""

    database: str
    implementation: str
    ranks: list[int]
    sampled: bool
    notes: Sequence[str]
    in_mpi: float
    messages: dict[str, int]
    guessed_worlds: list[int]
    unknown_communicators: int
    point_to_point: list[dict[str, object]]
    one_sided: list[dict[str, object]]
    collective_flow: list[dict[str, object]]
    sizes: list[dict[str, object]]
    communicators: list[dict[str, object]]
    collectives: list[CollectiveRow]
    waiting: dict[str, float]
    waiting_by_rank: list[float]
    waiting_caused_by_rank: list[float]
    waits: list[dict[str, object]]
    delays: list[dict[str, object]]
    delays_unexplained: float
    clocks: list[dict[str, object]]


def job_messages(
    db: Database, exchange: Communication, delays: Delays, notes: Sequence[str] = ()
) -> JobMessages:
    """Return all that is known of the communication of a job."""
    sums = totals(exchange.operations, exchange.waits, exchange.size)
    clocks = exchange.clocks
    waits = [
        {
            **json_form(group),
            "path": db.path_names(group.node),
            "delaying_path": db.path_names(group.delaying_node),
        }
        for group in by_path(exchange.recorded, exchange.waits, worst=1)[0]
    ]
    return JobMessages(
        database=str(db.path),
        implementation=exchange.recorded.flavour.name,
        ranks=exchange.ranks.tolist(),
        sampled=exchange.is_sampled,
        notes=notes,
        in_mpi=exchange.in_mpi,
        messages={
            "sent": len(exchange.sends),
            "matched": len(exchange.messages),
            "matched_by_time": int(exchange.messages.guessed.sum()),
        },
        guessed_worlds=exchange.communicators.guessed_worlds.tolist(),
        unknown_communicators=exchange.unknown_communicators,
        point_to_point=_matrix(exchange.point_to_point),
        one_sided=_matrix(exchange.one_sided),
        collective_flow=_matrix(exchange.collective_flow),
        sizes=rows(vars(message_sizes(exchange.sends, exchange.messages))),
        communicators=list(map(communicator_json, exchange.communicators.all)),
        collectives=exchange.by_function(),
        waiting={kind.label: exchange.waits.seconds(kind) for kind in WaitKind},
        waiting_by_rank=sums.by_waiter.tolist(),
        waiting_caused_by_rank=sums.by_delayer.tolist(),
        waits=waits,
        delays=rows(
            {
                "rank": delays.rank,
                "path": map(db.path_names, delays.node.tolist()),
                "seconds": delays.seconds,
            }
        ),
        delays_unexplained=delays.unexplained,
        clocks=rows(
            {
                "offset": clocks.offset / 1e9,
                "drift": clocks.drift,
                "residual": clocks.residual / 1e9,
                "contradictions": clocks.contradictions,
            }
        ),
    )


def communicator_json(communicator: Communicator, most: int | None = None) -> dict[str, object]:
    """A communicator, with ``most`` of its members; ``remote`` is the other group of one between
    two, null of others."""
    one = communicator
    return {
        "number": one.number,
        "name": one.name,
        "parent": one.parent if one.parent >= 0 else None,
        "members": one.members[:most].tolist(),
        "remote": None if one.remote is None else one.remote[:most].tolist(),
        "ordered": one.ordered,
        "dims": list(one.dims),
        "periods": [bool(period) for period in one.periods],
    }


def _matrix(matrix: Matrix) -> list[dict[str, object]]:
    return rows(
        {
            "from": matrix.source,
            "to": matrix.target,
            "messages": matrix.messages,
            "bytes": matrix.bytes,
            "of_unknown_size": matrix.unknown,
        }
    )
