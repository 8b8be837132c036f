"""The Debian package: lintian's opinion, installed, used, upgraded and purged."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.packages import USE, build_package, head
from tests.support.root_overlay import run_in_copy

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def commit() -> str:
    """The commit that is built: the same in all tests, whatever is committed meanwhile."""
    return head()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory, commit: str) -> Path:
    return build_package("deb", tmp_path_factory.mktemp("deb"), commit)


def test_the_same_commit_gives_the_same_bytes_elsewhere(
    package: Path, tmp_path: Path, commit: str
) -> None:
    """In a folder of another name, in another locale and time zone."""
    other = tmp_path / "somewhere-else/deeper"
    other.mkdir(parents=True)
    again = build_package(
        "deb",
        tmp_path / "again",
        commit,
        TMPDIR=str(other),
        LINTIAN="true",
        TZ="Asia/Tokyo",
        LC_ALL="C",
    )
    assert again.name == package.name
    if again.read_bytes() != package.read_bytes():
        pytest.fail("\n".join(differences(package, again, tmp_path))[:5000])


def differences(first: Path, second: Path, folder: Path) -> list[str]:
    """Which files of two packages differ, in contents or in what ``tar`` says of them."""
    listings = [
        subprocess.run(
            ["dpkg-deb", "--contents", str(one)], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        for one in (first, second)
    ]
    lines = [f"tar: {line}" for line in sorted(set(listings[0]) ^ set(listings[1]))]
    trees = [folder / "first", folder / "second"]
    for one, tree in zip((first, second), trees, strict=True):
        subprocess.run(["dpkg-deb", "-R", str(one), str(tree)], check=True)
    done = subprocess.run(
        ["diff", "-rq", "--no-dereference", *map(str, trees)], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return lines + done.stdout.splitlines()


def test_it_needs_no_compiler(package: Path) -> None:
    reported = subprocess.run(
        ["dpkg-deb", "--field", str(package), "Depends"], capture_output=True, text=True, check=True
    ).stdout
    assert "libbpf1" in reported and not re.search("clang|llvm|bpfcc|headers", reported)
    files = subprocess.run(
        ["dpkg-deb", "--contents", str(package)], capture_output=True, text=True, check=True
    ).stdout
    for part in (
        "example/particles.tar.xz",
        "objects/sampler-", "objects/kernels-", "objects/declarations-", "man1/hpcd.1.gz",
        "man5/hpcd.toml.5.gz",
        "completions/hpcd", "_hpcd", "hpcd.fish", "systemd/system/hpcd.service",
        "system/hpcd.socket", "sysusers.d/hpcd.conf", "tmpfiles.d/hpcd.conf",
        "/etc/hpcd/hpcd.toml",
    ):  # fmt: skip
        assert part in files, part
    assert "__pycache__" not in files


_LIFE = (
    """
old=$1 new=$2
dpkg -i "$old" >/dev/null 2>&1
echo "version $(hpcd --version)"
getent group hpcd | cut -d: -f1
stat -c '%n %a %U' /var/lib/hpcd /etc/hpcd/hpcd.toml
"""
    + USE
    + """man -w hpcd hpcd.toml
systemctl is-enabled hpcd.service || true
echo '[control]' >/etc/hpcd/hpcd.toml
echo 'recordings = 7' >>/etc/hpcd/hpcd.toml
dpkg --force-confdef --force-confold -i "$new" >/dev/null 2>&1
echo "upgraded $(dpkg-query -W -f '${Version}' hpcd) $(hpcd --version)"
grep recordings /etc/hpcd/hpcd.toml
mkdir -p /var/lib/hpcd/0/measurement
dpkg --remove hpcd >/dev/null 2>&1
cd /
left='usr/lib/hpcd usr/bin/hpcd etc/hpcd/hpcd.toml var/lib/hpcd/0'
echo "left $(ls -d $left 2>/dev/null | xargs)"
dpkg --purge hpcd >/dev/null 2>&1
echo "purged $(find etc lib usr var run -xdev -iname '*hpcd*' -newer script 2>/dev/null | xargs)"
"""
)


def test_installed_used_upgraded_removed_purged(package: Path, tmp_path: Path) -> None:
    later = tmp_path / "later.deb"
    tree = tmp_path / "tree"
    subprocess.run(["dpkg-deb", "-R", str(package), str(tree)], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*$", r"\g<0>+later", control.read_text(), flags=re.M))
    subprocess.run(
        ["dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "-b", str(tree), str(later)],
        check=True, capture_output=True,
    )  # fmt: skip
    folder = tmp_path / "overlay"
    folder.mkdir()
    script = _LIFE.replace("$1", str(package)).replace("$2", str(later), 1)
    output = run_in_copy(folder, script).splitlines()
    assert output[0].startswith("version hpcd 0.")
    assert output[1:4] == ["hpcd", "/var/lib/hpcd 711 root", "/etc/hpcd/hpcd.toml 644 root"]
    assert output[4:6] == ["reported", "isolated"]
    assert output[6:8] == [
        "/usr/share/man/man1/hpcd.1.gz", "/usr/share/man/man5/hpcd.toml.5.gz"
    ]  # fmt: skip
    assert "disabled" in output
    assert any(re.fullmatch(r"upgraded \S+\+later hpcd \S+", line) for line in output)
    assert "recordings = 7" in output
    assert "left etc/hpcd/hpcd.toml var/lib/hpcd/0" in output
    assert output[-1].rstrip() == "purged"
