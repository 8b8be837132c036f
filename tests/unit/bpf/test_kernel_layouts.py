"""The kernel's structures as the programs know them, and the constants of the object."""

from __future__ import annotations

import re
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from hpcd.bpf.kernel.libbpf import library
from hpcd.bpf.loading import kernel_layouts, object_loader
from hpcd.bpf.loading.kernel_layouts import padded_header, read_members, require_members
from hpcd.bpf.loading.kernel_types import KernelTypes
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.errors import PlatformError
from tests.support.paths import ROOT

_HEADER = ROOT / "bpf/programs/kernel.h"


def test_every_member_that_the_header_lists_is_understood() -> None:
    """One a line; a tracepoint's type, of two lines, is none."""
    text = re.sub(r"/\*.*?\*/", "", _HEADER.read_text(), flags=re.DOTALL)
    lines = re.findall(r"^\t.*;$", text[text.index("#pragma") :], re.MULTILINE)
    members = read_members()
    assert sum(map(len, members.values())) == len(lines) - 1
    task = {member.name: member for member in members["task_struct"]}
    assert task["comm"].array == "[16]"
    assert task["in_iowait"].is_bit and not task["pid"].is_bit


def test_the_padded_structures_have_the_kernels_offsets(tmp_path: Path) -> None:
    """As a compiler sees them."""
    asked = [
        (struct, member.name)
        for struct, members in read_members().items()
        for member in members
        if not member.is_bit
    ]
    offsets = "".join(f"__builtin_offsetof(struct {s}, {name})," for s, name in asked)
    program = f"""
#include <stdio.h>
{padded_header()}
static const unsigned long offsets[] = {{ {offsets} }};
int main() {{ for (unsigned i = 0; i < {len(asked)}; i++) printf("%lu\\n", offsets[i]); }}
"""
    subprocess.run(
        ["gcc", "-w", "-xc", "-", "-o", tmp_path / "a"], input=program, text=True, check=True
    )
    printed = subprocess.run([tmp_path / "a"], capture_output=True, text=True, check=True).stdout
    with closing(KernelTypes()) as types:
        bits = [types.member(struct.split("___")[0], name) for struct, name in asked]
    assert [int(line) for line in printed.split()] == [(bit or 0) // 8 for bit in bits]


def test_a_member_that_the_kernel_lacks_is_declared_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    members = {"task_struct": [kernel_layouts.Member("int ", "none", "", is_bit=False)]}
    monkeypatch.setattr(kernel_layouts, "read_members", lambda: members)
    header = padded_header()
    assert "#define HAS_task_struct_none 0" in header and "int none;" in header
    with pytest.raises(PlatformError, match="this kernel's task_struct has no member none"):
        require_members("task_struct")


@pytest.mark.skipif(not object_loader.calls_object_path().is_file(), reason="needs make objects")
def test_every_option_is_a_constant_of_the_object() -> None:
    handle = library().bpf_object__open_file(str(object_loader.calls_object_path()).encode(), None)
    constants = object_loader.object_variables(handle)
    library().bpf_object__close(handle)
    assert SamplerOptions().constants().keys() < constants.keys()
    # Nothing else is in the section but what 8 bytes have to begin at.
    end = 0
    for offset, size in sorted(constants.values()):
        assert offset == -(-end // size) * size
        end = offset + size
