"""Phases that recorded calls mark: the time within calls of a function, or between two calls.

Each call has its thread, begin and duration, so a phase is worked out from the database, whatever
it was recorded for. Phases of one thread may lie in one another and may overlap: each moment
belongs to the innermost, the one that began last. One phase is marked by several functions
together: :data:`hpcd.analysis.profile.device_idle.DEVICE_IDLE`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.profile.device_idle import DEVICE_IDLE, idle_times
from hpcd.analysis.profile.phase_calls import PhaseCalls, nesting_depth
from hpcd.analysis.profile.phase_specs import PhaseSpec, parse_phase_specs
from hpcd.analysis.profile.time_segments import TimeSegments, ranges
from hpcd.array_types import I64, U64, Mask
from hpcd.errors import UsageError, did_you_mean
from hpcd.masks import marked
from hpcd.model.calls import CalledFunction, CallValue, ValueKind
from hpcd.rows import join_rows, take_rows

NO_PHASE = "[in no phase]"
"""The name of the time outside all phases."""
_MOST = 10_000


class MarkedPhases:
    """The phases of a database that calls mark.

    ``name`` of each group of phases, that of number 0 is :data:`NO_PHASE`; ``details`` what tells
    them apart, for JSON: the function and the values; ``alone`` what marks those of the group
    alone, as :func:`parse_phase_specs` takes it; ``family`` of each: a number for its
    function, 0 for none; ``lines`` ``int64[n]``: the trace lines that have any, ascending;
    ``notes`` what is not known. O(calls + m log m) to make, m calls that mark phases.
    """

    def __init__(self, db: Database, text: str) -> None:
        """Raises :class:`UsageError` where no call marks a phase of ``text``."""
        self.name = [NO_PHASE]
        self.details: list[dict[str, object]] = [{}]
        self.alone = [""]
        self.notes: list[str] = []
        self.family = [0]
        self._label = [""]
        self._db = db
        claimed: Mask = np.zeros(len(db.calls), bool)
        parts = [PhaseCalls.none()]
        for spec in parse_phase_specs(text):
            if spec == PhaseSpec(DEVICE_IDLE):
                parts.append(self._device_idle())
                continue
            of_spec = list(self._of_spec(spec, claimed))
            if not any(len(marks.line) for marks in of_spec):
                wanted = ", ".join(f"{name}={text}" for name, text in spec.values if text)
                fitting = f" has {wanted}" if wanted else " was recorded"
                raise UsageError(f"{db.path}: no call of {spec.begin}{fitting}")
            parts += of_spec
            if spec.shared:
                parts.append(join_rows(of_spec).shared(db.lines.process))
        marks = join_rows(parts)
        order = np.argsort(marks.line, kind="stable")
        self._marks = take_rows(marks, order)
        self.lines: I64 = np.unique(marks.line)
        self._first = np.searchsorted(self._marks.line, np.append(self.lines, len(db.lines)))

    def __len__(self) -> int:
        return len(self.name)

    def segments(self, line: int) -> TimeSegments:
        """The phases of trace line ``line`` by group, none within another. O(n log n)."""
        at = int(np.searchsorted(self.lines, line))
        if at == len(self.lines) or int(self.lines[at]) != line:
            return TimeSegments(*(np.zeros(0, np.int64) for _ in range(3)))
        mine = slice(int(self._first[at]), int(self._first[at + 1]))
        return TimeSegments.innermost(
            self._marks.begin[mine], self._marks.end[mine], self._marks.group[mine]
        )

    def count(self, lines: Mask, windows: TimeSegments | None = None) -> I64:
        """``int64[groups]``: how many calls on ``lines``, ``bool[lines]``, mark phases that lie in
        ``windows`` (None: always), if only in part. A call counts as those it stands for."""
        marks = self._marks
        inside = lines[marks.line]
        if windows is not None:
            after = np.searchsorted(windows.begin, marks.end, "left")
            inside &= after > np.searchsorted(windows.end, marks.begin, "right")
        counts = np.bincount(marks.group[inside], marks.weight[inside], len(self))
        return counts.astype(np.int64)

    def label(self, group: int, procedure: str) -> str:
        """Return the name of a context of ``procedure`` within phases of ``group``."""
        function, values = self.details[group]["phase"], self._label[group]
        if function in (procedure, procedure.partition("(")[0]):
            return f"{procedure} [{values}]" if values else procedure
        return f"{procedure} [{self.name[group]}]"

    def procedures(self, family: int) -> Mask:
        """``bool[procedures]``: those in which the calls were made that mark phases of ``family``:
        the function itself, or where a static tracepoint stands."""
        family_of = np.array(self.family)
        node = self._marks.node[family_of[self._marks.group] == family]
        return marked(len(self._db.procedures), self._db.procedure_of_node[node[node > 0]])

    def _of_spec(self, spec: PhaseSpec, claimed: Mask) -> Iterator[PhaseCalls]:
        """The calls of ``spec`` by function. None marks two phases: ``claimed`` is filled in."""
        calls = self._db.calls
        functions = _functions(self._db, spec.begin)
        ends = _functions(self._db, spec.end) if spec.end else []
        selected = np.isin(calls.function, [function.id for function in functions])
        at = np.flatnonzero(selected & ~claimed)
        line, begin = calls.line[at].astype(np.int64), np.asarray(calls.time[at])
        if spec.end is None:
            end = begin + calls.duration[at]
            if len(at) and not bool((end > begin).any()):
                raise UsageError(
                    f"calls of {spec.begin} have no duration: '{spec.begin}..NAME' names what"
                    f" ends the phase, '{spec.begin}..' lets the next begin it"
                )
            endless = int(np.count_nonzero(end <= begin))
            if endless:
                self.notes.append(
                    f"{endless:,} calls of {spec.begin} have no duration, as they were left"
                    " without a return: they are no phases"
                )
        elif ends:
            end = self._ends(
                line, begin, np.isin(calls.function, [function.id for function in ends])
            )
        else:
            last = np.append(line[1:] != line[:-1], True) if len(line) else np.zeros(0, bool)
            end = np.where(last, self._last(line), np.append(begin[1:], 0)[: len(begin)])
        thinned = at[calls.weight[at] > 1]
        if len(thinned):
            self.notes.append(
                f"of {spec.begin} {int(calls.weight[thinned].sum()) - len(thinned):,} calls were"
                f" not recorded to keep the budget: their time is {NO_PHASE}"
            )
        function_of = calls.function[at]
        for function in functions:
            mine = np.flatnonzero(function_of == function.id)
            group, fits = self._groups(spec, function, at[mine])
            mine = mine[fits]
            claimed[at[mine]] = True
            yield PhaseCalls(
                line[mine], begin[mine], end[mine], group[fits],
                calls.weight[at[mine]].astype(np.int64), calls.node[at[mine]].astype(np.int64),
            )  # fmt: skip

    def _device_idle(self) -> PhaseCalls:
        """The times in which the device of a process was idle, on all its threads."""
        calls, times = self._db.calls, idle_times(self._db)
        self.notes += times.notes
        if not len(times.begin):
            why = f"; {times.notes[0]}" if times.notes else ""
            raise UsageError(
                f"{self._db.path}: no call is known after which a device was idle (recorded with"
                f" --probes cuda or hip){why}"
            )
        self._add_group(DEVICE_IDLE, "", {}, DEVICE_IDLE)
        group = np.full(len(times.begin), len(self.name) - 1)
        own = PhaseCalls(
            calls.line[times.call].astype(np.int64), times.begin, times.end, group,
            np.ones(len(group), np.int64), calls.node[times.call].astype(np.int64),
        )  # fmt: skip
        process = np.asarray(self._db.lines.process).astype(np.int64)
        order = np.argsort(process, kind="stable")
        low = np.searchsorted(process[order], times.process)
        high = np.searchsorted(process[order], times.process, "right")
        which, at = ranges(low, high)
        copies = take_rows(own, which)
        line = order[at]
        away = line != copies.line
        moved = replace(copies, line=line, weight=np.zeros_like(copies.weight))
        return join_rows([own, take_rows(moved, away)])

    def _last(self, line: I64) -> I64:
        """Return ``int64[n]``: the end of phases that nothing ends, behind the last record of their
        lines."""
        last: I64 = self._db.lines.end[line] + 1
        return last

    def _ends(self, line: I64, begin: I64, is_end: Mask) -> I64:
        """When each phase that began at ``begin`` is ended by one of the calls ``is_end``, as
        brackets pair; by the end of its line where none ends it."""
        calls = self._db.calls
        at = np.flatnonzero(is_end)
        lines = np.concatenate([line, calls.line[at].astype(np.int64)])
        times = np.concatenate([begin, calls.time[at] + calls.duration[at]])
        opens = np.arange(len(lines)) < len(line)
        order = np.lexsort((~opens, times, lines))
        step = np.where(opens[order], 1, -1)
        first = np.flatnonzero(np.append(True, np.diff(lines[order]) != 0)) if len(order) else order
        depth = nesting_depth(step, first)
        level = np.where(step > 0, depth, depth + 1)
        level[(step < 0) & (depth == np.append(0, depth[:-1]))] = -1  # ends nothing
        level[first[step[first] < 0]] = -1
        by_level = np.lexsort((level, lines[order]))  # in each level by time
        follows = np.append(by_level[1:], 0)
        closed = (
            (step[by_level] > 0)
            & (step[follows] < 0)
            & (level[by_level] == level[follows])
            & (lines[order][by_level] == lines[order][follows])
            & (np.arange(len(by_level)) + 1 < len(by_level))
        )
        end = self._last(line)
        end[order[by_level[closed]]] = times[order[follows[closed]]]
        unended = int((step > 0).sum() - closed.sum())
        if unended:
            self.notes.append("phases that nothing ended last until the end of their threads")
        return end

    def _groups(self, spec: PhaseSpec, function: CalledFunction, at: I64) -> tuple[I64, Mask]:
        """The group of each of the calls ``at`` of ``function``, and which of them fit."""
        fits = np.ones(len(at), bool)
        numbers = [_number(function, name) for name, _ in spec.values]
        if not len(at):
            return np.zeros(0, np.int64), fits
        if not numbers:
            groups = self._new_groups(spec, function, [""], [{}])
            return groups[np.zeros(len(at), np.int64)], fits
        columns = np.stack([self._db.calls.value(number)[at] for number in numbers], axis=1)
        of_call = np.zeros(len(at), np.int64)
        for column in columns.T:
            words, word = np.unique(column, return_inverse=True)
            _, first, of_call = np.unique(
                of_call * len(words) + word, return_index=True, return_inverse=True
            )
        rows = columns[first]
        if len(self.name) + len(rows) > _MOST:
            raise UsageError(
                f"{function.name} was called with {len(rows):,} different values; phases are told"
                f" apart by {_MOST:,} at most"
            )
        texts, details, good = [], [], np.ones(len(rows), bool)
        for place, row in enumerate(rows):
            known = {}
            for (name, pattern), number, value in zip(spec.values, numbers, row, strict=True):
                known[name] = _worded(self._db, function.values[number], value)
                good[place] &= not pattern or fnmatchcase(str(known[name]), pattern)
            texts.append(" ".join(f"{name}={word}" for name, word in known.items()))
            details.append(known)
        kept = np.flatnonzero(good)
        group = np.zeros(len(rows), np.int64)
        group[kept] = self._new_groups(
            spec, function, [texts[n] for n in kept], [details[n] for n in kept]
        )
        return group[of_call], good[of_call]

    def _new_groups(
        self, spec: PhaseSpec, function: CalledFunction, texts: Sequence[str],
        details: Sequence[dict[str, Any]],
    ) -> I64:  # fmt: skip
        first, family = len(self.name), self.family[-1] + 1
        for text, words in zip(texts, details, strict=True):
            self._add_group(function.name, text, words, spec.alone(function.name, words))
            self.family[-1] = family
        return np.arange(first, len(self.name))

    def _add_group(self, name: str, text: str, words: dict[str, Any], alone: str) -> None:
        """A group of phases, and a family, of its own."""
        self.alone.append(alone)
        self._label.append(text)
        self.family.append(self.family[-1] + 1)
        self.name.append(f"{name} {text}".strip())
        self.details.append({"phase": name, "values": words})


def _functions(db: Database, pattern: str) -> list[CalledFunction]:
    recorded = db.calls.functions
    selected = [function for function in recorded if function.name == pattern]
    selected = selected or [one for one in recorded if fnmatchcase(one.name, pattern)]
    if not selected:
        if not recorded:
            raise UsageError(f"{db.path}: no calls were recorded; --probe of hpcd attach, run and"
                             " profile names functions that mark phases")  # fmt: skip
        near = did_you_mean(pattern.strip("*"), (function.name for function in recorded))
        raise UsageError(f"{db.path}: no calls of {pattern} were recorded{near}")
    return selected


def _number(function: CalledFunction, name: str) -> int:
    number = function.value(name)
    if number is None:
        names = ", ".join(value.name for value in function.values)
        raise UsageError(
            f"calls of {function.name} have no value {name}; recorded are {names or 'none'}"
        )
    return number


def _worded(db: Database, value: CallValue, bits: U64) -> int | str | float:
    """Return a value of a call, given by its ``bits``, as its kind has it: a number, an address in
    hex, or the name of an object."""
    number = int(bits)
    if value.kind in (ValueKind.SIGNED, ValueKind.ERROR):
        return number - (1 << 64) if number >> 63 else number
    if value.kind in (ValueKind.ADDRESS, ValueKind.HANDLE):
        return hex(number)
    if value.kind == ValueKind.FLOAT:
        return float(struct.unpack("<d", struct.pack("<Q", number))[0])
    if value.kind == ValueKind.OBJECT:
        known = db.calls.objects.get(number)
        return known.name if known else "[unknown]"
    return number
