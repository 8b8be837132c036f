"""Messages, collective operations and wait states of the lines and time in view.

Which send and receive are one message follows from all calls of a job. So the first request that
needs it works that out, O(n log n) in the calls of MPI; each request after that reads what lies in
its window of time alone.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from hpcd.analysis import Database
from hpcd.analysis.answers.job_messages import communicator_json
from hpcd.analysis.answers.json_form import json_form, rows
from hpcd.analysis.messages import traffic
from hpcd.analysis.messages.caveats import caveats
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.database_calls import communication
from hpcd.analysis.messages.time_index import TimeIndex
from hpcd.analysis.messages.wait_states import WaitGroup, by_path
from hpcd.array_types import F64, I64, Mask
from hpcd.errors import UsageError
from hpcd.masks import marked
from hpcd.rows import take_rows
from hpcd.wording import percent, time_text

POINT_TO_POINT, WAITING, ONE_SIDED, COLLECTIVES = "messages", "waiting", "one-sided", "collectives"
"""Matrices: the first two are of the time in view, the others of the whole recording."""

_MOST_GROUPS = 200
_WORST = 5
_MOST_COMMUNICATORS = 200
_MEMBERS = 8
# What collectives carry between all pairs of more ranks is more than memory is for.
_MOST_FLOW_RANKS = 64


class Traffic:
    """The communication of the job with most calls, at the times of the trace.

    Times are those recorded: a trace line's samples are at them. Severities of wait states are by
    clocks that are aligned.
    """

    def __init__(self, db: Database) -> None:
        """Raises :class:`UsageError` where no calls of MPI were recorded."""
        self._db = db
        exchange = communication(db)
        self.exchange: Communication = exchange
        operations, sends, messages = exchange.recorded, exchange.sends, exchange.messages
        self._rank_of_line: I64 = np.full(len(db.lines), -1, np.int64)
        self._rank_of_line[operations.line] = operations.rank
        known = np.flatnonzero((sends.peer >= 0) & (sends.number >= 0))
        self._sender, self._receiver = sends.rank[known], sends.peer[known]
        self._number, self._weight = sends.number[known], sends.weight[known]
        self._size = traffic.sent_sizes(sends, messages)[known]
        begin = operations.begin[sends.operation[known]]
        self._sends = TimeIndex(begin, begin)
        # From the begin of the send to the end of what ended the receive.
        sent = sends.operation[messages.send]
        posted = messages.receives.operation[messages.receive]
        ended = messages.receives.ended[messages.receive]
        received = np.where(ended >= 0, ended, posted)
        self.message_lines = operations.line[sent], operations.line[received]
        self.message_times = operations.begin[sent], operations.end[received]
        self.message_size, self.message_tag = messages.size, sends.tag[messages.send]
        self._messages = TimeIndex(self.message_times[0], np.maximum(*self.message_times))
        collectives = exchange.collectives
        entered = collectives.operation
        left = np.where(collectives.ended >= 0, collectives.ended, entered)
        self.entry_line = operations.line[entered]
        self.entry_times = operations.begin[entered], operations.end[left]
        self._entries = TimeIndex(self.entry_times[0], np.maximum(*self.entry_times))
        waits = exchange.waits
        self._waits = TimeIndex(operations.begin[waits.operation], operations.end[waits.operation])
        self._whole = np.unique(operations.call)
        self._calls = TimeIndex(operations.begin[self._whole], operations.end[self._whole])

    @cached_property
    def notes(self) -> list[str]:
        """Caveats about the figures."""
        return list(caveats(self._db, self.exchange))

    def _lines_seen(self, lines: I64) -> Mask:
        return marked(len(self._rank_of_line), lines)

    def _ranks_seen(self, lines: I64) -> Mask:
        seen = np.zeros(self.exchange.size, bool)
        rank = self._rank_of_line[lines]
        seen[rank[rank >= 0]] = True
        return seen

    def messages_between(self, lines: I64, t0: int, t1: int) -> I64:
        """Matched messages under way in [t0, t1) from one of ``lines`` to another."""
        seen = self._lines_seen(lines)
        at = self._messages.overlapping(t0, t1)
        source, target = self.message_lines
        return at[seen[source[at]] & seen[target[at]]]

    def entries_on(self, lines: I64, t0: int, t1: int) -> I64:
        """Calls of collective operations on ``lines`` of which a part is in [t0, t1)."""
        at = self._entries.overlapping(t0, t1)
        return at[self._lines_seen(lines)[self.entry_line[at]]]

    def _sends_of(self, lines: I64, t0: int, t1: int) -> I64:
        """Sends begun in [t0, t1) by or to one of the ranks of ``lines``."""
        seen = self._ranks_seen(lines)
        at = self._sends.begun(t0, t1)
        return at[seen[self._sender[at]] | seen[self._receiver[at]]]

    def _waits_of(self, lines: I64, t0: int, t1: int) -> I64:
        """Waits of ``lines`` that began in [t0, t1)."""
        at = self._waits.begun(t0, t1)
        line = self.exchange.recorded.line[self.exchange.waits.operation[at]]
        return at[self._lines_seen(lines)[line]]

    def waits_on(self, lines: I64, t0: int, t1: int) -> I64:
        """Waits of ``lines`` of which a part is in [t0, t1)."""
        at = self._waits.overlapping(t0, t1)
        line = self.exchange.recorded.line[self.exchange.waits.operation[at]]
        return at[self._lines_seen(lines)[line]]

    def matrix(
        self, kind: str, lines: I64, t0: int, t1: int, ranks: tuple[int, int, int, int], most: int
    ) -> tuple[int, F64]:
        """Traffic between ranks ``s0`` to ``s1`` and ``d0`` to ``d1`` as at most ``most`` cells a
        side: how many ranks a cell has each way, and ``float64[2, rows, columns]``: messages and
        bytes; of ``waiting`` waits and seconds, from the rank that was late to the one that waited.

        Raises :class:`UsageError`.
        """
        source, target, count, amount = self._pairs(kind, lines, t0, t1)
        s0, s1, d0, d1 = ranks
        if not (0 <= s0 < s1 <= self.exchange.size and 0 <= d0 < d1 <= self.exchange.size):
            raise UsageError(f"ranks of a matrix are from 0 to {self.exchange.size}")
        step = max(1, -(-max(s1 - s0, d1 - d0) // most))
        rows, columns = -(-(s1 - s0) // step), -(-(d1 - d0) // step)
        inside = (source >= s0) & (source < s1) & (target >= d0) & (target < d1)
        cell = (source[inside] - s0) // step * columns + (target[inside] - d0) // step
        sums = [
            np.bincount(cell, pair_values[inside], rows * columns)
            for pair_values in (count, amount)
        ]
        return step, np.stack(sums).reshape(2, rows, columns).astype(np.float64)

    def _pairs(self, kind: str, lines: I64, t0: int, t1: int) -> tuple[I64, I64, F64, F64]:
        if kind == WAITING:
            at = self._waits_of(lines, t0, t1)
            waits, rank = self.exchange.waits, self.exchange.recorded.rank
            return (
                rank[waits.delayer[at]], rank[waits.operation[at]], np.ones(len(at)),
                waits.severity[at] / 1e9,
            )  # fmt: skip
        if kind == POINT_TO_POINT:
            at = self._sends_of(lines, t0, t1)
            volume = self._weight[at] * np.maximum(self._size[at], 0)
            return self._sender[at], self._receiver[at], self._weight[at], volume
        if kind not in self.kinds:
            raise UsageError(f"matrices are {', '.join(self.kinds)}")
        whole = self.exchange.one_sided if kind == ONE_SIDED else self.exchange.collective_flow
        return whole.source, whole.target, whole.messages, whole.bytes

    @cached_property
    def kinds(self) -> list[str]:
        """The matrices there are."""
        kinds = [POINT_TO_POINT] if len(self._size) else []
        if len(self.exchange.waits):
            kinds.append(WAITING)
        if len(self.exchange.one_sided.source):
            kinds.append(ONE_SIDED)
        few = self.exchange.size <= _MOST_FLOW_RANKS
        if few and len(self.exchange.collectives) and len(self.exchange.collective_flow.source):
            kinds.append(COLLECTIVES)
        return kinds

    def summary(self, lines: I64, t0: int, t1: int) -> dict[str, Any]:
        """Return messages and waits of the ranks of ``lines`` in [t0, t1)."""
        at = self._sends_of(lines, t0, t1)
        size, weight = self._size[at], self._weight[at]
        pairs = traffic.matrix_of(self._sender[at], self._receiver[at], size, weight)
        sizes = traffic.sizes_of(size, weight)
        waits = self._waits_of(lines, t0, t1)
        calls = self._whole[self._calls.begun(t0, t1)]
        operations = self.exchange.recorded
        calls = calls[self._lines_seen(lines)[operations.line[calls]]]
        in_mpi = float((operations.end - operations.begin)[calls].sum()) / 1e9
        communicators, count = self._communicators(at, lines, t0, t1)
        groups, of = by_path(
            operations, take_rows(self.exchange.waits, waits), worst=_WORST, most=_MOST_GROUPS
        )
        return {
            "headline": self._headline(pairs, waits, in_mpi, groups),
            "notes": self.notes,
            "ranks": self.exchange.size,
            "implementation": operations.flavour.name,
            "kinds": self.kinds,
            "messages": float(pairs.messages.sum()),
            "bytes": float(pairs.bytes.sum()),
            "unknown": float(pairs.unknown.sum()),
            "in_mpi": in_mpi,
            "waiting": float(self.exchange.waits.severity[waits].sum()) / 1e9,
            "sizes": rows(vars(sizes)),
            "communicators": communicators,
            "communicators_of": count,
            "waits": json_form(groups),
            "waits_of": of,
        }  # fmt: skip

    def _communicators(
        self, sends: I64, lines: I64, t0: int, t1: int
    ) -> tuple[list[dict[str, Any]], int]:
        """Communicators that were used, those with most time in collective operations first, then
        most bytes; and how many there are."""
        exchange = self.exchange
        every = len(exchange.communicators.all)
        number, weight = self._number[sends], self._weight[sends]
        messages = np.bincount(number, weight, every)
        volume = np.bincount(number, weight * np.maximum(self._size[sends], 0), every)
        entries = self._entries.begun(t0, t1)
        entries = entries[self._lines_seen(lines)[self.entry_line[entries]]]
        collectives = exchange.collectives
        shown = replace(
            collectives,
            operation=collectives.operation[entries],
            instance=collectives.instance[entries],
        )
        functions: dict[int, list[traffic.CollectiveRow]] = {}
        for row in traffic.by_function(
            exchange.recorded, exchange.communicators, shown, exchange.payload
        ):
            functions.setdefault(row.communicator, []).append(row)
        seconds = np.zeros(every)
        for one, totals in functions.items():
            seconds[one] = sum(row.seconds for row in totals)
        order = np.lexsort((-messages, -volume, -seconds))
        order = order[(messages + seconds)[order] > 0]
        return [
            {
                **communicator_json(exchange.communicators.all[one], _MEMBERS),
                "ranks": len(exchange.communicators.all[one].everybody),
                "messages": float(messages[one]),
                "bytes": float(volume[one]),
                "seconds": float(seconds[one]),
                "collectives": json_form(functions.get(one, [])),
            }
            for one in order[:_MOST_COMMUNICATORS].tolist()
        ], len(order)

    def _headline(
        self, pairs: traffic.Matrix, waits: I64, in_mpi: float, groups: list[WaitGroup]
    ) -> str:
        if self.exchange.is_sampled:
            return (
                "Some calls were passed over to keep the budget: sums are estimates, and wait"
                " states are not known."
            )
        if len(waits):
            severity = self.exchange.waits.severity[waits] / 1e9
            waited = float(severity.sum())
            late = self.exchange.recorded.rank[self.exchange.waits.delayer[waits]]
            total = max(in_mpi, waited)
            caused = np.bincount(late, severity, self.exchange.size)
            worst = int(caused.argmax())
            mine = next((one for one in groups if one.delaying_rank == worst), groups[0])
            place = ", called by ".join(self._db.path_names(mine.node)[:-3:-1])
            return (
                f"Ranks in view waited {time_text(waited)} of their {time_text(total)} in MPI for"
                f" others ({percent(waited / total, 0)}), {percent(caused[worst] / waited, 0)} of"
                f" it for rank {worst}: {mine.kind.label} in {place or 'an unknown call path'}."
            )
        if len(pairs.source):
            best = int(pairs.bytes.argmax())
            share = percent(pairs.bytes[best] / max(pairs.bytes.sum(), 1), 0)
            return (
                f"No rank in view waited for another; most was sent from rank {pairs.source[best]}"
                f" to rank {pairs.target[best]}, {share} of all bytes."
            )
        if in_mpi:
            return f"No messages and no wait states are in view, {time_text(in_mpi)} in MPI."
        return "No calls of MPI are in view."
