"""Roles of procedures by their names: one table, which all answers use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import hpcd
import hpcd.analysis
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.time_use import TimeUse
from hpcd.analysis.parallel import waiting
from hpcd.analysis.parallel.tree_matching import match
from hpcd.analysis.roles.role import NameRole
from hpcd.analysis.roles.role_table import RoleTable, role_table
from hpcd.errors import UsageError
from hpcd.viewer.marks import COMMUNICATION
from hpcd.viewer.picture_tree import WAITING, PictureTree
from tests.support.made import Step, make

NONE = NameRole(0)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("MPI_Sendrecv", NameRole.COMMUNICATION),
        ("pmpi_allreduce_", NameRole.COMMUNICATION),
        ("ncclAllReduce", NameRole.COMMUNICATION),
        ("nvshmem_barrier_all", NameRole.COMMUNICATION),
        ("shmem_put64", NameRole.COMMUNICATION),
        ("gasnet_AMPoll", NameRole.COMMUNICATION),
        ("ucp_worker_progress", NameRole.COMMUNICATION),
        ("MPI_Iprobe", NameRole.COMMUNICATION),
        ("MPI_Isend", NameRole.COMMUNICATION | NameRole.LOCAL),
        ("PMPI_Init_thread", NameRole.COMMUNICATION | NameRole.STARTUP),
        ("mpi_finalize_", NameRole.COMMUNICATION | NameRole.STARTUP),
        ("ompi_mpi_init", NameRole.STARTUP),
        (
            "gomp_team_barrier_wait_end",
            NameRole.BARRIER | NameRole.TEAM | NameRole.OPENMP,
        ),
        ("__kmp_fork_barrier", NameRole.BARRIER | NameRole.TEAM | NameRole.OPENMP),
        ("main._omp_fn.0", NameRole.REGION),
        (".omp_outlined._debug__.3", NameRole.REGION),
        ("___pthread_cond_timedwait64", NameRole.CONDITION | NameRole.HERD | NameRole.ASLEEP),
        ("__new_sem_wait_slow64.constprop.0", NameRole.CONDITION | NameRole.ASLEEP),
        ("sem_wait", NameRole.CONDITION | NameRole.ASLEEP),
        ("pthread_cond_wait@@GLIBC_2.3.2", NameRole.CONDITION | NameRole.HERD | NameRole.ASLEEP),
        ("__pthread_clockjoin_ex", NameRole.JOIN | NameRole.ASLEEP),
        ("pthread_join", NameRole.JOIN | NameRole.ASLEEP),
        ("pthread_mutex_lock", NameRole.LOCK | NameRole.ASLEEP),
        ("__lll_lock_wait_private", NameRole.LOCK | NameRole.ASLEEP),
        ("__kmpc_critical", NameRole.LOCK),
        ("__pthread_once_slow", NameRole.ONCE | NameRole.ASLEEP),
        (
            "std::call_once<void (&)()>(std::once_flag&)",
            NameRole.ONCE | NameRole.ASLEEP | NameRole.HEADER,
        ),
        ("__gthread_mutex_lock", NameRole.HEADER),
        ("<u64 as core::cmp::PartialOrd>::lt", NameRole.HEADER),
        ("<alloc::string::String as core::clone::Clone>::clone", NameRole.HEADER),
        ("__rustc::__rust_alloc", NameRole.HEADER),
        ("<u64>::wrapping_mul", NameRole.HEADER),
        ("<[T]>::sort", NameRole.HEADER),
        ("<solver::Field>::relax", NONE),
        ("__gthread_mutex_lock(pthread_mutex_t*)", NameRole.HEADER),
        ("<solver::Field as core::clone::Clone>::clone", NONE),
        ("solver::stdlib::run", NONE),
        ("double std::normal_distribution<double>::operator()<std::g>(std::g&)", NameRole.HEADER),
        ("void std::__detail::__platform_wait<int>(int const*, int)", NameRole.HEADER),
        ("std::vector<int> solver::sorted<int>(std::vector<int> const&)", NONE),
        ("__glibcxx_rwlock_rdlock(pthread_rwlock_t*)", NameRole.HEADER),
        ("__cxa_throw", NameRole.HEADER),
        ("ReentrantLock.lock", NameRole.LOCK | NameRole.ASLEEP),
        ("ReentrantReadWriteLock$WriteLock.lock", NameRole.LOCK | NameRole.ASLEEP),
        ("ReentrantLock.unlock", NONE),
        ("ThreadPoolExecutor.getTask", NameRole.EVENTS),
        ("ThreadPoolExecutor.execute", NONE),
        ("ScheduledThreadPoolExecutor$DelayedWorkQueue.take", NameRole.EVENTS),
        ("Interpreter", NONE),
        ("runtime.memmove", NameRole.HEADER),
        ("runtime.gcAssistAlloc", NameRole.HEADER | NameRole.COLLECTOR),
        ("runtime.findRunnable", NameRole.HEADER | NameRole.EVENTS),
        ("encoding/json.(*decodeState).object", NameRole.HEADER),
        ("sync.(*Mutex).lockSlow", NameRole.HEADER),
        ("main.(*Field).Sort", NONE),
        ("example.org/solver/sort.Field", NONE),
        ("sort.part.0", NONE),
        ("time.constprop.0", NONE),
        (
            "node::(anonymous namespace)::PlatformWorkerThread(void*)",
            NameRole.EVENTS,
        ),
        ("puts@plt", NameRole.STUB),
        ("__libc_start_main_impl", NameRole.ENTRY),
        ("wait", NONE),
        ("system", NONE),
        ("main", NONE),
        ("futex_wait", NONE),
    ],
)
def test_roles_of_user_procedures(name: str, role: NameRole) -> None:
    assert role_table().of_procedure(name, module="/opt/app/solver") == role


def test_roles_of_kernel_procedures_and_labels() -> None:
    table = role_table()
    assert table.of_procedure("futex_wait_queue", kernel=True) == NameRole.FUTEX
    assert table.of_procedure("MPI_Send", kernel=True) == NONE
    labels = ["schedule [k]", "schedule", "__x64_sys_wait4 [k]", "asm_sysvec_reschedule_ipi [k]"]
    expected = [NameRole.SCHEDULER, NONE, NameRole.CHILDREN, NameRole.INTERRUPT]
    assert table.of_labels(labels).tolist() == expected


def test_roles_of_modules_are_those_of_their_procedures() -> None:
    table = role_table()
    assert table.of_module("/usr/lib/libgomp.so.1.0.0 (deleted)") == NameRole.OPENMP
    assert table.of_module("/usr/bin/python3.11") == NameRole.PYTHON
    assert table.of_procedure("anything", module="libc.so.6") == NameRole.C_LIBRARY
    assert (
        table.of_procedure("__wait4", module="/lib/libc.so.6")
        == NameRole.C_LIBRARY | NameRole.JOIN | NameRole.ASLEEP
    )
    assert table.of_module("libompi_dbg_msgq.so") == NameRole.SUPPORT
    sleep = table.of_procedure("JVM_SleepNanos", module="/usr/lib/jvm/lib/server/libjvm.so")
    assert sleep == NameRole.SUPPORT | NameRole.SLEEP | NameRole.ASLEEP
    for stub in ("Interpreter", "StubRoutines (1)"):
        assert table.of_procedure(stub, module="[jit]") == NameRole.ENTRY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[nothing]]\nprocedures = ['x']", "no role nothing; there are answer, barrier, "),
        ("[[lock]]\nprocedures = ['(']", r"\[\[lock\]\]: missing \)"),
        ("[[lock]]\nreason = 'none'", "expected procedures or modules"),
        ("[[lock]]\nprocedure = ['x']\nmodules = ['y']", "expected procedures or modules"),
        ("lock = 3", r"\[\[lock\]\]"),
        ("[[lock", "roles.toml: "),
    ],
)
def test_a_file_of_roles_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "roles.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        RoleTable(tmp_path / "roles.toml")


# --- all answers agree ---


@pytest.fixture(
    params=["MPI_Allreduce", "ncclAllReduce", "shmem_barrier_all", "GOMP_barrier"], scope="module"
)
def called(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, called: str) -> Iterator[Database]:
    """Rank 0 works for 0.3 s, while rank 1 waits for it, polling."""
    ranks: dict[int, list[Step]] = {
        0: [("main/solve", "cpu", 0.3), (f"main/{called}", "cpu", 0.1)],
        1: [("main/solve", "cpu", 0.1), (f"main/{called}", "cpu", 0.3)],
    }
    with hpcd.analysis.open(make(tmp_path_factory.mktemp(called) / "db", ranks)) as opened:
        yield opened


def test_stand_ins_wait_for_others_in_every_answer(db: Database, called: str) -> None:
    matching = match([db])
    waits = waiting.waiting_nodes(matching)
    names = [place.name for place in matching.places]
    inside = {names[number] for number in matching.place_of[waits].tolist()}
    assert inside == {called}
    use = TimeUse(db)
    assert use.seconds(Use.OTHERS).sum() == pytest.approx(0.4)
    assert use.seconds(Use.WORK).sum() == pytest.approx(0.4)
    picture = PictureTree(db)
    in_call = np.array([picture.names[entity] == called for entity in picture.entity])
    assert set(picture.state[in_call].tolist()) == {WAITING}
    marked = {picture.names[n] for n in np.flatnonzero(picture.marks == COMMUNICATION)}
    assert marked == ({called} if called != "GOMP_barrier" else set())


def test_users_add_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "hpcd").mkdir()
    (tmp_path / "hpcd/roles.toml").write_text(
        "[[communication]]\nprocedures = ['halo_\\w+']\nmodules = ['solver']\nreason = 'ours'\n"
        "[[program]]\nmodules = ['libours*']\n"
    )
    role_table.cache_clear()
    request.addfinalizer(role_table.cache_clear)
    assert (
        role_table().of_procedure("halo_swap", module="/opt/app/solver") == NameRole.COMMUNICATION
    )
    assert role_table().of_procedure("halo_swap", module="/opt/app/other") == NONE
    assert role_table().of_procedures(["f"], [False], ["libours.so"]).tolist() == [NameRole.PROGRAM]
    steps: list[Step] = [("main/solve", "cpu", 0.3), ("main/halo_swap", "cpu", 0.1)]
    with hpcd.analysis.open(make(tmp_path / "db", {0: steps, 1: steps})) as db:
        assert TimeUse(db).seconds(Use.OTHERS).sum() == pytest.approx(0.2)


# --- no other list ---

_PRODUCT = Path(hpcd.__file__).parents[1]
_NAME = re.compile(
    r"nccl|n?shmem_|gasnet|GOMP|gomp|kmp|pthread_|futex_wait|nanosleep|libgomp|libiomp|P\?MPI"
    r"|omp_fn|omp_outlined|do_wait|pipe_read|__libc_start|asm_sysvec"
)
_NO_ROLES = {
    # Whether code goes on behind a call, by what the call never does: return.
    "structure/code/noreturn.py",
    # The procedure whose region or task a compiler made a body of, by the body's name.
    "calls/openmp_places.py",
}


def test_no_other_module_lists_such_names() -> None:
    listed = []
    for folder in ("analysis", "viewer", "cli"):
        for path in (_PRODUCT / folder).rglob("*.py"):
            if any(str(path).endswith(name) for name in _NO_ROLES):
                continue
            tree = ast.parse(path.read_text())
            texts = {
                node.value.value
                for node in ast.walk(tree)
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            }
            listed += [
                f"{path.relative_to(_PRODUCT)}:{node.lineno}: {node.value!r}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                and node.value not in texts and _NAME.search(node.value)
            ]  # fmt: skip
    assert not listed, "\n".join(listed)
