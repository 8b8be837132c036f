"""Which of the files that targets map are probed."""

from __future__ import annotations

from typing import Any

import pytest

from hpcd.daemon.probes import probed_files
from hpcd.daemon.probes.probe_spec import ProbeSpec, library_matches
from hpcd.daemon.probes.probed_files import ProbedFiles
from hpcd.model.region import Region


def test_a_file_is_compared_with_libraries_not_with_their_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = []

    def compare(library: str, path: str) -> bool:
        compared.append((library, path))
        return library_matches(library, path)

    monkeypatch.setattr(probed_files, "library_matches", compare)
    nothing: Any = None
    specs = [
        ProbeSpec("", library, f"function_{number}")
        for number in range(400)
        for library in ("a", "b")
    ]
    files = ProbedFiles(specs, nothing, nothing, nothing, nothing)
    paths = [f"/lib/other{number}.so" for number in range(20)]
    files.on_mapped(
        7,
        [Region(4096 * n, 4096 * (n + 1), 0, "08:01", 9 + n, path) for n, path in enumerate(paths)],
    )
    assert compared == [(library, path) for path in paths for library in ("a", "b")]
