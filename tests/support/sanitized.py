"""``python -m tests.support.sanitized FOLDER ARGUMENT...``: pytest on the kernels that are in a
folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcd.kernels import library

if __name__ == "__main__":
    library.OBJECTS = Path(sys.argv[1])
    sys.exit(pytest.main(sys.argv[2:]))
