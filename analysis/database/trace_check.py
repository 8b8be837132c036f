"""Checking the trace of a database: every block is decoded, once, on all processors.

A database may have more records than there is memory, and more trace lines than records that fit a
block. So blocks are decoded a batch at a time, whatever lines they are of, and only what lines are
compared by is kept of each: a few bytes a block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpcd.analysis.database.database import Database
from hpcd.analysis.trace.blocks import damaged_block
from hpcd.analysis.trace.part import Part
from hpcd.array_types import I64, U16, Mask
from hpcd.kernels.library import kernels
from hpcd.masks import marked
from hpcd.measurement.codec import TIME_UNIT_NS
from hpcd.processors import processor_count

# Decoded, a batch is about 10 MB; larger ones are no faster.
_BATCH_BLOCKS = 256
# Decoding releases the interpreter lock most of the time; more threads than this wait for it.
_THREADS = min(processor_count(), 4)
# Batches after which the mapped pages of a part are given back, a few MB each.
_BATCHES_MAPPED = 16


class _Blocks(NamedTuple):
    """Figures of ``n`` decoded blocks.

    ``last`` ``int64[n]`` is the time of each one's last record in ticks; ``bad_node`` and
    ``bad_event`` ``bool[n]`` whether a record has a node or event the measurement does not;
    ``ends`` how many records only mark where an interval ends.
    """

    last: I64
    bad_node: Mask
    bad_event: Mask
    ends: int


def check_trace(
    db: Database,
    interval_events: U16,
    before_part: Callable[[Sequence[str], int], None] | None = None,
) -> tuple[list[str], int]:
    """Return the damage of the records of ``db``, and the number that only mark the end of an
    interval.

    Nodes and events must exist; times ascend within each line and lie within its life.
    ``interval_events`` are the ids of events whose records are intervals. ``before_part`` is called
    before each part is read, with the paths of all in the database's directory and the part's
    place among them. Raises :class:`FormatError` for a part or a block that cannot be decoded.
    """
    wrong: list[tuple[int, str]] = []
    ends = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        names = [str(path.relative_to(db.path)) for path in db.trace.part_paths]
        for number in range(len(names)):
            if before_part:
                before_part(names, number)
            part = db.trace.part(number)
            nodes, events = db.trace.part_mapping(number)
            intervals = np.flatnonzero(np.isin(events, interval_events))
            runs = _runs(part, db.trace.part_lines(number)[1])
            decoded = list(_decode(pool, part, runs, len(nodes), len(events), intervals))
            if decoded:
                last, bad_node, bad_event, counts = zip(*decoded, strict=True)
                blocks = _Blocks(
                    np.concatenate(last),
                    np.concatenate(bad_node),
                    np.concatenate(bad_event),
                    sum(counts),
                )
                ends += blocks.ends
                wrong += _check_lines(db, number, part, blocks)
            part.file.release()
    # Line by line, as they are numbered.
    return [f"trace line {line} {what}" for line, what in sorted(wrong)], ends


def _runs(part: Part, rows: npt.NDArray[np.integer]) -> list[tuple[slice, bool]]:
    """All blocks of ``part`` in stretches: of ``rows``, which are trace lines, and of others, which
    a measurement has in another part."""
    live = marked(len(part), rows)
    changes = np.flatnonzero(np.diff(live)) + 1
    bounds = part.lines.block[np.concatenate(([0], changes, [len(part)]))].tolist()
    firsts = [0, *changes.tolist()]
    return [
        (slice(low, high), bool(live[first]))
        for first, (low, high) in zip(firsts, pairwise(bounds), strict=True)
        if low < high
    ]


def _decode(
    pool: ThreadPoolExecutor, part: Part, runs: Sequence[tuple[slice, bool]], nodes: int,
    events: int, intervals: I64,
) -> Iterator[_Blocks]:  # fmt: skip
    """The blocks of ``part`` in order, decoded in ``pool`` a few batches ahead."""
    waiting: deque[Future[_Blocks]] = deque()
    batches = [
        (slice(at, min(at + _BATCH_BLOCKS, run.stop)), live)
        for run, live in runs
        for at in range(run.start, run.stop, _BATCH_BLOCKS)
    ]
    for batch, (selected, live) in enumerate(batches):
        waiting.append(pool.submit(_check_batch, part, selected, nodes, events, intervals, live))
        if len(waiting) > _THREADS:
            yield waiting.popleft().result()
        if batch % _BATCHES_MAPPED == 0:
            part.file.release()
    while waiting:
        yield waiting.popleft().result()


def _check_batch(
    part: Part, selected: slice, nodes: int, events: int, intervals: I64, live: bool
) -> _Blocks:
    """Return the last times and faults of the blocks ``selected``, without decoding them, and if
    they are ``live`` their number of interval ends. Raises :class:`FormatError`."""
    table = part.blocks
    least = np.array(table.least[selected])
    places = part.stored_places(selected).as_structure()
    count = len(least)
    length, bad_node = np.zeros(count, np.int64), np.zeros(count, bool)
    bad_event = np.zeros(count, bool)
    if not kernels.check_places(places, least, nodes, length, bad_node):
        raise damaged_block()
    interval = marked(events, intervals)
    codes = part.stored_codes(selected).as_structure()
    ends = kernels.check_codes(codes, interval, events, bad_event)
    if ends < 0:
        raise damaged_block()
    return _Blocks(table.base[selected] + length, bad_node, bad_event, ends if live else 0)


def _check_lines(db: Database, number: int, part: Part, blocks: _Blocks) -> list[tuple[int, str]]:
    """Return the damage of the lines of part ``number``, by line."""
    lines, rows = db.trace.part_lines(number)
    line_of_row, shift_of_row = np.full((2, len(part)), -1)
    line_of_row[rows], shift_of_row[rows] = lines, db.trace.shifts(lines)
    bounds = part.lines.block
    line = np.repeat(line_of_row, np.diff(bounds))
    shift = np.repeat(shift_of_row, np.diff(bounds))
    begin, end = part.blocks.base * TIME_UNIT_NS + shift, blocks.last * TIME_UNIT_NS + shift
    first = np.zeros(len(line), bool)
    filled = np.flatnonzero(np.diff(bounds))
    first[bounds[filled]] = True
    # What a block may not begin before: the block before it, or its line's life.
    earliest = np.concatenate(([0], end[:-1]))
    earliest[first] = db.lines.start[line[first]]
    final = np.append(first[1:], True)
    empty = lines[np.diff(bounds)[rows] == 0]
    wrong = {
        "has records of nodes that do not exist": line[blocks.bad_node],
        "has records of events that do not exist": line[blocks.bad_event],
        "is not in time order or begins too late": line[begin < earliest],
        "has records after its end": line[final & (end > db.lines.end[line])],
        "ends before it begins": empty[db.lines.start[empty] > db.lines.end[empty]],
    }
    return [
        (trace_line, what)
        for what, trace_lines in wrong.items()
        for trace_line in np.unique(trace_lines).tolist()
        if trace_line >= 0
    ]
