"""The replay of a run with parts of it shortened: how much sooner it would end.

A run is a graph: trace lines run and wait, a wait ends when another line comes to where it ended
it, and a line begins when its creator comes to where it created it. The replay goes through these
events in order of time. A wait ends in it once both lines have come to it, and the time that the
woken line then waited for a CPU is added as measured. Waits that no recorded line ended last as
long as they did, and so does waiting for a CPU elsewhere: as if CPUs were as free as they were.
Without anything shortened, the replay is the run itself.

Which contexts a run on a CPU was in is known by samples. Short runs have none or few: all runs
that lie between waits in the same two contexts share theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.analysis.database import Database
from hpcd.analysis.roles.role import NameRole, have
from hpcd.analysis.waits.path_steps import NO_LINE, creators
from hpcd.analysis.waits.rank_messages import NO_NEEDS, Needs, RankMessages, read_edges
from hpcd.analysis.waits.requested_events import with_requests
from hpcd.analysis.waits.run_end import last_lines
from hpcd.analysis.waits.wait_chains import Cause, Pieces, read_pieces, user_nodes
from hpcd.analysis.waits.wait_edges import MESSAGE, WaitEdges
from hpcd.array_types import F64, I64, U8, U32, Mask
from hpcd.kernels.library import CStructure, kernels, structure, structure_dtype
from hpcd.model.codes import Waker
from hpcd.rows import take_rows

# Time between two waits with this many samples has its own shares; they are right to 12 points.
_OWN_SAMPLES = 16
# Records are in µs, waits in ns.
_UNIT_NS = 1_000


@dataclass(frozen=True, slots=True)
class Runs:
    """Holds when lines were on a CPU, of each in order of time, without overlaps: ``first``
    ``int64[lines + 1]``; ``begin``, ``end`` ``int64[n]`` ns; ``group`` ``uint32[n]``, those that
    share their samples."""

    first: I64
    begin: I64
    end: I64
    group: U32


@dataclass(frozen=True, slots=True)
class Wakes:
    """Holds ends of waits that other lines brought about, and creations, in order of ``time``
    ``int64[n]`` ns: ``line`` ``uint32[n]`` waited since ``begin`` ``int64[n]`` until all had come
    to the meeting ``needs`` ``uint32[n]``, and was on a CPU at ``ready`` ``int64[n]``; with
    ``born`` ``uint8[n]`` it was created. ``post_line`` ``uint32[m]`` came to the meeting
    ``post_to`` ``uint32[m]``, of ``meetings``, at ``post_time`` ``int64[m]``, in order of time."""

    time: I64
    begin: I64
    ready: I64
    line: U32
    needs: U32
    born: U8
    post_time: I64
    post_line: U32
    post_to: U32
    meetings: int


@dataclass(frozen=True, slots=True)
class Samples:
    """Holds how many samples ``count`` ``int64[k]`` were in the context ``node`` ``uint32[k]``
    during the runs of ``group`` ``uint32[k]``; ``total`` ``int64[groups]`` are all of a group.
    ``on_cpu`` ``float64[groups]`` is the share of its runs in which it did not wait: waits that are
    short are parts of runs."""

    group: U32
    node: U32
    count: I64
    total: I64
    on_cpu: F64

    def mean(self, weight: F64) -> F64:
        """``float64[groups]``: the mean of a ``weight`` ``float64[nodes]`` of contexts in each
        group's runs, in which it is 0 while they wait."""
        return self._sum(weight) / np.maximum(self.total, 1) * self.on_cpu

    def variance(self, weight: F64) -> F64:
        """``float64[groups]``: the variance of :meth:`mean`, of groups in which it is not 0: that
        of a binomial share. Two samples more, with the least and the greatest weight, keep a few
        samples that agree from being taken for certain."""
        count = self.total + 2
        most = float(weight.max(initial=0))
        sums = self._sum(weight)
        mean = (sums + most) / count
        square = (self._sum(weight * weight) + most * most) / count
        variance: F64 = np.where(sums > 0, (square - mean * mean) / count, 0) * self.on_cpu**2
        return variance

    def by_node(self, ns: F64, nodes: int) -> F64:
        """``float64[nodes]``: what each context has of ``ns`` ``float64[groups]`` of runs."""
        per_sample = ns * self.on_cpu / np.maximum(self.total, 1)
        return sum_by(self.node, self.count * per_sample[self.group], nodes)

    def _sum(self, weight: F64) -> F64:
        return sum_by(self.group, self.count * weight[self.node], len(self.total))


