"""HPC Challenge, as Debian builds it: names of a program without symbols, and two runs compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.recorded import hpcd

pytestmark = [pytest.mark.root, pytest.mark.long]

MPIRUN = ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-n", "2"]


def recorded(folder: Path, block: int) -> Path:
    """Return a database of two ranks, with HPL on a matrix of 2500 rows in blocks of ``block``."""
    text = (ROOT / "tests/data/hpccinf.txt").read_text()
    text = re.sub(r"^3500 (.*Ns)$", r"2500 \1", text, flags=re.M)
    text = re.sub(r"^128 (.*NBs)$", rf"{block} \1", text, flags=re.M)
    folder.mkdir()
    (folder / "hpccinf.txt").write_text(text)
    program = ["env", "OPENBLAS_NUM_THREADS=1", "sh", "-c", f"cd {folder} && exec hpcc"]
    hpcd("run", "-F", "4999", "-o", folder / "m", "--", *MPIRUN, *program)
    hpcd("merge", folder / "m", "-o", folder / "db")
    return folder / "db"


@pytest.fixture(scope="module")
def coarse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("hpcc") / "coarse", 128)


def document(*arguments: object) -> dict[str, Any]:
    """Return the JSON object that a verb prints."""
    result: dict[str, Any] = json.loads(hpcd(*arguments, "--json").stdout)
    return result


def test_stripped_functions_have_addresses_and_others_names(coarse: Path) -> None:
    """Debian's program is stripped; OpenBLAS has its symbols."""
    flat = document("report", "--view", "flat", "--percent", "0.2", coarse)["tree"]["children"]
    programs = [row for row in flat if row["module"].endswith("/hpcc")]
    assert programs and all(
        re.fullmatch(r"\[hpcc\+0x\w+\]", program["name"]) for program in programs
    )
    kernels = [row for row in flat if re.match(r"dgemm_kernel", row["name"])]
    assert kernels and all("blas" in kernel["module"] for kernel in kernels)
    # No lines: its machine code.
    (code,) = document("annotate", programs[0]["name"], coarse)["code"]
    assert code["module"] == programs[0]["module"]
    assert all(instruction["text"] for instruction in code["instructions"])
    whole = sum(instruction["exclusive"]["cpu_time"] for instruction in code["instructions"])
    assert whole == pytest.approx(programs[0]["exclusive"]["cpu_time"])


def test_hpl_at_two_block_sizes(coarse: Path, tmp_path: Path) -> None:
    fine = recorded(tmp_path / "fine", 4)
    whole = document("compare", coarse, fine)
    # Debian's program has no names; HPL alone solves triangular systems.
    above = next(path for path, name in paths(whole["tree"]) if "dtrsm" in name)
    start = [name for name in above if name.startswith("[hpcc")][2]
    comparison = document("compare", "--within", start, coarse, fine)
    assert comparison["regions"], "blocks of 4 cost as much as blocks of 128"
    first = comparison["regions"][0]
    assert first["change"] == ["more"]
    assert start in first["path"]
    # It is the update of the trailing matrix: what calls dgemm.
    updates = [path for path, name in paths(comparison["tree"]) if "dgemm_kernel" in name]
    assert any(first["path"][-1] in path for path in updates)


def paths(tree: dict[str, Any]) -> list[tuple[list[str], str]]:
    """(names on the way, name) of each node with children below it."""
    result = []
    waiting: list[tuple[list[str], dict[str, Any]]] = [([], tree)]
    while waiting:
        above, node = waiting.pop()
        result.append((above, node["name"]))
        waiting += [([*above, node["name"]], child) for child in node["children"]]
    return result
