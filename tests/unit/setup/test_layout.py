"""The house: folders, their import names, and which of them may use which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]

# Part → the parts it may import; import-linter keeps the finer contracts in `make lint`.
BASE = {
    "hpcd.errors", "hpcd.array_types", "hpcd.closing", "hpcd.distinct", "hpcd.masks",
    "hpcd.process_status", "hpcd.processors", "hpcd.signals", "hpcd.startup", "hpcd.wording",
    "hpcd.kernels", "hpcd.option_schema", "hpcd.output_file", "hpcd.output_folder",
    "hpcd.regular_file", "hpcd.cache_directory", "hpcd.rows", "hpcd.user_names",
    "hpcd.kept_answers",
}  # fmt: skip
ARROWS: dict[str, set[str]] = {
    "hpcd.errors": set(),
    "hpcd.array_types": set(),
    "hpcd.closing": set(),
    "hpcd.kept_answers": set(),
    "hpcd.process_status": set(),
    "hpcd.distinct": {"hpcd.array_types"},
    "hpcd.masks": {"hpcd.array_types"},
    "hpcd.startup": set(),
    "hpcd.processors": set(),
    "hpcd.signals": set(),
    "hpcd.wording": set(),
    "hpcd.cache_directory": set(),
    "hpcd.rows": set(),
    "hpcd.user_names": set(),
    "hpcd.option_schema": {"hpcd.errors"},
    "hpcd.regular_file": {"hpcd.closing", "hpcd.errors"},
    "hpcd.output_file": {"hpcd.closing", "hpcd.errors"},
    "hpcd.output_folder": {"hpcd.closing", "hpcd.errors"},
    "hpcd.kernels": {"hpcd.errors"},
    "hpcd.model": BASE,
    "hpcd.elf": BASE,
    # Protocol buffers have DWARF's variable-length integers, and one reader of both.
    "hpcd.measurement": BASE | {"hpcd.model", "hpcd.elf"},
    # What is found out about the running kernel is kept in the store of files.
    "hpcd.bpf": BASE | {"hpcd.model", "hpcd.sandbox"},
    "hpcd.sandbox": BASE,
    "hpcd.daemon": BASE
    | {"hpcd.bpf", "hpcd.model", "hpcd.elf", "hpcd.measurement", "hpcd.sandbox"},
    "hpcd.analysis": BASE | {"hpcd.model", "hpcd.elf", "hpcd.measurement", "hpcd.sandbox"},
    "hpcd.interchange": BASE
    | {"hpcd.analysis", "hpcd.model", "hpcd.elf", "hpcd.measurement", "hpcd.sandbox"},
    "hpcd.viewer": BASE | {"hpcd.analysis", "hpcd.model"},
}


def sources() -> dict[str, Path]:
    """Module name → file, of everything that is installed."""
    files = {}
    for package, folder in sorted(FOLDERS.items()):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            files[".".join((package, *parts)).removesuffix(".__init__")] = path
    return files


def imports(module: str, path: Path) -> set[str]:
    """The hpcd modules ``module`` imports anywhere, inside functions too."""
    names: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                source = ".".join([*package.split(".")[: 1 - node.level or None], source])
            names.update(f"{source}.{alias.name}" for alias in node.names)
    return {name for name in names if name.startswith("hpcd.")}


def part(module: str) -> str:
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("name", ARROWS)
def test_arrows_point_one_way(name: str) -> None:
    checked = 0
    for module, path in sources().items():
        if part(module) == name:
            used = {part(imported) for imported in imports(module, path)} - {
                name,
                "hpcd.__version__",
            }
            assert used <= ARROWS[name], f"{module} may not import {used - ARROWS[name]}"
            checked += 1
    assert checked


def test_only_the_command_line_is_outside_the_arrows() -> None:
    # The version is written when hpcd is built.
    parts = {part(module) for module in sources()} - {"hpcd", "hpcd._version"}
    assert parts - set(ARROWS) == {"hpcd.cli", "hpcd.__main__"}


def test_every_package_and_every_c_file_is_installed() -> None:
    """An editable installation would not notice a package that setuptools is not told of."""
    packages = {module for module, path in sources().items() if path.name == "__init__.py"}
    modules = {module.rpartition(".")[0] for module in sources()} - {""}
    assert packages == modules == set(PROJECT["tool"]["setuptools"]["packages"])
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["hpcd.bpf"]
    installed = {path for pattern in patterns for path in (ROOT / "bpf").glob(pattern)}
    assert {path for path in (ROOT / "bpf").rglob("*.[ch]")} <= installed


def printed_elsewhere(script: str) -> Any:
    """The value that ``script`` prints, run outside of this tree."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd="/", capture_output=True, text=True, check=True
    )
    return ast.literal_eval(done.stdout)


