"""The commands of docs/tutorial.md, every one of them, and what the text says of their results."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.analysis.findings.findings import findings
from tests.support.machine import stolen_seconds
from tests.support.paths import ROOT

pytestmark = pytest.mark.root

TUTORIAL = (ROOT / "docs/tutorial.md").read_text()


def blocks() -> list[str]:
    """Return the commands that a reader types, block by block; the user is root already."""
    commands = re.findall(r"^```sh\n(.*?)^```", TUTORIAL, re.M | re.S)
    return [re.sub(r"^sudo ", "", block, flags=re.M) for block in commands]


def shell(folder: Path) -> dict[str, str]:
    """The environment of a reader's shell, whose results are kept below ``folder``."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HPCD_RESULTS": str(folder / "results"),
        "OMP_NUM_THREADS": "1",
        # Open MPI asks twice before it runs as root, and counts processors.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }


def typed(block: str, folder: Path) -> str:
    """Run a block and return what it prints; the viewer, which serves until it is ended, is asked
    for its page."""
    environment = shell(folder)
    lines = block.splitlines(keepends=True)
    views = [line for line in lines if line.startswith("hpcd view ")]
    done = subprocess.run(
        ["bash", "-e", "-c", "".join(line for line in lines if line not in views)],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    for view in views:
        command = ["bash", "-c", f"exec {view.strip()} --no-browser"]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout
                url = server.stdout.readline().strip()
                with urllib.request.urlopen(url.partition("#")[0]) as answer:
                    assert b"<title>hpcd</title>" in answer.read()
            finally:
                server.send_signal(signal.SIGINT)
    return done.stdout + done.stderr


def unevenness(database: Path) -> str:
    """Return what a report says about the balance of the ranks; empty if it is even."""
    with hpcd.analysis.open(database) as db:
        return "".join(finding.text for finding in findings(db) if finding.kind == "imbalance")


def test_every_command_does_what_the_text_says(tmp_path: Path) -> None:
    program, record, threads, imbalance, look, remedy, compare, send, delete = blocks()
    typed(program, tmp_path)
    stolen = stolen_seconds()
    report = typed(record, tmp_path)
    assert re.search("stands out: .* work is done in PairLJCut::compute", report)
    assert "stands out: Rank 0 works" in report
    assert {"rank 0", "rank 1"} <= set(re.findall(r"rank \d", typed(threads, tmp_path)))
    blamed = typed(imbalance, tmp_path)
    rank, share = re.findall(r"^waiting caused by: rank (\d) (\d+) %", blamed, re.M)[0]
    assert rank == "0" and int(share) > 75
    typed(look, tmp_path)
    assert (tmp_path / "before.png").read_bytes().startswith(b"\x89PNG")
    typed(remedy, tmp_path)
    # The program's own clock goes on while the hypervisor has its CPU.
    stolen = stolen_seconds() - stolen
    before, after = (unevenness(tmp_path / "results" / name) for name in ("before", "after"))
    assert before.startswith("Rank 0 works")
    assert _excess(before) > 0.5 > _excess(after)
    output = typed(compare, tmp_path)
    assert re.search(r"^1: \S*before: .* of work for each of 2 ranks$", output, re.M)
    times = re.findall(
        r"^time in \S+: (\S+) s -> (\S+) s .*; standard error (\S+) s$", output, re.M
    )
    ((*loops, error),) = ([float(number) for number in numbers] for numbers in times)
    own = [float(number) for number in re.findall(r"Loop time of (\S+)", output)]
    assert loops == pytest.approx(own, rel=0.01, abs=4 * error + stolen)
    typed(send, tmp_path)
    assert "PairLJCut" in (tmp_path / "before.html").read_text()
    assert "before" in typed(delete, tmp_path)
    assert list((tmp_path / "results").iterdir()) == []


def _excess(text: str) -> float:
    """How much more than the mean the busiest rank works, of the mean."""
    seconds = [float(number) for number in re.findall(r"(\d+\.\d+) s", text)]
    return seconds[0] / seconds[1] - 1 if seconds else 0.0