class Replay:
    """Replays a run. ``start``, ``stop`` ``int64[lines]`` are when each line began and ended, ns
    since the origin; ``groups`` is the number of groups of ``runs``. ``needs`` of ranks are among
    ``wakes``."""

    def __init__(
        self, runs: Runs, wakes: Wakes, start: I64, stop: I64, groups: int, needs: Needs = NO_NEEDS
    ) -> None:
        lines = len(start)
        self.runs, self.stop, self.needs = runs, stop, needs
        self._wakes, self._start = wakes, start
        self._groups = groups
        self._saved: F64 = np.zeros(max(groups, 1))
        self._shortened: U8 = np.ones(lines, np.uint8)
        self._places = np.zeros(lines, structure_dtype("place"))
        self._meetings = np.zeros(max(wakes.meetings, 1), structure_dtype("meeting"))
        events = len(wakes.time)
        self._run: CStructure = structure(
            "replay", run_first=runs.first, run_begin=runs.begin, run_end=runs.end,
            run_group=runs.group, saved=self._saved, shortened=self._shortened, start=start,
            stop=stop, post_time=wakes.post_time, post_line=wakes.post_line, post_to=wakes.post_to,
            event_time=wakes.time, event_begin=wakes.begin, event_ready=wakes.ready,
            event_line=wakes.line, event_needs=wakes.needs, event_born=wakes.born,
            before=np.zeros(events, np.int64), woken=np.zeros(events, np.uint8),
            meetings=wakes.meetings, posts=len(wakes.post_time), events=events, lines=lines,
        )  # fmt: skip

    def by_run(self) -> Replay:
        """Return a replay of the same in which each run is a group of its own."""
        runs = replace(self.runs, group=np.arange(len(self.runs.group), dtype=np.uint32))
        return Replay(runs, self._wakes, self._start, self.stop, len(runs.group), self.needs)

    def ends(self, saved: F64, lines: Mask) -> F64:
        """``float64[lines]``: when each line ends, ns since the origin, if the runs of each group
        are shorter by a share ``saved`` ``float64[groups]`` on ``lines`` ``bool[lines]``.

        O(runs + events).
        """
        self._saved[: self._groups] = saved
        self._shortened[:] = lines
        ends = np.zeros(len(lines))
        kernels.replay_waits(self._run, self._places, self._meetings, ends)
        return ends

    def on_path(self, line: int) -> F64:
        """``float64[groups]``: the ns of runs, as measured, that the end of ``line`` depended on in
        the last replay, on lines that were shortened there. O(runs + events)."""
        ns = np.zeros(len(self._saved))
        kernels.replayed_path(self._run, self._places, self._meetings, line, ns)
        return ns[: self._groups]


def read_replay(db: Database) -> tuple[Replay, Samples, I64]:
    """Return ``db``'s run to replay, its samples, and the lines whose last end is the run's end.
    Raises :class:`FormatError`.

    O(n log n) in waits and records.
    """
    messages = RankMessages(db)
    waits = read_edges(db, messages)
    pieces = read_pieces(db, np.arange(len(db.lines)), user_nodes(db), messages, waits)
    edges = with_requests(db, waits)
    start = db.lines.start.astype(np.int64)
    has = np.flatnonzero(np.diff(pieces.first))
    start[has] = np.minimum(start[has], pieces.begin[pieces.first[has]])
    creator = creators(db)
    born = np.flatnonzero(creator != NO_LINE)
    creator[born[start[creator[born]] >= start[born]]] = NO_LINE
    runs, samples = _SampledRuns(db, pieces, edges, messages, start, creator).read()
    stop = start.copy()
    running = np.flatnonzero(np.diff(runs.first))
    stop[running] = np.maximum(runs.end[runs.first[running + 1] - 1], start[running])
    needs = messages.needs()
    wakes = wakes_of(edges, needs, runs, start, creator)
    replay = Replay(runs, wakes, start, stop, len(samples.total), needs)
    return replay, samples, last_lines(db, stop)


