"""The Java runtimes of this machine: installed, or unpacked by ``setup/jvms.sh``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

VERSIONS = (11, 17, 21, 25)
_INSTALLED = Path("/usr/lib/jvm")
_UNPACKED = ROOT / "build/jvms"


def jvms() -> dict[int, Path]:
    """The folder of each, by its version."""
    homes: dict[int, Path] = {}
    for folder in (*sorted(_INSTALLED.glob("*")), *sorted(_UNPACKED.glob("*/*/java-runtime"))):
        release = folder / "release"
        text = release.read_text() if release.exists() else ""
        version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
        if version and (folder / "lib/server/libjvm.so").exists():
            homes.setdefault(int(version[1]), folder)
    return homes


def jvm(version: int) -> Path:
    """The folder of a runtime; without one the test is skipped."""
    home = jvms().get(version)
    if home is None:
        pytest.skip(f"no Java {version}: setup/jvms.sh unpacks it")
    return home


def libraries_of_java(home: Path) -> list[Path]:
    """The libraries that each program of Java has in its paths."""
    return [home / "lib/server/libjvm.so", *home.glob("lib/**/libjli.so")]


def compile_java(source: Path, folder: Path) -> None:
    """Compile for the oldest version; without a compiler the test is skipped."""
    compilers = [home / "bin/javac" for home in jvms().values()]
    compiler = next((path for path in compilers if path.exists()), None)
    if compiler is None:
        pytest.skip("no default-jdk-headless")
    oldest = str(VERSIONS[0])
    subprocess.run([compiler, "--release", oldest, "-g", "-d", folder, source], check=True)
