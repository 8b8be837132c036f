"""``hpcd report --waits-for`` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpcd.analysis.profile.row_text import path_text
from hpcd.analysis.waits.single_wait import SingleWait
from hpcd.analysis.waits.wait_report import WaitCause, WaitReport, cause_text
from hpcd.cli.output.tree_tables import MIN_NAME, Row
from hpcd.wording import counted, time_text

# Causes of the waits at a path that are shown in text.
_CAUSES = 5


def heading(report: WaitReport) -> Iterator[str]:
    """Yield what the tables are of."""
    yield (
        f"waits: {time_text(report.seconds)} in {report.waits:,} waits that were recorded one by"
        f" one, {report.not_seen:,} of which nobody was seen to end and {report.in_vain:,} ended in"
        " vain;"
        f" {time_text(report.other_seconds)} in shorter ones and those that had not ended"
    )
    if report.by_message:
        yield (
            f"{time_text(report.by_message_seconds)} of it in {report.by_message:,} waits of ranks"
            " for others, inferred from their calls of MPI: they may spin meanwhile"
        )


def wait_rows(report: WaitReport, least: float, width: int) -> Iterator[Row]:
    """Yield a row for each call path with at least ``least`` of all waiting, below it who ended its
    waits and what these came down to."""
    yield Row(f"{'time':>12}  ", "", "waits, who ended them, what they came down to")
    left_out = 0
    for path in report.paths:
        if path.seconds < least * report.seconds:
            left_out += 1
            continue
        room = max(width - 14, MIN_NAME)
        vain = f", {path.in_vain:,} ended in vain," if path.in_vain else ""
        name = f"{path.waits:,}{vain} at {path_text(path.path, room - 12 - len(vain))}"
        yield Row(f"{time_text(path.seconds):>12}  ", "", name, "bold")
        for title, causes in (("ended by", path.ended_by), ("due to", path.roots)):
            named = [
                (cause_text(cause.kind, cause.thread, cause.name), cause)
                for cause in causes[:_CAUSES]
            ]
            yield from _cause_rows(title, named, room)
            rest = causes[_CAUSES:]
            if rest:
                seconds = time_text(sum(cause.seconds for cause in rest))
                yield Row(" " * 14, "  ", f"{seconds:>10}  {title} {len(rest):,} more")
    if left_out:
        yield Row("", "", f"(not shown: {counted(left_out, 'call path')} below the cut-off)")


def wait_heading(wait: SingleWait) -> Iterator[str]:
    """Yield which wait it is."""
    length, whole = (wait.end - wait.begin) / 1e9, wait.end / 1e9
    yield f"{wait.thread} waits {time_text(length)} from {time_text(wait.begin / 1e9, whole)} on"
    if wait.in_vain:
        yield f"woken in vain; it waits on until {time_text(wait.until / 1e9)}"


def single_wait_rows(wait: SingleWait, width: int) -> Iterator[Row]:
    """Yield the place of a wait, its waker and its root causes."""
    room = max(width - 14, MIN_NAME)
    yield Row("", "", f"at {path_text(wait.path, room)}", "bold")
    for title, causes, of in (
        ("ended by", wait.ended_by, wait.ended_by_of), ("due to", wait.roots, wait.roots_of),
    ):  # fmt: skip
        yield from _cause_rows(title, [(cause.text, cause) for cause in causes], room)
        if of > len(causes):
            yield Row("", "", f"(not shown: {of - len(causes):,} more)")


def _cause_rows(title: str, causes: Sequence[tuple[str, WaitCause]], room: int) -> Iterator[Row]:
    for words, cause in causes:
        text = f"{title} {words}"
        if cause.path:
            text += ", in " + path_text(cause.path, max(room - len(text) - 20, MIN_NAME))
        yield Row(" " * 14, "  ", f"{time_text(cause.seconds):>10}  {text}")
