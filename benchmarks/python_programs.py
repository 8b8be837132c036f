"""Programs of Python's usual libraries: the share of call paths that are whole with Python frames.

A path is whole if it leads to where its thread begins, and has Python frames if it leads through
the evaluation loop. Counted are the threads that execute Python at some time; not what has no
user's part at all, as the end of a thread. The interpreter is that of
``setup/python-programs.sh``, which brings the libraries, else the system's; programs whose
libraries it has not are left out.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.workloads import HPCD, ROOT, sized
from hpcd.measurement.reader import open_measurement
from hpcd.model import frame as frames
from hpcd.model.codes import UnwindStatus
from tests.support.lammps import ENVIRONMENT, MPIRUN

_ENVIRONMENT = ROOT / "build/programs/bin/python"
_SECONDS = sized(4, 1)
_LOOP = "_PyEval_EvalFrameDefault"
_METRICS = ("cpu_time", "blocked_time")

# The module each needs, and what it does until END.
_PROGRAMS = {
    "numpy": """
import numpy
a = numpy.random.rand(200, 200)
while time.monotonic() < END:
    numpy.linalg.svd(a @ a)
    sorted(range(2000), key=lambda x: -x)
    time.sleep(0.001)
""",
    "multiprocessing, fork": """
import multiprocessing
def work(n):
    time.sleep(0.001)
    return sum(x * x for x in range(n))
if __name__ == "__main__":
    while time.monotonic() < END:
        with multiprocessing.get_context("fork").Pool(3) as pool:
            for _ in range(20):
                pool.map(work, [5000] * 30)
""",
    "multiprocessing, spawn": """
import multiprocessing
def work(n):
    time.sleep(0.001)
    return sum(x * x for x in range(n))
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        while time.monotonic() < END:
            pool.map(work, [5000] * 30)
""",
    "asyncio": """
import asyncio
def burn():
    return sum(range(20000))
async def work():
    while time.monotonic() < END:
        await asyncio.sleep(0.001)
        sum(range(3000))
        await asyncio.get_running_loop().run_in_executor(None, burn)
async def main():
    await asyncio.gather(*(work() for _ in range(10)))
asyncio.run(main())
""",
    "joblib": """
import joblib
def work(n):
    time.sleep(0.001)
    return sum(x * x for x in range(n))
if __name__ == "__main__":
    while time.monotonic() < END:
        joblib.Parallel(n_jobs=3)(joblib.delayed(work)(5000) for _ in range(100))
""",
    "pytest": """
import pathlib, pytest, sys, tempfile
sys.dont_write_bytecode = True
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "test_some.py").write_text('''
import time, pytest
@pytest.mark.parametrize("n", range(200))
def test_n(n, tmp_path):
    assert sorted(range(n * 10), key=lambda x: -x)[0:1] != [1]
    time.sleep(0.001)
''')
while time.monotonic() < END:
    pytest.main(["-q", "-p", "no:cacheprovider", str(folder)])
""",
    "sklearn": """
import numpy
from sklearn.ensemble import RandomForestClassifier
x = numpy.random.rand(300, 8)
y = (x.sum(1) > 4).astype(int)
while time.monotonic() < END:
    RandomForestClassifier(20, n_jobs=3).fit(x, y).predict(x)
""",
    "mpi4py, 4 ranks": """
from mpi4py import MPI
world = MPI.COMM_WORLD
def work(n):
    return sum(x * x for x in range(n))
while world.bcast(time.monotonic() < END):
    world.allreduce(work(20000 * (1 + world.rank)))
""",
    "fastapi": """
import fastapi, fastapi.testclient
app = fastapi.FastAPI()
@app.get("/sync/{n}")
def read(n: int):
    time.sleep(0.001)
    return sum(range(n))
@app.get("/async/{n}")
async def read_async(n: int):
    return sum(range(n))
with fastapi.testclient.TestClient(app) as client:
    while time.monotonic() < END:
        assert client.get("/sync/3000").json() == client.get("/async/3000").json()
""",
    "django": """
import django
from django.conf import settings
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
django.setup()
from django.http import JsonResponse
from django.test import Client
from django.urls import path
def read(request, n):
    time.sleep(0.001)
    return JsonResponse({"sum": sum(range(n))})
urlpatterns = [path("<int:n>", read)]
client = Client()
while time.monotonic() < END:
    client.get("/3000").json()
""",
    "distributed": """
import distributed
def work(n):
    time.sleep(0.001)
    return sum(range(n))
if __name__ == "__main__":
    with distributed.Client(n_workers=2, threads_per_worker=2, dashboard_address=None) as client:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            client.gather(client.map(work, range(3000, 3100), pure=False))
""",
    "celery": """
import celery
from celery.contrib.testing.worker import start_worker
app = celery.Celery("x", broker="memory://", backend="cache+memory://")
@app.task(name="work")
def work(n):
    time.sleep(0.001)
    return sum(range(n))
