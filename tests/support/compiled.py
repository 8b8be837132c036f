"""A database of a real program with debug information, without recording it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from hpcd.analysis.merge.stages import merge
from hpcd.elf.elf_file import ElfFile
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.paths import ROOT

PROGRAM = ROOT / "tests/programs/hot.cpp"


def compiled(folder: Path, source: Path = PROGRAM, *flags: str, first: int = 1) -> Path:
    """One sample at every third byte of a program's code, below its own entry: ``folder/db``.

    The program is ``folder/hot``, compiled with ``flags``, the measurement ``folder/m``. The first
    byte has ``first`` samples.
    """
    program = folder / "hot"
    subprocess.run(["g++", "-g", "-O2", *flags, "-o", str(program), str(source)], check=True)
    with ElfFile.open(program) as elf:
        (text,) = [section for section in elf.sections if section.name == ".text"]
        build_id = elf.build_id()
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "ns", 1e6, "cpu_time", 1000))
    writer.add_process(Process(0, 7, 1, "hot", str(program), ("hot",), 0, 10**9))
    writer.add_thread(Thread(0, 0, 7, "hot", 10**9))
    writer.add_module(Module(1, ModuleKind.ELF, str(program), build_id))
    writer.add_clock_pair(10**9, 2 * 10**18)
    places = [text.address, *range(text.address, text.address + text.size, 3)]
    frames = np.array([frame.module_frame(1, place) for place in places], np.uint64)
    parents = np.array([0, *[1] * (len(places) - 1)], np.uint32)
    writer.add_nodes(parents, frames)
    samples = np.ones(len(places) - 1, np.int64)
    samples[0] = first
    nodes = np.repeat(np.arange(2, len(places) + 1, dtype=np.uint32), samples)
    times = 10**9 + 10**6 * np.arange(len(nodes), dtype=np.uint64)
    writer.add_records(np.zeros(len(nodes), np.uint32), times.astype(np.uint64), nodes, 0)
    writer.close()
    merge([folder / "m"], folder / "db", workers=1)
    return folder / "db"
