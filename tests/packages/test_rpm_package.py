"""The RPM package: rpmlint's opinion, installed, used, upgraded and removed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.packages import USE, build_package, head
from tests.support.paths import ROOT
from tests.support.root_overlay import run_in_copy

pytestmark = pytest.mark.root

# Of RHEL 9, and of no later release of what the package is for.
OLDEST_GLIBC = (2, 34)


@pytest.fixture(scope="module")
def commit() -> str:
    """The commit that is built: the same in all tests, whatever is committed meanwhile."""
    return head()


def _printed(*command: str | Path) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, commit: str) -> Path:
    return build_package("rpm", tmp_path_factory.mktemp("rpm"), commit)


@pytest.fixture(scope="module")
def files(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package's files."""
    folder = tmp_path_factory.mktemp("files")
    subprocess.run(f"rpm2cpio {package} | cpio -idm --quiet", shell=True, cwd=folder, check=True)
    return folder


def test_the_same_commit_gives_the_same_bytes_elsewhere(
    package: Path, tmp_path: Path, commit: str
) -> None:
    other = tmp_path / "somewhere-else/deeper"
    other.mkdir(parents=True)
    again = build_package(
        "rpm",
        tmp_path / "again",
        commit,
        TMPDIR=str(other),
        RPMLINT="true",
        TZ="Asia/Tokyo",
        LC_ALL="C",
    )
    assert again.name == package.name
    assert again.read_bytes() == package.read_bytes()


def test_its_version_is_the_wheels(package: Path, commit: str) -> None:
    version = _printed("sh", "setup/version.sh", commit).strip()
    assert _printed("rpm", "-qp", "--qf", "%{VERSION}", package) == version.replace(".dev", "~dev")


def test_it_needs_no_compiler_and_no_later_library_than_rhel_9_has(
    package: Path, files: Path
) -> None:
    requirements = _printed("rpm", "-qpR", package)
    assert "libbpf.so.1" in requirements and "/usr/bin/python3.11" in requirements
    assert not re.search("clang|llvm|bcc|headers", requirements)
    libraries = [path for path in files.rglob("*") if re.search(r"\.so(\.\d+)*$", path.name)]
    assert libraries
    symbols = _printed("objdump", "-T", *libraries)
    versions = {
        tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", symbols)
    }
    assert versions and max(versions) <= OLDEST_GLIBC


def test_its_files_name_no_place_where_it_was_built(files: Path) -> None:
    done = subprocess.run(
        ["grep", "-rlF", "-e", "/tmp/tmp.", "-e", str(ROOT), str(files)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert not done.stdout


_LIFE = (
    """
old=$1 new=$2
rpm -i --nodeps "$old" >/dev/null 2>&1
echo "version $(hpcd --version)"
getent group hpcd | cut -d: -f1
stat -c '%n %a %U' /var/lib/hpcd /etc/hpcd/hpcd.toml
"""
    + USE
    + """man -w hpcd hpcd.toml
echo "unwritten $(find /usr/lib/hpcd -newer script -name '*.pyc' | wc -l)"
echo '[control]' >/etc/hpcd/hpcd.toml
echo 'recordings = 7' >>/etc/hpcd/hpcd.toml
rpm -U --nodeps --force "$new" >/dev/null 2>&1
grep recordings /etc/hpcd/hpcd.toml
mkdir -p /var/lib/hpcd/0/measurement
rpm -e hpcd >/dev/null 2>&1
cd /
left='usr/lib/hpcd usr/bin/hpcd usr/lib/systemd/system/hpcd.service var/lib/hpcd/0'
echo "left $(ls -d $left 2>/dev/null | xargs)"
"""
)


def test_installed_used_upgraded_removed(package: Path, tmp_path: Path) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    script = _LIFE.replace("$1", str(package)).replace("$2", str(package), 1)
    printed = run_in_copy(folder, script).splitlines()
    assert printed[0].startswith("version hpcd 0.")
    assert printed[1:4] == ["hpcd", "/var/lib/hpcd 711 root", "/etc/hpcd/hpcd.toml 644 root"]
    assert printed[4:6] == ["reported", "isolated"]
    assert printed[6:8] == [
        "/usr/share/man/man1/hpcd.1.gz", "/usr/share/man/man5/hpcd.toml.5.gz"
    ]  # fmt: skip
    assert printed[8:] == ["unwritten 0", "recordings = 7", "left var/lib/hpcd/0"]
