"""Merging: the union of trees, and measurements into a database."""

from __future__ import annotations

import os
import resource
import shutil
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.arrays.sparse_sums import CellSum
from hpcd.analysis.database.check import check_database
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.merge.tasks.executors import InlineExecutor, run_all
from hpcd.analysis.merge.unite.clock_alignment import offsets_by_boot
from hpcd.errors import FormatError, HpcdError, NotFoundError, StorageError, UsageError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model import frame
from hpcd.model.cct import CCT
from hpcd.model.cct_union import DEPTH_LIMIT, collapse, locate, union
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.random_measurements import (
    REALTIME,
    START,
    contents,
    paths_of,
    trees,
    write_measurement,
)


@given(st.lists(trees(), min_size=1, max_size=4))
def test_union_holds_each_path_once_and_maps_every_node(forest: list[CCT]) -> None:
    tree, maps = union(forest)
    tree.validate("union")
    paths = paths_of(tree)
    assert len(set(paths)) == len(paths)
    assert set(paths) == {path for member in forest for path in paths_of(member)}
    for member, ids in zip(forest, maps, strict=True):
        assert [paths[node] for node in ids] == paths_of(member)
        assert locate(tree, member).tolist() == ids.tolist()


@given(st.lists(trees(), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_union_depends_on_neither_order_nor_grouping(forest: list[CCT], random: object) -> None:
    whole = union(forest)[0]
    shuffled = forest[::-1]
    pairwise = union([union(shuffled[:2])[0], *shuffled[2:], whole])[0]
    for other in (union(shuffled)[0], pairwise):
        assert other.parent.tolist() == whole.parent.tolist()
        assert other.frame.tolist() == whole.frame.tolist()


@given(trees(60))
def test_canonical_trees_have_adjacent_siblings_in_frame_order(tree: CCT) -> None:
    canonical = union([tree])[0]
    keys = list(zip(canonical.parent[1:].tolist(), canonical.frame[1:].tolist(), strict=True))
    assert keys == sorted(set(keys))


def test_union_of_nothing_is_a_root() -> None:
    tree, maps = union([])
    assert len(tree) == 1
    assert maps == []


def test_locate_refuses_a_path_that_is_not_there() -> None:
    small = union([CCT(np.array([0, 0], np.uint32), np.array([0, 7], np.uint64))])[0]
    with pytest.raises(FormatError):
        locate(small, CCT(np.array([0, 0], np.uint32), np.array([0, 8], np.uint64)))


def test_collapse_joins_siblings_with_equal_labels() -> None:
    tree = CCT(np.array([0, 0, 0, 1, 2], np.uint32), np.array([0, 1, 2, 3, 4], np.uint64))
    smaller, ids = collapse(tree, np.array([9, 5, 5, 6, 6], np.uint64))
    assert smaller.parent.tolist() == [0, 0, 1]
    assert smaller.frame.tolist() == [0, 5, 6]
    assert ids.tolist() == [0, 1, 1, 2, 2]


def test_a_tree_deeper_than_the_limit_is_refused() -> None:
    count = DEPTH_LIMIT + 1
    chain = CCT(
        np.maximum(np.arange(count, dtype=np.int64) - 1, 0).astype(np.uint32),
        np.minimum(np.arange(count), 1).astype(np.uint64),
    )
    with pytest.raises(FormatError):
        union([chain])


@given(
    batches=st.lists(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 1), st.integers(0, 3)),
            max_size=30,
        ),
        max_size=4,
    )
)
def test_sums_of_cells(batches: list[list[tuple[int, int, int, int]]]) -> None:
    sums = CellSum(4, 10)
    expected: dict[tuple[int, int, int], tuple[int, int]] = {}
    for batch in batches:
        rows = sorted(batch, key=lambda row: row[0])
        for line, node, event, value in rows:
            old = expected.get((line, node, event), (0, 0))
            expected[line, node, event] = (old[0] + 1, old[1] + value)
        lines = sorted({row[0] for row in rows})
        run = np.searchsorted([row[0] for row in rows], [*lines, 99])
        sums.add(
            np.array(lines, np.uint32),
            run.astype(np.int64),
            np.array([row[1] for row in rows], np.uint32),
            np.array([row[2] for row in rows], np.uint16),
            np.array([row[3] for row in rows], np.uint64),
        )
    cells = sums.result()
    summed = {
        (line, node, event): (records, value)
        for line, node, event, records, value in zip(
            cells.line.tolist(),
            cells.node.tolist(),
            cells.event.tolist(),
            cells.records.tolist(),
            cells.value.tolist(),
            strict=True,
        )
    }
    assert summed == expected
    assert list(summed) == sorted(summed)


