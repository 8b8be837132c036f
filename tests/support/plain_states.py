"""Activity of a thread, piece by piece, from the records of its trace line.

The rules of pictures restated plainly, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

from hpcd.analysis import Database
from hpcd.model.codes import State


@dataclass(frozen=True)
class Piece:
    """A stretch of time, in ns, in which a thread is at a node in a state (0: runs)."""

    begin: int
    end: int
    node: int
    state: int

    @property
    def pixel(self) -> int:
        return self.node | self.state << 30


def pieces_of(db: Database, line: int) -> list[Piece]:
    """Return the pieces of a trace line, in order of time, from its first record to its last."""
    kinds = {}
    for number, metric, interval in db.rows("SELECT id, metric, interval FROM event"):
        waits = {"blocked_time": State.BLOCKED, "runnable_time": State.READY}.get(metric)
        kinds[number] = State.SAMPLED if waits is None else waits if interval else State.RESUMED
    records = db.records(line)
    entries: list[tuple[int, int, State]] = []
    for time, node, event, value in zip(
        records.time.tolist(), records.node.tolist(), records.event.tolist(),
        records.value.tolist(), strict=True,
    ):  # fmt: skip
        is_end = kinds[event] in (State.BLOCKED, State.READY) and value == 0
        entries.append((time, node, State.RESUMED if is_end else kinds[event]))
    pieces = []
    begin = entries[0][0] if entries else 0
    if entries and entries[0][2] in (State.BLOCKED, State.READY):
        # The thread ran before its first wait, at a call path that is not known.
        pieces.append(Piece(int(db.lines.start[line]), begin, 0, 0))
    for (time, node, state), after in zip(entries, [*entries[1:], None], strict=True):
        if after is None:
            end = max(int(db.lines.end[line]), time)
        elif state == after[2] == State.SAMPLED:
            end = (time + after[0]) // 2
        elif state == State.RESUMED and after[2] == State.SAMPLED:
            end = time  # all the time since the wait is the sample's
        else:
            end = after[0]
        shown = 0 if state == State.RESUMED else int(state)
        pieces.append(Piece(begin, end, node, shown))
        begin = end
    return pieces


def pixels_near(pieces: list[Piece], begin: float, end: float) -> set[int]:
    """Return the pixels that may show a time from ``begin`` to ``end``, in ns."""
    shown = {piece.pixel for piece in pieces if piece.begin <= end and piece.end >= begin}
    # Pixels outside of a line's records show its first or its last.
    if pieces and end <= pieces[0].begin:
        shown.add(pieces[0].pixel)
    if pieces and begin >= pieces[-1].end:
        shown.add(pieces[-1].pixel)
    return shown