def test_nothing_generic_is_importable() -> None:
    """Only hpcd: not the names of its folders, such as "daemon"."""
    script = (
        "import importlib.util as u; import hpcd.daemon, hpcd.viewer, hpcd.cli; print([n for n in "
        "('bpf', 'daemon', 'analysis', 'interchange', 'viewer', 'cli') if u.find_spec(n)])"
    )
    assert printed_elsewhere(script) == []


def test_nothing_is_installed_beside_hpcd() -> None:
    script = (
        "import importlib.metadata as m; "
        "print(sorted({f.parts[0] for f in m.distribution('hpcd').files or []}))"
    )
    tops = printed_elsewhere(script)
    assert tops
    for top in tops:
        assert top.startswith(("hpcd", "__editable__", "__pycache__", "..")), top


def test_make_test_runs_every_folder_of_tests() -> None:
    script = (ROOT / "setup" / "tests.sh").read_text() + (ROOT / "Makefile").read_text()
    files = [file.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")]
    assert files
    for file in files:
        paths = "|".join(map(str, [file, *file.parents[:-2]]))
        assert re.search(rf'(?<!ignore=)({paths})[\s"]', script), file


def test_every_debian_package_has_its_reason() -> None:
    lists = sorted((ROOT / "setup").glob("packages-*.txt"))
    assert lists
    for path in lists:
        for line in path.read_text().splitlines():
            assert re.fullmatch(r"#.*|[a-zA-Z0-9.+-]+ +# \S.*", line), f"{path.name}: {line}"


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs/documents.md").read_text()
    for path in (ROOT / "docs").iterdir():
        assert path.name in ("index.md", "documents.md") or f"]({path.name})" in index, path
    for target in re.findall(r"\]\(([^)#:]+)\)", index):
        assert (ROOT / "docs" / target).exists(), target


@pytest.mark.parametrize("document", ["README.md", "CHANGELOG.md"])
def test_every_documented_command_and_file_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in re.findall(r"(?:^|`|sudo )make ([a-z-]+)", text, re.MULTILINE):
        assert name in targets
    for path in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / path).exists(), path


def test_no_test_module_is_imported() -> None:
    """Shared test code is in tests/support; nothing the tests need is in a benchmark."""
    checked = 0
    for path in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                source = node.module or ""
                names = [source, *(f"{source}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            checked += 1
            for name in names:
                shared = not re.search(r"^tests\..*\b(test_\w+|conftest)\b", name)
                own_conftest = path.parent.name == "service" and "tests.service.conftest" in name
                assert shared or own_conftest, f"{path} imports {name}"
                if path.is_relative_to(ROOT / "tests") and "benchmarks" in name.split("."):
                    assert path.name in BENCHMARKS, f"{path} imports {name}"
    assert checked


# What tests whether benchmarks work.
BENCHMARKS = {"test_benchmarks.py", "smallest.py"}

# Base names that several modules have, and why they mean one thing in all of them.
SHARED_NAMES = {
    "calls": "what calls are, and the verb that prints them",
    "__init__": "packages",
    "check": "`hpcd check` looks after measurements and databases, each by its own format's module",
    "imbalance": "the analysis and the verb that prints it",
    "memory": "the analysis and the verb that prints it",
    "report": "the report and the verb that prints it",
    "scaling": "the analysis and the verb that prints it",
}


def test_no_two_modules_of_one_name_mean_different_things() -> None:
    modules: dict[str, list[str]] = {}
    for path in sources().values():
        modules.setdefault(path.stem, []).append(str(path.relative_to(ROOT)))
    several = {name: paths for name, paths in modules.items() if len(paths) > 1}
    assert several["__init__"]
    unexplained = {name: paths for name, paths in several.items() if name not in SHARED_NAMES}
    assert not unexplained, "rename one, or add the name to SHARED_NAMES with a reason"


def test_no_two_public_classes_have_one_name() -> None:
    """Generated classes have the names of C."""
    classes: dict[str, list[str]] = {}
    for path in set(sources().values()) - {ROOT / "bpf/wire.py"}:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert not {name: paths for name, paths in classes.items() if len(paths) > 1}
