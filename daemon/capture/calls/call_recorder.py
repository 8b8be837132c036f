"""Calls of recorded functions: from the programs' ring to the measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hpcd.array_types import I64
from hpcd.bpf.calls.memory_calls import RESIDENT
from hpcd.bpf.wire import Sample, SwitchEvent
from hpcd.daemon.capture.calls.held_calls import HeldCalls
from hpcd.daemon.capture.paths.stack_resolver import StackResolver
from hpcd.daemon.capture.paths.stand_ins import StandIns
from hpcd.daemon.capture.records.thread_lines import NO_LINE
from hpcd.daemon.capture.threads.thread_lifecycle import ThreadLifecycle
from hpcd.daemon.naming.file_objects import FileObjects
from hpcd.daemon.targets.lifecycle import AttachedThread
from hpcd.daemon.targets.resident_memory import resident_pieces
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import MAX_VALUES, CalledFunction


class CallRecorder:
    """Moves calls into a measurement: their threads become trace lines, their stacks CCT nodes."""

    def __init__(
        self,
        functions: Sequence[CalledFunction],
        threads: ThreadLifecycle,
        stacks: StackResolver,
        stand_ins: StandIns,
        writer: MeasurementWriter,
    ) -> None:
        self._threads = threads
        self._stacks = stacks
        self._writer = writer
        self._files = FileObjects()
        self._held = HeldCalls(stand_ins)
        self.recorded = 0
        """Calls taken from the ring and attributed."""
        self.dropped: Counter[str] = Counter()
        """Calls left out, by reason."""
        self.names = [function.name for function in functions]
        """Names of the functions, by id."""
        self._taken = np.zeros(len(functions), np.int64)
        for function in functions:
            writer.add_function(function)
        self._resident = next((one for one in functions if one.name == RESIDENT), None)

    def on_object(self, event: bytes) -> None:
        """A file that is seen for the first time."""
        self._writer.add_object(self._files.describe(event))

    def add_resident(self, thread: AttachedThread, line: int) -> None:
        """Record the memory that the process of ``thread``, on ``line``, held when it was attached
        to, if memory is recorded: calls without a path."""
        if self._resident is None:
            return
        pieces = resident_pieces(thread.pid)
        value = np.zeros((len(pieces), MAX_VALUES), np.uint64)
        for name, column in zip(("address", "touched"), pieces.T, strict=True):
            value[:, self._resident.value(name)] = column
        count = len(pieces)
        self._held.add(
            Calls(
                np.full(count, line, np.uint32), np.full(count, thread.time_ns, np.uint64),
                np.zeros(count, np.uint64), np.zeros(count, np.uint32),
                np.full(count, self._resident.id, np.uint16), np.ones(count, np.uint32), value,
            )
        )  # fmt: skip

    def drain_taken(self) -> I64:
        """Calls taken since the last time, by function."""
        taken, self._taken = self._taken, np.zeros_like(self._taken)
        return taken

    def take(self, calls: npt.NDArray[np.void]) -> list[Calls]:
        """The calls of this round, to be written once the stacks' nodes are: those whose paths are
        finished. Call after the round's stacks were added."""
        if not len(calls):
            return []
        reports = np.zeros(len(calls), Sample.dtype())
        for name in ("thread", "stack", "cache"):
            reports[name] = calls[name]
        # A call without a stack is looked up as a thread that arrives: it has none either.
        reports["event"][calls["stack"] == 0] = SwitchEvent.SWITCHED_IN
        node, line, forgotten, unknown = self._stacks.caches.look_up(
            reports, self._threads.numbered
        )
        known = line != NO_LINE
        if unknown:
            self.dropped["thread unknown"] += unknown
        if len(forgotten):
            node[forgotten] = 0
            self.dropped["path forgotten"] += int(np.count_nonzero(known[forgotten]))
        calls, node, line = calls[known], node[known], line[known]
        self.recorded += len(calls)
        # Those of probes, which have a budget of their own, come behind.
        paced = calls["function"][calls["function"] < len(self._taken)]
        self._taken += np.bincount(paced, minlength=len(self._taken))
        taken = Calls(
            line,
            calls["time"].copy(),
            calls["duration"].copy(),
            node,
            calls["function"].copy(),
            calls["weight"].copy(),
            calls["value"].copy(),
        )
        self._held.add(taken)
        return self.finished()

    def finished(self, *, last: bool = False) -> list[Calls]:
        """The calls whose paths are finished by now, and at the end the others too."""
        ready = self._held.finished(last=last)
        if self._held.without_path:
            self.dropped["path not finished"] = self._held.without_path
        return ready
