"""Structures of the kernel's interfaces that Python fills in."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from hpcd.bpf.kernel.libbpf import ProgramInfo
from hpcd.bpf.kernel.syscalls import PerfEventAttr


@pytest.mark.parametrize(
    ("header", "struct", "python", "other_names"),
    [
        ("linux/perf_event.h", "perf_event_attr", PerfEventAttr,
         {"flags": None, "reserved_2": "__reserved_2", "reserved_3": "__reserved_3",
          "config3": None}),
        ("linux/bpf.h", "bpf_prog_info", ProgramInfo, {"gpl_compatible": None}),
    ],
    ids=["perf_event_attr", "bpf_prog_info"],
)  # fmt: skip
def test_structures_of_the_kernel_are_as_in_its_headers(
    header: str,
    struct: str,
    python: type[ctypes.Structure],
    other_names: dict[str, str | None],
    tmp_path: Path,
) -> None:
    """Bit fields have no offset, and headers may be older than their newest members."""
    members = {
        field[0]: other_names.get(field[0], field[0])
        for field in python._fields_
        if other_names.get(field[0], field[0])
    }
    program = f"#include <stdio.h>\n#include <{header}>\nint main(void) {{"
    for name in members.values():
        program += f'printf("%zu\\n", __builtin_offsetof(struct {struct}, {name}));'
    source = tmp_path / "offsets.c"
    source.write_text(f"{program} return 0; }}\n")
    subprocess.run(["gcc", "-o", str(tmp_path / "offsets"), str(source)], check=True)
    printed = subprocess.run(
        [str(tmp_path / "offsets")], capture_output=True, text=True, check=True
    ).stdout
    offsets = dict(zip(members, map(int, printed.split()), strict=True))
    assert offsets == {name: getattr(python, name).offset for name in members}
