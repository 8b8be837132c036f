"""Facilities of the kernel: what is missing is an error in one line that says what needs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from hpcd.bpf.loading import kernel_facilities
from hpcd.bpf.loading.kernel_facilities import (
    Helper,
    has_helper,
    hides_addresses,
    require_loops,
    require_memory_reads,
    require_user_registers,
)
from hpcd.bpf.loading.loader import require_calls
from hpcd.bpf.loading.object_loader import calls_object_path
from hpcd.errors import PlatformError

# The first symbols of Linux 6.1 on x86-64: variables by CPU, whose addresses are offsets.
OF_6_1 = (
    "0000000000000000 A fixed_percpu_data\n"
    "0000000000000000 A __per_cpu_start\n"
    "0000000000001000 A cpu_debug_store\n"
)


@pytest.mark.root
def test_helpers_of_this_kernel_are_present_and_others_are_not() -> None:
    assert has_helper(Helper.READ_KERNEL) and has_helper(Helper.TASK_REGISTERS)
    assert not has_helper(cast(Helper, 100_000))


@pytest.mark.parametrize(
    ("require", "words"),
    [
        (require_user_registers, ("registers", "5.15")),
        (require_loops, ("--io, --memory, --heap, --mpi and --probe", "5.17")),
        (require_memory_reads, ("lockdown",)),
    ],
)
def test_what_a_kernel_lacks_is_one_line(
    require: Callable[[], None], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_facilities, "has_helper", lambda helper: False)
    with pytest.raises(PlatformError) as raised:
        require()
    assert "\n" not in str(raised.value)
    assert all(word in str(raised.value) for word in words)


@pytest.mark.skipif(not calls_object_path().is_file(), reason="needs make objects")
def test_calls_need_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HPCD_LOADER", raising=False)
    require_calls()
    monkeypatch.setattr(kernel_facilities, "has_helper", lambda helper: helper != Helper.LOOP)
    with pytest.raises(PlatformError, match=r"bpf_loop"):
        require_calls()


@pytest.mark.parametrize(
    ("modes", "may_read"),
    [
        ("[none] integrity confidentiality\n", True),
        ("none [integrity] confidentiality\n", True),
        ("none integrity [confidentiality]\n", False),
        (None, True),
    ],
)
def test_lockdown_keeps_programs_from_memory_in_one_mode(
    modes: str | None, may_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lockdown"
    if modes:
        path.write_text(modes)
    monkeypatch.setattr(kernel_facilities, "_LOCKDOWN", path)
    if may_read:
        require_memory_reads()
        return
    with pytest.raises(PlatformError, match="lockdown=confidentiality"):
        require_memory_reads()


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (OF_6_1, False),
        ("ffffffff81000000 T _text\n", False),
        ("0000000000000000 A fixed_percpu_data\n0000000000000000 T _text\n" * 40, True),
        ("", True),
    ],
)
def test_addresses_are_hidden_where_all_are_zero(text: str, hidden: bool, tmp_path: Path) -> None:
    symbols = tmp_path / "kallsyms"
    symbols.write_text(text)
    assert hides_addresses(symbols) is hidden
