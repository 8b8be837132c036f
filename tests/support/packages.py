"""Packages of distributions, built from a commit by the scripts of setup/."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.paths import ROOT


def head() -> str:
    """Return the commit that is checked out."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def build_package(kind: str, folder: Path, commit: str, **environment: str) -> Path:
    """Build the package of a ``kind``, deb or rpm, in ``folder`` and return its path; the script
    fails if the distribution's checker finds errors or warnings."""
    done = subprocess.run(
        ["sh", f"setup/{kind}.sh", str(folder), commit], cwd=ROOT, capture_output=True, text=True,
        check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}{done.stderr[-3000:]}"
    (package,) = folder.glob(f"*.{kind}")
    return package


# In an overlay, as a user without rights: reports and merging, and no code of the folder that
# it is started in.
USE = """
cd /tmp
setpriv --reuid 65534 --regid 65534 --clear-groups sh -eu -c '
	export HOME=/tmp/nobody; mkdir $HOME; cd $HOME
	hpcd synth -o m --ranks 2 --records 500 >/dev/null
	hpcd merge m/node-00000 -o db >/dev/null 2>&1
	hpcd report db >/dev/null && echo reported
	mkdir planted; cd planted
	for name in hpcd numpy json multiprocessing; do echo "raise SystemExit(9)" >$name.py; done
	PYTHONPATH=: hpcd synth -o m --ranks 2 --records 500 --workers 2 >/dev/null
	PYTHONPATH=: hpcd merge m/node-00000 -j 2 -o db >/dev/null 2>&1 && echo isolated'
"""
