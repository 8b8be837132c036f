"""Programs of known traffic under Open MPI and MPICH: matrix, communicators and wait states.

The calls are those that a library between program and MPI writes (``tests/support/mpi_truth.py``),
in the shape in which they are recorded.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.database_calls import communication as of_database
from hpcd.analysis.messages.matching import probed_messages
from hpcd.analysis.messages.wait_states import WaitKind
from hpcd.array_types import I64
from tests.support.imported import imported
from tests.support.mpi_truth import LAUNCH, Truth, build, database, members_of, run, vector_truth
from tests.support.otf2_calls import ArchivedCalls, read_otf2_calls

TRAFFIC = (
    "ring",
    "all_to_all",
    "halo",
    "subcommunicators",
    "two_groups",
    "wildcards",
    "probed",
    "persistent",
)
# Non-blocking and persistent requests, communicators of some ranks and between groups.
ARCHIVED = ("halo", "all_to_all", "subcommunicators", "two_groups", "persistent")
PLANTED = {
    "late_sender": WaitKind.LATE_SENDER,
    "late_probed": WaitKind.LATE_SENDER,
    "late_matched": WaitKind.LATE_RECEIVER,
    "late_receiver": WaitKind.LATE_RECEIVER,
    "late_broadcast": WaitKind.LATE_BROADCAST,
    "wait_at_nxn": WaitKind.WAIT_AT_NXN,
    "early_reduce": WaitKind.EARLY_REDUCE,
    "late_group": WaitKind.LATE_BROADCAST,
}

Traced = Callable[[str, int], Truth]


@pytest.fixture(scope="module", params=LAUNCH)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def built(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp(flavour), flavour)


@pytest.fixture(scope="module")
def traced(
    built: tuple[Path, Path], flavour: str, tmp_path_factory: pytest.TempPathFactory
) -> Traced:
    """Runs a case of the program by so many ranks, once for all tests."""

    @cache
    def once(name: str, ranks: int) -> Truth:
        return run(built, tmp_path_factory.mktemp(name), flavour, name, ranks)

    return once


def communication(truth: Truth) -> Communication:
    ranks = truth.ranks
    return Communication(truth.calls, np.arange(ranks), np.zeros(ranks, np.int64))


@pytest.mark.parametrize("ranks", (2, 5))
@pytest.mark.parametrize("name", TRAFFIC)
def test_traffic_is_the_truth(traced: Traced, tmp_path: Path, name: str, ranks: int) -> None:
    truth = traced(name, ranks)
    traffic = communication(truth)
    messages, volume = traffic.point_to_point.dense(ranks)
    np.testing.assert_array_equal(messages, truth.sent[:, :, 0])
    np.testing.assert_array_equal(volume, truth.sent[:, :, 1])
    assert len(traffic.messages) == truth.sent[:, :, 0].sum()
    assert traffic.collectives.complete.all()
    groups = {members_of(one) for one in traffic.communicators.all if one.parent >= 0}
    assert groups == truth.communicators
    assert traffic.unknown_communicators == 0
    if ranks == 5 and name in ARCHIVED:
        archive_has(truth, traffic, tmp_path)


def archived(truth: Truth, folder: Path) -> ArchivedCalls:
    """Return the archive of a run's export to OTF2."""
    exported = ["export", str(database(truth, folder / "merged")), "--format", "otf2"]
    assert main([*exported, "-o", str(folder / "otf2")]) == 0
    return read_otf2_calls(folder / "otf2")


