"""Findings are sentences with the figures of the database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.cpu_demand import CpuDemand
from hpcd.analysis.findings.facts import Facts
from hpcd.analysis.findings.finding import Finding
from hpcd.analysis.findings.findings import RULES, findings, scene
from hpcd.analysis.findings.phrase import NO_PHRASE, Phrase, fit_phrases
from hpcd.analysis.findings.places import Place, library_name
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.analysis.findings.work_sharing import innermost_of_most
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.parallel.imbalance import measure
from hpcd.model.identity import ModuleKind
from tests.support.imported import imported
from tests.support.made import Step, make


def uneven(folder: Path) -> Path:
    """Rank 0 solves for 3 s, the others for 1 s and wait for it, spinning or asleep."""
    steps: dict[int, list[Step]] = {
        0: [("main/solve/kernel", "cpu", 3.0)],
        1: [("main/solve/kernel", "cpu", 1.0), ("main/MPI_Recv", "cpu", 2.0)],
        2: [("main/solve/kernel", "cpu", 1.0), ("main/swap/MPI_Wait/k_sleep", "blocked", 2.0)],
    }
    return make(folder / "db", steps, helper=True)


def test_who_works_most_and_what_the_others_wait_in(tmp_path: Path) -> None:
    with hpcd.analysis.open(uneven(tmp_path)) as db:
        reported = {finding.kind: finding for finding in findings(db)}
        # The imbalance explains the waits.
        assert list(reported) == ["imbalance", "communication", "hot"]
        assert reported["hot"].text == (
            "Most work is done in kernel: 5.000 s, 71 % of the CPU time, in main > solve > kernel."
        )
        assert reported["hot"].procedure == "kernel"
        assert reported["imbalance"].text == (
            "Rank 0 works 3.000 s (mean 1.667 s): balance saves 1.333 s, 44 % of the ranks' time,"
            " in main > solve > kernel."
        )
        assert reported["imbalance"].line is not None
        assert int(db.lines.rank[reported["imbalance"].line]) == 0
        # Helper threads sleep all the time and do not count: 4 of 9 seconds.
        assert reported["communication"].text == (
            "Ranks wait for others: 4.000 s, 44 % of the ranks' time, 50 % in main > MPI_Recv;"
            " 100 % with rank 0 in solve > kernel."
        )
        sentence = "3 ranks with 6 threads over 3 s, on average 2.3 CPUs busy"
        assert scene(db) == sentence + "; 3 of the threads hardly ran."


def test_code_without_names_counts_for_its_nearest_caller_that_has_one(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {0: [("main/solve/[app+0x1234]", "cpu", 1.0)]}
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        (hot,) = findings(db)
        assert hot.procedure == "solve" and hot.text.startswith(
            "Most work is done in solve: 1.000 s, 100 % of the CPU time"
        )
    nameless: dict[int, list[Step]] = {0: [("[app+0x10]/[app+0x1234]", "cpu", 1.0)]}
    with hpcd.analysis.open(make(tmp_path / "nameless", nameless)) as db:
        (hot,) = findings(db)
        assert hot.text == (
            "Most work is done in code of app that has no names: 1.000 s, 100 % of the CPU time."
        )


def test_what_is_even_is_no_news(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {rank: [("main/solve", "cpu", 1.0)] for rank in range(3)}
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        assert [finding.kind for finding in findings(db)] == ["hot"]


def test_a_report_begins_with_what_stands_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = uneven(tmp_path)
    assert main(["report", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("6 trace lines (3 hardly ran), 3.0 s, 8 calling contexts")
    assert sum(line.startswith("stands out: ") for line in lines) == 3
    # What a filter leaves out would not be what is shown.
    assert main(["report", str(path), "--filter", "rank=0"]) == 0
    assert "stands out" not in capsys.readouterr().out


def test_which_process_of_a_program_costs_most(tmp_path: Path) -> None:
    """As of a build, where one file takes longer than all others."""
    work: dict[int, list[Step]] = {
        number: [("main/compile", "cpu", 3.0 if number == 2 else 0.5)] for number in range(4)
    }
    with hpcd.analysis.open(make(tmp_path / "db", work, size=0, name="cc1plus")) as db:
        reported = {finding.kind: finding for finding in findings(db)}["processes"]
        assert reported.text == (
            "cc1plus (4 processes) used 4.500 s, 100 % of the CPU time, of which process 102"
            " 3.000 s."
        )
        assert reported.line is not None and db.lines[reported.line].pid == 102
    even: dict[int, list[Step]] = {n: [("main/compile", "cpu", 1.0)] for n in range(4)}
    with hpcd.analysis.open(make(tmp_path / "even", even, size=0, name="cc1plus")) as db:
        assert [finding.kind for finding in findings(db)] == ["hot"]


def test_thousands_of_cpus_are_written_out(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {rank: [("main/solve", "cpu", 0.02)] for rank in range(120)}
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        assert scene(db) == "120 ranks with 120 threads over 0.0195 s, on average 123 CPUs busy."


def test_a_team_is_one_context_whichever_of_its_threads_came_from_the_program(
    tmp_path: Path,
) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/GOMP_parallel/solve._omp_fn.0/kernel", "cpu", 1.0),
            ("main/GOMP_barrier/k_futex_wait", "blocked", 1.0)],
        1: [("solve._omp_fn.0/kernel", "cpu", 2.0)],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, threads=True)) as db:
        reported = findings(db)
        assert [finding.kind for finding in reported] == ["imbalance", "communication", "hot"]
        assert reported[0].text == (
            "Thread 101 works 2.000 s (mean 1.500 s): balance saves 500.0 ms, 25 % of the threads'"
            " time, in solve._omp_fn.0 > kernel."
        )
        assert reported[2].text == (
            "Most work is done in kernel: 3.000 s, 100 % of the CPU time, in solve._omp_fn.0 >"
            " kernel."
        )


def test_the_library_of_a_language_works_for_the_program(tmp_path: Path) -> None:
    """Though it is part of the program's file; which of Go's threads runs what is chance."""
    build = "runtime.goexit.abi0/main.main/main.build/runtime.concatstrings/runtime.memmove"
    idle = "runtime.mcall/runtime.findRunnable/runtime.futexsleep/k_futex_wait"
    steps: dict[int, list[Step]] = {
        0: [(build, "cpu", 2.0)],
        1: [(build, "cpu", 0.5), (idle, "blocked by 0", 1.5)],
    }
    with hpcd.analysis.open(make(tmp_path / "go", steps, threads=True)) as db:
        assert [finding.text for finding in findings(db)] == [
            "Most work is done in main.build: 2.500 s, 100 % of the CPU time, in main.main >"
            " main.build > runtime.concatstrings."
        ]
    steps = {0: [("runtime.gcBgMarkWorker/runtime.scanobject", "cpu", 2.0), (build, "cpu", 1.0)]}
    with hpcd.analysis.open(make(tmp_path / "gc", steps, threads=True)) as db:
        assert findings(db)[0].text == (
            "Most work is done in the garbage collector of solver: 2.000 s, 67 % of the CPU time."
        )
    steps = {0: [("runtime.asmcgocall/[solver+0x40]", "cpu", 2.0), (build, "cpu", 1.0)]}
    with hpcd.analysis.open(make(tmp_path / "cgo", steps, threads=True)) as db:
        assert findings(db)[0].text == (
            "Most work is done in code of solver that has no names: 2.000 s, 67 % of the CPU time."
        )
    steps = {0: [("main/sum_up/std::accumulate<int*>/std::plus<int>::operator()", "cpu", 1.0)]}
    with hpcd.analysis.open(make(tmp_path / "c++", steps, threads=True)) as db:
        assert [finding.text for finding in findings(db)] == [
            "Most work is done in sum_up: 1.000 s, 100 % of the CPU time, in main > sum_up >"
            " std::accumulate."
        ]


def test_a_sleep_by_means_of_a_condition_is_sleep(tmp_path: Path) -> None:
    """Java sleeps so; helper threads of Node.js wait for tasks so."""
    wait = "pthread_cond_timedwait/kernel:futex_wait"
    steps: dict[int, list[Step]] = {
        0: [("main/ask", "cpu", 1.0), (f"main/ask/JVM_Sleep/{wait}", "blocked by TIMER", 2.0)],
        1: [("main/answer", "cpu", 1.0), (f"main/answer/{wait}", "blocked by TIMER", 2.0)],
    }
    path = make(tmp_path / "java", steps, threads=True, library="/usr/lib/jvm/libjvm.so")
    with hpcd.analysis.open(path) as db:
        sleep, *_ = findings(db)
        assert sleep.text.startswith(
            "Threads sleep: 2.000 s, 50 % of the threads' time, in main > ask"
        )
    name = "node::(anonymous namespace)::PlatformWorkerThread(void*)"
    steps = {
        0: [("main/run", "cpu", 2.0)],
        1: [("main/run", "cpu", 0.5), (f"{name}/{wait}", "blocked by 0", 1.5)],
    }
    with hpcd.analysis.open(make(tmp_path / "node", steps, threads=True)) as db:
        assert [finding.kind for finding in findings(db)] == ["hot"]


def test_a_lock_that_is_held_where_others_wait_for_it(tmp_path: Path) -> None:
    """The place is said once, however long the path."""
    path = "main/handles_the_requests_of_clients/looks_up_or_computes_the_answer"
    lock = f"{path}/pthread_mutex_lock/kernel:futex_wait"
    steps: dict[int, list[Step]] = {
        0: [(path, "cpu", 1.0), (lock, "blocked by 1", 1.0)],
        1: [(lock, "blocked by 0", 1.0), (path, "cpu", 1.0)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, threads=True)) as db:
        locks, *_ = findings(db)
        assert locks.text == (
            "Threads wait for locks: 2.000 s, 50 % of the threads' time, in"
            " looks_up_or_computes_the_answer; held 100 % there."
        )


def test_to_wait_for_children_is_no_loss(tmp_path: Path) -> None:
    for number, wait in enumerate(("main/waitpid/k_wait", "main/pthread_join/k_futex")):
        steps: dict[int, list[Step]] = {0: [("main/solve", "cpu", 1.0), (wait, "blocked", 3.0)]}
        with hpcd.analysis.open(make(tmp_path / str(number), steps, size=0)) as db:
            assert [finding.kind for finding in findings(db)] == ["hot"], wait


def test_a_small_loss_does_not_come_before_the_work(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 0.9), ("main/save/Fdatasync", "blocked", 0.1)]
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        reported = findings(db)
        assert [finding.kind for finding in reported] == ["hot", "blocked"]
        assert reported[1].text == (
            "Threads are blocked by the kernel: 100.0 ms, 10 % of the threads' time, in main > save"
            " > Fdatasync."
        )


@pytest.mark.parametrize(
    ("ran", "waited", "taken", "own", "words"),
    [
        (0.93, 0.06, None, False, "other programs had the CPUs, these got 0.93 of 2 CPUs"),
        (1.3, 0.6, 0.6, False, "other programs, hpcd among them, used 0.6 of 2 CPUs"),
        (1.0, 1.0, 0.1, True, "2 at a time want to run and get 1 of 2 CPUs"),
        (1.0, 1.0, None, True, "2 at a time want to run and get 1 of 2 CPUs"),
        (1.9, 2.1, None, True, "4 at a time want to run on 2 CPUs"),
        (1.9, 478.1, None, True, "480 at a time want to run on 2 CPUs"),
        (1.4, 2.6, 0.6, True, "4 at a time want to run on 2 CPUs; other programs, hpcd among"),
        # Requests to a pool of six threads pile up where others have the CPUs.
        (0.2, 5.6, 1.8, False, "other programs, hpcd among them, used 1.8 of 2 CPUs"),
        (0.8, 8.2, 1.2, True, "9 at a time want to run on 2 CPUs"),
    ],
)
def test_who_had_the_cpus_that_threads_wanted(
    ran: float, waited: float, taken: float | None, own: bool, words: str
) -> None:
    """One thread waits for none of its own; several may be bound to one CPU, or be too many."""
    demand = CpuDemand(10 * ran, 10 * waited, 10.0, 2, None if taken is None else 10 * taken)
    assert demand.own is own and words in "".join(phrase.words for phrase in demand.reason)


@pytest.mark.parametrize(
    ("ran", "waited", "taken", "withheld", "own", "words"),
    [
        (0.5, 0.5, 0.6, 0.5, True, ": their control group's limit withheld 0.5 of 2 CPUs"),
        (0.5, 3.5, 0.0, 1.5, True, ": their control group's limit withheld 1.5 of 2 CPUs"),
        (0.5, 0.5, 1.5, 0.1, False, "used 1.5 of 2 CPUs; their control group's limit withheld 0.1"),
        (
            1.9,
            2.1,
            0.1,
            0.3,
            True,
            "want to run on 2 CPUs; their control group's limit withheld 0.3",
        ),
    ],
)
def test_what_a_limit_withheld_no_other_programs_had(
    ran: float, waited: float, taken: float, withheld: float, own: bool, words: str
) -> None:
    demand = CpuDemand(10 * ran, 10 * waited, 10.0, 2, 10 * taken, 10 * withheld)
    assert demand.own is own
    assert words in "".join(phrase.words for phrase in demand.reason)


@pytest.mark.parametrize(
    ("waited", "taken", "withheld", "enough"),
    [(0.6, 0.2, 0.0, True), (0.6, None, 0.0, True), (0.6, 0.3, 0.0, False), (0.9, 0.0, 0.0, False),
     (0.6, 0.0, 0.5, False)],
)  # fmt: skip
def test_cpus_are_enough_that_are_idle_for_as_long_as_threads_wait_for_them(
    waited: float, taken: float | None, withheld: float, enough: bool
) -> None:
    assert CpuDemand(1.2, waited, 1.0, 2, taken, withheld).enough is enough


def test_where_the_number_of_cpus_is_not_known_none_is_stated() -> None:
    """Recordings of other tools do not have it."""
    assert CpuDemand(0.7, 0.3, 1.0, 0, None).reason == ()


def test_threads_that_wait_for_each_other_are_not_said_to_lack_a_cpu(tmp_path: Path) -> None:
    lock = "main/pthread_mutex_lock/k_wait"
    steps: dict[int, list[Step]] = {
        0: [("main/begin", "runnable", 0.1), (lock, "blocked", 2.9)],
        1: [(lock, "blocked", 3.0)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        assert [finding.text for finding in findings(db)] == [
            "Threads wait for locks: 5.900 s, 98 % of the threads' time, in main."
        ]


def test_shares_of_the_threads_time_are_of_one_whole(tmp_path: Path) -> None:
    """Also where other programs had the CPUs for a part of it."""
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 1.0), ("main/solve", "runnable", 1.0),
            ("main/load/k_sleep", "blocked", 2.0)],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        by_kind = {finding.kind: finding for finding in findings(db)}
    for kind, share in (("blocked", 0.5), ("outside", 0.25)):
        assert by_kind[kind].whole == "the threads' time"
        assert by_kind[kind].share == pytest.approx(share, abs=0.01)


def test_of_an_interpreter_one_frame_is_named_in_a_run_of_them(tmp_path: Path) -> None:
    run = "pymain/run_file/eval_frame"
    steps: dict[int, list[Step]] = {
        0: [(f"{run}", "cpu", 1.0), (f"{run}/vectorcall/eval_frame", "cpu", 1.0),
            (f"{run}/call/eval_frame", "cpu", 1.0), (f"{run}/Loads/k_sleep", "blocked", 2.0),
            (f"{run}/call/eval_frame/Loads/k_sleep", "blocked", 2.0)],
    }  # fmt: skip
    program = "/usr/bin/python3.11"
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, program=program)) as db:
        assert [finding.text for finding in findings(db)] == [
            "Threads are blocked by the kernel: 4.000 s, 57 % of the threads' time, in eval_frame >"
            " Loads.",
            "Most work is done in eval_frame: 3.000 s, 100 % of the CPU time.",
        ]


def test_at_most_two_places_are_named(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [(f"main/{caller}/solve", "cpu", 1.0) for caller in ("a", "b", "c", "d")]
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        (hot,) = findings(db)
    assert hot.text.count(" % from ") == 2


def test_a_lock_that_nobody_else_takes_is_work(tmp_path: Path) -> None:
    step: list[Step] = [("main/solve/pthread_mutex_lock", "cpu", 1.0)]
    for threads, kinds in ((1, ["hot"]), (2, ["locks"])):
        steps = dict.fromkeys(range(threads), step)
        with hpcd.analysis.open(make(tmp_path / str(threads), steps, size=0, threads=True)) as db:
            assert [finding.kind for finding in findings(db)] == kinds


def test_what_has_no_names_is_called_by_its_module(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("[app+0x10]/[app+0x20]/Fsync/k_sleep", "blocked", 1.0), ("Encode", "cpu", 2.0),
            ("[app+0x10]/memcpy@plt", "cpu", 0.1)],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        by_kind = {finding.kind: finding for finding in findings(db)}
        assert by_kind["hot"].text == (
            "Most work is done in libmpi.so: 2.000 s, 95 % of the CPU time."
        )
        assert by_kind["blocked"].place.path == ("[app]", "Fsync")


def test_uneven_work_of_a_stripped_program_is_told_by_its_module(tmp_path: Path) -> None:
    start, work, meet = "[app+0x10]", "[app+0x20-0x2f]", "[app+0x30]"
    steps: dict[int, list[Step]] = {
        0: [(f"{start}/{work}", "cpu", 3.0)],
        1: [(f"{start}/{work}", "cpu", 1.0), (f"{start}/{meet}/MPI_Recv", "cpu", 2.0)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        by_kind = {finding.kind: finding for finding in findings(db)}
        assert by_kind["imbalance"].place.path == ("[app]",)
        assert by_kind["communication"].place.path == ("[app]", "MPI_Recv")
        assert by_kind["communication"].text.endswith("; 100 % one at a time.")


def test_threads_that_run_briefly_all_their_lives_do_the_work(tmp_path: Path) -> None:
    """Those that serve a busy one wait for most of theirs."""
    steps: dict[int, list[Step]] = {0: [("main/create", "cpu", 1.0)]}
    steps |= {number: [("work", "cpu", 0.04)] for number in range(1, 51)}
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        assert [finding.text for finding in findings(db) if finding.kind == "hot"] == [
            "Most work is done in work: 2.000 s, 67 % of the CPU time."
        ]


def test_brief_processes_that_run_beside_one_another_take_the_time_once(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 0.02), ("main/waitpid/k_wait", "blocked", 0.08)]
    }
    short = [("main/solve", "cpu", 0.004), ("main/k_io", "blocked", 0.006)]
    steps |= {number: short for number in range(1, 31)}
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        assert [finding.text for finding in findings(db) if finding.kind == "children"] == [
            "30 processes live 10.00 ms each, at least one for 10.00 ms, 10 % of the time recorded,"
            " started by main."
        ]


def test_brief_processes_are_worth_starting_for_work_of_their_own(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 0.02), ("main/waitpid/k_wait", "blocked", 0.08)]
    }
    steps |= {number: [("main/solve", "cpu", 0.01)] for number in range(1, 31)}
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        assert [finding.kind for finding in findings(db)] == ["hot"]


@pytest.mark.parametrize(
    ("call", "waits"),
    [("pthread_join", False), ("pthread_cond_wait", False), ("pthread_barrier_wait", False),
     ("pthread_mutex_lock", False), ("PMPI_Allreduce", True), ("GOMP_barrier", True),
     ("pthread_spin_lock", True)],
)  # fmt: skip
def test_samples_alone_do_not_tell_that_a_thread_sleeps(
    tmp_path: Path, call: str, waits: bool
) -> None:
    """Calls that wait on the CPU are waits even if no waits were recorded."""
    text = "".join(
        f"app 10/{tid} {100 + at / 100:.2f}: 10000000 cpu-clock: \n{path}\n\n"
        for at in range(200)
        for tid, path in (
            (10, f"\t  401000 {call} (/lib/libx.so)\n\t  401010 main (/bin/app)"),
            *((tid, "\t  401000 work (/bin/app)") for tid in (11, 12, 13)),
        )
    )
    (tmp_path / "perf.txt").write_text(text)
    imported(tmp_path / "perf.txt", tmp_path / "m")
    merge([tmp_path / "m"], tmp_path / "db", workers=1)
    with Database(tmp_path / "db") as db:
        texts = [finding.text for finding in findings(db)]
        assert any(" wait for " in text for text in texts) == waits
        if call != "pthread_spin_lock":
            assert any(" works " in text for text in texts) == waits
            assert bool(measure(db).blame.sum()) == waits


def test_threads_that_do_something_else_are_no_part_of_a_team(tmp_path: Path) -> None:
    """Two compress, a third writes the output: the two have shared the work evenly, or not."""
    take = "main/take/pthread_cond_wait/k_futex_wait"
    for least, uneven in ((0.95, False), (0.4, True)):
        steps: dict[int, list[Step]] = {
            0: [("main/compress", "cpu", 1.0)],
            1: [("main/compress", "cpu", least), (take, "blocked by 0", 1.0 - least)],
            2: [("main/write", "cpu", 0.05), (take, "blocked by 0", 0.95)],
        }  # fmt: skip
        with hpcd.analysis.open(make(tmp_path / f"{least}", steps, size=0, threads=True)) as db:
            texts = [finding.text for finding in findings(db) if finding.kind == "imbalance"]
        assert any("(mean 0.700 s)" in text for text in texts) == uneven == bool(texts)


def test_nameless_procedures_of_a_module_are_one_place(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/part", "cpu", 0.3), *((f"[app+0x{at}00]", "cpu", 0.07) for at in range(1, 8))]
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        assert findings(db)[0].text == (
            "Most work is done in code of app that has no names: 490.0 ms, 62 % of the CPU time."
        )


def test_who_had_a_cpu_for_longer_works_for_longer(tmp_path: Path) -> None:
    """That is no loss where whoever is free takes the next task; to wait for the others is."""
    work = "main/worker/work"

    def kinds(name: str, seconds: float) -> list[str]:
        steps: dict[int, list[Step]] = {
            0: [("main", "cpu", 0.1), ("main/pthread_cond_wait/k_sleep", "blocked by 1", 2.9)],
            1: [(work, "cpu", 2.5), (work, "runnable by stress 7", 0.5)],
            2: [(work, "cpu", 0.5), (work, "runnable by stress 7", 2.5 - seconds)],
        }
        if seconds:
            steps[2].append(("main/worker/pthread_barrier_wait/k_sleep", "blocked by 1", seconds))
        with hpcd.analysis.open(make(tmp_path / name, steps, size=0, threads=True)) as db:
            return [finding.kind for finding in findings(db)]

    assert "imbalance" not in kinds("dynamic", 0.0)
    assert "imbalance" in kinds("static", 2.0)


def test_a_thread_that_looks_after_others_may_sleep(tmp_path: Path) -> None:
    """Though it has no CPU for most of its life, as Go's sysmon on a busy machine."""
    steps: dict[int, list[Step]] = {
        0: [("main/work", "cpu", 2.0)],
        1: [
            ("watch", "cpu", 0.01), ("watch", "runnable by stress 7", 1.2),
            ("watch/kernel:do_nanosleep", "blocked by TIMER", 0.6),
        ],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        assert "sleep" not in {finding.kind for finding in findings(db)}


def test_a_library_works_for_a_program_without_names(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {0: [("[solver+0x10]/[solver+0x1234]/Sqlite_step", "cpu", 1.0)]}
    path = make(tmp_path / "db", steps, library="/usr/lib/libsqlite3.so.0")
    with hpcd.analysis.open(path) as db:
        (hot,) = findings(db)
        assert hot.text.startswith(
            "Most work is done in libsqlite3.so.0 for solver: 1.000 s, 100 %"
        )


def test_amounts_have_room_before_places() -> None:
    place = Phrase("65 % in ", ("dispatches_the_call_of_an_extension",))
    few = Finding("blocked", "x" * 70, 0.1281, "s", 0.003, "the threads' time", place)
    assert few.text == "x" * 70 + " 128.1 ms, 0.3 % of the threads' time."


def test_polling_without_a_cpu_is_one_amount_in_sentences_and_imbalance(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 3.0)],
        1: [
            ("main/solve", "cpu", 1.0), ("main/MPI_Recv", "cpu", 0.5),
            ("main/MPI_Recv", "runnable by stress 7", 1.5),
        ],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        waited = float(TimeUse(db).seconds(Use.OTHERS).sum())
        assert waited == pytest.approx(float(measure(db).idle.sum()), abs=0.01)


def test_threads_of_one_phase_after_another_are_no_team(tmp_path: Path) -> None:
    work = "main/worker/work"
    steps: dict[int, list[Step]] = {
        number: [(work, "cpu", seconds)] for number, seconds in enumerate((1.0, 1.0, 3.0, 3.0))
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        assert [finding.kind for finding in findings(db)] == ["hot"]
        assert list(measure(db).ranks.number) == [102, 103]
    steps[0] = steps[1] = [(work, "cpu", 1.0), ("main/worker", "unseen", 2.0)]
    with hpcd.analysis.open(make(tmp_path / "team", steps, size=0, threads=True)) as db:
        assert [finding.kind for finding in findings(db)] == ["imbalance", "hot"]


def test_waiting_for_a_cpu_is_not_waiting_for_others(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        number: [("main/work", "cpu", 1.0), ("main/pthread_barrier_wait", "runnable", 3.0)]
        for number in range(4)
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        by_kind = {finding.kind: finding for finding in findings(db)}
        assert set(by_kind) == {"runnable", "hot"}
        assert by_kind["runnable"].value == pytest.approx(12.0)


def sampled(folder: Path, *paths: tuple[int, str]) -> Database:
    """A database of so many samples of 10 ms of each call path, the innermost frame first."""
    every = [path for count, path in paths for _ in range(count)]
    text = "".join(
        f"app 10/10 {100 + at / 100:.2f}: 10000000 cpu-clock: \n"
        + "".join(f"\t  {frame}\n" for frame in path.split("; "))
        + "\n"
        for at, path in enumerate(every)
    )
    (folder / "perf.txt").write_text(text)
    imported(folder / "perf.txt", folder / "m")
    merge([folder / "m"], folder / "db", workers=1)
    return Database(folder / "db")


def test_the_body_of_a_region_needs_no_name_to_be_work(tmp_path: Path) -> None:
    """As in a stripped library whose only thread runs the region itself."""
    called = "401 GOMP_parallel (/usr/lib/libgomp.so.1); 501 blur (/opt/libblur.so)"
    main = "601 main (/bin/app)"
    with sampled(
        tmp_path,
        (90, f"511 [unknown] (/opt/libblur.so); {called}; {main}"),
        (10, f"402 gomp_team_start (/usr/lib/libgomp.so.1); {called}; {main}"),
    ) as db:
        reported = findings(db)
        assert reported[0].kind == "hot" and reported[0].value == pytest.approx(0.9)
        assert not [one for one in reported if "team" in one.text and one.share > 0.11]


def test_what_tracing_takes_is_no_work_of_the_program(tmp_path: Path) -> None:
    read = "501 pread64 (/usr/lib/libc.so.6); 601 main (/bin/app)"
    traced = "ff2 bpf_trace_run2 ([kernel.kallsyms]); ff1 syscall_exit_work ([kernel.kallsyms])"
    program = "ff3 bpf_prog_0123456789abcdef_on_call_exit ([kernel.kallsyms])"
    with sampled(
        tmp_path,
        (60, f"{program}; {traced}; {read}"),
        (40, "611 work (/bin/app); 601 main (/bin/app)"),
    ) as db:
        assert [finding.text for finding in findings(db)] == [
            "Most work is done in work: 400.0 ms, 100 % of the CPU time, in main > work.",
            "Recording itself took 600.0 ms, 60 % of the CPU time: recording without --io or"
            " --memory costs less.",
        ]


def test_a_library_that_does_the_work_is_named(tmp_path: Path) -> None:
    with sampled(
        tmp_path,
        (90, "701 vm_exec (/usr/lib/libruby-3.1.so.3.1); 601 main (/usr/bin/ruby3.1)"),
        (10, "602 other (/usr/bin/ruby3.1); 601 main (/usr/bin/ruby3.1)"),
    ) as db:
        assert findings(db)[0].text.startswith(
            "Most work is done in libruby-3.1.so.3.1 for main: 900.0 ms, 90 % of the CPU time"
        )


def test_packages_work_for_the_function_of_the_program_that_calls_them(tmp_path: Path) -> None:
    blas = "/opt/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_-32.so"
    array = "/opt/lib/python3.12/site-packages/numpy/_core/_multiarray_umath.cpython-312.so"
    with sampled(
        tmp_path,
        (50, f"701 dgemm ({blas}); 702 dot ({array}); 601 solve (/home/ada/app)"),
        (10, "601 solve (/home/ada/app)"),
        (40, f"703 server ({blas})"),
    ) as db:
        first = findings(db)[0].text
    assert first.startswith(f"Most work is done in {Path(blas).name} for solve: 600.0 ms, 60 %")


def test_an_extension_module_is_called_as_it_is_imported(tmp_path: Path) -> None:
    module = "/usr/lib/python3.12/lib-dynload/_json.cpython-312-x86_64-linux-gnu.so"
    with sampled(tmp_path, (90, f"701 c_make ({module}); 601 solve (/home/ada/app)")) as db:
        assert findings(db)[0].text.startswith("Most work is done in _json for solve: 900.0 ms")


def test_a_package_of_java_is_called_by_its_name() -> None:
    assert library_name(ModuleKind.JAVA, "java/util/HashMap.java", own=False) == "java.util"
    assert library_name(ModuleKind.JAVA, "org/example/Main.java", own=True) == ""
    assert library_name(ModuleKind.JAVA, "[java]", own=False) == ""
    assert (
        library_name(ModuleKind.ELF, "/usr/lib/jvm/lib/server/libjvm.so", own=False) == "libjvm.so"
    )


def test_beside_a_package_the_programs_own_function_is_named(tmp_path: Path) -> None:
    package = "/opt/lib/python3.12/site-packages/torch/lib/libtorch_cpu.so"
    with sampled(tmp_path, (70, f"703 worker ({package})"), (30, "601 step (/home/ada/app)")) as db:
        assert findings(db)[0].text == (
            "Most work is done in libtorch_cpu.so: 700.0 ms, 70 % of the CPU time; of the program's"
            " own most in step, 30 %."
        )


POOL: Step = ("serve/take/pthread_cond_wait/k_futex_wait", "blocked by 0", 0.9)


def test_a_pool_that_waits_for_requests_is_idle(tmp_path: Path) -> None:
    """The thread that hands them over has none itself."""
    serves: list[Step] = [POOL, ("serve/answer", "cpu", 0.1)] * 3
    steps: dict[int, list[Step]] = {
        0: [("main/usleep/kernel:do_nanosleep", "blocked by TIMER", 0.9), ("main", "cpu", 0.1)] * 3,
        1: serves, 2: serves,
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "idle", steps, size=0, threads=True)) as db:
        assert "communication" not in [finding.kind for finding in findings(db)]
        assert TimeUse(db).by_thread[1:, Use.EVENTS] == pytest.approx(2.7)
    steps[0] = [("main/prepare", "cpu", 1.0)] * 3
    with hpcd.analysis.open(make(tmp_path / "fed", steps, size=0, threads=True)) as db:
        first = findings(db)[0]
        assert first.kind == "communication" and first.value == pytest.approx(5.4)
    steps[0] = [("main/prepare", "runnable", 0.9), ("main/prepare", "cpu", 0.1)] * 3
    with hpcd.analysis.open(make(tmp_path / "starved", steps, size=0, threads=True)) as db:
        listed = findings(db)
        assert "communication" not in [finding.kind for finding in listed]
        without = {one.subject: one.value for one in listed if one.kind == "runnable"}
        assert without == {
            "Threads wait for a CPU": pytest.approx(2.7),
            "Threads wait for others without a CPU": pytest.approx(5.4),
        }


def test_the_uses_of_each_thread_add_up_to_its_time(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/work", "cpu", 0.5),
            ("main/usleep/kernel:do_nanosleep", "blocked by TIMER", 0.9)] * 2,
        1: [("serve/answer", "cpu", 0.3), POOL, ("serve/answer", "runnable", 0.2)] * 2,
        2: [("serve/pthread_mutex_lock/k_futex_wait", "blocked by 1", 1.0),
            ("serve/pthread_mutex_lock", "cpu", 0.1), ("serve/Write/k_io", "blocked", 0.5)],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        use = TimeUse(db)
        lived = (db.lines.end - db.lines.start) / 1e9
        assert use.by_thread.sum(1) == pytest.approx(lived, abs=1e-6)
        counted = sum(float(use.seconds(of).sum()) for of in Use)
        assert counted == pytest.approx(float(lived.sum()), abs=1e-6)


def test_a_pool_of_a_library_is_not_waited_for(tmp_path: Path) -> None:
    """Nor are there wakers in recordings of other tools."""
    steps: dict[int, list[Step]] = {
        0: [("main/work", "cpu", 3.0)],
        1: [("Pool/pthread_cond_wait/k_futex_wait", "blocked", 2.5), ("Pool", "cpu", 0.5)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        assert "communication" not in [finding.kind for finding in findings(db)]


def test_who_writes_to_a_full_pipe_waits_for_its_reader(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/produce", "cpu", 0.1), ("main/produce/write/kernel:pipe_write", "blocked", 2.9)],
        1: [("main/read/kernel:pipe_read", "blocked", 0.1), ("main/consume", "cpu", 2.9)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        (wait,) = (one for one in findings(db) if one.kind == "communication")
        assert wait.value == pytest.approx(2.9) and "main > produce > write" in wait.text
    steps[1].append(("main/consume", "cpu", 15.0))
    with hpcd.analysis.open(make(tmp_path / "late", steps, size=0)) as db:
        assert [one.kind for one in findings(db)] == ["hot"]


def test_threads_that_serve_requests_need_not_share_them_evenly(tmp_path: Path) -> None:
    """Less of the busiest one's time would pass no sooner."""
    pause: Step = ("main/usleep/kernel:do_nanosleep", "blocked by TIMER", 3.0)
    for rest, uneven in ((28.0, False), (1.0, True)):
        take: Step = ("serve/take/pthread_cond_wait/k_futex_wait", "blocked by 0", rest)
        steps: dict[int, list[Step]] = {
            0: [pause] * (10 if rest > 3 else 1),
            1: [take, ("serve/answer", "cpu", 2.0)], 2: [take, ("serve/answer", "cpu", 0.5)],
        }  # fmt: skip
        with hpcd.analysis.open(make(tmp_path / f"{rest}", steps, size=0, threads=True)) as db:
            assert ("imbalance" in [finding.kind for finding in findings(db)]) == uneven


def test_to_wait_for_who_is_late_for_want_of_a_cpu_is_no_loss(tmp_path: Path) -> None:
    meet = "main/pthread_barrier_wait/k_futex_wait"
    for wait, lost in ((0.06, False), (0.2, True)):
        steps: dict[int, list[Step]] = {
            0: [("main/work", "runnable", 4.0), ("main/work", "cpu", 0.25),
                (meet, "blocked by 1", wait), ("main", "unseen", 5.0)],
            1: [("main", "unseen", 4.25), ("main/work", "cpu", wait), ("main", "unseen", 5.0)],
        }  # fmt: skip
        with hpcd.analysis.open(make(tmp_path / f"{wait}", steps, size=0, threads=True)) as db:
            assert ("communication" in [finding.kind for finding in findings(db)]) == lost
    # It works when it is waited for, and had no CPU before.
    for longer, lost in ((0.0, False), (0.5, True)):
        steps = {
            0: [("main/work", "cpu", 1.0), (meet, "blocked by 1", 0.5 + longer),
                ("main", "unseen", 5.0), ("main/work", "cpu", 0.01)],
            1: [("main/work", "runnable", 0.5), ("main/work", "cpu", 1.0 + longer),
                ("main", "unseen", 5.0), ("main/work", "cpu", 0.01)],
        }  # fmt: skip
        with hpcd.analysis.open(make(tmp_path / f"+{longer}", steps, size=0, threads=True)) as db:
            assert ("communication" in [finding.kind for finding in findings(db)]) == lost


def test_who_has_the_cpus_is_named(tmp_path: Path) -> None:
    for who, least, words in (
        ("stress 4711", 0.6, ", while stress 4711 ran"),
        ("stress 4711", 0.4, ""),
        ("1", 0.6, ""),
    ):
        steps: dict[int, list[Step]] = {
            0: [("main/work", "cpu", 1.0), ("main/work", f"runnable by {who}", least),
                ("main/work", "runnable", 1 - least)],
            1: [("main/work", "cpu", 2.0)],
        }  # fmt: skip
        path = make(tmp_path / f"{who}{least}", steps, size=0, threads=True)
        with hpcd.analysis.open(path) as db:
            (said,) = (one for one in findings(db) if one.kind in ("runnable", "outside"))
            assert words in said.text and (words or " ran" not in said.text)


def test_who_asks_by_a_pipe_waits_for_the_answer(tmp_path: Path) -> None:
    """However long that takes; who reads what nobody asked for has nothing to do."""
    read = "main/read/kernel:pipe_read"
    asks: list[Step] = [("main/ask", "cpu", 0.1), (f"{read}", "blocked by 1", 0.9)]
    answers: list[Step] = [(f"{read}", "blocked by 0", 0.1), ("main/answer", "cpu", 0.9)]
    with hpcd.analysis.open(make(tmp_path / "db", {0: asks * 3, 1: answers * 3}, size=0)) as db:
        first = findings(db)[0]
        assert first.kind == "communication" and first.value == pytest.approx(3.0)
    writes: list[Step] = [("main/ask", "cpu", 0.1), ("main", "unseen", 0.9)]
    with hpcd.analysis.open(make(tmp_path / "one", {0: writes * 3, 1: answers * 3}, size=0)) as db:
        assert [finding.kind for finding in findings(db)] == ["hot"]


def test_why_has_the_rule_of_each_sentence_and_the_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = uneven(tmp_path)
    assert main(["report", str(path), "--why"]) == 0
    lines = capsys.readouterr().out.splitlines()
    with hpcd.analysis.open(path) as db:
        facts = Facts(db)
        reported = findings(db, facts)
    assert [one.rule for one in reported] == ["uneven work", "waiting", "work"]
    for one in reported:
        at = lines.index(f"stands out: {one.text}")
        assert lines[at + 1].startswith(f"  rule: {one.rule}; speaks where ")
        assert RULES[one.rule].helps in " ".join(lines[at + 2 : at + 4])
    assert "        5.000  work (5.000 of all threads)" in lines
    # Helper threads sleep all the time and do not count.
    assert sum(fact.seconds for fact in facts.named()) == pytest.approx(9.0)
    assert sum(fact.every for fact in facts.named()) == pytest.approx(18.0)
    assert main(["report", str(path), "--why", "--json"]) == 0
    evidence = json.loads(capsys.readouterr().out)
    for one, shown in zip(reported, evidence["findings"], strict=True):
        assert (shown["text"], shown["value"]) == (one.text, one.value)
        assert shown["rule"]["name"] == one.rule and shown["path"] == [*one.place.path]
    assert sum(fact["of_all_threads"] for fact in evidence["facts"]) == pytest.approx(18.0)
    assert sum(fact["seconds"] for fact in evidence["facts"]) == pytest.approx(evidence["counted"])
    assert evidence["demand"]["cpus"] == 2 and evidence["demand"]["taken"] is None


def test_who_holds_a_lock_is_told_from_who_waits_for_it(tmp_path: Path) -> None:
    """Also where it sleeps, and the path that both have is said once."""
    wait: Step = ("main/book/pthread_mutex_lock/k_futex_wait", "blocked by 0", 2.0)
    steps: dict[int, list[Step]] = {
        0: [("main/book/flush/Usleep/kernel:do_nanosleep", "blocked by TIMER", 1.8),
            ("main/book", "cpu", 0.2)],
        1: [wait], 2: [wait],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        assert findings(db)[0].text == (
            "Threads wait for locks: 4.000 s, 67 % of the threads' time, in main > book;"
            " held 90 % in flush > Usleep."
        )


def test_others_that_work_meanwhile_are_named_by_their_own_procedures(tmp_path: Path) -> None:
    meet = "main/solve/pthread_barrier_wait/k_futex_wait"
    steps: dict[int, list[Step]] = {
        0: [("main/solve/assemble/hash", "cpu", 3.0)],
        1: [("main/solve/assemble", "cpu", 1.0), (meet, "blocked by 0", 2.0)],
        2: [("main/solve/assemble", "cpu", 1.0), (meet, "blocked by 0", 2.0)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        (wait,) = (one for one in findings(db) if one.kind == "communication")
        beside, who = wait.more
        assert beside.text(9) == "; 100 % with others in assemble > hash"
        assert who.words == " (the main thread)"


def test_a_long_sentence_has_shorter_paths(tmp_path: Path) -> None:
    path = "/".join(["main", *(f"procedure_{number}" for number in range(9))])
    steps: dict[int, list[Step]] = {0: [(path, "cpu", 1.0)]}
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        (hot,) = findings(db)
        assert len(hot.text) <= 120
        assert hot.text.endswith("in (+7) procedure_6 > procedure_7 > procedure_8.")


def test_the_code_of_the_kernel_in_a_process_is_no_library(tmp_path: Path) -> None:
    with sampled(
        tmp_path,
        (90, "ff1 __vdso_gettimeofday ([vdso]); 602 asks (/bin/app); 601 main (/bin/app)"),
        (10, "603 other (/bin/app); 601 main (/bin/app)"),
    ) as db:
        assert findings(db)[0].text.startswith("Most work is done in asks: 900.0 ms")


def test_a_shorter_path_leaves_the_words_before_it() -> None:
    """Whatever the words are, and whatever names contain."""
    names = tuple(f"procedure in {number}" for number in range(12))
    for words in ("started by ", "in ", "52 % in "):
        place = Phrase(words, names)
        one = Finding("children", "Processes live for", 1.0, "s", 0.5, "the time recorded", place)
        assert len(one.text) <= 120 and f", {words}(+" in one.text
        assert one.as_json()["path"] == names and f", {one.as_json()['place']}." in one.text


@given(
    st.text(max_size=60),
    st.lists(
        st.builds(
            Phrase, st.text(max_size=40), st.lists(st.text(min_size=1, max_size=90)).map(tuple),
            st.text(max_size=90), st.integers(0, 4), st.booleans(),
        ),
        max_size=4,
    ),
)  # fmt: skip
def test_no_sentence_is_longer_than_120_characters(subject: str, phrases: list[Phrase]) -> None:
    place, *more = phrases or [NO_PHRASE]
    one = Finding("hot", subject, 1.0, "s", 0.5, "the CPU time", place, tuple(more))
    assert len(one.text) <= 120


def test_who_hands_out_requests_may_sleep_between_them(tmp_path: Path) -> None:
    """Not so a thread that does most of the work itself."""
    pause: Step = ("main/usleep/kernel:do_nanosleep", "blocked by TIMER", 0.9)
    answers: list[Step] = [POOL, ("serve/answer", "cpu", 0.1)] * 3
    for share, accused in ((0.05, False), (0.5, True)):
        steps: dict[int, list[Step]] = {
            0: [pause, ("main/submit", "cpu", share)] * 3, 1: answers, 2: answers,
        }  # fmt: skip
        with hpcd.analysis.open(make(tmp_path / f"{share}", steps, size=0, threads=True)) as db:
            assert ("sleep" in [finding.kind for finding in findings(db)]) == accused


def test_a_lock_made_of_a_condition_is_a_lock(tmp_path: Path) -> None:
    """And a condition that takes its lock again is none."""
    lock: Step = ("serve/take_gil/pthread_cond_timedwait/k_futex_wait", "blocked by 1", 1.0)
    condition: Step = ("serve/pthread_cond_wait/pthread_mutex_lock/k_futex", "blocked by 1", 1.0)
    for number, (wait, use) in enumerate(((lock, Use.LOCKS), (condition, Use.OTHERS))):
        steps: dict[int, list[Step]] = {
            0: [wait, ("serve/answer", "cpu", 1.0)], 1: [("serve/answer", "cpu", 2.0)],
        }  # fmt: skip
        with hpcd.analysis.open(make(tmp_path / str(number), steps, size=0, threads=True)) as db:
            assert TimeUse(db).by_thread[0, use] == pytest.approx(1.0)


def test_beside_other_programs_a_loss_is_large_that_is_large_of_the_rest(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/work", "cpu", 0.2), ("main/work", "runnable", 2.7),
            ("main/save/Fsync/k_io", "blocked", 0.1)],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        assert [finding.kind for finding in findings(db)] == ["blocked", "hot", "outside"]


def test_who_waits_for_a_lock_itself_does_not_hold_it(tmp_path: Path) -> None:
    wait = "main/take_gil/pthread_cond_timedwait/k_futex"
    steps: dict[int, list[Step]] = {
        0: [(wait, "blocked by TIMER", 1.8), ("main", "cpu", 0.2)],
        1: [(wait, "blocked by 0", 2.0)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        (first, *_) = findings(db)
    assert first.kind == "locks" and "held" not in first.text and "holds" not in first.text


def test_who_sleeps_beside_others_makes_them_wait(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 0.5), ("main/asks/kernel:do_nanosleep", "blocked", 1.0)],
        1: [("main/solve", "cpu", 0.5), ("main/MPI_Bcast", "cpu", 1.0)],
        2: [("main/solve", "cpu", 0.5), ("main/MPI_Bcast", "cpu", 1.0)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        (text,) = [one.text for one in findings(db) if one.kind == "communication"]
        assert text == (
            "Ranks wait for others: 2.000 s, 44 % of the ranks' time, in main > MPI_Bcast;"
            " 100 % with rank 0 in asks."
        )


def test_who_sleeps_with_what_others_take_in_turn_makes_them_wait(tmp_path: Path) -> None:
    """As with the connections of a small pool. One that has nothing to do makes nobody wait."""
    waits, asks = "main/takes/sem_wait/kernel:futex_wait", "main/takes/asks/kernel:do_nanosleep"
    work: Step = ("main/solve", "cpu", 0.02)
    steps: dict[int, list[Step]] = {
        number: [work, (waits, f"blocked by {(number - 1) % 3}", 0.1 * number)] * (number > 0)
        + [(asks, "blocked by TIMER", 0.1), (waits, f"blocked by {(number - 1) % 3}", 0.2)] * 4
        for number in range(3)
    }
    steps[0].insert(0, work)
    with hpcd.analysis.open(make(tmp_path / "db", steps, threads=True)) as db:
        first = findings(db)[0]
        assert (first.kind, "with others in asks" in first.text) == ("communication", True)
    for number in steps:
        idle = [
            (path.replace("do_nanosleep", "pipe_read"), kind, length)
            for path, kind, length in steps[number]
        ]
        steps[number] = idle
    with hpcd.analysis.open(make(tmp_path / "idle", steps, threads=True)) as db:
        assert [finding.kind for finding in findings(db)] == ["hot"]


def test_whoever_waits_for_a_cpu_counts(tmp_path: Path) -> None:
    """As in the report's heading: also a thread that hardly runs."""
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 2.0)],
        1: [("serve", "cpu", 0.01), ("serve", "runnable", 0.5),
            ("serve/kernel:do_sys_poll", "blocked", 1.5)],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, threads=True)) as db:
        (waits,) = [one.value for one in findings(db) if one.subject == "Threads wait for a CPU"]
        assert waits == pytest.approx(db.line_totals("runnable_time").sum())


def test_what_a_rank_waits_for_outside_of_the_job_is_a_loss(tmp_path: Path) -> None:
    """Ranks serve nobody; a process without a rank may."""
    steps: dict[int, list[Step]] = {
        rank: [("main/solve", "cpu", 0.5), ("main/asks/kernel:tcp_recvmsg", "blocked", 1.0)]
        for rank in range(2)
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        assert findings(db)[0].text == (
            "Ranks wait for the network: 2.000 s, 67 % of the ranks' time, in main > asks."
        )


def test_who_listens_serves_and_who_does_not_waits_for_answers(tmp_path: Path) -> None:
    """By their connections; both wait for names of hosts."""
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 0.5), ("main/asks/kernel:tcp_recvmsg", "blocked", 1.0),
            ("main/looks/getaddrinfo/kernel:do_sys_poll", "blocked", 0.5)],
    }  # fmt: skip
    listens: Step = ("main/kernel:inet_csk_accept", "blocked", 0.5)
    for name, more, seconds in (("asks", [], 1.5), ("serves", [listens], 0.5)):
        path = make(tmp_path / name, {0: [*steps[0], *more]}, size=0)
        with hpcd.analysis.open(path) as db:
            first = findings(db)[0]
            assert (first.kind, first.value) == ("network", pytest.approx(seconds))
            assert first.subject == "Threads wait for the network:"


def test_a_difference_is_large_or_small_beside_the_life_of_who_works_most(tmp_path: Path) -> None:
    """Not that of another thread, such as one that waits for requests all the time."""
    steps: dict[int, list[Step]] = {
        0: [("main/poll/kernel:do_sys_poll", "blocked", 60.0), ("main", "cpu", 0.1)],
        1: [("GOMP_parallel/work", "cpu", 2.0)], 2: [("GOMP_parallel/work", "cpu", 1.0)],
    }  # fmt: skip
    with hpcd.analysis.open(make(tmp_path / "db", steps, threads=True)) as db:
        assert "imbalance" in [finding.kind for finding in findings(db)]


def test_ranks_that_poll_without_a_cpu_wait_for_others(tmp_path: Path) -> None:
    """Not for the CPU; who was woken and has none does."""
    meet = "main/MPI_Allreduce"
    steps: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 2.0), (f"{meet}/kernel:do_sys_poll", "runnable", 0.5)],
        1: [("main/solve", "cpu", 0.5), (meet, "cpu", 0.5), (meet, "runnable", 1.5)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps)) as db:
        use = TimeUse(db)
        assert use.seconds(Use.OTHERS).sum() == pytest.approx(2.0)
        assert use.with_cpu(Use.OTHERS) == pytest.approx(0.5)
        assert use.seconds(Use.RUNNABLE).sum() == pytest.approx(0.5)
        assert use.without_cpu == use.demand.waited == pytest.approx(2.0)


def test_ranks_that_take_turns_wait_for_others_also_where_these_have_no_cpu(
    tmp_path: Path,
) -> None:
    """The other works meanwhile on what each needs: more CPUs would change nothing."""
    work: list[Step] = [("main/solve", "runnable", 0.8), ("main/solve", "cpu", 0.2)]
    meet: Step = ("main/MPI_Recv/k_sleep", "blocked", 1.0)
    for share, steps in (
        (1.0, {0: [*work, meet], 1: [meet, *work]}),
        (0.7, {0: [("main/solve", "cpu", 0.3), ("main/MPI_Recv", "cpu", 0.7)], 1: work}),
    ):
        several: dict[int, list[Step]] = {rank: part * 4 for rank, part in steps.items()}
        with hpcd.analysis.open(make(tmp_path / f"{share}", several)) as db:
            assert measure(db).alone == pytest.approx(share, abs=0.001)
            if share == 1.0:
                assert "communication" in [one.kind for one in findings(db)]


def test_who_has_no_cpu_has_none_in_its_own_procedure(tmp_path: Path) -> None:
    """Whatever it called there when the CPU was lost."""
    steps: dict[int, list[Step]] = {
        0: [("main/work", "cpu", 1.0), ("main/work/Clock_gettime", "runnable", 2.0)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        (said,) = (one for one in findings(db) if one.kind in ("runnable", "outside"))
        assert said.place.path == ("main", "work")


def test_of_two_places_who_was_waited_for_stays_and_gets_the_room() -> None:
    """Names of helpers tell little without their callers."""
    waits = Phrase("90 % in ", ("main", "asks_the_server_for_the_next_block"), "MPI_Recv")
    busy = Phrase("; 40 % with others in ", ("main", "advances_the_solution", "burn", "cpu"))
    # Names of each are cut where there is room for neither, then the first goes.
    assert fit_phrases((waits, busy), 80) == [
        "90 % in asks_the_server_for_the_next_block",
        "; 40 % with others in (+2) burn > cpu",
    ]
    assert fit_phrases((waits, busy), 65) == [
        "90 % in asks_the_s…_block",
        "; 40 % with others in cpu",
    ]
    assert fit_phrases((waits, busy), 40) == ["", "; 40 % with others in cpu"]
    assert fit_phrases((waits, busy), 10) == ["", ""]
    short = Phrase("in ", ("main", "asks"))
    assert fit_phrases((short, busy), 78) == [
        "in main > asks",
        "; 40 % with others in main > advances_the_solution > burn > cpu",
    ]


def test_who_was_waited_for_is_where_nearly_all_was_spent() -> None:
    """Neither a helper that has a part of the time, nor the waiting thread's path."""
    spent = (("run", "rebuild", "burn", "clock"), 0.6), (("run", "rebuild", "burn"), 0.35)
    places = [Place(path, "", seconds, 0) for path, seconds in spent]
    for waits, names in (
        (("run", "look_up"), ("run", "rebuild", "burn")),
        (("run", "rebuild", "burn"), ("run", "rebuild", "burn", "clock")),
    ):
        assert innermost_of_most(places, waits).names == names
    assert innermost_of_most(places, ()).seconds == pytest.approx(0.95)
    assert innermost_of_most([], ()).path == ()


def test_a_procedure_that_calls_itself_is_one_place(tmp_path: Path) -> None:
    steps: dict[int, list[Step]] = {
        0: [("/".join(["main", *["fib"] * depth]), "cpu", 0.2) for depth in range(1, 6)]
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0)) as db:
        (hot,) = findings(db)
        assert hot.text == (
            "Most work is done in fib: 1.000 s, 100 % of the CPU time, in main > fib."
        )


def test_a_process_that_does_little_beside_another_may_sleep(tmp_path: Path) -> None:
    """As the client of a server that was recorded with it."""
    sleep = ("ask/Usleep/kernel:do_nanosleep", "blocked", 2.0)
    for asks, kinds in ((0.1, {"hot"}), (0.8, {"hot", "sleep"})):
        steps: dict[int, list[Step]] = {
            0: [("serve", "cpu", 1.0)],
            1: [("ask", "cpu", asks), sleep],
        }
        with hpcd.analysis.open(make(tmp_path / str(asks), steps, size=0)) as db:
            kinds_reported = {one.kind for one in findings(db)} - {"processes"}
            assert kinds_reported == kinds


def test_the_first_thread_that_runs_the_program_may_sleep_between_tasks(tmp_path: Path) -> None:
    """A run-time system, as Java's, began with a thread of its own."""
    sleep = ("main/Sleep/kernel:do_nanosleep", "blocked", 2.0)
    steps: dict[int, list[Step]] = {
        0: [("Launch", "cpu", 0.1), ("Launch/k_wait", "blocked", 2.0)],
        1: [("main", "cpu", 0.1), sleep],
        2: [("answers", "cpu", 0.5), ("answers/Park/k_wait", "blocked", 1.6)],
        3: [("answers", "cpu", 0.5), ("answers/Park/k_wait", "blocked", 1.6)],
    }
    with hpcd.analysis.open(make(tmp_path / "db", steps, size=0, threads=True)) as db:
        assert "sleep" not in [one.kind for one in findings(db)]


def test_a_team_of_which_one_had_a_cpu_for_longer_is_even(tmp_path: Path) -> None:
    """A free thread takes the next part of a loop: no thread waits for the busiest one."""
    barrier = "main/GOMP_barrier"
    for last, kinds in (("runnable", set()), ("blocked", {"imbalance"})):
        where = "main/row" if last == "runnable" else f"{barrier}/k_wait"
        steps: dict[int, list[Step]] = {
            0: [("main/row", "cpu", 1.0), (barrier, "cpu", 0.02)],
            1: [("main/row", "cpu", 0.6), (where, last, 0.4), (barrier, "cpu", 0.02)],
        }
        path = make(tmp_path / last, steps, size=0, threads=True, library="/usr/lib/libgomp.so.1")
        with hpcd.analysis.open(path) as db:
            assert {one.kind for one in findings(db)} & {"imbalance"} == kinds


def test_waits_of_a_few_samples_are_no_news(tmp_path: Path) -> None:
    for seconds, speaks in ((0.004, False), (0.02, True)):
        steps: dict[int, list[Step]] = {
            rank: [("main/solve", "cpu", 0.03), ("main/MPI_Barrier", "cpu", seconds)]
            for rank in range(2)
        }
        with hpcd.analysis.open(make(tmp_path / str(seconds), steps)) as db:
            assert ("communication" in [one.kind for one in findings(db)]) is speaks
