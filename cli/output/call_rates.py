"""Tables of the live view: recorded calls of the last seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rich.table import Table
from rich.text import Text

from hpcd.analysis.live.recent_calls import RecentCalls
from hpcd.cli.output.terminal_text import harmless, plain_table
from hpcd.wording import compact, fixed, time_text

_Use = TypeVar("_Use")


def call_tables(calls: RecentCalls | None) -> list[Table]:
    """A table of each kind of calls that there are."""
    if calls is None:
        return []
    span = calls.seconds or 1.0

    def size(value: float) -> str:
        return compact(value / span)

    def rate(value: float) -> str:
        """A rate per second; one below 100 has a decimal."""
        return fixed(value / span, 1) if value < 99.95 * span else compact(value / span)

    def share(seconds: float) -> str:
        return fixed(100 * seconds / span, 1)

    tables = [
        _table(
            calls.files, "file or connection", lambda use: use.name,
            {"read B/s": lambda use: size(use.read), "written B/s": lambda use: size(use.written),
             "calls/s": lambda use: rate(use.calls), "errors/s": lambda use: rate(use.errors)},
        ),
        _table(
            calls.ranks, "process that calls MPI",
            lambda use: " ".join(filter(None, (use.name, use.job))),
            {"MPI %": lambda use: share(use.seconds), "B/s": lambda use: size(use.bytes),
             "calls/s": lambda use: rate(use.calls), "pid": lambda use: str(use.pid),
             "rank": lambda use: "" if use.rank is None else str(use.rank)},
        ),
        _table(
            calls.mpi, "function of MPI", lambda use: use.name,
            {"time %": lambda use: share(use.seconds), "B/s": lambda use: size(use.bytes),
             "calls/s": lambda use: rate(use.calls),
             "mean": lambda use: time_text(use.seconds / use.calls)},
        ),
        _table(
            calls.peers, "messages from rank to rank", lambda use: use.job,
            {"B/s": lambda use: size(use.bytes), "messages/s": lambda use: rate(use.messages),
             "from": lambda use: str(use.source),
             "to": lambda use: "?" if use.target is None else str(use.target)},
        ),
        _table(
            calls.functions, "probed function",
            lambda use: f"{use.name} ({Path(use.library).name})",
            {"calls/s": lambda use: rate(use.calls),
             "mean": lambda use: "-" if use.mean_s is None else time_text(use.mean_s),
             "time %": lambda use: "-" if use.mean_s is None else share(use.seconds)},
        ),
    ]  # fmt: skip
    return [table for table in tables if table.row_count]


def _table(
    uses: Sequence[_Use], kind: str, name: Callable[[_Use], str],
    columns: dict[str, Callable[[_Use], str]],
) -> Table:  # fmt: skip
    """A row for each of ``uses``: numbers by their headings, then its name."""
    table = plain_table(*columns)
    table.add_column(kind)
    for use in uses:
        table.add_row(
            *(text(use) for text in columns.values()),
            Text(harmless(name(use)), no_wrap=True, overflow="ellipsis"),
        )
    return table