@pytest.mark.parametrize("backwards", [False, True])
def test_every_record_arrives_with_its_path(tmp_path: Path, backwards: bool) -> None:
    first = write_measurement(tmp_path / "a", ranks=(0, 2), threads=2, backwards=backwards)
    second = write_measurement(
        tmp_path / "b", seed=1, host="node1", ranks=(1, 3), threads=2, shift_ns=7_000
    )
    result = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "db")
    assert (result.measurements, result.lines, result.records) == (2, 8, 1600)
    expected = dict(first + second)
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert db.origin_ns == START + REALTIME
        paths = paths_of(db.cct)
        assert len(set(paths)) == len(paths)
        for line in db.lines:
            rows = expected[f"{line.rank}.{(line.tid - line.pid) // 1000}"]
            records = db.records(line.number)
            assert (records.time + START).tolist() == [time for time, _ in rows]
            assert [paths[node] for node in records.node] == [path for _, path in rows]
            assert line.start <= records.time[0]
            assert records.time[-1] <= line.end
        assert [line.rank for line in db.lines] == [0, 0, 1, 1, 2, 2, 3, 3]
        used = {path[:n] for _, rows in expected.items() for _, path in rows for n in (len(path),)}
        assert used <= set(paths)


def test_metrics_add_up(tmp_path: Path) -> None:
    write_measurement(tmp_path / "a", events=2, weighted=True)
    merge([tmp_path / "a"], tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert db.metrics.names == ["records", "cpu_time", "misses"]
        assert db.metrics.units == ["", "s", ""]
        scale = {0: ("cpu_time", 1e6 * 1e-9), 1: ("misses", 1e6)}
        with db.sql() as tables:
            events = dict(tables.execute("SELECT id, metric FROM event").fetchall())
        for line in range(len(db.lines)):
            records = db.records(line)
            sums = {name: np.zeros(len(db.cct)) for name in db.metrics.names}
            np.add.at(sums["records"], records.node, 1)
            for event, metric in events.items():
                mine = records.event == event
                weight = next(factor for name, factor in scale.values() if name == metric)
                np.add.at(sums[metric], records.node[mine], records.value[mine] * weight)
            for name, expected in sums.items():
                nodes, values = db.metrics.by_line(name, line)
                dense = np.zeros(len(db.cct))
                dense[nodes] = values
                np.testing.assert_allclose(dense, expected)
        for name in db.metrics.names:
            lines = [db.metrics.by_line(name, line) for line in range(len(db.lines))]
            total = np.zeros(len(db.cct))
            for nodes, values in lines:
                total[nodes] += values
            np.testing.assert_allclose(db.metrics.exclusive(name), total)
            np.testing.assert_allclose(db.metrics.inclusive(name)[0], total.sum())
            for node in range(len(db.cct)):
                members, values = db.metrics.by_node(name, node)
                np.testing.assert_allclose(values.sum(), total[node])
                assert np.all(np.diff(members.astype(int)) > 0)


def test_the_database_depends_on_neither_order_nor_engine(tmp_path: Path) -> None:
    names = []
    for number in range(6):
        name = tmp_path / f"m{number}"
        write_measurement(
            name,
            seed=number,
            host=f"node{number % 3}",
            ranks=(2 * number, 2 * number + 1),
            modules=("/lib/b.so", "/lib/a.so", f"/lib/only{number}.so"),
        )
        names.append(name)
    merge(names, tmp_path / "one", executor=InlineExecutor())
    with ProcessPoolExecutor(2) as pool:
        merge(names[::-1], tmp_path / "two", executor=pool)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_the_same_file_is_one_module(tmp_path: Path) -> None:
    write_measurement(tmp_path / "a", modules=("/lib/a.so", "/lib/b.so"))
    write_measurement(tmp_path / "b", seed=1, host="n", modules=("/lib/b.so", "/lib/c.so"))
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "db")
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert sorted(row.path for row in db.modules) == ["/lib/a.so", "/lib/b.so", "/lib/c.so"]


def test_clocks_of_one_boot_share_one_offset() -> None:
    early = np.array([[10, 1010], [20, 1020]])
    stepped = np.array([[30, 9030]])
    assert offsets_by_boot({"x": [early, stepped], "y": [np.zeros((0, 2), np.int64)]}) == {
        "x": 1000,
        "y": 0,
    }


def test_an_open_measurement_is_merged_as_far_as_it_goes(tmp_path: Path) -> None:
    write_measurement(tmp_path / "a", close=False)
    result = merge([tmp_path / "a"], tmp_path / "db")
    assert result.records == 400
    assert len(result.notes) >= 1
    assert "not closed" in result.notes[0]


def test_a_measurement_without_records_gives_an_empty_database(tmp_path: Path) -> None:
    write_measurement(tmp_path / "a", records=0)
    result = merge([tmp_path / "a"], tmp_path / "db")
    assert (result.records, result.lines) == (0, 2)
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert len(db.records(0)) == 0


