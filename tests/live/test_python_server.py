"""A server of asyncio: what its event loop and its pool wait for is nobody's time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hpcd.analysis as hpcd_analysis
from hpcd.analysis.database import Database
from hpcd.analysis.findings.context_use import Use
from hpcd.analysis.findings.findings import findings
from hpcd.analysis.findings.time_use import TimeUse
from tests.support.paths import ROOT
from tests.support.recorded import hpcd, record
from tests.support.tables import libraries_of_python, prepare_tables

pytestmark = pytest.mark.root

PYTHON = "/usr/bin/python3"
SERVER = ROOT / "tests/programs/python_server.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a server's recording."""
    folder = tmp_path_factory.mktemp("server")
    prepare_tables(*libraries_of_python("asyncio"))
    record(folder / "m", [PYTHON, SERVER, 50])
    hpcd("merge", folder / "m", "-o", folder / "db")
    return folder / "db"


def path_of(db: Database, node: int) -> list[str]:
    return [db.procedure_names[db.procedure_of_node[at]] for at in db.cct.path(node)]


def test_waits_for_requests_are_idle(server: Path) -> None:
    with hpcd_analysis.open(server) as db:
        _, of_wait = TimeUse(db).of_contexts()
        blocked = db.metrics.exclusive("blocked_time")
        nodes = np.flatnonzero(blocked).tolist()
        in_loop = [node for node in nodes if "epoll_wait" in path_of(db, node)]
        in_pool = [node for node in nodes if path_of(db, node)[0] == "_worker"]
        assert blocked[in_loop].sum() > 0 and {*of_wait[in_loop].tolist()} == {Use.EVENTS}
        idle = [node for node in in_pool if of_wait[node] == Use.EVENTS]
        # Its threads also wait for Python's lock.
        assert blocked[idle].sum() > 0.5 * blocked[in_pool].sum()
        texts = [finding.text for finding in findings(db)]
    assert not [text for text in texts if "select" in text or "epoll" in text or "_worker" in text]


def test_a_coroutine_is_below_the_one_that_awaits_it(server: Path) -> None:
    with hpcd_analysis.open(server) as db:
        cost = db.metrics.exclusive("cpu_time")
        paths = [path_of(db, node) for node in np.flatnonzero(cost).tolist()]
    awaited = [path for path in paths if "answer" in path]
    assert awaited and all(path[path.index("answer") - 1] == "serve" for path in awaited)
