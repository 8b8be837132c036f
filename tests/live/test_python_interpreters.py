"""Python frames of threads that execute code in several interpreters of one process."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis as hpcd_analysis
from tests.support.gil_waits import gil_waits
from tests.support.interpreters import interpreters
from tests.support.paths import ROOT
from tests.support.recorded import HPCD, hpcd
from tests.support.tables import libraries_of_python, prepare_tables

pytestmark = pytest.mark.root

PROGRAM = ROOT / "tests/programs/python_interpreters.py"
# Later ones have the module _interpreters.
VERSIONS = {name: start for name, start in interpreters().items() if int(name[2:]) >= 13}
OWN = re.compile(r"<module>|main|(begin|outer|leaf|nap|work)_\w+|hog|polite")
WORK = "<module>( work_{0}( leaf_{0}| nap_{0})?)?"
THREADS = {
    "1": re.compile("begin_1 " + WORK.format(1)),
    "2": re.compile("<module> main begin_2 " + WORK.format(2)),
    "3": re.compile("begin_3 <module> outer_3 " + WORK.format(4)),
    "hog": re.compile("begin_hog <module> hog"),
    "polite": re.compile("polite"),
}


@pytest.mark.parametrize("order", ["newer", "older"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_path_leads_through_all_interpreters_of_its_thread(
    tmp_path: Path, version: str, order: str
) -> None:
    python = VERSIONS[version]
    prepare_tables(*libraries_of_python("_interpreters", python))
    command = [*map(str, python), str(PROGRAM), "60", order]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout and program.stdout.readline() == "ready\n"
            options = ("--pid", program.pid, "--duration", 2, "-F", 2000)
            hpcd("attach", *options, "-o", tmp_path / "m")
        finally:
            program.kill()
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    for metric in ("cpu_time", "blocked_time"):
        seconds: Counter[str] = Counter()
        with hpcd_analysis.open(tmp_path / "db", native=True) as db:
            cost = db.metrics.exclusive(metric)
            for node in np.flatnonzero(cost).tolist():
                names = [db.procedure_names[db.procedure_of_node[at]] for at in db.cct.path(node)]
                own = [name for name in names if OWN.fullmatch(name)]
                seconds[" ".join(own)] += float(cost[node])
        # Before it is recognised as CPython, a process has no Python frames.
        threads = {
            path: [thread for thread, pattern in THREADS.items() if pattern.fullmatch(path)]
            for path in seconds
            if path
        }
        assert [path for path, thread in threads.items() if not thread] == []
        recorded_threads = {thread for names in threads.values() for thread in names}
        assert recorded_threads >= {"1", "2", "3", "polite"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wait_for_an_interpreters_own_lock_is_due_to_the_thread_that_holds_it(
    tmp_path: Path, version: str
) -> None:
    python = VERSIONS[version]
    prepare_tables(*libraries_of_python("_interpreters", python))
    command = [*HPCD, "run", "-o", tmp_path / "m", "--", *python, PROGRAM, "2"]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    hpcd("merge", "-o", tmp_path / "db", tmp_path / "m")
    waited, due = gil_waits(tmp_path / "db")
    assert waited > 0
    assert due > 0.9 * waited
