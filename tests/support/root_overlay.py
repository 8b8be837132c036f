"""A copy of this machine's files that is thrown away: an overlay, and a chroot in it."""

from __future__ import annotations

import subprocess
from pathlib import Path

_ENTER = """
set -eu
# Of a file system of their own: what is an overlay already can hold no layers of another.
mountpoint -q "$1" || mount -t tmpfs -o size=4G overlay "$1"
mkdir -p "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /sys "$1/root/sys"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs run "$1/root/run"
cp "$2" "$1/root/script"
exec chroot "$1/root" /bin/sh -eu /script
"""


def run_in_copy(folder: Path, script: str, timeout: float = 900) -> str:
    """Run ``script`` (sh) as root in a copy of this machine's files, without its network; return
    what it prints. ``folder`` is empty. Nothing of it stays. Raises :class:`AssertionError`."""
    source = folder / "script"
    source.write_text(script)
    layers = folder / "layers"
    layers.mkdir()
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--net", "--propagation", "private",
         "/bin/sh", "-c", _ENTER, "sh", str(layers), str(source)],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