class _SampledRuns:
    """Runs of all lines, and the samples in them.

    A line's time is cut where it began or ended to wait, ended the wait of another line, or created
    one. What lies between two such places is the same code each time, and shares its samples; where
    there are many, it is cut further, and each part has its own.
    """

    def __init__(
        self, db: Database, pieces: Pieces, waits: WaitEdges, messages: RankMessages, start: I64,
        creator: I64,
    ) -> None:  # fmt: skip
        self._db, self._messages = db, messages
        self._spins = take_rows(waits, waits.kind == MESSAGE)
        # Sums of short waits come up to a second later: of who yields while it spins these are
        # most, and none of the work that follows.
        in_mpi = have(db.roles, NameRole.COMMUNICATION)[db.procedure_of_node]
        in_mpi[0] = False
        self._in_mpi = db.cct.innermost(in_mpi) > 0
        self._first, self._begin, self._end = _runs(pieces)
        self._nodes = len(db.cct)
        self._sampled, self._short = _events(db)
        self._own = 0
        user = user_nodes(db)[waits.node].astype(np.int64)
        line = waits.line
        woken = np.flatnonzero(waits.waker >= 0)
        born = np.flatnonzero(creator != NO_LINE)
        lines = np.concatenate([line, line, waits.waker[woken], creator[born]])
        times = np.concatenate([waits.begin, waits.end, waits.end[woken], start[born]])
        code = np.concatenate([
            user, user + self._nodes, user[woken] + 2 * self._nodes,
            np.full(len(born), 3 * self._nodes),
        ])  # fmt: skip
        order = np.lexsort((times, lines))
        self._cuts, self._codes = times[order], code[order]
        self._cut_first = np.searchsorted(lines[order], np.arange(len(db.lines) + 1))

    def read(self) -> tuple[Runs, Samples]:
        """Return them. Raises :class:`FormatError`."""
        lines = len(self._db.lines)
        parts = [self._line(line) for line in np.flatnonzero(np.diff(self._first)).tolist()] or [
            (np.zeros(0, np.int64),) * 6 + (np.zeros(0),)
        ]
        begin, end, key, line_of_run = (
            np.concatenate([part[column] for part in parts]) for column in range(4)
        )
        counts = np.cumsum([0, *(len(part[0]) for part in parts)])[:-1]
        run = np.concatenate([part[4] + at for part, at in zip(parts, counts, strict=True)])
        node = np.concatenate([part[5] for part in parts])
        waited = np.concatenate([part[6] for part in parts])
        _, group = np.unique(key, return_inverse=True)
        kinds = int(group.max(initial=-1)) + 1
        # Those without a sample have the line's.
        bare = np.bincount(group[run], minlength=kinds)[group] == 0
        group = np.where(bare, kinds + line_of_run, group)
        missing = np.zeros(lines, bool)
        missing[line_of_run[bare]] = True
        also = missing[line_of_run[run]]
        of_sample = np.concatenate([group[run], kinds + line_of_run[run][also]])
        keys, number = np.unique(
            of_sample * self._nodes + np.concatenate([node, node[also]]), return_counts=True
        )
        count = kinds + lines
        length = np.maximum(np.bincount(group, end - begin, count), 1)
        return Runs(
            np.searchsorted(line_of_run, np.arange(lines + 1)).astype(np.int64),
            begin, end, group.astype(np.uint32),
        ), Samples(
            (keys // self._nodes).astype(np.uint32), (keys % self._nodes).astype(np.uint32),
            number, np.bincount(of_sample, minlength=count),
            np.clip(1 - np.bincount(group, waited, count) / length, 0, 1),
        )  # fmt: skip

    def _line(self, line: int) -> tuple[I64, I64, I64, I64, I64, I64, F64]:
        """A line's runs, cut: begins, ends, keys and the line; of each sample the run and its
        context; of each run the ns in which it waited shortly."""
        own = slice(self._first[line], self._first[line + 1])
        begin, end = self._begin[own], self._end[own]
        records = self._db.records(line)
        when = self._messages.on_one_clock(np.full(len(records), line), records.time)
        spins = self._spins.of(line)
        spin_begin, spin_end = self._spins.begin[spins], self._spins.end[spins]

        def works(time: I64) -> Mask:
            at = np.searchsorted(spin_begin, time, "right")
            working: Mask = np.append(np.iinfo(np.int64).min, spin_end)[at] <= time
            return working

        # A sample represents the time before it.
        working = works(when - 1)
        taken = self._sampled[records.event] & working
        time, node = when[taken], records.node[taken].astype(np.int64)
        cuts, keys = self._keys(line, time)
        at = np.searchsorted(begin, cuts, "right") - 1
        inside = np.unique(cuts[(at >= 0) & (cuts > begin[at]) & (cuts < end[at])])
        begin, end = np.sort(np.append(begin, inside)), np.sort(np.append(end, inside))
        kept = works(begin)
        begin, end = begin[kept], end[kept]
        key = keys[np.searchsorted(cuts, begin + np.minimum(_UNIT_NS, (end - begin) // 2), "right")]
        run = np.maximum(np.searchsorted(begin, when) - 1, 0)
        waits = (self._short[records.event] > 0) & working & (len(begin) > 0)
        if len(spin_begin):
            waits &= ~self._in_mpi[records.node]
        taken &= len(begin) > 0
        waited = sum_by(
            run[waits], records.value[waits] * self._short[records.event[waits]], len(begin)
        )
        return begin, end, key, np.full(len(begin), line), run[taken], node, waited

    def _keys(self, line: int, time: I64) -> tuple[I64, I64]:
        """The times at which a line with samples at ``time`` is cut, and a key of each part."""
        cut = slice(self._cut_first[line], self._cut_first[line + 1])
        cuts, codes = self._cuts[cut], self._codes[cut] + 1
        keys = np.append(0, codes) * (4 * self._nodes + 1) + np.append(codes, 0)
        between = np.searchsorted(cuts, time)
        first = np.searchsorted(between, between)
        last = np.searchsorted(between, between, "right")
        rank = np.arange(len(time)) - first + 1
        many = last - first >= _OWN_SAMPLES
        chunk = many & (rank % _OWN_SAMPLES == 0) & (last - first - rank >= _OWN_SAMPLES)
        added = np.flatnonzero(chunk)
        place = between[added]
        # Each part ahead of an added cut has a key of its own, and so has the last part.
        owned = np.unique(between[many])
        keys[owned] = -1 - self._own - np.arange(len(owned))
        self._own += len(owned)
        new = -1 - self._own - np.arange(len(added))
        self._own += len(added)
        return np.insert(cuts, place, time[added]), np.insert(keys, place, new)


def _runs(pieces: Pieces) -> tuple[I64, I64, I64]:
    """Times on a CPU, whatever the context: the first of each line, begins and ends."""
    line = np.repeat(np.arange(len(pieces.first) - 1), np.diff(pieces.first))
    ran = pieces.kind == Cause.THREAD
    new = ran.copy()
    new[1:] &= ~ran[:-1] | (pieces.begin[1:] != pieces.end[:-1]) | (line[1:] != line[:-1])
    begins = np.flatnonzero(new)
    last = ran.copy()
    last[:-1] &= ~ran[1:] | new[1:]
    first = np.searchsorted(line[begins], np.arange(len(pieces.first)))
    return first.astype(np.int64), pieces.begin[begins], pieces.end[np.flatnonzero(last)]


def _events(db: Database) -> tuple[Mask, F64]:
    """``bool[events]``: which are samples of time on a CPU; ``float64[events]``: the ns that a unit
    of each is which sums short waits, else 0."""
    rows = db.rows("SELECT id, name, metric, scale, interval FROM event")
    count = max((int(row[0]) for row in rows), default=0) + 1
    sampled, short = np.zeros(count, bool), np.zeros(count)
    for number, name, metric, scale, interval in rows:
        sampled[number] = metric == "cpu_time" and not interval
        if name in ("short-blocked", "short-runnable"):
            short[number] = float(scale) * 1e9
    return sampled, short


def wakes_of(waits: WaitEdges, needs: Needs, runs: Runs, start: I64, creator: I64) -> Wakes:
    """Return the ends of ``waits`` by other lines, those of ``needs`` of ranks, and creations:
    ``creator`` ``int64[lines]`` created each line at ``start`` ``int64[lines]``,
    :data:`~hpcd.analysis.waits.path_steps.NO_LINE` if not known."""
    waits = take_rows(waits, waits.kind != MESSAGE)
    ended = (waits.kind == Waker.THREAD) & (waits.waker >= 0) & (waits.waker != waits.line)
    ended &= waits.begin < waits.end
    born = np.flatnonzero(creator != NO_LINE)
    meetings = needs.meetings + np.cumsum(ended) - 1
    of_born = needs.meetings + int(ended.sum()) + np.arange(len(born))
    line = np.concatenate([waits.line, needs.line])
    begin, time = np.concatenate([[waits.begin, waits.end], [needs.begin, needs.time]], axis=1)
    kept = np.concatenate([ended, np.ones(len(needs.line), bool)])
    meeting = np.concatenate([meetings, needs.meeting])
    order = np.lexsort((time, begin, line))
    line, begin, time, kept, meeting = (
        column[order] for column in (line, begin, time, kept, meeting)
    )
    ready = np.where(kept, _ready(line, begin, time, runs), time)
    columns = [
        np.concatenate([of_births, of_waits[kept]])
        for of_births, of_waits in (
            (start[born], time), (start[born], begin), (start[born], ready), (born, line),
            (of_born, meeting), (np.ones(len(born), np.int64), np.zeros(len(line), np.int64)),
        )
    ]  # fmt: skip
    posts = [
        np.concatenate([needs.member_time, waits.end[ended], start[born]]),
        np.concatenate([needs.member_line, waits.waker[ended], creator[born]]),
        np.concatenate([needs.member_meeting, meetings[ended], of_born]),
    ]
    of_time, of_post = np.argsort(columns[0], kind="stable"), np.argsort(posts[0], kind="stable")
    time, begin, ready, line, meeting, births = (column[of_time] for column in columns)
    post_time, post_line, post_to = (column[of_post] for column in posts)
    return Wakes(
        time, begin, ready, line.astype(np.uint32), meeting.astype(np.uint32),
        births.astype(np.uint8), post_time, post_line.astype(np.uint32), post_to.astype(np.uint32),
        needs.meetings + int(ended.sum()) + len(born),
    )  # fmt: skip


def _ready(line: I64, begin: I64, time: I64, runs: Runs) -> I64:
    """``int64[n]``: when each line was on a CPU after its wait from ``begin`` to ``time``; they are
    by line, in order of time."""
    ready = time.copy()
    bounds = np.searchsorted(line, np.arange(len(runs.first)))
    for number in np.unique(line).tolist():
        own = slice(bounds[number], bounds[number + 1])
        of_line = slice(runs.first[number], runs.first[number + 1])
        at = np.searchsorted(runs.end[of_line], time[own] + _UNIT_NS, "right")
        # It is on a CPU with the run that follows; without one, it waits for a CPU to the end.
        known = at < of_line.stop - of_line.start
        ready[own][known] = np.maximum(ready[own][known], runs.begin[of_line][at[known]])
    follows = np.full(len(line), np.iinfo(np.int64).max)
    follows[:-1] = np.where(line[1:] == line[:-1], begin[1:], follows[:-1])
    return np.where(begin < time, np.maximum(np.minimum(ready, follows), time), time)
