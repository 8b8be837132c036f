"""The probes of one recording, from the options to the summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from hpcd.bpf.calls.probe_maps import MAX_BLOCKS, ProbeMaps
from hpcd.bpf.calls.uprobes import Uprobes
from hpcd.bpf.kernel import syscalls
from hpcd.bpf.wire import HeapRole
from hpcd.daemon.probes.probe_budget import FunctionCost, ProbeBudget
from hpcd.daemon.probes.probe_rights import ProbeRights
from hpcd.daemon.probes.probe_spec import ProbeSpec
from hpcd.daemon.probes.probed_files import ProbedFiles
from hpcd.daemon.probes.probed_functions import ProbedFunctions
from hpcd.daemon.targets.jobs import place
from hpcd.daemon.targets.process_identity import environment_of
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.measurement.summary import ProbeCounts, ProbesSummary
from hpcd.model.calls import CalledFunction, Group
from hpcd.model.mpi_records import MAX_COUNTS
from hpcd.model.region import Region

_MOST_PROBLEMS = 200
ALLOCATIONS_A_SECOND = 10_000
"""Bound on allocations recorded a second, and as many frees: 10 % of a CPU."""


class Probes:
    """Attaches probes to files that targets map, and reports the outcome.

    ``programs`` are the loaded programs' descriptors, ``first_number`` is the first free number of
    a recorded function, ``announce`` takes each function that is probed.
    """

    def __init__(
        self,
        specs: Sequence[ProbeSpec],
        maps: ProbeMaps,
        programs: dict[str, int],
        first_number: int,
        announce: Callable[[CalledFunction], None],
        *,
        rights: ProbeRights | None,
        share: float | None,
    ) -> None:
        """``share`` of the targets' CPU time is the probes' budget; None: unbounded. ``rights``
        are the requesting user's; None: root's."""
        self._budget = ProbeBudget(share)
        self._heap_budget = ProbeBudget(share, most=ALLOCATIONS_A_SECOND)
        self._ended: set[int] = set()
        self._heap_calls = 0
        self._maps = maps
        self._of_mpi = any(spec.group == Group.MPI for spec in specs)
        self._of_heap = any(spec.heap for spec in specs)
        self._problems: dict[str, None] = {}
        self._decoder = Decoder(probing=True)
        self._uprobes = Uprobes(programs)
        self._functions = ProbedFunctions(
            maps, first_number, announce, self._add_problem, rights.functions if rights else None
        )
        self._files = ProbedFiles(
            specs,
            self._functions,
            self._uprobes,
            self._decoder,
            self._add_problem,
            rights=rights,
        )

    def _add_problem(self, line: str) -> None:
        if len(self._problems) < _MOST_PROBLEMS:
            self._problems[line] = None

    def start(self) -> None:
        """Start the reader of files, which takes a while."""
        self._decoder.start()

    def prepare(self, paths: Iterable[Path], pid: int) -> None:
        """Attach to files that process ``pid`` is about to map, and to files that probes name by
        path: the first call is recorded too."""
        self._files.prepare([*paths, *self._files.named_by_path()], pid)

    def on_mapped(self, pid: int, regions: Iterable[Region], began: int, *, ended: bool) -> None:
        """Attach to the files of ``regions``, executable mappings of target ``pid``, which has run
        its program since ``began`` (ns), or until it ``ended``."""
        if self._of_mpi and not ended:
            size = place(environment_of(pid)).size or 0
            # Larger communicators are left out entirely rather than recorded in part.
            self._functions.read_entries(size if size <= MAX_COUNTS else 0)
        self._files.on_mapped(pid, regions, began, ended=ended)

    def on_fork(self, parent: int, child: int) -> None:
        """Attach to process ``child`` of target ``parent``, whose mappings it has."""
        self._files.on_fork(parent, child)

    def on_exit(self, pid: int) -> None:
        """Detach from process ``pid``, which has ended, or is a target no longer."""
        self._files.on_exit(pid)
        self._ended.add(pid)

    def keep_to_limits(self, now: float, targets: float) -> None:
        """Spare processes that are no targets, and keep to the budget. Call once a flush, at
        ``now`` (seconds), when targets have used ``targets`` CPU seconds."""
        self._files.spare_others(now)
        self._files.attach_postponed()
        for change in self._budget.step(now, targets, self._costs(heap=False)):
            function = self._functions.all[change.index]
            if change.one_in:
                self._functions.set_one_in(function, max(change.one_in, function.spec.one_in))
            else:
                function.let_go = True
                self._functions.stop([function])
                self._files.let_go(change.index)
        heap = self._costs(heap=True)
        for change in self._heap_budget.step(now, targets, heap):
            # Heap functions are never dropped: without its frees memory would seem to leak.
            function = self._functions.all[change.index]
            self._functions.set_one_in(function, change.one_in or 2 * function.one_in)
        self._drop_blocks(sum(cost.recorded for cost in heap))

    def _costs(self, *, heap: bool) -> list[FunctionCost]:
        return [
            FunctionCost(
                function.index,
                int(count["hits"]),
                int(count["recorded"]),
                function.one_in,
                function.spec.expendable,
            )
            for function in self._functions.all
            if not function.let_go
            and bool(function.spec.heap) == heap
            # As many frees are recorded as blocks.
            and function.spec.heap is not HeapRole.FREES
            for count in self._maps.counts(function.index)
        ]

    def _drop_blocks(self, calls: int) -> None:
        """Drop blocks of ended processes before the map is full: when
        ``calls`` of the heap have grown by a good part of it since the last time."""
        if self._ended and calls - self._heap_calls > MAX_BLOCKS // 4:
            self._maps.drop_blocks(self._ended)
            self._heap_calls = calls
            self._ended.clear()

    def detach(self) -> None:
        """Detach everything; counts can still be requested, and are final."""
        self._functions.stop(self._functions.all)
        syscalls.wait_for_running_programs()
        self._files.close()

    def close(self) -> None:
        """Detach everything and end."""
        self._files.close()
        self._decoder.close()

    def summary(self, *, final: bool = False) -> ProbesSummary:
        """Count the probed functions' calls, and list failures."""
        functions = []
        for function in self._functions.all:
            count = self._maps.counts(function.index)[0]
            functions.append(
                ProbeCounts(
                    name=function.name,
                    library=function.library,
                    group=function.spec.group,
                    one_in=function.one_in,
                    let_go=function.let_go,
                    **{name: int(count[name]) for name in COUNTED},
                )
            )
        problems = [*self._problems, *self._files.probed_late()]
        problems += self._files.unmet() if final else ()
        if final and self._of_heap and not any(one.group == Group.HEAP for one in functions):
            problems.append("--heap: targets have mapped no known allocator")
        return ProbesSummary(tuple(functions), tuple(problems))


COUNTED = (
    "hits", "recorded", "returned", "left", "unpaired", "lost", "unreadable", "unsuccessful",
)  # fmt: skip
"""Counters of each function in the summary: see ``struct probe_count`` of bpf/programs."""
