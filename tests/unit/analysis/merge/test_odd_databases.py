"""Databases no recorder makes: comparing them is an answer or one clear line, never a crash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.__main__ import main
from hpcd.analysis.merge.stages import merge
from hpcd.errors import FormatError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread

START = 10**9
HUGE = st.sampled_from([0, -1, 1, 2, 1 << 31, 1 << 40, 1 << 62])
NAMES = ["main", "solve", "MPI_Barrier", "[truncated: x]", "[p+0x10]", "a.constprop.0", "", "\x1b"]


@st.composite
def odd(draw: st.DrawFn, folder: Path) -> Path:
    """A measurement whose numbers are chosen badly."""
    path = folder / "m"
    writer = MeasurementWriter(path, Host("h", "b", "6", "x86_64", 1), options={})
    scale = draw(st.sampled_from([1.0, 0.0, -1.0, 5e-324, 1e6, 1e300, float("inf"), float("nan")]))
    writer.add_event(Event(0, "cpu-clock", "ns", scale, draw(st.sampled_from(["cpu_time", ""]))))
    writer.add_event(
        Event(1, "blocked", draw(st.sampled_from(["ns", "s", ""])),
              draw(st.sampled_from([1.0, 1e30])), "blocked_time", interval=True)
    )  # fmt: skip
    ranks = draw(st.lists(st.one_of(st.none(), HUGE), min_size=0, max_size=4))
    for number, rank in enumerate(ranks):
        writer.add_process(
            Process(number, 100 + number, 1, "p", draw(st.sampled_from(["/p", ""])), (), 0, START,
                    draw(st.sampled_from(["", "job", "other"])), rank,
                    draw(st.one_of(st.none(), HUGE)))
        )  # fmt: skip
        writer.add_thread(Thread(number, number, 100 + number, "p", START, draw(HUGE)))
    writer.add_module(Module(1, ModuleKind.JIT, "/p"))
    writer.add_symbols(1, [(16 * n, 16, name) for n, name in enumerate(NAMES)])
    writer.add_clock_pair(START, 2 * 10**18)
    count = draw(st.integers(1, 12))
    parent = [draw(st.integers(0, n)) for n in range(count)]
    place = [frame.module_frame(1, 16 * draw(st.integers(0, len(NAMES)))) for _ in range(count)]
    writer.add_nodes(np.array(parent, np.uint32), np.array(place, np.uint64))
    for line in range(len(ranks)):
        size = draw(st.integers(0, 6))
        times = START + np.cumsum([draw(st.integers(0, 2 * 10**6)) for _ in range(size)])
        writer.add_records(
            np.full(size, line, np.uint32),
            times.astype(np.uint64),
            np.array([draw(st.integers(0, count)) for _ in range(size)], np.uint32),
            np.array([draw(st.integers(0, 1)) for _ in range(size)], np.uint16),
            np.array(
                [draw(st.sampled_from([0, 1, 10**6, 1 << 40])) for _ in range(size)], np.uint64
            ),
        )
    writer.close()
    merge([path], folder / "db")
    return folder / "db"


@given(st.data())
@settings(max_examples=6)
def test_every_question_has_an_answer(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    try:
        one, two = (str(data.draw(odd(tmp_path_factory.mktemp("odd")))) for _ in range(2))
    except FormatError:
        return
    for arguments in (
        ["scaling", "--weak", one, two],
        ["scaling", "--strong", "--ranks", "1,2", "--view", "bottom-up", one, two],
        ["compare", one, two],
        ["compare", one, two, "--shares", "--view", "flat", "--calls"],
        ["compare", one, two, "--metric", "records", "--json"],
        ["compare", one, "--time", "0:0.001", "--time", "0.001:9", "--json"],
        ["compare", one, "--phases"],
        ["compare", one, "--phase", "main"],
        ["compare", one, "--iteration", "1", "--iteration", "2"],
        ["imbalance", one],
        ["imbalance", "--json", "--metric", "records", two],
    ):
        assert main(arguments) in (0, 2), arguments
