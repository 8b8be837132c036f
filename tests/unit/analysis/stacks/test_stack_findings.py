"""Findings in snapshots of stacks: the merged tree, deadlocks, chains, outliers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hpcd.__main__ import main
from hpcd.analysis.answers.stack_table import stack_table
from hpcd.analysis.stacks.named_paths import Path
from hpcd.analysis.stacks.outliers import outliers
from hpcd.analysis.stacks.reading import Reading
from hpcd.analysis.stacks.recorded_stacks import _Event, _wait_at
from hpcd.analysis.stacks.stack_sentences import findings
from hpcd.analysis.stacks.stack_tree import merged, process_names
from hpcd.analysis.stacks.wait_words import named_wait, wait_text
from hpcd.analysis.stacks.waiting_chains import waiting_chains
from hpcd.analysis.symbols.frame_lookup import Frame
from hpcd.cli.output.stack_text import tree_lines
from hpcd.model.identity import Process
from hpcd.model.stack_snapshot import Activity, StackSnapshot, ThreadStack, Wait
from hpcd.wording import age, ages, number_ranges


def thread(tid: int, path: int = 0, *, pid: int = 0, wait: Wait | None = None) -> ThreadStack:
    return ThreadStack(tid, pid or tid, f"t{tid}", tid, Activity.ASLEEP, 1, 2.0, path, wait)


def path(*names: str, kernel: tuple[str, ...] = ()) -> Path:
    return tuple(Frame(name, "/bin/app", False) for name in names) + tuple(
        Frame(name, "[kernel]", True) for name in kernel
    )


def mutex(holder: int) -> Wait:
    return Wait("mutex", "mutex 0x10", "futex", 16, 2, (holder,))


def snapshot(threads: list[ThreadStack], processes: list[Process] = []) -> StackSnapshot:  # noqa: B006
    by_pid = {process.pid: process for process in processes}
    return StackSnapshot(0, 0.001, threads, by_pid, {}, {}, [np.zeros(0, np.uint64)])


def rank(number: int, pid: int, job: str = "7") -> Process:
    return Process(pid, pid, 1, "app", "/bin/app", ("app",), 0, 0, job, number, 8)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([7], "7"), ([3, 1, 2, 0, 7], "0-3,7"), ([5, 5, 4, 9, 10], "4-5,9-10")],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert number_ranges(numbers) == text


def test_durations_have_the_digits_that_matter() -> None:
    seconds = [0, 0.0042, 0.9996, 1.25, 9.96, 312, 1500, 3900, 200_000]
    words = ["0 ms", "4 ms", "1.0 s", "1.2 s", "10 s", "312 s", "25 min", "1 h 5 min", "2 d 7 h"]
    assert [age(value) for value in seconds] == words
    assert ages([3.1, None, 5.0]) == "3.1-5.0 s"
    assert ages([0.002, 5.0]) == "2 ms-5.0 s"
    assert ages([2.0, 2.0]) == "2.0 s"
    assert ages([None]) == ""


def test_paths_are_one_tree_by_procedure() -> None:
    paths = [
        (),
        path("main", "solve", kernel=("futex",)),
        path("main", "solve", "write"),
        path("main"),
    ]
    threads = [thread(1, 1), thread(2, 1), thread(3, 2), thread(4, 3)]
    root = merged(threads, paths)
    (main,) = root.children()
    assert (main.frame.name, len(main.threads), [t.tid for t in main.standing]) == ("main", 4, [4])
    (solve,) = main.children()
    assert [t.tid for t in solve.standing] == [1, 2]
    assert [node.frame.name for node in solve.children()] == ["write"]
    with_kernel = merged(threads, paths, kernel=True)
    names = {node.frame.name for node in with_kernel.children()[0].children()[0].children()}
    assert names == {"write", "futex"}


def test_a_thread_without_user_frames_shows_the_kernels() -> None:
    root = merged([thread(1, 0)], [path(kernel=("kthread", "schedule"))])
    assert [node.frame.name for node in root.children()] == ["kthread"]


def test_whose_threads_they_are() -> None:
    processes = {pid: rank(pid - 100, pid) for pid in range(100, 104)}
    threads = [thread(pid) for pid in (100, 101, 103, 500)]
    assert process_names(threads, processes) == "ranks 0-1,3, pid 500"
    assert process_names([thread(pid) for pid in range(500, 506)], processes) == "6 processes"


def test_ranks_in_many_ranges_are_counted() -> None:
    """A list of thousands of scattered ranks would say nothing."""
    processes = {pid: rank(2 * pid, pid) for pid in range(1, 14)}
    threads = [thread(pid) for pid in processes]
    assert process_names(threads, processes) == "13 ranks (2,4,6 ...)"
    assert process_names(threads[:-1], processes) == "ranks " + ",".join(map(str, range(2, 26, 2)))


def test_a_deadlock_and_those_behind_it() -> None:
    holders = {1: 2, 2: 3, 3: 1, 4: 1, 5: 4, 6: 7}
    threads = {tid: thread(tid, wait=mutex(holder)) for tid, holder in holders.items()}
    threads[7] = thread(7)
    waiting = waiting_chains(threads)
    assert [[t.tid for t in ring] for ring in waiting.deadlocks] == [[1, 2, 3]]
    assert [[t.tid for t in chain] for chain in waiting.chains] == [[5, 4, 1], [6, 7]]
    assert waiting.waiters == [2, 1]


def test_a_thread_that_waits_for_any_of_its_children_is_in_no_chain() -> None:
    wait = Wait("child", "child processes 2, 3", "wait4", holders=(2, 3))
    threads = {1: thread(1, wait=wait), 2: thread(2, wait=mutex(1)), 3: thread(3, wait=mutex(1))}
    waiting = waiting_chains(threads)
    assert not waiting.deadlocks
    assert [chain[-1].tid for chain in waiting.chains] == [1]


def test_joins_alone_are_no_news() -> None:
    join = Wait("thread", "thread 2 to end", "futex", 16, 2, (2,))
    assert not waiting_chains({1: thread(1, wait=join), 2: thread(2)}).chains


@pytest.mark.parametrize("seed", range(20))
def test_rings_are_those_a_plain_search_finds(seed: int) -> None:
    numbers = random.Random(seed)
    count = 40
    holders = {
        tid: holder
        for tid in range(1, count)
        if (holder := numbers.randrange(1, count + 20)) != tid
    }
    threads = {
        tid: thread(tid, wait=mutex(holders[tid]) if tid in holders else None)
        for tid in range(1, count)
    }
    expected = set()
    for start in threads:
        seen, at = [], start
        while at in holders and at in threads and at not in seen:
            seen.append(at)
            at = holders[at]
        if at == start and seen:
            expected.add(frozenset(seen))
    result = waiting_chains(threads)
    assert {frozenset(t.tid for t in ring) for ring in result.deadlocks} == expected
    for ring in result.deadlocks:
        for waiter, holder in zip(ring, ring[1:] + ring[:1], strict=True):
            assert holders[waiter.tid] == holder.tid
    # Everybody who waits for a living thread is in a ring or counted behind somebody.
    waiting = {tid for tid, holder in holders.items() if tid in threads and holder in threads}
    assert sum(result.waiters) == len(waiting) - sum(map(len, expected))


def test_the_rank_that_is_missing_is_named() -> None:
    paths = [
        (),
        path("main", "solve", "MPI_Allreduce", "poll"),
        path("main", "solve", "MPI_Allreduce", "spin"),
        path("main", "output", "io_write", "write"),
    ]
    threads = [thread(100 + number, 1 + number % 2) for number in range(8)]
    threads[7].path = 3
    groups = outliers(snapshot(threads, [rank(n, 100 + n) for n in range(8)]), paths)
    assert [(o.size, o.procedure, [m[0] for m in o.members]) for o in groups] == [
        (8, "MPI_Allreduce", ["rank 7"])
    ]
    assert groups[0].where == ["write"]


def test_a_ranks_wrapper_script_does_not_stand_for_it() -> None:
    paths = [(), path("main", "MPI_Barrier"), path("main", "waitpid")]
    threads = [thread(100 + n, 1) for n in range(4)] + [thread(200 + n, 2) for n in range(4)]
    processes = [rank(n, 100 + n) for n in range(4)] + [rank(n, 200 + n) for n in range(4)]
    assert outliers(snapshot(threads, processes), paths) == []


def test_halves_are_no_outliers_nor_those_of_whom_nothing_is_known() -> None:
    paths = [(), path("main", "a"), path("main", "b")]
    threads = [thread(100 + n, 1 + n % 2) for n in range(8)]
    processes = [rank(n, 100 + n) for n in range(8)]
    assert outliers(snapshot(threads, processes), paths) == []
    for member in threads[:7]:
        member.path = 1
    threads[7].path = 0
    assert outliers(snapshot(threads, processes), paths) == []


def test_waits_that_differ_by_what_they_are_for_are_one_row() -> None:
    paths: list[Path] = [(), path("main", "read")]
    threads = [
        thread(n, 1, pid=9, wait=Wait("file", f"descriptor {n}, /data/{n}", "read"))
        for n in range(1, 6)
    ]
    threads += [thread(n, 1, pid=9, wait=mutex(n % 2 + 1)) for n in range(6, 10)]
    shot = snapshot(threads, [Process(1, 9, 1, "app", "/bin/app", ("app",), 0, 0)])
    reading = Reading(shot, paths, [], waiting_chains({t.tid: t for t in threads}))
    rows = [
        line.partition("» ")[2] for line in tree_lines(stack_table(reading, threads)) if "»" in line
    ]
    assert rows == [
        "waits for read: various descriptors (--each shows each)",
        "waits for mutex 0x10 held by thread 1 (t1)",
        "waits for mutex 0x10 held by thread 2 (t2)",
    ]


def test_without_ranks_threads_are_compared_unless_everything_stands_out() -> None:
    paths = [(), path("main", "worker", "wait"), path("main", "worker", "write")]

    def pool(pid: int) -> list[ThreadStack]:
        started = [thread(pid + n, 2 if n == 5 else 1, pid=pid) for n in range(1, 17)]
        return [thread(pid, 2), *started]

    (group,) = outliers(snapshot(pool(100)), paths)
    assert (group.size, group.procedure) == (16, "wait")
    assert [label for label, _ in group.members] == ["thread 105 (t105)"]
    assert outliers(snapshot([t for pid in (100, 200, 300, 400) for t in pool(pid)]), paths) == []


@pytest.mark.parametrize(
    ("function", "kind", "holders"),
    [
        ("__lll_lock_wait", "mutex", (5,)),
        ("pthread_cond_wait@@GLIBC_2.3.2", "condition", ()),
        ("sem_wait", "semaphore", ()),
        ("gomp_team_barrier_wait_end", "barrier", ()),
        ("something", "mutex", (5,)),
    ],
)
def test_the_function_that_waits_says_what_kind_of_lock(
    function: str, kind: str, holders: tuple[int, ...]
) -> None:
    wait = named_wait(thread(1, wait=mutex(5)), path("main", function, kernel=("futex_wait",)))
    assert wait is not None
    assert (wait.kind, wait.holders) == (kind, holders)


def test_a_call_that_goes_on_after_a_signal() -> None:
    wait = Wait("restart_syscall", "restart_syscall", "restart_syscall")
    stopped = path("main", "sleep", kernel=("do_syscall_64", "hrtimer_nanosleep_restart"))
    named = named_wait(thread(1, wait=wait), stopped)
    assert wait_text(named, {}) == "a timer (since before a signal)"
    assert named_wait(thread(1, wait=wait), path("main")) == wait


def test_holders_have_their_names() -> None:
    assert wait_text(mutex(5), {5: thread(5)}) == "mutex 0x10 held by thread 5 (t5)"
    assert wait_text(mutex(5), {}) == "mutex 0x10 held by thread 5"


EVENTS = [
    _Event("cpu-clock", 0.001, False),
    _Event("blocked", 1e-6, True),
    _Event("runnable", 1e-6, True),
]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([(0, 1, 100), (100_000, 1, 900)], (0, 1, False), id="in pieces"),
        pytest.param([(0, 0, 1), (5_000, 1, 9000)], (5_000, 1, True), id="after a sample"),
        pytest.param([(0, 1, 100), (100_000, 2, 900)], (100_000, 2, True), id="of another kind"),
        pytest.param([(0, 1, 100), (200_000, 1, 900)], (200_000, 1, True), id="it ran in between"),
        pytest.param([(0, 1, 100)], (500_000, None, True), id="it runs"),
        pytest.param([], (500_000, None, False), id="nothing is known"),
    ],
)
def test_a_recorded_wait_and_when_it_began(
    records: list[tuple[int, int, int]], expected: tuple[int, int | None, bool]
) -> None:
    """At 0.5 ms, by records (time in ns, event, value) before it."""
    times, kinds, values = ([record[column] for record in records] for column in range(3))
    assert _wait_at(times, kinds, values, 500_000, EVENTS) == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["1234"], "unexpected argument 1234; did you mean --pid 1234?"),
        (["some/db"], "give --at SECONDS with a database, and no --watch"),
        (["some/db", "--at", "1", "--pid", "1"], "give either a database or processes"),
        (["--pid", "1", "--watch", "nan"], "--watch must be between 0.1 and 86400 seconds"),
    ],
)
def test_what_makes_no_sense_is_said_in_a_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stacks", *words]) == 2
    assert capsys.readouterr().err == f"hpcd: {said}\n"


def test_text_says_what_stands_out_first() -> None:
    paths: list[Path] = [(), path("main", "work")]
    threads = [thread(1, 1, pid=9, wait=mutex(2)), thread(2, 1, pid=9, wait=mutex(1))]
    shot = snapshot(threads, [Process(1, 9, 1, "app", "/bin/app", ("app",), 0, 0)])
    reading = Reading(
        shot, paths, outliers(shot, paths), waiting_chains({t.tid: t for t in threads})
    )
    lines = [sentence.text for sentence in findings(reading)]
    assert lines[0] == "deadlock: 2 threads wait for each other"
    assert "thread 1 (t1) of process 9 waits for mutex 0x10 held by thread 2 (t2)" in lines[1]
    tree = list(tree_lines(stack_table(reading, threads)))
    assert tree[0].split() == ["threads", "processes", "since", "call", "path"]
    assert tree[1].split() == ["2", "pid", "9", "2.0", "s", "main"]
    assert [line.split()[-1] for line in tree[1:3]] == ["main", "work"]


def test_a_very_deep_stack_is_a_tree_too() -> None:
    """More frames than Python nests calls."""
    threads = [thread(1, 0), thread(2, 1)]
    deep = [f"level{n}" for n in range(3000)]
    paths = [path(*deep, "read"), path(*deep, "write")]
    reading = Reading(snapshot(threads), paths, [], waiting_chains({t.tid: t for t in threads}))
    lines = list(tree_lines(stack_table(reading, threads)))
    assert len(lines) == 1 + 3000 + 2 * 2
    assert [line.split()[-1] for line in lines[-4::2]] == ["read", "write"]


def test_kernel_frames_end_as_in_all_tables_and_findings_name_their_rows() -> None:
    threads = [thread(1, wait=mutex(2)), thread(2, wait=mutex(1))]
    paths = [path("main", "lock", kernel=("futex_wait",))]
    reading = Reading(snapshot(threads), paths, [], waiting_chains({t.tid: t for t in threads}))
    table = stack_table(reading, kernel=True, most=9, line_of=lambda t: 10 * t.tid)
    assert table.names[0] == ["main", "lock", "futex_wait [k]"]
    rows = [finding["row"] for finding in table.findings]
    assert [table.line[int(row)] for row in rows] == [10, 10, 20]
    assert stack_table(reading).names[0] == ["main", "lock"]