def test_bad_inputs_are_named_and_the_rest_is_merged(tmp_path: Path) -> None:
    write_measurement(tmp_path / "good")
    shutil.copytree(tmp_path / "good", tmp_path / "again")
    write_measurement(tmp_path / "torn", seed=1, ranks=(5,))
    segment = tmp_path / "torn" / "segment-000000.hpcd"
    segment.write_bytes(segment.read_bytes()[:-400])
    (tmp_path / "foreign").mkdir()
    (tmp_path / "file").write_text("hello")
    names = ["again", "good", "torn", "foreign", "file", "absent"]
    result = merge([tmp_path / name for name in names], tmp_path / "db")
    assert result.measurements == 2
    refused = {Path(path).name: why for path, why in result.refused}
    assert set(refused) == {"good", "foreign", "file", "absent"}
    assert "same measurement" in refused["good"]
    assert {Path(path).name for path, _ in result.damaged} == {"torn"}
    with hpcd.analysis.open(tmp_path / "db") as db:
        assert [row.name for row in db.measurements if row.damage] == ["torn"]


HUGE = st.sampled_from([0, -1, 1, 1 << 31, 1 << 40, 1 << 62, 1 << 64, -(1 << 70), 1 << 200])
ODD_TEXT = st.sampled_from(["", "a", "\x1b[2J\x07", "\udc80", "x" * 5000, "\0"])


@given(st.data())
@settings(max_examples=20)
def test_impossible_identities_are_refused_or_cut_to_size(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    writer = MeasurementWriter(folder / "m", Host("h", "b", "6", "x86_64", 1), options={})
    text, number = data.draw(ODD_TEXT), data.draw(HUGE)
    scale = data.draw(st.sampled_from([1.0, float("inf"), float("nan")]))
    writer.add_event(Event(data.draw(st.sampled_from([0, 1 << 16, 1 << 31])), text, "ns", scale,
                           text, data.draw(HUGE)))  # fmt: skip
    writer.add_process(
        Process(0, number, number, text, text, (text,), number, data.draw(HUGE), text,
                data.draw(HUGE), data.draw(HUGE))
    )  # fmt: skip
    writer.add_thread(
        Thread(0, data.draw(st.sampled_from([0, 9])), data.draw(HUGE), text, data.draw(HUGE),
               data.draw(HUGE))
    )  # fmt: skip
    writer.add_module(
        Module(data.draw(st.sampled_from([0, 1, 1 << 22, 1 << 31])), ModuleKind.ELF, text, text)
    )
    writer.add_clock_pair(
        data.draw(st.sampled_from([0, START, 1 << 61, 1 << 63, -5])),
        data.draw(st.sampled_from([0, REALTIME, 1 << 62, 1 << 63, -5])),
    )
    place = np.array([frame.module_frame(1, 5), frame.MARKER | 0xEE], np.uint64)
    writer.add_nodes(np.array([0, 1], np.uint32), place)
    times = np.array([data.draw(st.sampled_from([0, START, 1 << 59, 1 << 61]))] * 2, np.uint64)
    writer.add_records(np.zeros(2, np.uint32), times, np.array([1, 2], np.uint32), 0)
    writer.close()
    try:
        merge([folder / "m"], folder / "db")
    except FormatError:
        assert [path.name for path in folder.iterdir()] == ["m"]
        return
    assert check_database(folder / "db") == []
    assert main(["report", str(folder / "db")]) == 0


def test_nothing_to_merge(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    with pytest.raises(UsageError):
        merge([], tmp_path / "db")
    with pytest.raises(NotFoundError):
        merge([tmp_path / "absent"], tmp_path / "db")
    with pytest.raises(FormatError, match="foreign"):
        merge([tmp_path / "foreign"], tmp_path / "db")
    assert [path.name for path in tmp_path.iterdir()] == ["foreign"]


def test_an_existing_output_is_kept_unless_forced(tmp_path: Path) -> None:
    write_measurement(tmp_path / "a")
    write_measurement(tmp_path / "b", seed=1)
    merge([tmp_path / "a"], tmp_path / "db")
    before = contents(tmp_path / "db")
    with pytest.raises(StorageError, match="exists"):
        merge([tmp_path / "b"], tmp_path / "db")
    assert contents(tmp_path / "db") == before
    merge([tmp_path / "b"], tmp_path / "db", force=True)
    assert contents(tmp_path / "db") != before
    with pytest.raises(StorageError, match="not an hpcd database"):
        merge([tmp_path / "b"], tmp_path / "a", force=True)
    with pytest.raises(StorageError, match="no such directory"):
        merge([tmp_path / "b"], tmp_path / "none" / "db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "db"]


def test_a_disk_that_takes_no_more_leaves_nothing_behind(tmp_path: Path) -> None:
    write_measurement(tmp_path / "a", records=5000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, limits[1]))
    try:
        # SQLite says an I/O error of what the kernel refuses as too large.
        with pytest.raises(StorageError, match=r"disk I/O error|File too large"):
            merge([tmp_path / "a"], tmp_path / "db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_killed_worker_is_one_clear_error() -> None:
    with ProcessPoolExecutor(1) as pool, pytest.raises(HpcdError, match="killed"):
        list(run_all(pool, os._exit, [1]))


def test_a_frequency_below_zero_is_none(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "e", "ns", 1.0, "cpu_time", -1))
    writer.close({})
    merge([tmp_path / "m"], tmp_path / "db")
    assert check_database(tmp_path / "db") == []
