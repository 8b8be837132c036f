"""Shared by all tests."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.programs import PROGRAMS

# Examples take as long as the machine lets them.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure() -> None:
    """Make SIGINT and SIGHUP end the programs that tests start, also under nohup(1) and in a
    background job of a shell."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL),
    ):  # fmt: skip
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked root are skipped, with the remedy, for anybody else."""
    if os.geteuid() == 0:
        return
    skip = pytest.mark.skip(reason="needs root to load BPF programs: sudo make test")
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(skip)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that all users reach, on a file system that honours set-user-ID."""
    folder = Path("/var/tmp") / f"hpcd-test-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            pytest.skip("mounted without set-user-ID programs")
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compiles tests/programs/NAME once; returns the executable."""
    directory = tmp_path_factory.mktemp("programs")
    built: dict[tuple[str, ...], Path] = {}

    def compile_program(name: str, *flags: str, compiler: str = "") -> Path:
        key = (name, compiler, *flags)
        if key not in built:
            target = directory / f"{Path(name).stem}-{len(built)}"
            usual = "g++" if name.endswith(".cpp") else "gcc"
            command = [compiler or usual, "-O2", "-fomit-frame-pointer", "-pthread", *flags]
            subprocess.run([*command, "-o", str(target), str(PROGRAMS / name)], check=True)
            built[key] = target
        return built[key]

    return compile_program
