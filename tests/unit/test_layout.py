"""The house: folders, their import names, and which of them may use which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]

# Part → the parts it may import; import-linter keeps the finer contracts in `make lint`.
ARROWS: dict[str, set[str]] = {
    "hpcd.errors": set(),
    "hpcd.model": {"hpcd.errors"},
    "hpcd.measurement": {"hpcd.model", "hpcd.errors"},
    "hpcd.bpf": {"hpcd.model", "hpcd.errors"},
    "hpcd.sandbox": {"hpcd.errors"},
    "hpcd.daemon": {"hpcd.bpf", "hpcd.model", "hpcd.measurement", "hpcd.sandbox", "hpcd.errors"},
    "hpcd.analysis": {"hpcd.model", "hpcd.measurement", "hpcd.sandbox", "hpcd.errors"},
    "hpcd.viewer": {"hpcd.analysis", "hpcd.model", "hpcd.errors"},
}


def sources() -> dict[str, Path]:
    """Module name → file, of everything that is installed."""
    found = {}
    for package, folder in sorted(FOLDERS.items()):
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def imports(module: str, path: Path) -> set[str]:
    """The hpcd modules ``module`` imports anywhere, inside functions too."""
    found: set[str] = set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                source = ".".join([*package.split(".")[: 1 - node.level or None], source])
            found.update(f"{source}.{alias.name}" for alias in node.names)
    return {name for name in found if name.startswith("hpcd.")}


def part(module: str) -> str:
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("name", ARROWS)
def test_arrows_point_one_way(name: str) -> None:
    checked = 0
    for module, path in sources().items():
        if part(module) == name:
            used = {part(each) for each in imports(module, path)} - {name, "hpcd.__version__"}
            assert used <= ARROWS[name], f"{module} may not import {used - ARROWS[name]}"
            checked += 1
    assert checked


def test_only_the_command_line_is_outside_the_arrows() -> None:
    parts = {part(module) for module in sources()} - {"hpcd"}
    assert parts - set(ARROWS) == {"hpcd.commands", "hpcd.__main__"}


def test_every_package_and_every_c_file_is_installed() -> None:
    """An editable installation would not notice a package that setuptools is not told of."""
    packages = {module for module, path in sources().items() if path.name == "__init__.py"}
    modules = {module.rpartition(".")[0] for module in sources()} - {""}
    assert packages == modules == set(PROJECT["tool"]["setuptools"]["packages"])
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["hpcd.bpf"]
    installed = {path for pattern in patterns for path in (ROOT / "bpf").glob(pattern)}
    assert {path for path in (ROOT / "bpf").rglob("*.[ch]")} <= installed


def test_nothing_is_installed_beside_hpcd() -> None:
    script = (
        "import importlib.metadata as m; "
        "print(sorted({f.parts[0] for f in m.distribution('hpcd').files or []}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd="/", capture_output=True, text=True, check=True
    )
    tops = ast.literal_eval(done.stdout)
    assert tops
    for top in tops:
        assert top.startswith(("hpcd", "__editable__", "__pycache__", "..")), top


def test_make_test_runs_every_folder_of_tests() -> None:
    makefile = (ROOT / "Makefile").read_text()
    folders = {file.parent.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py")}
    assert folders
    for folder in folders:
        assert re.search(rf"= .*\b{folder}(\s|$)", makefile), folder


def test_every_debian_package_has_its_reason() -> None:
    lists = sorted((ROOT / "setup").glob("packages-*.txt"))
    assert lists
    for path in lists:
        for line in path.read_text().splitlines():
            assert re.fullmatch(r"#.*|[a-zA-Z0-9.+-]+ +# \S.*", line), f"{path.name}: {line}"


def test_every_document_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    for path in (ROOT / "docs").iterdir():
        assert path.name == "index.md" or f"]({path.name})" in index, path
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