def archive_has(truth: Truth, traffic: Communication, folder: Path) -> None:
    """An export to OTF2 has the same traffic, also by non-blocking and persistent requests."""
    archive = archived(truth, folder)
    if shutil.which("otf2-print"):
        comes_back(traffic, folder)
    assert archive.received == archive.sent and archive.unfinished == 0
    sent = np.zeros_like(truth.sent)
    for (source, target, _, _, length), times in archive.sent.items():
        place = int(source.removeprefix("rank ")), int(target.removeprefix("rank "))
        sent[place] += times, times * length
    np.testing.assert_array_equal(sent, truth.sent)
    for row in traffic.by_function():
        communicator = traffic.communicators.all[row.communicator].name
        assert communicator in archive.members
    calls = sum(row.calls for row in traffic.by_function())
    assert sum(archive.collectives.values()) == calls
    passed = sum(row.bytes or 0 for row in traffic.by_function())
    assert sum(archive.passed.values()) == passed
    members = {
        tuple(int(name.removeprefix("rank ")) for name in one)
        for name, groups in archive.members.items() for one in groups if name[:4] != "MPI_"
    }  # fmt: skip
    # One between two groups has the ranks of both.
    among = {one for one in truth.communicators if -1 not in one}
    between = {frozenset(one) - {-1} for one in truth.communicators - among}
    assert among <= members
    assert {*map(frozenset, members)} == {*map(frozenset, among)} | between


def comes_back(traffic: Communication, folder: Path) -> None:
    """Check that an import of the export has the same messages, communicators and wait states."""
    imported(folder / "otf2", folder / "m")
    merge([folder / "m"], folder / "again", workers=1)
    with hpcd.analysis.open(folder / "again") as db:
        again = of_database(db)
        for one, other in (
            (again.point_to_point, traffic.point_to_point),
            (again.collective_flow, traffic.collective_flow),
        ):
            for column in ("source", "target", "messages", "bytes"):
                np.testing.assert_array_equal(getattr(one, column), getattr(other, column))
        assert again.by_function() == traffic.by_function()
        assert len(again.messages) == len(traffic.messages)
        assert [members_of(one) for one in again.communicators.all] == [
            members_of(one) for one in traffic.communicators.all
        ]
        assert [(one.name, one.parent, one.dims) for one in again.communicators.all] == [
            (one.name, one.parent, one.dims) for one in traffic.communicators.all
        ]
        assert waits_of(again) == waits_of(traffic)


def waits_of(traffic: Communication) -> Counter[tuple[int, ...]]:
    waits, rank = traffic.waits, traffic.operations.rank
    columns = waits.kind, rank[waits.operation], rank[waits.delayer], waits.severity
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def test_probed_messages_are_those_received(traced: Traced) -> None:
    """Each has a size of its own; the second of two that were taken is received first."""
    traffic = communication(traced("probed", 3))
    messages, operations = traffic.messages, traffic.recorded
    sent, received = messages.sends.size[messages.send], messages.receives.size[messages.receive]
    assert (sent == received)[received >= 0].all() and len(messages) == 2 * 20 * 6
    named = [one.name for one in operations.calls.functions]
    probes, probed = probed_messages(operations, traffic.communicators, messages)

    def functions(at: I64) -> Counter[str]:
        return Counter(named[one] for one in operations.function[at].tolist())

    of_probe = functions(probes)
    assert of_probe["MPI_Probe"] == 40 and of_probe["MPI_Iprobe"] >= 40
    by_tag = messages.sends.tag[probed]
    assert set(by_tag[operations.function[probes] == named.index("MPI_Probe")].tolist()) == {0}
    by_call = {"MPI_Recv": 80, "MPI_Mrecv": 120, "MPI_Imrecv": 40}
    assert functions(messages.receives.operation) == by_call


def test_a_count_for_each_rank(traced: Traced) -> None:
    traffic = communication(traced("vectors", 5))
    flow = traffic.collective_flow
    pairs = zip(flow.source.tolist(), flow.target.tolist(), strict=True)
    assert dict(zip(pairs, flow.bytes.tolist(), strict=True)) == vector_truth(5)
    assert not flow.unknown.any()
    passed = {(row.function, row.communicator): row.bytes for row in traffic.by_function()}
    assert passed["MPI_Alltoallv", 0] == 20 * 4 * sum(range(1, 26))
    assert passed["MPI_Reduce_scatter", 0] == 5 * 4 * 15


