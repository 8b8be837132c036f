"""What recorded calls did in the last seconds, as tables of the live view."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table
from rich.text import Text

from hpcd.analysis.live.recent_calls import (
    FileUse,
    FunctionUse,
    MpiUse,
    PeerUse,
    RankUse,
    RecentCalls,
)
from hpcd.cli.output.sizes import size_text
from hpcd.cli.output.terminal_text import harmless


def call_tables(calls: RecentCalls | None) -> list[Table]:
    """A table of each kind of calls that there are."""
    if calls is None:
        return []
    span = calls.seconds or 1.0
    return [
        table
        for table in (
            _files(calls.files, span), _ranks(calls.ranks, span), _mpi(calls.mpi, span),
            _peers(calls.peers, span), _functions(calls.functions, span),
        )
        if table.row_count
    ]  # fmt: skip


def _files(files: list[FileUse], span: float) -> Table:
    table = _table("read B/s", "written B/s", "calls/s", "errors/s", name="file or connection")
    for use in files:
        table.add_row(
            size_text(use.read / span), size_text(use.written / span), _rate(use.calls / span),
            _rate(use.errors / span), _name(use.name),
        )  # fmt: skip
    return table


def _ranks(ranks: list[RankUse], span: float) -> Table:
    table = _table("MPI %", "B/s", "calls/s", "pid", "rank", name="process that calls MPI")
    for use in ranks:
        table.add_row(
            f"{100 * use.seconds / span:.1f}", size_text(use.bytes / span),
            _rate(use.calls / span), str(use.pid), "" if use.rank is None else str(use.rank),
            _name(" ".join(filter(None, (use.name, use.job)))),
        )  # fmt: skip
    return table


def _mpi(functions: list[MpiUse], span: float) -> Table:
    table = _table("time %", "B/s", "calls/s", "mean", name="function of MPI")
    for use in functions:
        table.add_row(
            f"{100 * use.seconds / span:.1f}", size_text(use.bytes / span),
            _rate(use.calls / span), _duration(use.seconds / use.calls), _name(use.name),
        )  # fmt: skip
    return table


def _peers(peers: list[PeerUse], span: float) -> Table:
    table = _table("B/s", "messages/s", "from", "to", name="messages from rank to rank")
    for use in peers:
        table.add_row(
            size_text(use.bytes / span), _rate(use.messages / span), str(use.source),
            "?" if use.target is None else str(use.target), _name(use.job),
        )  # fmt: skip
    return table


def _functions(functions: list[FunctionUse], span: float) -> Table:
    table = _table("calls/s", "mean", "time %", name="probed function")
    for use in functions:
        mean = "-" if use.mean_s is None else _duration(use.mean_s)
        share = "-" if use.mean_s is None else f"{100 * use.seconds / span:.1f}"
        library = f" ({Path(use.library).name})"
        table.add_row(_rate(use.calls / span), mean, share, _name(use.name + library))
    return table


def _table(*headings: str, name: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(name)
    return table


def _name(text: str) -> Text:
    return Text(harmless(text), no_wrap=True, overflow="ellipsis")


def _rate(value: float) -> str:
    """So many a second; there may be few."""
    return f"{value:.1f}" if value < 99.95 else size_text(value)


def _duration(seconds: float) -> str:
    """A time in four digits."""
    for unit, factor in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:,.3g} s"
