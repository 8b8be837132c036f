"""The progress bar of long commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from hpcd.cli.output.terminal_text import console

# Stages whose steps are bytes; steps of other stages are counted.
_BYTES = ("read",)


class _Amount(ProgressColumn):
    """Done and total: bytes with a rate, or a count."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes, self._rate, self._count = (
            DownloadColumn(),
            TransferSpeedColumn(),
            MofNCompleteColumn(),
        )

    def render(self, task: Task) -> Text:
        if task.description not in _BYTES:
            return self._count.render(task)
        return Text("  ").join([self._bytes.render(task), self._rate.render(task)])


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on standard error, when that is a terminal.

    Yields a function to call with the stage, the amount done, and the total.
    """
    err = console(stderr=True)
    bar = Progress(
        TextColumn("{task.description:12}"),
        BarColumn(),
        _Amount(),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=None)
        current = ""

        def update(stage: str, done: int, total: int) -> None:
            nonlocal current
            if stage != current:
                # Another stage has another speed.
                bar.reset(task, description=stage, total=total)
                current = stage
            bar.update(task, completed=done, total=total)

        yield update
