"""Tests for when processes that run HotSpot are read."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hpcd.daemon.naming.module_mappings import MappedRuntime
from hpcd.daemon.runtimes.java import java_processes
from hpcd.daemon.runtimes.java.hotspot_layouts import Heap, HotSpotLayout
from hpcd.daemon.runtimes.java.java_processes import JavaProcesses
from hpcd.daemon.runtimes.java.vm_structs import UnknownStructuresError
from hpcd.daemon.unwind.runtime_symbols import JVM_STRUCTS, JVM_TYPES
from hpcd.model.region import Region


def test_a_jvm_whose_tables_make_no_sense_yet_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As before the loader has relocated them, and then before there is code."""
    layout = HotSpotLayout(**dict.fromkeys(HotSpotLayout._fields, 0))
    layouts: list[HotSpotLayout | None] = [None, layout]
    heaps = [[], [Heap(4096, 4096, 8192, 7)]]
    seconds = 0.0
    monkeypatch.setattr(java_processes.time, "monotonic", lambda: seconds)

    def read_layout(*tables: object) -> HotSpotLayout:
        first = layouts.pop(0)
        if first is None:
            raise UnknownStructuresError("no field")
        return first

    monkeypatch.setattr(java_processes, "read_layout", read_layout)
    monkeypatch.setattr(java_processes, "read_heaps", lambda *_: heaps.pop(0))
    entries: dict[int, bytes] = {}
    runtime = MappedRuntime(0, {JVM_STRUCTS: 8, JVM_TYPES: 16}, 0)
    processes = JavaProcesses(
        cast("Any", SimpleNamespace(runtime_in=lambda region: runtime)),
        cast("Any", SimpleNamespace(set_jvm=entries.__setitem__)),
        "",
        lambda pid: 0,
    )
    pid, region = os.getpid(), Region(4096, 8192, 0, "0:1", 1, "/libjvm.so")
    for readings, unknown in (1, {region.path: "no Java frames: no field"}), (2, {}), (3, {}):
        processes.on_mapped(pid, [region], 0, ended=False)
        assert processes.unknown == unknown
        assert (pid in entries) == (readings == 3)
        assert processes.unsettled() == []
        # However late the process gets a CPU.
        seconds += 1000.0 ** (readings - 1)
        assert processes.unsettled() == ([] if readings == 3 else [pid])
