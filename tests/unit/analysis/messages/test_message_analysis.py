"""Messages and waits from made calls: what no run on one host can show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hpcd.analysis.messages import traffic
from hpcd.analysis.messages.call_arrays import CallArrays, RecordedFunction
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.database_calls import reported_ranks
from hpcd.analysis.messages.delays import delays
from hpcd.analysis.messages.wait_states import WaitKind
from hpcd.array_types import I64
from hpcd.model.mpi_functions import FUNCTIONS, Role
from hpcd.model.mpi_records import MISSING, MPICH, OPENMPI, VALUES, Flavour, records

WORLD, INT, DOUBLE = 0x44000000, 0x4C000405, 0x4C00080B


def _recorded(flavour: Flavour) -> list[RecordedFunction]:
    return [
        RecordedFunction(record.name, tuple((value.name, value.unit) for value in record.values))
        for function in FUNCTIONS.values()
        for record in records(function, flavour)
    ]


FUNCTION_LIST = _recorded(MPICH)
NUMBER = {function.name: at for at, function in enumerate(FUNCTION_LIST)}

Call = tuple[int, str, int, int, dict[str, int]]
"""(rank, function, begin, end, values)."""


def send(rank: int, begin: int, end: int, peer: int, **more: int) -> Call:
    values = {"communicator": WORLD, "peer": peer, "tag": 0, "count": 10, "datatype": INT}
    return rank, "MPI_Send", begin, end, values | more


def receive(rank: int, begin: int, end: int, peer: int, **more: int) -> Call:
    return rank, "MPI_Recv", begin, end, {"communicator": WORLD, "peer": peer, "tag": 0} | more


def collective(rank: int, name: str, begin: int, end: int, **more: int) -> Call:
    values = {"communicator": WORLD, "count": 4, "datatype": DOUBLE}
    return rank, name, begin, end, values | more


def made(
    calls: Sequence[Call], ranks: int, hosts: Sequence[int] | None = None,
    functions: list[RecordedFunction] = FUNCTION_LIST,
) -> Communication:  # fmt: skip
    value = np.full((len(calls), 6), MISSING, np.int64)
    for at, (_, name, _, _, values) in enumerate(calls):
        for place, (one, _) in enumerate(functions[NUMBER[name]].values):
            value[at, place] = values.get(one, MISSING)
    begin, end = (np.array([call[place] for call in calls], np.int64) for place in (2, 3))
    rank = np.array([call[0] for call in calls], np.int64)
    recorded = CallArrays(
        line=rank,
        time=begin,
        duration=end - begin,
        node=100 + rank,
        function=np.array([NUMBER[call[1]] for call in calls], np.int64),
        weight=np.ones(len(calls)),
        value=value,
        functions=functions,
    )
    where = np.zeros(ranks, np.int64) if hosts is None else np.array(hosts, np.int64)
    return Communication(recorded, np.arange(ranks), where)


def test_every_value_has_a_name_in_its_record() -> None:
    names = {name for values in VALUES.values() for name in values}
    used = {name for function in FUNCTION_LIST for name, _ in function.values}
    assert used - {"datatype_size"} <= names


def test_late_sender_is_no_longer_than_the_receive() -> None:
    mpi = made([receive(0, 100, 500, 1), send(1, 400, 450, 0), send(1, 900, 950, 0)], 2)
    waits = mpi.waits
    assert waits.kind.tolist() == [WaitKind.LATE_SENDER]
    assert waits.severity.tolist() == [300]
    assert mpi.operations.node[waits.delayer].tolist() == [101]
    assert len(mpi.messages) == 1 and len(mpi.sends) == 2


def test_buffered_send_waits_for_nobody() -> None:
    mpi = made([send(0, 100, 110, 1), receive(1, 400, 450, 0)], 2)
    assert not len(mpi.waits)
    # One that is still blocked when the receive comes does.
    mpi = made([send(0, 100, 420, 1), receive(1, 400, 450, 0)], 2)
    assert mpi.waits.severity.tolist() == [300]
    assert mpi.waits.kind.tolist() == [WaitKind.LATE_RECEIVER]


def test_collectives_wait_for_the_last_or_the_root() -> None:
    calls = [
        *(collective(rank, "MPI_Allreduce", 100 * rank, 350) for rank in range(4)),
        *(collective(rank, "MPI_Bcast", 1000 + 100 * rank, 1400, root=2) for rank in range(4)),
        *(collective(rank, "MPI_Reduce", 2000 + 100 * rank, 2400, root=1) for rank in range(4)),
    ]
    mpi = made(calls, 4)
    waits, operations = mpi.waits, mpi.operations
    seconds = {
        (WaitKind(kind), rank): severity
        for kind, rank, severity in zip(
            waits.kind.tolist(),
            operations.rank[waits.operation].tolist(),
            waits.severity.tolist(),
            strict=True,
        )
    }
    expected = {(WaitKind.WAIT_AT_NXN, rank): 300 - 100 * rank for rank in range(3)}
    expected |= {(WaitKind.LATE_BROADCAST, rank): 200 - 100 * rank for rank in range(2)}
    expected |= {(WaitKind.EARLY_REDUCE, 1): 200}
    assert seconds == expected


def test_collective_of_which_a_rank_is_missing_is_no_wait_state() -> None:
    calls = [collective(rank, "MPI_Allreduce", 100 * rank, 350) for rank in range(3)]
    mpi = made([*calls, send(3, 0, 10, 0)], 4)
    assert mpi.collectives.complete.tolist() == [False]
    assert not len(mpi.waits)


def test_collective_flow() -> None:
    calls = [collective(rank, "MPI_Bcast", 0, 10, root=1) for rank in range(3)]
    calls += [collective(rank, "MPI_Alltoall", 20, 30, communicator=WORLD) for rank in range(3)]
    flow = made(calls, 3).collective_flow
    _, volume = flow.dense(3)
    assert volume.tolist() == [[0, 32, 32], [64, 0, 64], [32, 32, 0]]


def test_a_count_for_each_rank() -> None:
    def pair(low: int, high: int) -> int:
        return low | high << 32

    calls = [
        *(collective(rank, "MPI_Alltoallv", 0, 10, count=MISSING) for rank in range(3)),
        # Of three ranks four counts were read: the last one means nothing.
        *((rank, "MPI_Alltoallv/counts", 0, 0,
           {"from": 0, "counts0": pair(rank, 1), "counts2": pair(2, 99)}) for rank in (0, 2)),
        *(collective(rank, "MPI_Gatherv", 20, 30, root=1, count=rank + 1) for rank in range(3)),
    ]  # fmt: skip
    mpi = made(calls, 3)
    flow = mpi.collective_flow
    _, volume = flow.dense(3)
    # What rank 1 passed to whom is not known.
    assert volume.tolist() == [[0, 16, 16], [0, 0, 0], [16, 32, 0]]
    assert {(1, 0), (1, 2)} == {
        (source, target)
        for source, target, unknown in zip(
            flow.source.tolist(), flow.target.tolist(), flow.unknown.tolist(), strict=True
        )
        if unknown
    }
    rows = {row.function: row.bytes for row in mpi.by_function()}
    assert rows == {"MPI_Alltoallv": None, "MPI_Gatherv": 8 * 6}


def test_ranks_are_what_mpi_told_where_nothing_else_says_them() -> None:
    def asked(line: int, begin: int, rank: int, size: int, communicator: int = WORLD) -> list[Call]:
        values = {"communicator": communicator}
        return [
            (line, "MPI_Comm_size", begin, begin + 1, values | {"size": size}),
            (line, "MPI_Comm_rank", begin, begin + 1, values | {"rank": rank}),
        ]

    calls = [*asked(0, 0, 1, 3), *asked(2, 0, 0, 3), *asked(3, 0, 2, 3), *asked(4, 0, 0, 1)]
    calls += asked(0, 10, 0, 2, 7)  # later, in another communicator
    process = np.array([4, 4, 2, 0, 1], np.uint32)  # lines 0 and 1 are threads of one process
    assert reported_ranks(made(calls, 5).calls, process).tolist() == [1, 1, 0, 2, -1]
    twice = made([*asked(0, 0, 1, 3), *asked(2, 0, 1, 3)], 5).calls
    assert reported_ranks(twice, process).tolist() == [-1] * 5


def test_messages_overtake_by_tag_only() -> None:
    calls = [
        send(0, 0, 5, 1, tag=1, count=1),
        send(0, 10, 15, 1, tag=2, count=2),
        send(0, 20, 25, 1, tag=1, count=3),
        receive(1, 30, 31, 0, tag=2),
        receive(1, 40, 41, -2, tag=-1, status_source=0, status_tag=1, status_bytes=4),
        receive(1, 50, 51, 0, tag=1),
    ]
    mpi = made(calls, 2)
    messages = mpi.messages
    sent = mpi.sends.operation[messages.send]
    received = mpi.receives.operation[messages.receive]
    pairs = sorted(
        zip(
            mpi.recorded.named("count")[sent].tolist(),
            mpi.recorded.begin[received].tolist(),
            strict=True,
        )
    )
    assert pairs == [(1, 40), (2, 30), (3, 50)]
    assert messages.guessed.sum() == 0


def test_size_is_learned_from_the_receive() -> None:
    derived = 0x8C000000
    mpi = made(
        [
            send(0, 0, 5, 1, datatype=derived),
            receive(1, 0, 9, 0, status_source=0, status_tag=0, status_bytes=160),
        ],
        2,
    )
    assert mpi.point_to_point.bytes.tolist() == [160.0]
    sizes = traffic.message_sizes(mpi.sends, mpi.messages)
    assert (sizes.least.tolist(), sizes.most.tolist()) == ([128], [255])


def skewed(time: int, drift: float, offset: int) -> int:
    return round(time * (1 + drift)) + offset


@pytest.mark.parametrize("drift", (0.0, 4e-5))
def test_clocks_of_hosts_are_aligned(drift: float) -> None:
    """Two hosts, whose clocks differ by 3 ms and drift; the fastest message takes 2 µs."""
    random = np.random.default_rng(1)
    offset, calls, truth = 3_000_000, [], []
    for number in range(400):
        start = number * 10_000_000
        there, back = (2_000 + int(random.exponential(20_000)) for _ in range(2))
        calls.append(send(0, start, start + 1_000, 1))
        arrived = start + there
        calls.append(
            receive(1, skewed(start - 50_000, drift, offset), skewed(arrived, drift, offset), 0)
        )
        answered = start + 500_000
        calls.append(
            send(1, skewed(answered, drift, offset), skewed(answered + 1_000, drift, offset), 0)
        )
        calls.append(receive(0, start + 100_000, answered + back, 1))
        truth += [50_000, answered - start - 100_000]
    mpi = made(calls, 2, hosts=[0, 1])
    clocks = mpi.clocks
    assert clocks.residual[1 - clocks.reference] < 10_000
    assert clocks.contradictions.sum() == 0
    late = mpi.waits.kind == WaitKind.LATE_SENDER
    assert late.sum() == len(truth)
    np.testing.assert_allclose(np.sort(mpi.waits.severity[late]), np.sort(truth), atol=10_000)


def test_hosts_without_messages_are_not_aligned() -> None:
    mpi = made([send(0, 0, 5, 1), receive(1, 3, 9, 0), send(2, 0, 5, 2)], 3, hosts=[0, 1, 2])
    assert np.isinf(mpi.clocks.residual).sum() == 2


def test_delay_is_what_the_late_rank_did_more_of() -> None:
    """Both compute for 1 s (node 5); rank 1 also writes (node 6) for 2 s, before it sends."""
    second = 10**9
    calls = [
        collective(0, "MPI_Barrier", 0, 10), collective(1, "MPI_Barrier", 0, 10),
        receive(0, second, 3 * second + 100, 1), send(1, 3 * second, 3 * second + 50, 0),
    ]  # fmt: skip
    mpi = made(calls, 2)

    def activity(line: int) -> tuple[I64, I64, I64]:
        begin = np.array([10, second])
        end = np.array([second, 3 * second])
        return begin, end, np.array([5, 6 if line else 7])

    shared = delays(mpi.operations, mpi.messages, mpi.collectives, mpi.waits, activity)
    assert shared.rank.tolist() == [1]
    assert shared.node.tolist() == [6]
    assert shared.seconds.tolist() == [pytest.approx(2.0)]
    assert shared.unexplained == 0


def test_delay_without_collectives() -> None:
    mpi = made([receive(0, 100, 500, 1), send(1, 0, 50, 0, tag=1), send(1, 400, 450, 0)], 2)

    def activity(line: int) -> tuple[I64, I64, I64]:
        return np.array([0]), np.array([1000]), np.array([5 + line])

    shared = delays(mpi.operations, mpi.messages, mpi.collectives, mpi.waits, activity)
    assert (shared.rank.tolist(), shared.node.tolist()) == ([1], [6])
    assert shared.seconds.sum() == pytest.approx(300e-9)


def test_sampled_calls_are_not_matched() -> None:
    mpi = made([receive(0, 100, 500, 1), send(1, 400, 450, 0)], 2)
    mpi.recorded.weight[:] = 4.0
    assert mpi.is_sampled
    assert not len(mpi.messages) and not len(mpi.waits)
    mpi.sends.weight[:] = 4.0
    assert mpi.point_to_point.messages.tolist() == [4.0]


def test_which_calls_are_missing_cannot_always_be_told() -> None:
    """Only the end of the run tells if a sender is always ahead, and between hosts."""

    def late(calls: list[Call], hosts: Sequence[int] = (0, 0)) -> Communication:
        recorded = made(calls, 2).calls
        return Communication(recorded, np.arange(2), np.array(hosts), np.ones(2, bool))

    ahead = [send(0, 10 * at, 10 * at + 1, 1) for at in range(9)]
    ahead += [receive(1, 100 + 20 * at, 101 + 20 * at, 0) for at in range(8)]
    ends = [(rank, "MPI_Finalize", 900, 901, {}) for rank in range(2)]
    waiting = [send(0, 100 * at, 100 * at + 1, 1) for at in range(9)]
    waiting += [receive(1, 100 * at + 5, 100 * at + 102, 0) for at in range(8)]
    for calls, hosts, matched in (
        (ahead, (0, 0), 0),
        (ahead + ends, (0, 0), 8),
        (waiting, (0, 0), 8),
        (waiting, (0, 1), 0),
        (waiting + ends, (0, 1), 8),
    ):
        messages = late(calls, hosts).messages
        assert len(messages) == matched and messages.unsure == (0 if matched else 9)
        if matched:
            assert (messages.sends.operation[messages.send] == np.arange(1, 9)).all()


@pytest.mark.parametrize("seed", range(20))
def test_values_of_any_kind_are_survived(seed: int) -> None:
    """Hostile databases: ranks, handles and counts may be anything."""
    random = np.random.default_rng(seed)
    odd = np.array([0, 1, -1, -2, WORLD, INT, MISSING, 2**31, -(2**31), 2**62, 3])
    calls = [
        (int(random.integers(4)), name, int(random.integers(1000)), 1000, {})
        for name in random.choice(list(NUMBER), 300).tolist()
    ]
    mpi = made(calls, 4)
    mpi.calls.value[:] = odd[random.integers(len(odd), size=mpi.calls.value.shape)]
    hosts, late = np.array([0, 0, 1, 1]), np.full(4, seed % 2 == 1)
    again = Communication(mpi.calls, np.arange(4), hosts, late)
    assert (again.waits.severity >= 0).all()
    assert (again.messages.send < len(again.sends)).all()
    for matrix in (again.point_to_point, again.one_sided, again.collective_flow):
        assert ((matrix.source >= 0) & (matrix.source < 4)).all()
        assert ((matrix.target >= 0) & (matrix.target < 4)).all()


def test_answers_of_a_later_communicator_say_nothing_of_an_earlier_one() -> None:
    """The first copy is reversed by key and freed unasked; the second has its handle."""
    handle = 0x84000000
    calls: list[Call] = []
    for rank in range(2):
        new = {"communicator": WORLD, "new_communicator": handle}
        calls += [
            (rank, "MPI_Comm_split", 0, 10, {**new, "color": 0, "key": -rank}),
            send(rank, 20, 21, 1 - rank, communicator=handle, count=1 + rank),
            (rank, "MPI_Comm_free", 30, 31, {"communicator": handle}),
            (rank, "MPI_Comm_dup", 40, 50, new),
            (rank, "MPI_Comm_rank", 60, 61, {"communicator": handle, "rank": rank}),
        ]
    mpi = made(calls, 2)
    members = [one.members.tolist() for one in mpi.communicators.all]
    assert members == [[0, 1], [1, 0], [0, 1]]
    # Place 1 of the reversed one is rank 0.
    _, volume = mpi.point_to_point.dense(2)
    assert volume.tolist() == [[4, 0], [0, 8]]


def test_processes_of_another_job_are_said_to_be_unknown() -> None:
    """They were started by this job, or have started it."""
    started, parents = 0x84000001, 0x84000002
    calls: list[Call] = []
    for rank in range(2):
        new = {"communicator": WORLD, "new_communicator": started}
        calls += [
            (rank, "MPI_Comm_get_parent", 0, 1, {"new_communicator": parents}),
            (rank, "MPI_Comm_spawn", 10, 20, new),
            send(rank, 30, 31, 1, communicator=started),
            receive(rank, 40, 41, 0, communicator=parents),
            (rank, "MPI_Intercomm_merge", 50, 60,
             {"communicator": started, "new_communicator": 0x84000003, "high": 0}),
            send(rank, 70, 71, 1 - rank, communicator=0x84000003),
        ]  # fmt: skip
    mpi = made(calls, 2)
    made_of = {one.name: one for one in mpi.communicators.all}
    for one in mpi.communicators.all[1:]:
        assert one.members.tolist() == [0, 1]
    assert [len(one.remote) for one in mpi.communicators.all if one.remote is not None] == [0, 0]
    assert not made_of["merged groups"].ordered
    assert mpi.to_other_jobs == 4
    assert mpi.unknown_communicators == 0
    assert not len(mpi.messages) and not len(mpi.point_to_point.bytes)


GROUPS = 0x84000002


def two_groups(ranks: int = 4) -> list[Call]:
    """A communicator between the lower and the upper half of the ranks, made before time 10."""
    half = ranks // 2
    return [
        call
        for rank in range(ranks)
        for call in (
            (rank, "MPI_Comm_split", 0, 1,
             {"communicator": WORLD, "new_communicator": 0x84000001, "color": rank // half,
              "key": rank}),
            (rank, "MPI_Intercomm_create", 2, 3,
             {"communicator": 0x84000001, "new_communicator": GROUPS, "local_leader": 0, "tag": 3,
              "peer_communicator": WORLD, "remote_leader": 0 if rank // half else half}),
        )
    ]  # fmt: skip


def waits_by_rank(mpi: Communication) -> dict[tuple[WaitKind, int, int], int]:
    """Severity by kind, who waited, and for whom."""
    waits, rank = mpi.waits, mpi.operations.rank
    columns = (waits.kind, rank[waits.operation], rank[waits.delayer], waits.severity)
    return {
        (WaitKind(kind), waiter, late): severity
        for kind, waiter, late, severity in zip(*(c.tolist() for c in columns), strict=True)
    }


def test_between_two_groups_each_waits_for_the_other() -> None:
    """Ranks 0 and 1 with 2 and 3; rank 1 is last, 3 is second."""
    begin = [0, 400, 100, 300]
    calls = two_groups()
    for name, at in (("MPI_Allreduce", 1000), ("MPI_Barrier", 2000)):
        calls += [
            collective(rank, name, at + begin[rank], at + 500, communicator=GROUPS)
            for rank in range(4)
        ]
    kinds = (WaitKind.WAIT_AT_NXN, WaitKind.WAIT_AT_BARRIER)
    assert waits_by_rank(made(calls, 4)) == {
        **{(kind, 0, 3): 300 for kind in kinds},
        **{(kind, 2, 1): 300 for kind in kinds},
        **{(kind, 3, 1): 100 for kind in kinds},
    }


def test_between_two_groups_the_roots_own_group_waits_for_nobody() -> None:
    """Rank 0 is the root, 1 beside it; 2 and 3 name it as rank 0 of the other group."""
    roots = [MPICH.root, MPICH.proc_null, 0, 0]
    late_root = [300, 0, 100, 200]
    early_root = [0, 50, 100, 200]
    calls = two_groups()
    for name, at, begin in (("MPI_Bcast", 1000, late_root), ("MPI_Reduce", 2000, early_root)):
        calls += [
            collective(rank, name, at + begin[rank], at + 400, communicator=GROUPS,
                       root=roots[rank])
            for rank in range(4)
        ]  # fmt: skip
    assert waits_by_rank(made(calls, 4)) == {
        (WaitKind.LATE_BROADCAST, 2, 0): 200,
        (WaitKind.LATE_BROADCAST, 3, 0): 100,
        (WaitKind.EARLY_REDUCE, 0, 3): 200,
    }


def test_what_is_made_between_two_groups_needs_everybody() -> None:
    dups = [
        (rank, "MPI_Comm_dup", 1000 + 100 * rank, 1400,
         {"communicator": GROUPS, "new_communicator": 0x84000005})
        for rank in range(4)
    ]  # fmt: skip
    assert waits_by_rank(made([*two_groups(), *dups], 4)) == {
        (WaitKind.WAIT_AT_NXN, rank, 3): 300 - 100 * rank for rank in range(3)
    }


def test_an_open_mpi_world_that_is_only_guessed_is_said() -> None:
    """A recording that begins in the middle of the run: handles are addresses, two are in use."""
    world, other = 0x7F0000001000, 0x5500000010
    functions = _recorded(OPENMPI)

    def used(rank: int, *handles: int) -> list[Call]:
        return [
            send(rank, 10 * at, 10 * at + 1, 1 - rank, communicator=handle)
            for at, handle in enumerate(handles, 1)
        ]

    calls = [*used(0, world, other, world), *used(1, world, world, other)]
    guessed = made(calls, 2, functions=functions)
    assert guessed.communicators.guessed_worlds.tolist() == [0, 1]
    assert guessed.unknown_communicators == 2
    # A rank that began in the recording has no other; another that was told the size knows.
    output: list[Call] = [
        (0, "MPI_Init", 0, 1, {}),
        (1, "MPI_Comm_size", 0, 1, {"communicator": other, "size": 2}),
    ]
    known = made([*output, *calls], 2, functions=functions)
    assert known.communicators.guessed_worlds.tolist() == []
    of_rank = known.recorded.rank[known.recorded.are(Role.SEND)]
    number = known.communicators.number[known.recorded.are(Role.SEND)]
    assert number[of_rank == 1].tolist() == [-1, -1, 0]


def test_two_groups_of_which_one_was_not_recorded_are_unknown() -> None:
    """Leaders that name nobody, and one that waits for a group that never comes."""
    between = 0x84000001
    new = {"communicator": WORLD, "new_communicator": between, "local_leader": 0, "tag": 3}
    calls = [
        *(
            (rank, "MPI_Intercomm_create", 0, 1,
             new | {"peer_communicator": 0x84000009 if rank else WORLD, "remote_leader": leader})
            for rank, leader in ((0, 1), (1, 7))
        ),
        send(0, 30, 31, 0, communicator=between),
        send(1, 30, 31, 0),
    ]  # fmt: skip
    mpi = made(calls, 2)
    assert [one.name for one in mpi.communicators.all] == ["MPI_COMM_WORLD"]
    assert mpi.unknown_communicators == 1
