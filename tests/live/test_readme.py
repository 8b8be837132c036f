"""The documented commands that work on files, run as they stand there, on a program of two ranks.

Those that record, serve, need a job or take long are run by the tests that :data:`ELSEWHERE` names.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from hpcd.__main__ import main
from hpcd.cli.verbs import VERBS
from tests.support.made import make
from tests.support.paths import ROOT
from tests.support.recorded import hpcd

pytestmark = pytest.mark.root

ELSEWHERE = {
    "profile": "live/test_profile.py",
    "view": "live/test_view.py",
    "results": "live/test_profile.py",
    "doctor": "unit/cli/test_cli.py",
    "list": "live/test_jobs.py",
    "openmp": "live/test_openmp.py",
    "top": "live/test_top.py",
    "stacks": "live/test_stacks.py",
    "attach": "live/test_attach.py",
    "import": "unit/interchange/test_import_perf.py",
    "push": "unit/interchange/test_push.py",
    "render": "unit/viewer/test_render.py",
    "synth": "unit/measurement/test_synthetic.py",
    "daemon": "service/conftest.py",
    "status": "service/test_service.py",
    "detach": "service/test_service.py",
    "snapshot": "service/test_service.py",
}
_PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static __attribute__((noinline)) void solve(int n)
{
	struct timespec time;
	do {
		for (volatile int turn = 0; turn < 10000; turn++)
			;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	} while (time.tv_sec == 0 && time.tv_nsec < n);
}

int main(int count, char **arguments)
{
	int rank, sum;
	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	char *memory = malloc(1 << 20), name[32];
	memset(memory, 1, 1 << 20);
	solve(200000000);
	snprintf(name, sizeof name, "out.%d", rank);
	FILE *file = fopen(name, "w");
	fwrite(memory, 1, 1 << 16, file);
	fclose(file);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	free(memory);
	MPI_Finalize();
	return 0;
}
"""


def commands() -> list[list[str]]:
    """The words of each, without sudo and the comment behind it."""
    text = (ROOT / "docs/commands.md").read_text()
    lines = re.findall(r"^(?:sudo )?(hpcd [a-z].*?)\s+#", text, re.M)
    return [shlex.split(line)[1:] for line in lines]


def test_commands_that_are_not_run_here_are_run_elsewhere() -> None:
    verbs = {words[0] for words in commands()}
    assert verbs == set(VERBS)
    for verb, path in ELSEWHERE.items():
        assert f'"{verb}"' in (ROOT / "tests" / path).read_text(), (verb, path)


@pytest.mark.skipif(not shutil.which("mpicc.openmpi"), reason="needs libopenmpi-dev")
def test_the_commands_on_files_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    (tmp_path / "app.c").write_text(_PROGRAM)
    subprocess.run(["mpicc.openmpi", "-g", "-O1", "-o", "app", "app.c"], check=True)
    for name, ranks in (("db2", 2), ("db4", 4), ("db1", 1)):
        make(tmp_path / name, {rank: [("main/solve", "cpu", 0.1)] for rank in range(ranks)})
    output = {}
    for words in commands():
        verb, *rest = words
        if verb in ELSEWHERE:
            continue
        if verb == "run":
            rest[rest.index("-n") + 1 : rest.index("-n") + 2] = ["2", "--oversubscribe"]
        rest = [word.replace("comm=cc1", "comm=app") for word in rest]
        if verb == "run":  # a process of its own, as it changes how signals are handled
            output[verb] = hpcd(
                verb, "--io", "--memory", "--mpi", "--probe", "app:solve(int n)", *rest
            ).stdout
            continue
        capsys.readouterr()
        assert main([verb, *rest]) == 0, (words, capsys.readouterr().err)
        output[verb] = output.get(verb, "") + capsys.readouterr().out
    assert "solve" in output["report"] and "solve" in output["annotate"]
    assert "out.0" in output["calls"] and "MPI_Allreduce" in output["messages"]
