"""Recipes of other package managers say what pyproject.toml does."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.paths import ROOT

LICENSE = (ROOT / "LICENSE").read_text().split()[0]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements(lines: list[str]) -> dict[str, str]:
    """Lowest versions by name; those of one processor are for the sake of its wheels."""
    versions = {}
    for line in lines:
        if "platform_machine ==" in line:
            continue
        match = re.match(r"([\w-]+)>=([\d.]+)", line)
        assert match, line
        versions[match[1]] = match[2]
    return versions


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Any, ...]]]:
    """The directives of the Spack recipe, run with stand-ins for Spack."""
    output: dict[str, list[tuple[Any, ...]]] = {}

    def directive(name: str) -> Any:
        def call(*args: Any, **options: Any) -> None:
            output.setdefault(name, []).append((*args, options))

        return call

    def decorator(*_: Any, **__: Any) -> Any:
        return lambda function: function

    package: Any = ModuleType("spack.package")
    for name in ("license", "version", "variant", "depends_on", "conflicts"):
        setattr(package, name, directive(name))
    for name in ("run_before", "run_after", "on_package_attributes"):
        setattr(package, name, decorator)
    package.Executable = SimpleNamespace
    python: Any = ModuleType("spack_repo.builtin.build_systems.python")
    python.PythonPackage = object
    monkeypatch.setitem(sys.modules, "spack", ModuleType("spack"))
    monkeypatch.setitem(sys.modules, "spack.package", package)
    for name in ("spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, python.__name__, python)
    source = (ROOT / "packaging/spack/package.py").read_text()
    exec(compile(source, "package.py", "exec"), {"__name__": "package"})
    return output


def test_spack_has_the_same_requirements(recipe: dict[str, list[tuple[Any, ...]]]) -> None:
    stated = {}
    for spec, options in recipe["depends_on"]:
        if match := re.match(r"py-([\w-]+)@([\d.]+)", spec):
            kind = "run" if "run" in options["type"] else "build"
            stated[kind, match[1]] = match[2]
    wanted = {("run", name): version for name, version in
              requirements(PROJECT["project"]["dependencies"]).items()}  # fmt: skip
    # Requirements of both are stated once, of type ("build", "run").
    wanted |= {("build", name): version for name, version in
               requirements(PROJECT["build-system"]["requires"]).items()
               if ("run", name) not in wanted}  # fmt: skip

    def whole(version: str) -> str:
        return version.removesuffix(".0")

    assert {key: whole(v) for key, v in stated.items()} == {k: whole(v) for k, v in wanted.items()}
    assert recipe["license"] == [(LICENSE, {})]
    (python,) = (spec for spec, _ in recipe["depends_on"] if spec.startswith("python@"))
    assert python == f"python@{PROJECT['project']['requires-python'].removeprefix('>=')}:"


def test_the_apptainer_definition_has_its_sections() -> None:
    text = (ROOT / "packaging/apptainer/hpcd.def").read_text()
    header, *rest = re.split(r"^%(\w+)$", text, flags=re.M)
    assert dict(re.findall(r"^(\w+): (\S+)$", header, re.M)) == {
        "Bootstrap": "docker", "From": "debian:12"
    }  # fmt: skip
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    assert sections.keys() == {
        "files", "post", "environment", "runscript", "test", "labels", "help"
    }  # fmt: skip
    # What sh runs is sh, and what is called by its path is there.
    for name in ("post", "environment", "runscript", "test"):
        done = subprocess.run(["sh", "-n"], input=sections[name], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for script in re.findall(r"sh (setup/\S+)", sections["post"]):
        assert (ROOT / script).is_file()
    # What is installed, and nothing of what a checkout has made: environments, builds.
    files = dict(line.split() for line in sections["files"].strip().splitlines())
    assert all(place == f"/usr/src/hpcd/{source}" for source, place in files.items())
    assert all((ROOT / source).exists() for source in files)
    folders = PROJECT["tool"]["setuptools"]["package-dir"].values()
    assert files.keys() == {
        "pyproject.toml", "setup.py", "README.md", "LICENSE", "docs", "setup", *folders
    }  # fmt: skip