with start_worker(app, pool="threads", concurrency=3, perform_ping_check=False):
    while time.monotonic() < END:
        for result in [work.delay(3000) for _ in range(30)]:
            result.get(timeout=30)
""",
    "torch": """
import torch
layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
by = torch.optim.SGD(layers.parameters(), 0.01)
while time.monotonic() < END:
    by.zero_grad()
    layers(torch.rand(256, 64)).square().mean().backward()
    by.step()
    time.sleep(0.001)
""",
}


@dataclass
class _Paths:
    """Records of a metric: all, those whose paths are whole, and of the others why."""

    records: int = 0
    whole: int = 0
    lacking: Counter[str] = field(default_factory=Counter)


def _loop(python: str) -> list[tuple[int, int]]:
    """The addresses of an interpreter's evaluation loop: begin and end."""
    table = subprocess.run(["nm", "-DS", python], capture_output=True, text=True).stdout
    rows = [line.split() for line in table.splitlines()]
    parts = [row for row in rows if len(row) == 4 and row[3].startswith(_LOOP)]
    return [(int(row[0], 16), int(row[0], 16) + int(row[1], 16)) for row in parts]


def count_paths(measurement: Path) -> dict[str, _Paths]:
    """Count, by metric, the paths of threads that execute Python at some time."""
    with open_measurement(measurement) as reader:
        cct = reader.cct
        marked, module = frames.is_marker(cct.frame), frames.module_of(cct.frame)
        offset = frames.offset_of(cct.frame)
        of_python = [m.id for m in reader.modules.values() if m.kind == "python"]
        python = np.isin(module, of_python) & ~marked
        loop = np.zeros(len(cct), bool)
        for row in reader.modules.values():
            if "python" in Path(row.path).name and row.kind != "python":
                for begin, end in _loop(row.path):
                    loop |= (module == row.id) & (offset >= begin) & (offset < end) & ~marked
        status = np.where(marked, cct.frame & np.uint64(0xFF), 0).astype(np.int64)
        for node in range(1, len(cct)):
            parent = cct.parent[node]
            python[node] |= python[parent]
            loop[node] |= loop[parent]
            status[node] = status[node] or status[parent]
        parts = [
            (np.repeat(part.line, np.diff(part.start)), part.node.copy(), part.event.copy())
            for part in reader.record_chunks()
        ]
        line, node, event = (np.concatenate(column) for column in zip(*parts, strict=True))
        interpreters = np.unique(line[python[node]])
        counted = np.isin(line, interpreters) & (status[node] != UnwindStatus.KERNEL_ONLY)
        result = {}
        for metric in _METRICS:
            events = [e.id for e in reader.events.values() if e.metric == metric]
            of_metric = node[counted & np.isin(event, events)]
            paths = _Paths(len(of_metric))
            without = (status[of_metric] == 0) & loop[of_metric] & ~python[of_metric]
            paths.lacking["no Python frames"] = int(without.sum())
            for code, number in zip(*np.unique(status[of_metric], return_counts=True), strict=True):
                if code:
                    paths.lacking[UnwindStatus(code).name] = int(number)
            paths.whole = paths.records - paths.lacking.total()
            result[metric] = paths
        return result


def run() -> Table:
    """The table."""
    table = Table(title="Programs of Python's libraries: paths of samples and of waits")
    table.add_column("program")
    for heading in ("samples", "whole", "waits", "whole"):
        table.add_column(heading, justify="right")
    table.add_column("what others lack")
    python = str(_ENVIRONMENT) if _ENVIRONMENT.exists() else "/usr/bin/python3"
    with tempfile.TemporaryDirectory() as name:
        for program, text in _PROGRAMS.items():
            module = program.partition(",")[0]
            if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
                continue
            print(program, flush=True)
            source, output = Path(name) / f"{module}_program.py", Path(name) / f"{len(table.rows)}"
            # Libraries take long to import where others use the CPUs, too.
            head = f"import time\nimport {module}\nEND = time.monotonic() + {_SECONDS}\n"
            source.write_text(head + text)
            command = [python, str(source)]
            if "ranks" in program:
                command = [*MPIRUN[:-1], "4", *command]
            recorded = [*HPCD, "run", "-o", str(output), "--", *command]
            done = subprocess.run(
                recorded, capture_output=True, text=True, cwd=name, env=ENVIRONMENT
            )
            if done.returncode:
                table.add_row(program, "fails", "", "", "", done.stderr.strip()[-60:])
                continue
            counts = count_paths(output).values()
            lacking = sum((paths.lacking for paths in counts), Counter[str]())
            cells = [
                cell
                for paths in counts
                for cell in (f"{paths.records:,}", f"{paths.whole / max(paths.records, 1):.2%}")
            ]
            why = ", ".join(f"{what} {number}" for what, number in lacking.most_common(3))
            table.add_row(program, *cells, why)
    return table
