"""Which files a command will run, before it does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcd.daemon.targets.program_files import program_files


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that needs a library in a folder beside its own, which needs libm."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "bin").mkdir()
    library, executable = tmp_path / "lib/libbeside.so", tmp_path / "bin/program"
    source = tmp_path / "source.c"
    source.write_text("double cbrt(double); double root(double x) { return cbrt(x); }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
    source.write_text("double root(double); int main(int n, char **v) { return root(n); }")
    run_path = "-Wl,-rpath,$ORIGIN/../lib"
    subprocess.run(
        ["gcc", "-o", executable, source, f"-L{library.parent}", "-lbeside", run_path], check=True
    )
    return executable


def test_a_program_and_its_libraries(program: Path) -> None:
    files = program_files([str(program), "-x"])
    assert files[0] == program
    assert {"libbeside.so", "libc.so.6", "libm.so.6"} <= {file.name for file in files}
    assert any(file.name.startswith("ld-linux") for file in files)
    assert all(file.is_absolute() and file == file.resolve() for file in files)


def test_programs_named_to_a_launcher(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("LD_PRELOAD", f"libnowhere.so:{program.parent}/../lib/libbeside.so")
    files = program_files(["env", f"LD_PRELOAD={program}", "program", "no such file", ""])
    assert [file.name for file in files[:3]] == ["env", "program", "libbeside.so"]


def test_preloaded_libraries_are_located_as_the_loader_does(program: Path) -> None:
    folder = program.parent.parent / "lib"
    words = [
        "env",
        f"LD_LIBRARY_PATH=/nowhere:{folder}",
        "LD_PRELOAD=libbeside.so libm.so.6",
        "env",
    ]
    assert {"libbeside.so", "libm.so.6"} <= {file.name for file in program_files(words)}


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/usr/bin/env sh", "#! /bin/sh -e"])
def test_the_interpreter_of_a_script(tmp_path: Path, first: str) -> None:
    script = tmp_path / "script"
    script.write_text(f"{first}\necho\n")
    script.chmod(0o755)
    assert program_files([str(script)])[0] == Path("/bin/sh").resolve()


def test_what_is_no_program_is_left_out(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x7fELF" + bytes(60))
    damaged.chmod(0o755)
    assert program_files([str(damaged), "/", "/no/such/program"]) == []
