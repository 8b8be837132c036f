"""Tests that real programs are found to wait for whom they say that they waited for."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcd.process_status import status_field
from tests.support.busy_loops import busy_loops
from tests.support.recorded import HPCD, hpcd

pytestmark = pytest.mark.root

# Of the planted waiting, and what anybody else may be given.
_NAMED, _OTHERS = 0.95, 0.02
# Seconds that the test lets the program wait for itself.
_OUTSIDE = 0.3
_KINDS = (
    "mutexes", "five", "stolen", "inherited", "condition", "barrier", "semaphore", "writer",
    "terminal",
    "reader", "join", "child", "end", "posted", "flock", "continued", "pipes", "socket", "epoll",
    "eventfd", "poll", "signal", "message", "sleep", "timer", "outside",
)  # fmt: skip
# The functions of threads between who waits and who is waited for: they run for microseconds, but
# for milliseconds where another machine takes the CPU away meanwhile.
_BETWEEN = {"holds_and_waits", "middle_stage", "waits_first"}
# Threads that race for a lock: who gets it beside other programs is chance.
_RACES = ("five", "stolen")
# What the waker called to wake the other, in names of its call path.
_ENDED_IN = {
    "mutexes": "mutex_unlock", "condition": "cond_broadcast", "pipes": "write", "signal": "kill",
    "semaphore": "sem_post", "socket": "write", "barrier": "barrier_wait", "message": "msgsnd",
}  # fmt: skip


@pytest.fixture(scope="module", params=[0, 2], ids=["quiet", "busy"])
def planted(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    build: Callable[..., Path],
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The report of a recording of all kinds beside so many busy loops, and the words that each
    printed."""
    folder = tmp_path_factory.mktemp("planted")
    kinds = [kind for kind in _KINDS if not (request.param and kind in _RACES)]
    command = [*HPCD, "run", "-o", str(folder / "m"), "--", str(build("planted_waits.c")), *kinds]
    with (
        busy_loops(request.param),
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        assert process.stdout
        lines = []
        for line in process.stdout:
            if line.startswith("waits "):
                break
            lines.append(line)
        while not status_field(line.split()[1], "State").startswith("S"):
            pass
        time.sleep(_OUTSIDE)  # what it waits for where that is outside: this process, no target
        out, _ = process.communicate("\n")
    assert process.returncode == 0
    hpcd("merge", "-o", folder / "db", folder / "m")
    report = json.loads(hpcd("report", "--waits-for", "--json", folder / "db").stdout)
    words = [line.split() for line in [*lines, *out.splitlines()] if line.count(" ") == 9]
    return report, {kind: rest for kind, *rest in words}


@pytest.mark.parametrize("kind", _KINDS)
def test_the_planted_cause_is_named(
    kind: str, planted: tuple[dict[str, Any], dict[str, list[str]]]
) -> None:
    report, printed = planted
    if kind not in printed:
        pytest.skip("recorded on a quiet machine only")
    victim, least, most, *causes = printed[kind]
    shares = {name: float(share) for name, share in zip(causes[::2], causes[1::2], strict=True)}
    paths = [path for path in report["paths"] if victim in path["path"]]
    waited = sum(path["seconds"] for path in paths)
    # It slept all the time that was planted, and no longer than its own clock says.
    planted_seconds = _OUTSIDE if kind == "outside" else float(least)
    assert planted_seconds * 0.999 <= waited <= float(most) * 1.001
    roots = [root for path in paths for root in path["roots"]]
    culprits = {root["thread"] for root in roots if shares.keys() & {*root["path"]}}
    named = dict.fromkeys(shares, 0.0)
    others = 0.0
    for path in paths:
        assert sum(root["seconds"] for root in path["roots"]) == pytest.approx(path["seconds"])
        assert sum(end["seconds"] for end in path["ended_by"]) == pytest.approx(path["seconds"])
        for root in path["roots"]:
            cause = shares.keys() & {*root["path"], root["kind"]}
            if cause:
                named[cause.pop()] += root["seconds"]
            elif (
                root["kind"] == "runnable"
                or root["thread"] in culprits  # before or after the planted function
                or _BETWEEN & {*root["path"]}
            ):
                waited -= root["seconds"]
            elif root["kind"] != "not-seen":
                others += root["seconds"]
    for cause, share in shares.items():
        assert share - (1 - _NAMED) <= named[cause] / waited <= share + _OTHERS, paths
    assert sum(named.values()) >= _NAMED * max(waited, planted_seconds), paths
    assert others <= _OTHERS * waited, paths
    if kind in _ENDED_IN:
        ended = [end for path in paths for end in path["ended_by"]]
        there = [end for end in ended if _ENDED_IN[kind] in "".join(end["path"])]
        assert sum(end["seconds"] for end in there) >= 0.5 * sum(end["seconds"] for end in ended)


def test_a_waker_that_is_not_recorded_has_a_name(
    planted: tuple[dict[str, Any], dict[str, list[str]]],
) -> None:
    """This process, which lets the program go on."""
    report, printed = planted
    victim = printed["outside"][0]
    paths = [path for path in report["paths"] if victim in path["path"]]
    own = Path("/proc/self/comm").read_text().strip()
    assert [end["name"] for path in paths for end in path["ended_by"]] == [f"{own} {os.getpid()}"]
