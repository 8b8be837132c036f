"""The tables of ``hpcd messages`` as text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.delays import Delays
from hpcd.analysis.messages.traffic import Matrix, message_sizes
from hpcd.analysis.messages.wait_states import WaitKind, by_path
from hpcd.analysis.profile.row_text import path_text
from hpcd.analysis.profile.scope_nodes import ContextNames
from hpcd.array_types import I64
from hpcd.cli.output.tree_tables import Row
from hpcd.wording import bytes_text, percent, time_text

_DENSE_RANKS = 12
_MIN_NAME = 24
_MEMBERS = 8


def heading(db: Database, exchange: Communication) -> Iterator[str]:
    """Yield a summary of the communication."""
    matrix = exchange.point_to_point
    unknown = float(matrix.unknown.sum())
    yield (
        f"{db.path}: {len(exchange.ranks)} ranks, {exchange.recorded.flavour.name};"
        f" {matrix.messages.sum():,.0f} messages, {bytes_text(float(matrix.bytes.sum()))}"
        + (f", of {unknown:,.0f} the size is not known" if unknown else "")
        + f"; {len(exchange.collectives):,} collective operations"
    )
    seconds = exchange.in_mpi
    waited = float(exchange.waits.severity.sum()) / 1e9
    share = f" ({percent(waited / seconds)})" if seconds else ""
    yield f"in MPI: {time_text(seconds)}, of which waiting: {time_text(waited, seconds)}{share}"
    clocks = exchange.clocks
    if len(clocks.offset) > 1:
        rest = [at for at in range(len(clocks.offset)) if at != clocks.reference]
        worst = max(float(clocks.residual[at]) for at in rest)
        accuracy = f"at most ±{time_text(worst / 1e9)}" if np.isfinite(worst) else "unknown"
        wrong = int(clocks.contradictions.sum())
        yield (
            f"clocks of {len(clocks.offset)} hosts aligned by their messages: residual error "
            + accuracy
            + (f"; {wrong:,} messages contradict" if wrong else "")
        )


def tables(
    db: Database, exchange: Communication, delays: Delays, width: int, rows: int
) -> Iterator[list[Row]]:
    """All tables, each of ``rows`` rows at most (0: all)."""
    limit = rows or 1 << 30
    paths = _Paths(db)
    if len(exchange.point_to_point.source):
        yield _matrix_rows(exchange.point_to_point, exchange.ranks, limit)
        yield _size_rows(exchange)
    if len(exchange.one_sided.source):
        yield _pair_rows(exchange.one_sided, limit, "one-sided transfers, from and to")
    yield _communicator_rows(exchange, limit)
    if len(exchange.collectives):
        yield _collective_rows(exchange, limit)
    if len(exchange.waits):
        yield _wait_rows(exchange, paths, width, limit)
        yield _delay_rows(delays, paths, width, limit)


class _Paths:
    """Call paths of CCT nodes as one line, with inlined procedures."""

    def __init__(self, db: Database) -> None:
        self._cct, self._names = db.cct, ContextNames(db)

    def names(self, node: int) -> tuple[str, ...]:
        return tuple(self._names.path(self._cct.path(node).tolist() or [node]))

    def text(self, node: int, width: int) -> str:
        return path_text(self.names(node), max(width, _MIN_NAME))


def _matrix_rows(matrix: Matrix, ranks: I64, limit: int) -> list[Row]:
    if len(ranks) > _DENSE_RANKS:
        return _pair_rows(matrix, limit, "messages, from and to, most bytes first")
    pairs = zip(matrix.source.tolist(), matrix.target.tolist(), strict=True)
    volume = dict(zip(pairs, matrix.bytes.tolist(), strict=True))
    rows = [Row("  from \\ to" + "".join(f"{rank:>10}" for rank in ranks.tolist()), "", "")]
    for rank in ranks.tolist():
        values = [volume.get((rank, other), 0.0) for other in ranks.tolist()]
        cells = "".join(f"{bytes_text(value) if value else '.':>10}" for value in values)
        rows.append(Row(f"{rank:>11}{cells}", "", ""))
    return rows


def _pair_rows(matrix: Matrix, limit: int, what: str) -> list[Row]:
    rows = [Row(f"{'messages':>10} {'bytes':>10} {'from':>6} {'to':>6}  ", "", what)]
    order = np.argsort(-matrix.bytes, kind="stable")
    for at in order[:limit].tolist():
        figures = (
            f"{matrix.messages[at]:>10,.0f} {bytes_text(float(matrix.bytes[at])):>10}"
            f" {matrix.source[at]:>6} {matrix.target[at]:>6}"
        )
        rows.append(Row(figures, "", ""))
    return [*rows, *_left(len(order), limit)]


def _left(count: int, limit: int) -> list[Row]:
    return [Row("", "", f"(not shown: {count - limit:,} more)")] if count > limit else []


def _size_rows(exchange: Communication) -> list[Row]:
    sizes = message_sizes(exchange.sends, exchange.messages)
    rows = [Row(f"{'messages':>10} {'bytes':>10}  ", "", "of this size each")]
    columns = (sizes.messages, sizes.bytes, sizes.least, sizes.most)
    for messages, volume, least, most in zip(*(c.tolist() for c in columns), strict=True):
        span = f"{least:,} B" if least == most else f"{least:,} to {most:,} B"
        rows.append(Row(f"{messages:>10,.0f} {bytes_text(volume):>10}  ", "", span))
    return rows


def _communicator_rows(exchange: Communication, limit: int) -> list[Row]:
    rows = [Row(f"{'number':>6} {'of':>4} {'ranks':>6}  ", "", "communicator")]
    for one in exchange.communicators.all[:limit]:
        listed = _listed(one.members)
        if one.remote is not None:
            listed += f" with {_listed(one.remote) if len(one.remote) else 'unknown processes'}"
        listed += "" if one.ordered else " (in an unknown order)"
        shape = f", {' x '.join(map(str, one.dims))}" if one.dims else ""
        parent = str(one.parent) if one.parent >= 0 else ""
        figures = f"{one.number:>6} {parent:>4} {len(one.everybody):>6}  "
        rows.append(Row(figures, "", f"{one.name}{shape}: {listed}"))
    return [*rows, *_left(len(exchange.communicators.all), limit)]


def _listed(ranks: I64) -> str:
    return ", ".join(map(str, ranks[:_MEMBERS].tolist())) + (", …" if len(ranks) > _MEMBERS else "")


def _collective_rows(exchange: Communication, limit: int) -> list[Row]:
    listed = exchange.by_function()
    head = f"{'operations':>10} {'calls':>10} {'time':>10} {'bytes':>10} {'of':>4}  "
    rows = [Row(head, "", "collective operations; of which communicator")]
    for row in listed[:limit]:
        volume = "?" if row.bytes is None else bytes_text(row.bytes)
        figures = (
            f"{row.operations:>10,} {row.calls:>10,.0f}"
            f" {time_text(row.seconds, exchange.in_mpi):>10} {volume:>10} {row.communicator:>4}  "
        )
        rows.append(Row(figures, "", row.function))
    return [*rows, *_left(len(listed), limit)]


def _wait_rows(exchange: Communication, paths: _Paths, width: int, limit: int) -> list[Row]:
    rows = [Row(f"{'waiting':>10} {'waits':>9}  ", "", "wait state")]
    for kind in WaitKind:
        mine = exchange.waits.kind == kind
        if mine.any():
            waiting = time_text(exchange.waits.seconds(kind), exchange.in_mpi)
            figures = f"{waiting:>10} {int(mine.sum()):>9,}  "
            rows.append(Row(figures, "", kind.label))
    groups, count = by_path(exchange.recorded, exchange.waits, most=limit)
    head = f"{'waiting':>10} {'waits':>9} {'longest':>10}  "
    rows += [Row("", "", ""), Row(head, "", "wait state at a call path, and for whom")]
    for group in groups:
        figures = (
            f"{time_text(group.seconds, exchange.in_mpi):>10} {group.count:>9,}"
            f" {time_text(group.longest, exchange.in_mpi):>10}  "
        )
        label = f"{group.kind.label}: "
        room = width - len(figures)
        path = label + paths.text(group.node, room - len(label))
        rows.append(Row(figures, "", path, "bold"))
        before = f"for rank {group.delaying_rank}: "
        late = paths.text(group.delaying_node, room - len(before) - 2)
        rows.append(Row(" " * len(figures), "  ", before + late))
    return [*rows, *_left(count, limit)]


def _delay_rows(delays: Delays, paths: _Paths, width: int, limit: int) -> list[Row]:
    head = f"{'caused':>10} {'rank':>6}  "
    rows = [Row(head, "", "delays: what the delaying rank did while others did not")]
    by_path: dict[tuple[int, tuple[str, ...]], float] = {}
    columns = (delays.rank, delays.node, delays.seconds)
    for rank, node, seconds in zip(*(column.tolist() for column in columns), strict=True):
        place = rank, paths.names(node)
        by_path[place] = by_path.get(place, 0.0) + seconds
    order = sorted(by_path.items(), key=lambda item: -item[1])
    most = max([delays.unexplained, *by_path.values()])
    for (rank, names), seconds in order[:limit]:
        figures = f"{time_text(seconds, most):>10} {rank:>6}  "
        rows.append(Row(figures, "", path_text(names, max(width - len(figures), _MIN_NAME))))
    rows += _left(len(order), limit)
    if delays.unexplained > 0:
        rows.append(
            Row(f"{time_text(delays.unexplained, most):>10} {'':>6}  ", "", "not explained")
        )
    return rows
