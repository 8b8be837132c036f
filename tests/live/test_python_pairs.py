"""No call path has a pair of caller and callee that the program has not, in each interpreter."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.interpreters import interpreters
from tests.support.python_pairs import PAIRS, count_pairs, impossible
from tests.support.recorded import hpcd
from tests.support.tables import libraries_of_python, prepare_tables

pytestmark = pytest.mark.root


@pytest.mark.parametrize("version", interpreters())
def test_no_pair_is_impossible(version: str, tmp_path: Path) -> None:
    python = interpreters()[version]
    prepare_tables(*libraries_of_python("ctypes, _queue", python))
    command = [*map(str, python), str(PAIRS), "60"]
    # What an interpreter has never set is not 0, as by chance it may be.
    environment = {**os.environ, "MALLOC_PERTURB_": "165"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as program:
        try:
            assert program.stdout and program.stdout.readline() == "ready\n"
            options = ("--pid", program.pid, "--duration", 1, "-F", 2000)
            hpcd("attach", *options, "-o", tmp_path / "m")
        finally:
            program.kill()
    counts = count_pairs(tmp_path / "m")
    assert counts.impossible == {}
    assert counts.with_program > 0, counts


def test_what_is_impossible_is_found() -> None:
    whole = ["<module>", "main", "turns", "hot_a", "key_a", "leaf_a", "nap_a"]
    assert impossible(whole, whole=True) == ""
    assert impossible(whole[3:], whole=True) == "hot_a called by none"
    assert impossible(whole[3:], whole=False) == ""
    assert impossible([*whole[:5], "leaf_b"], whole=True) == "leaf_b called by key_a"
    assert impossible([*whole[:4], "nap_a"], whole=True) == "nap_a called by hot_a"
