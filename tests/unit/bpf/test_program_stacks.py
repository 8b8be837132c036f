"""The BPF programs' stacks: before Linux 6.13 all frames of a chain of calls share 512 bytes."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

import pytest

from hpcd.bpf.loading.object_loader import calls_object_path

_NAMING = ("object_of", "announce_file", "add_name")
_WALKING = ("take_call_path", "step")


@cache
def frame_sizes() -> dict[str, int]:
    """The bytes that each function uses below its frame pointer, as the verifier rounds them."""
    command = ["llvm-objdump", "-d", "--no-show-raw-insn", str(calls_object_path())]
    code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sizes: dict[str, int] = {}
    for name, body in re.findall(r"^\w+ <(\w+)>:\n(.*?)(?=^\w+ <(?!LBB)|\Z)", code, re.M | re.S):
        offsets = re.findall(r"(?:r10 -|r\d+ \+= -) ?(0x[0-9a-f]+|\d+)", body)
        used = [size for size in (int(offset, 0) for offset in offsets) if size <= 512]
        sizes[name] = -(-max([1, *used]) // 32) * 32
    return sizes


@pytest.mark.skipif(
    not shutil.which("llvm-objdump") or not calls_object_path().is_file(),
    reason="needs llvm and make objects",
)
@pytest.mark.parametrize(
    "chain",
    [
        ("on_call_enter", *_NAMING),
        ("on_call_exit", "asynchronous", "submit_one", *_NAMING),
        ("on_call_exit", "asynchronous", "collect_one"),
        ("on_call_exit", *_WALKING),
        ("on_request", "complete_request", *_NAMING),
        ("on_request", *_WALKING),
        ("on_request_end", "complete_request", *_NAMING),
        ("on_page", *_WALKING),
    ],
    ids=lambda chain: f"{chain[0]}-{chain[1]}",
)
def test_a_chain_of_calls_has_room_for_its_frames(chain: tuple[str, ...]) -> None:
    sizes = frame_sizes()
    assert all(sizes[name] for name in chain)
    assert sum(sizes[name] for name in chain) <= 512
