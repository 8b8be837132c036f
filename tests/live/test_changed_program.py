"""A BPF program that is changed in place is compiled by bcc at the next recording."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcd.measurement.check import check_measurement
from tests.support.paths import ROOT

pytestmark = pytest.mark.root


@pytest.mark.parametrize(("change", "code"), [("/* as before */", 0), ("#error was changed", 5)])
def test_a_changed_program_is_used_without_another_object(
    tmp_path: Path, change: str, code: int
) -> None:
    tree = tmp_path / "tree"
    subprocess.run(["sh", "setup/tree.sh", str(tree)], cwd=ROOT, check=True)
    with (tree / "hpcd/bpf/programs/sampler.bpf.c").open("a") as source:
        source.write(f"\n{change}\n")
    words = ["run", "-o", str(tmp_path / "m"), "--", "true"]
    done = subprocess.run(
        [sys.executable, "-m", "hpcd", *words], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(tree)},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    if code:
        assert done.stderr.count("\n") == 1 and done.stderr.endswith(": error: was changed\n")
    else:
        assert check_measurement(tmp_path / "m") == []
