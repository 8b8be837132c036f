"""The source distribution and the wheel: the same bytes each time, and hpcd whole in each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def run(*command: str | Path, cwd: Path = Path("/"), **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def built(checkout: Path, folder: Path) -> Path:
    """Build with setup/dist.sh in ``folder`` from the present commit, cloned to ``checkout``."""
    run("git", "clone", "--quiet", ROOT, checkout)
    run("sh", "setup/dist.sh", folder, cwd=checkout, PYTHON=sys.executable)
    return folder


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    return built(folder / "checkout", folder / "made")


def test_the_same_commit_gives_the_same_bytes_elsewhere(dist: Path, tmp_path: Path) -> None:
    built(tmp_path / "somewhere-else/deeper", tmp_path / "made")
    names = sorted(path.name for path in dist.iterdir())
    assert [Path(name).suffix for name in names] == [".whl", ".gz"]
    again = tmp_path / "made"
    assert names == sorted(path.name for path in again.iterdir())
    for name in names:
        assert (dist / name).read_bytes() == (again / name).read_bytes(), name


def test_both_have_the_objects_and_the_manual_pages(dist: Path) -> None:
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as archive:
        wheel = archive.namelist()
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        source = archive.getnames()
    for names in (wheel, source):
        for part in ("sampler-x86_64-", "sampler-aarch64-", "sampler_calls-x86_64-",
                     "task_stacks-x86_64-", "kernels-x86_64-", "kernels-x86_64_v3-",
                     "kernels-aarch64-", "declarations-", "hpcd.1", "hpcd.toml.5", "py.typed",
                     "web/", "example/particles.tar.xz"):  # fmt: skip
            assert any(part in name for name in names), part
    assert not any(name.startswith("tests") for name in wheel)


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_it_runs_where_nothing_else_is(dist: Path, tmp_path: Path, kind: str) -> None:
    (archive,) = dist.glob(kind)
    run(sys.executable, "-m", "venv", tmp_path / "bare")
    run(tmp_path / "bare/bin/pip", "install", "--quiet", archive)
    command = tmp_path / "bare/bin/hpcd"
    version = run(command, "--version").split()[1]
    assert version in archive.name
    library = "from hpcd.kernels.library import open_library; print(open_library())"
    assert str(tmp_path) in run(tmp_path / "bare/bin/python", "-c", library)
    run(command, "synth", "-o", tmp_path / "m", "--ranks", "2", "--records", "500")
    run(command, "merge", tmp_path / "m/node-00000", "-o", tmp_path / "db")
    report = json.loads(run(command, "report", tmp_path / "db", "--json"))
    assert report
    run(command, "export", tmp_path / "db", "--format", "pprof", "-o", tmp_path / "p.pb.gz")
    missing = subprocess.run(
        [str(command), "export", str(tmp_path / "db"), "--format", "parquet"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert missing.returncode == 5 and "pip install pyarrow" in missing.stderr
    if os.geteuid() == 0:
        # No compiler, no kernel headers, no bcc: the object compiled ahead is all it has.
        run(command, "run", "-o", tmp_path / "r", "--", "/bin/true", HPCD_LOADER="object",
            HPCD_CACHE=str(tmp_path / "cache"))  # fmt: skip
        run(command, "check", tmp_path / "r")
