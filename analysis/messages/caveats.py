"""Caveats of a recording's messages and wait states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.database.seen_processes import seen_part
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.profile.advice import of_dropped_probes


def caveats(db: Database, exchange: Communication) -> Iterator[str]:
    """Sentences on what was not recorded, not matched or only guessed."""
    of_ranks = np.flatnonzero(exchange.rank_of_line >= 0)
    if part := seen_part(db, db.lines.process[of_ranks]).sentence():
        yield f"part of a run: {part}"
    yield from of_dropped_probes(db)
    guessed = len(exchange.communicators.guessed_worlds)
    if guessed:
        yield (
            f"{guessed:,} of {len(exchange.ranks):,} ranks were in MPI before the recording began,"
            " and nothing says which communicator is MPI_COMM_WORLD: that which each used most is"
            " taken for it"
        )
    if exchange.is_sampled:
        yield "calls were passed over to keep the budget: sums are estimates, nothing is matched"
        return
    late = int(exchange.late.late.sum())
    if late:
        yield (
            f"{late:,} of {len(exchange.ranks):,} ranks were in MPI before the recording began:"
            " which of their calls belong together follows from the end of the run, from sizes and"
            " from times"
        )
    unsure = exchange.messages.unsure
    if unsure:
        yield (
            f"{unsure:,} of {len(exchange.sends):,} messages are not matched: which receives are"
            " theirs cannot be told, since calls before the recording began are missing"
        )
    unmatched = len(exchange.sends) - len(exchange.messages) - unsure
    if unmatched:
        yield f"{unmatched:,} of {len(exchange.sends):,} messages have no receive in the recording"
    if exchange.messages.guessed.any():
        count = int(exchange.messages.guessed.sum())
        yield f"{count:,} receives from any source ignore their status: matched by time"
    if exchange.unknown_communicators:
        yield (
            f"{exchange.unknown_communicators:,} operations are on communicators of which nothing"
            " is known: they were made before the recording began"
        )
    strangers = exchange.to_other_jobs
    if strangers:
        yield (
            f"{strangers:,} messages are to or from processes of another job (MPI_Comm_spawn and"
            " its like): which these are is not known"
        )
    unordered = sum(not one.ordered for one in exchange.communicators.all)
    if unordered:
        yield (
            f"of {unordered:,} communicators nothing says in which order their ranks are: messages"
            " on them are not matched"
        )
    incomplete = int((~exchange.collectives.complete).sum())
    if incomplete:
        collectives = len(exchange.collectives)
        yield f"some ranks are missing in {incomplete:,} of {collectives:,} collective operations"