def test_one_sided_traffic(traced: Traced, tmp_path: Path) -> None:
    truth = traced("one_sided", 3)
    traffic = communication(truth).one_sided
    # Each puts 100 bytes and its rank to the next, and gets seven integers of it.
    columns = (traffic.source, traffic.target, traffic.bytes)
    pairs = zip(*(column.tolist() for column in columns), strict=True)
    expected = {(rank, (rank + 1) % 3): 100.0 + rank for rank in range(3)}
    expected |= {((rank + 1) % 3, rank): 28.0 for rank in range(3)}
    assert {(source, target): volume for source, target, volume in pairs} == expected
    archive = archived(truth, tmp_path)
    assert archive.unfinished == 0
    assert archive.one_sided == {
        (f"rank {source}", f"rank {target}"): volume
        for (source, target), volume in expected.items()
    }


@pytest.mark.parametrize("name", PLANTED)
def test_planted_waits(traced: Traced, name: str) -> None:
    truth = traced(name, 2)
    traffic = communication(truth)
    operations, waits = traffic.operations, traffic.waits
    assert truth.claims
    for output in truth.claims:
        mine = (waits.kind == PLANTED[name]) & (
            operations.rank[waits.operation] == output["waiter"]
        )
        long = mine & (waits.severity > 10**7)
        seconds = waits.severity[long] / 1e9
        claimed = np.array([wait for wait in output["waits"] if wait > 0.01])
        assert len(claimed) > 5
        assert np.abs(claimed[:, None] - seconds).min(axis=1).max() < 1e-6
        # Rank 0 may have waited for the message with the times, too.
        assert len(seconds) <= len(claimed) + (name in ("late_sender", "late_probed"))
        assert set(operations.rank[waits.delayer[long]].tolist()) == {1}


def pairs_of(traffic: Communication) -> set[tuple[int, ...]]:
    """Rank and begin of the sends and receives that are one message."""
    recorded, messages = traffic.recorded, traffic.messages
    ends = (
        messages.sends.operation[messages.send],
        messages.receives.operation[messages.receive],
    )
    columns = [column[at].tolist() for at in ends for column in (recorded.rank, recorded.begin)]
    return set(zip(*columns, strict=True))


def meetings_of(traffic: Communication) -> set[tuple[tuple[int, int], ...]]:
    """Rank and begin of the calls of each collective operation that all ranks are in."""
    recorded, collectives = traffic.recorded, traffic.collectives
    rank, begin = (
        column[collectives.operation].tolist() for column in (recorded.rank, recorded.begin)
    )
    calls = list(zip(rank, begin, strict=True))
    bounds = collectives.first.tolist()
    return {
        tuple(calls[first:end])
        for first, end, complete in zip(
            bounds, bounds[1:], collectives.complete.tolist(), strict=False
        )
        if complete
    }


@pytest.mark.parametrize(
    "name", ("ring", "all_to_all", "wildcards", "late_sender", "late_probed", "wait_at_nxn")
)
def test_what_a_late_attach_matches_is_true(traced: Traced, name: str) -> None:
    """Record each rank from another moment on, with and without the end: no message is matched
    wrongly, and most are matched where receivers keep up with senders."""
    truth = traced(name, 2)
    calls, whole = truth.calls, communication(truth)
    pairs = pairs_of(whole)
    moments = np.sort(whole.recorded.begin)
    random = np.random.default_rng(1)
    seen = right = 0
    for trial in range(20):
        begin = moments[random.integers(len(moments) // 10, len(moments) // 2, 2)]
        end = moments[-1 if trial % 2 else -len(moments) // 10]
        kept = (calls.time >= begin[calls.line]) & (calls.time <= end)
        part = Communication(calls[kept], np.arange(2), np.zeros(2, np.int64), np.ones(2, bool))
        matched = pairs_of(part)
        assert matched <= pairs
        ends = set(zip(part.recorded.rank.tolist(), part.recorded.begin.tolist(), strict=True))
        possible = sum(pair[:2] in ends and pair[2:] in ends for pair in pairs)
        seen, right = seen + possible, right + len(matched)
        assert meetings_of(part) <= meetings_of(whole)
    assert name == "wildcards" or right > 0.9 * seen
