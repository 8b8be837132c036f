"""Which load modules are the program's own code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hpcd.analysis
from hpcd.analysis.parallel import program_code
from hpcd.analysis.roles.program_modules import is_program_code
from hpcd.analysis.roles.role_table import role_table
from hpcd.model.identity import ModuleKind
from tests.support.made import Step, make


@pytest.fixture(autouse=True)
def _configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    role_table.cache_clear()
    yield
    role_table.cache_clear()


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/usr/bin/lmp", True),
        ("/usr/lib/x86_64-linux-gnu/liblammps.so.0", True),
        ("/usr/lib/libgromacs_mpi.so.7", True),
        ("/opt/petsc/lib/libpetsc.so.3.20", True),
        ("/home/ada/libmine.so (deleted)", True),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", False),
        ("/lib64/ld-linux-x86-64.so.2", False),
        ("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3/mca_btl_vader.so", False),
        ("/usr/lib/x86_64-linux-gnu/libmpich.so.12.2.0", False),
        ("/usr/lib/x86_64-linux-gnu/libinfinipath.so.4.0", False),
        ("/usr/lib/x86_64-linux-gnu/libopenblas.so.0 (deleted)", False),
        ("/usr/lib/x86_64-linux-gnu/libfftw3f.so.3", False),
        ("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0", False),
        ("/usr/lib/libcuda.so.535.1", False),
    ],
)
def test_libraries_are_told_by_their_names(path: str, own: bool) -> None:
    assert is_program_code(path, ModuleKind.ELF) is own


@pytest.mark.parametrize(
    ("path", "kind", "own", "installed"),
    [
        ("/home/ada/app.py", ModuleKind.PYTHON, True, True),
        ("<string>", ModuleKind.PYTHON, True, True),
        ("/opt/venv/bin/pytest", ModuleKind.PYTHON, False, True),
        ("/opt/venv/lib/python3.12/site-packages/dask/core.py", ModuleKind.PYTHON, False, True),
        ("/usr/lib/python3/dist-packages/apt/cache.py", ModuleKind.PYTHON, False, True),
        ("/usr/lib/python3.11/json/encoder.py", ModuleKind.PYTHON, False, False),
        ("<frozen runpy>", ModuleKind.PYTHON, False, False),
        ("[python]", ModuleKind.PYTHON, False, False),
        ("/usr/bin/python3.11", ModuleKind.ELF, False, True),
        ("/usr/lib/python3.11/lib-dynload/_json.cpython-311-x86_64-linux-gnu.so", ModuleKind.ELF,
         False, True),
        ("/opt/venv/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_-32.so",
         ModuleKind.ELF, False, True),
        ("/home/ada/fast.cpython-312-x86_64-linux-gnu.so", ModuleKind.ELF, False, True),
    ],
)  # fmt: skip
def test_what_is_installed_for_python_is_the_program_where_it_has_nothing_else(
    path: str, kind: ModuleKind, own: bool, installed: bool
) -> None:
    assert is_program_code(path, kind) is own
    assert is_program_code(path, kind, installed=True) is installed


def test_kernel_code_is_not_the_programs_and_jit_code_is() -> None:
    assert not is_program_code("[kernel]", ModuleKind.KERNEL)
    assert not is_program_code("[vdso]", ModuleKind.VDSO)
    assert is_program_code("[jit]", ModuleKind.JIT)


def test_users_add_patterns(tmp_path: Path) -> None:
    (tmp_path / "hpcd").mkdir()
    (tmp_path / "hpcd/roles.toml").write_text(
        "[[support]]\nmodules = ['libcompany*', '/opt/vendor/*']\n"
        "[[program]]\nmodules = ['libfftw3_patched*']\n"
    )
    assert not is_program_code("/usr/lib/libcompany_io.so", ModuleKind.ELF)
    assert not is_program_code("/opt/vendor/libanything.so", ModuleKind.ELF)
    assert is_program_code("/usr/lib/libfftw3_patched.so.3", ModuleKind.ELF)


def test_addresses_are_the_programs_code_where_it_was_stripped(tmp_path: Path) -> None:
    stripped: list[Step] = [("_start/main/[solver+0x20]", "cpu", 0.1)]
    named: list[Step] = [("main/solve", "cpu", 0.1), ("main/[solver+0x20]", "cpu", 0.1)]
    for steps, own in (
        (stripped, {"_start", "main", "[solver+0x20]"}),
        (named, {"main", "solve"}),
    ):
        with hpcd.analysis.open(make(tmp_path / f"{len(own)}", {0: steps})) as db:
            contexts = program_code.program_contexts(db).nonzero()[0]
            names = {db.procedures.name[number] for number in db.procedure_of_node[contexts]}
        assert names == own
