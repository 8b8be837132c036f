"""Recorded calls of the lines and time in view: totals, memory, and marks for the trace view.

Calls are stored by line and time, so what is in view is found by binary search on each line; a view
of very many calls is estimated from an even choice of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.analysis import Database
from hpcd.analysis.answers.call_groups import call_groups, memory_json
from hpcd.analysis.answers.json_form import json_form, rows
from hpcd.analysis.answers.messages_in_view import Traffic
from hpcd.analysis.calls.memory import ProcessMemory, measure_memory, memory_by_time
from hpcd.analysis.calls.totals import GROUPINGS, total_calls
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.array_types import I64, U64
from hpcd.errors import UsageError
from hpcd.kept_answers import KeptAnswers
from hpcd.model.calls import CalledFunction, Group, ValueKind
from hpcd.model.mpi_records import MISSING

# Calls added up for one table: about two seconds.
_MOST_CALLS = 2_000_000
_MOST_ROWS = 1000
_MOST_PROCESSES = 50
_MOST_PATHS = 200
_KEPT = 8  # answers

# Marks in a picture: more are a blur.
_MOST_MARKS = 1000
_COUNTED = 200_000
_MOST_MESSAGES = 400
_MOST_OPERATIONS, _MOST_ENTRIES = 60, 5000
# Of a database with more calls, messages are matched only once so few are in view.
_MATCHED_AT_ONCE = 500_000
_ZOOMED_IN = 20_000
# In a growing database all messages are matched anew in each revision.
_MATCHED_WHILE_GROWING = 50_000
# Calls of a line that are looked at although they began before the view.
_BEFORE = 8
_LONGEST_TEXT = 160


class CallViews:
    """The calls of one database. Lines are ``int64[n]``, times ns since the origin."""

    def __init__(
        self, db: Database, traffic: KeptAnswers[[], Traffic], *, growing: bool = False
    ) -> None:
        self._db = db
        self._growing = growing
        self._traffic = traffic
        self._totals = KeptAnswers(self._make_totals, _KEPT)
        self._memory = KeptAnswers(self._make_memory, _KEPT)

    def groups(self) -> dict[str, list[str]]:
        """Return the names of the recorded functions by their group."""
        groups: dict[str, list[str]] = {}
        for function in self._db.calls.functions:
            groups.setdefault(str(function.group), []).append(function.name)
        return groups

    def totals(
        self, lines: I64, t0: int, t1: int, by: str, group: str, function: str, phase: str = ""
    ) -> dict[str, Any]:
        """Totals of the calls of ``function``, or of those of ``group`` (empty: all), by ``by``;
        of those that begin in phases that ``phase`` says (empty: all).

        Raises :class:`UsageError`.
        """
        return self._totals(*self._window(lines, t0, t1), by, group, function, phase)

    def memory(self, lines: I64, t0: int, t1: int, *, by_time: bool = False) -> dict[str, Any]:
        """The memory of each process of ``lines``, or of all together over time. Raises
        :class:`UsageError`."""
        process = np.unique(self._db.lines.process[lines])
        return self._memory(process.tobytes(), *self._window(lines, t0, t1)[1:], by_time)

    def _window(self, lines: I64, t0: int, t1: int) -> tuple[bytes | None, int | None, int | None]:
        """The window as a key; None for all lines, and for all time either way."""
        return (
            None if len(lines) == len(self._db.lines) else np.sort(lines).tobytes(),
            None if t0 <= 0 else t0,
            None if t1 >= self._db.duration_ns else t1,
        )

    def _functions(self, group: str, name: str) -> list[CalledFunction]:
        functions = [
            function
            for function in self._db.calls.functions
            if (not group or function.group == group) and (not name or function.name == name)
        ]
        if not functions:
            raise UsageError("no such calls were recorded")
        return functions

    def _make_totals(
        self, key: bytes | None, t0: int | None, t1: int | None, by: str, group: str, name: str,
        phase: str,
    ) -> dict[str, object]:  # fmt: skip
        if by not in GROUPINGS:
            raise UsageError(f"calls are grouped by {', '.join(GROUPINGS)}")
        db, functions = self._db, self._functions(group, name)
        lines = None if key is None else np.frombuffer(key, np.int64).tolist()
        within = MarkedPhases(db, phase) if phase else None
        totals = total_calls(db, by, functions, t0, t1, lines, _MOST_CALLS, within)
        return {
            "by": by,
            "of": len(totals),
            "calls_of": int(totals.calls.sum()),
            "exact": self._count(functions, lines, t0, t1) <= _MOST_CALLS,
            "groups": call_groups(totals.first(_MOST_ROWS)),
        }

    def _count(
        self, functions: list[CalledFunction], lines: list[int] | None, t0: int | None,
        t1: int | None,
    ) -> int:  # fmt: skip
        """Return the number of calls of ``functions``, exact where that matters."""
        calls = self._db.calls
        _, begin, end = calls.spans(lines, t0, t1)
        count = int((end - begin).sum())
        if count <= _MOST_CALLS:
            return count
        wanted = calls.are(functions)
        return sum(
            int(np.count_nonzero(wanted[calls.function[low:high]]))
            for low, high in zip(begin.tolist(), end.tolist(), strict=True)
        )

    def _make_memory(
        self, key: bytes, t0: int | None, t1: int | None, by_time: bool
    ) -> dict[str, object]:
        process = np.frombuffer(key, self._db.lines.process.dtype).tolist()
        if by_time:
            answer: dict[str, object] = json_form(memory_by_time(self._db, process, t0, t1))
            return answer
        measured = measure_memory(self._db, process, t0, t1)
        return {
            "of": len(measured),
            "processes": [self._process(one) for one in measured[:_MOST_PROCESSES]],
        }

    def _process(self, memory: ProcessMemory) -> dict[str, object]:
        lines = self._db.lines
        line = int(np.flatnonzero(lines.process == memory.process)[0])
        return {
            **memory_json(memory, _MOST_PATHS),
            "name": lines.rows([line])[0].process,
            "rank": None if lines.rank[line] < 0 else int(lines.rank[line]),
            "line": line,
        }

    def marks(self, lines: I64, t0: int, t1: int) -> dict[str, object]:
        """Calls, messages and collective operations to be drawn over the trace lines ``lines``:
        of many an even choice, which is dense where they are."""
        calls = self._db.calls
        _, begin, end = calls.spans(np.sort(lines).tolist(), t0, t1)
        count = int((end - begin).sum())
        groups = self._groups_in(begin, end) if count <= _COUNTED else {"": count}
        # The rarest groups first: touched pages do not hide reads and writes.
        fewest = sorted((one for one in groups if one), key=lambda one: groups[one])
        drawn = [
            group
            for at, group in enumerate(fewest)
            if sum(groups[one] for one in fewest[: at + 1]) <= _MOST_MARKS
        ]
        traffic = self._known_traffic(count)
        return {
            "calls": groups,
            "drawn": drawn,
            "call": [
                *self._evenly_chosen([one for one in groups if one not in drawn], lines, t0, t1),
                *self._call_marks(calls.of_group(*drawn), lines, t0, t1),
            ],
            **_message_marks(traffic, lines, t0, t1),
            **_entry_marks(traffic, lines, t0, t1),
            "wait": [] if traffic is None else _wait_marks(traffic, lines, t0, t1),
        }

    def _groups_in(self, begin: I64, end: I64) -> dict[str, int]:
        """Return by group the number of calls from ``begin[i]`` to ``end[i]``."""
        calls = self._db.calls
        counts = np.zeros(len(calls.functions), np.int64)
        for low, high in zip(begin.tolist(), end.tolist(), strict=True):
            counts += np.bincount(calls.function[low:high], minlength=len(counts))
        groups: dict[str, int] = {}
        for function in calls.functions:
            count = 0 if function.is_part else int(counts[function.id])
            if count:
                group = str(function.group)
                groups[group] = groups.get(group, 0) + count
        return groups

    def _known_traffic(self, count: int) -> Traffic | None:
        """Messages, unless to match them would take long, or there are none."""
        if not self._db.calls.of_group(Group.MPI):
            return None
        recorded = len(self._db.calls)
        cheap = recorded <= _MATCHED_AT_ONCE or count <= _ZOOMED_IN
        if self._growing:
            cheap = recorded <= _MATCHED_WHILE_GROWING
        if not (cheap or self._traffic.ready):
            return None
        try:
            return self._traffic()
        except UsageError:  # no ranks
            return None

    def _call_marks(
        self, functions: list[CalledFunction], lines: I64, t0: int, t1: int
    ) -> list[dict[str, object]]:
        calls = self._db.calls
        functions = [function for function in functions if not function.is_part]
        if not functions:
            return []
        selected = [calls.select(np.sort(lines).tolist(), t0, t1, functions)]
        # Calls that began before and are not over, too.
        for line in lines[:_MOST_MARKS].tolist():
            first = int(calls.first[line])
            low = first + int(np.searchsorted(calls.time[first : int(calls.first[line + 1])], t0))
            earlier = slice(max(first, low - _BEFORE), low)
            if bool((calls.time[earlier] + calls.duration[earlier] >= t0).any()):
                before = calls.select([line], int(calls.time[earlier.start]), t0, functions)
                selected.append(before[before["time"] + before["duration"] >= t0])
        return list(self._described(np.concatenate(selected)))

    def _evenly_chosen(
        self, groups: Sequence[str], lines: I64, t0: int, t1: int
    ) -> Iterator[dict[str, object]]:
        """An even choice of the calls of each of ``groups``; of "": of all."""
        calls = self._db.calls
        is_part = np.array([function.is_part for function in calls.functions], bool)
        for group in groups:
            functions = calls.of_group(group) if group else None
            most = _MOST_MARKS // len(groups)
            some = calls.select(np.sort(lines).tolist(), t0, t1, functions, most)
            yield from self._described(some[~is_part[some["function"]]])

    def _described(self, selected: npt.NDArray[np.void]) -> Iterator[dict[str, object]]:
        functions = self._db.calls.functions
        for call in selected:
            function = functions[int(call["function"])]
            begin = int(call["time"])
            yield {
                "line": int(call["line"]),
                "begin": begin,
                "end": begin + int(call["duration"]),
                "group": str(function.group),
                "text": self._text(function, call["value"], int(call["weight"])),
            }

    def _text(self, function: CalledFunction, values: U64, weight: int) -> str:
        """A call in words: its function and its arguments."""
        parts = []
        for value, raw in zip(function.values, values.tolist(), strict=False):
            if raw == MISSING & (1 << 64) - 1 or value.kind in (ValueKind.HANDLE,):
                continue
            if value.kind is ValueKind.OBJECT:
                row = self._db.calls.objects.get(raw)
                if row:
                    parts.append(row.name)
            elif value.kind is ValueKind.SIGNED:
                parts.append(f"{value.name} {np.uint64(raw).astype(np.int64):,}")
            elif value.kind is ValueKind.FLOAT:
                parts.append(f"{value.name} {np.uint64(raw).view(np.float64):g}")
            elif value.kind is ValueKind.ADDRESS:
                parts.append(f"{value.name} {raw:#x}")
            elif raw or value.kind is ValueKind.NUMBER:
                parts.append(f"{value.name} {raw:,}")
        text = f"{function.name}({', '.join(parts)})"
        if len(text) > _LONGEST_TEXT:
            text = text[:_LONGEST_TEXT] + "…"
        return text + (f", stands for {weight:,} calls" if weight > 1 else "")


def _message_marks(traffic: Traffic | None, lines: I64, t0: int, t1: int) -> dict[str, object]:
    if traffic is None:
        return {"messages": None, "message": None}
    at = traffic.messages_between(lines, t0, t1)
    count = len(at)
    at = at[:: max(1, -(-count // _MOST_MESSAGES))]
    columns = (*traffic.message_lines, *traffic.message_times, traffic.message_size,
               traffic.message_tag)  # fmt: skip
    names = ("from", "to", "sent", "received", "bytes", "tag")
    marks = {name: column[at] for name, column in zip(names, columns, strict=True)}
    return {"messages": count, "message": rows(marks)}


def _entry_marks(traffic: Traffic | None, lines: I64, t0: int, t1: int) -> dict[str, object]:
    """Calls of collective operations, of many an even choice, those of one operation one after
    another."""
    if traffic is None:
        return {"collectives": None, "collective": None}
    at = np.sort(traffic.entries_on(lines, t0, t1))
    collectives = traffic.exchange.collectives
    instances, nth = np.unique(collectives.instance[at], return_inverse=True)
    count = len(instances)
    at = at[nth % max(1, -(-count // _MOST_OPERATIONS), -(-len(at) // _MOST_ENTRIES)) == 0]
    operations = traffic.exchange.recorded
    names = [function.name for function in operations.calls.functions]
    functions = operations.function[collectives.operation[at]].tolist()
    entries = {
        "operation": collectives.instance[at], "line": traffic.entry_line[at],
        "begin": traffic.entry_times[0][at], "end": traffic.entry_times[1][at],
        "function": [names[function] for function in functions],
    }  # fmt: skip
    return {"collectives": count, "collective": rows(entries)}


def _wait_marks(traffic: Traffic, lines: I64, t0: int, t1: int) -> list[dict[str, object]]:
    """The longest waits for other ranks, and the rank that each was for."""
    at = traffic.waits_on(lines, t0, t1)
    operations, waits = traffic.exchange.recorded, traffic.exchange.waits
    at = at[np.argsort(-waits.severity[at], kind="stable")[:_MOST_MARKS]]
    waiting = waits.operation[at]
    return rows({
        "line": operations.line[waiting], "begin": operations.begin[waiting],
        "end": operations.end[waiting], "rank": operations.rank[waits.delayer[at]],
    })  # fmt: skip
