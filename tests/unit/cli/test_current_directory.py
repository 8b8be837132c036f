"""Verbs that need no root take no code from the current directory.

The others are in ``tests/live/test_current_directory.py``.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hpcd.cli.verbs import VERBS
from tests.support.called import ranks_that_call
from tests.support.paths import ROOT
from tests.support.planted import (
    OTHER_RECORDING_VERBS,
    RECORDING_COMMANDS,
    PlantedDirectory,
)
from tests.support.receiver import Receiver

RECORDING = ROOT / "tests/data/recordings/mpi"
COMMANDS = {
    "calls": "calls calls.db",
    "check": "check calls.db",
    "compare": "compare calls.db fewer.db",
    "doctor": "doctor",
    "export": "export calls.db --format pprof -o exported",
    "imbalance": "imbalance calls.db",
    "import": "import collapsed -o imported",
    "list": "list",
    "memory": "memory calls.db",
    "merge": f"merge {RECORDING} -j 2 -o merged",
    "messages": "messages calls.db",
    "push": f"push {RECORDING} --to URL",
    "render": "render calls.db -o picture.png",
    "report": "report calls.db --html report.html",
    "results": "results",
    "scaling": "scaling fewer.db calls.db --weak",
    "structure": "structure /bin/true",
    "synth": "synth -o synthetic --ranks 4 --records 100 --workers 2",
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> PlantedDirectory:
    directory = PlantedDirectory(tmp_path_factory.mktemp("current-directory"))
    for name, ranks in (("calls", 4), ("fewer", 2)):
        folder = tmp_path_factory.mktemp(name)
        shutil.move(ranks_that_call(folder, ranks=ranks), directory.folder / f"{name}.db")
    (directory.folder / "collapsed").write_text("main;work 5\n")
    directory.hpcd("merge", RECORDING, "-o", "recorded.db")
    return directory


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verb_imports_nothing_from_the_current_directory(
    verb: str, planted: PlantedDirectory
) -> None:
    with Receiver() as receiver:
        words = COMMANDS[verb].replace("URL", receiver.url).split()
        planted.hpcd(*words)


@pytest.mark.parametrize("engine", ["dask", "mpi"])
def test_workers_that_other_libraries_start(
    engine: str, planted: PlantedDirectory, tmp_path: Path
) -> None:
    mpi = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    planted.hpcd("merge", RECORDING, "-j", 2, "--engine", engine, "-o", tmp_path / "db", **mpi)


def test_every_verb_is_tried() -> None:
    assert {
        *COMMANDS, "view", *RECORDING_COMMANDS, *OTHER_RECORDING_VERBS,
    } == VERBS.keys()  # fmt: skip


def test_the_viewer_and_its_live_merge(planted: PlantedDirectory, tmp_path: Path) -> None:
    measurement = tmp_path / "measurement"
    shutil.copytree(RECORDING, measurement)
    for words in (["recorded.db"], ["--live", measurement]):
        viewer = subprocess.Popen(
            planted.command("view", "--no-browser", *words),
            cwd=planted.folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert viewer.stdout
            assert viewer.stdout.readline().startswith("http")
        finally:
            viewer.terminate()
            viewer.communicate()
        assert planted.imported() == []


def test_python_path_is_nothing_to_the_installed_command(planted: PlantedDirectory) -> None:
    """Not even where it names the current directory, as an empty entry does."""
    for path in (":", ".", str(planted.folder)):
        planted.hpcd(
            "merge", RECORDING, "-j", 2, "-o", "merged again", installed=True, PYTHONPATH=path
        )
        shutil.rmtree(planted.folder / "merged again")


@pytest.mark.parametrize("entry", ["other", "./other"])
def test_relative_entries_of_python_path_are_left_out(
    entry: str, planted: PlantedDirectory, tmp_path: Path
) -> None:
    """Also of the command as pip writes it, for all that is imported once hpcd has started."""
    other = planted.folder / "other"
    other.mkdir(exist_ok=True)
    for name in ("zstandard", "symbolic"):
        shutil.copy(planted.folder / f"{name}.py", other)
    planted.hpcd("merge", RECORDING, "-j", 2, "-o", tmp_path / "db", PYTHONPATH=entry)


@pytest.mark.parametrize("path", ["", ".", ".:{}", "{}", "/usr:{}/../{.name}/"])
def test_a_directory_named_in_full_stays_on_the_path(path: str, tmp_path: Path) -> None:
    """Also where it is the current directory: without it the processes that hpcd starts, which
    have the path of the command, would not find what the command did."""
    (tmp_path / "shows_path.py").write_text(
        "import sys\nfrom hpcd.startup.isolation import isolate_import_path\n"
        "isolate_import_path()\nprint(*sys.path, sep='\\n')"
    )
    done = subprocess.run(
        [ROOT / ".venv/bin/python", "-m", "shows_path"],
        cwd=tmp_path,
        env={"PYTHONPATH": path.format(tmp_path, tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (str(tmp_path) in done.stdout.splitlines()) == ("{}" in path)


def test_a_clone_beside_the_current_directory(tmp_path: Path) -> None:
    """The clone's folder has the package's name."""
    (tmp_path / "hpcd" / "hpcd").mkdir(parents=True)
    done = subprocess.run(
        [ROOT / ".venv/bin/hpcd", "merge", RECORDING, "-j", "2", "-o", "db"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_only_one_module_starts_python() -> None:
    """The module that isolates them."""
    starting = [
        path.relative_to(ROOT)
        for package in ("hpcd", "bpf", "daemon", "analysis", "interchange", "viewer", "cli")
        for path in (ROOT / package).rglob("*.py")
        if "[sys.executable" in path.read_text()
    ]
    assert starting == [Path("hpcd/startup/isolation.py")]
