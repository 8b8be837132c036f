"""The processes that run HotSpot: what the programs need to walk through their code."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from hpcd.bpf.kernel_targets import KernelTargets
from hpcd.daemon.access.patience import WithheldError
from hpcd.daemon.naming.module_mappings import MappedRuntime, ModuleMappings
from hpcd.daemon.runtimes.java.hotspot_layouts import (
    Heap,
    HotSpotLayout,
    kernel_entry,
    read_heaps,
    read_layout,
)
from hpcd.daemon.runtimes.java.resting_frames import RestingFrames
from hpcd.daemon.runtimes.java.vm_structs import UnknownStructuresError
from hpcd.daemon.runtimes.process_memory import ReadMemory, reader_of
from hpcd.daemon.unwind.runtime_symbols import JVM_STRUCTS, JVM_TYPES
from hpcd.model.region import Region

# Processes that are remembered: stacks of processes that have ended may be on their way.
_MOST_PROCESSES = 4096
_MOST_LAYOUTS = 1024
# A JVM has its code 0.1 s after it is mapped, or seconds where it waits for CPUs; programs may
# map it and make none. It is read again after this time, in seconds, or this part of the time since
# it was seen, if that is longer: some 90 times in the first hour.
_LEAST_PAUSE, _PAUSE = 0.01, 1 / 8


@dataclass(slots=True)
class JavaProcess:
    """A process that runs a HotSpot whose structures are known; ``entry`` is empty while it has no
    code."""

    layout: HotSpotLayout
    began: int
    entry: bytes = b""
    heaps: list[Heap] = field(default_factory=list)


class JavaProcesses:
    """Watches what targets map (:class:`hpcd.daemon.targets.process_table.MappingWatcher`), and has
    the programs take the Java frames of those that run HotSpot.

    ``lack`` is why the programs take no Java frames, "" if they do; ``user_of`` gives the user of a
    pid.
    """

    def __init__(
        self,
        mappings: ModuleMappings,
        kernel: KernelTargets,
        lack: str,
        user_of: Callable[[int], int],
    ) -> None:
        self._mappings = mappings
        self._kernel = kernel
        self._lack = lack
        self._user_of = user_of
        self._processes: OrderedDict[int, JavaProcess] = OrderedDict()
        self._layouts: dict[tuple[str, int, int], HotSpotLayout] = {}
        """By file and user: processes may change their own tables. Their address is relative to
        where the file is mapped."""
        self._due: dict[int, tuple[float, float]] = {}
        """When a process was first read, and when it is to be read again, by pid: until its JVM
        has code."""
        self.unknown: dict[str, str] = {}
        """Load modules whose Java frames are not taken, and why."""

    def get(self, pid: int) -> JavaProcess | None:
        """Return the process that last had this pid, if it runs HotSpot."""
        return self._processes.get(pid)

    def resting_frames(self, pid: int) -> RestingFrames | None:
        """Return what steps from Java frames of ``pid``'s threads that stand still, if it runs
        HotSpot that has code."""
        process = self._processes.get(pid)
        if process is None or not process.heaps:
            return None
        return RestingFrames(process.layout, process.heaps, reader_of(pid))

    def on_mapped(self, pid: int, regions: Iterable[Region], began: int, *, ended: bool) -> None:
        """Look for HotSpot in what ``pid`` maps, and for its code, which is there later."""
        known = self._processes.get(pid)
        if ended:
            return
        if known and known.began != began:  # it was another program
            self._kernel.forget_jvm(pid)
            self._due.pop(pid, None)
            known = self._processes.pop(pid, None) and None
        for region in regions:
            runtime = self._mappings.runtime_in(region)
            if runtime is None or JVM_STRUCTS not in runtime.symbols:
                continue
            now = time.monotonic()
            first, _ = self._due.get(pid, (now, now))
            self._due[pid] = first, now + max(_LEAST_PAUSE, _PAUSE * (now - first))
            try:
                self._recognise(pid, began, region, runtime)
            except UnknownStructuresError as error:
                # It is read again: the loader may not have relocated the tables yet.
                self.unknown[region.path] = f"no Java frames: {error}"
            except (OSError, WithheldError):
                pass  # it is read again
            return

    def unsettled(self) -> list[int]:
        """Return the processes that are to be read again now: their JVM had no code yet."""
        now = time.monotonic()
        return [pid for pid, (_, again) in self._due.items() if now >= again]

    def on_fork(self, parent: int, child: int) -> None:
        """``child`` runs what ``parent`` does."""
        process = self._processes.get(parent)
        if process and process.entry:
            self._keep(child, replace(process))
            self._kernel.set_jvm(child, process.entry)

    def on_exit(self, pid: int) -> None:
        """``pid`` has ended; stacks of it may still come."""
        self._due.pop(pid, None)

    def _keep(self, pid: int, process: JavaProcess) -> None:
        self._processes.pop(pid, None)
        self._processes[pid] = process
        if len(self._processes) > _MOST_PROCESSES:
            self._processes.popitem(last=False)

    def _recognise(self, pid: int, began: int, region: Region, runtime: MappedRuntime) -> None:
        """Tell the programs where the JVM of ``pid`` has its code."""
        if self._lack:
            raise UnknownStructuresError(self._lack)
        read = reader_of(pid)
        process = self._processes.get(pid)
        if process is None:
            layout = self._layout(pid, region, runtime, read)
            process = JavaProcess(layout, began)
            self._keep(pid, process)
        self.unknown.pop(region.path, None)
        heaps = read_heaps(read, process.layout)
        if not heaps:
            return
        self._due.pop(pid, None)
        entry = kernel_entry(process.layout, heaps).pack()
        if entry != process.entry:
            process.entry, process.heaps = entry, heaps
            self._kernel.set_jvm(pid, entry)

    def _layout(
        self, pid: int, region: Region, runtime: MappedRuntime, read: ReadMemory
    ) -> HotSpotLayout:
        key = region.device, region.inode, self._user_of(pid)
        layout = self._layouts.get(key)
        if layout is None:
            tables = [
                runtime.symbols.get(name, 0) + runtime.bias for name in (JVM_STRUCTS, JVM_TYPES)
            ]
            layout = read_layout(read, *tables)
            if len(self._layouts) >= _MOST_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[key] = layout._replace(heaps=layout.heaps - runtime.bias)
        return layout._replace(heaps=layout.heaps + runtime.bias)
