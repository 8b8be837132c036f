"""Loading the programs where something is missing, and what is left open when it fails."""

from __future__ import annotations

import errno
import mmap
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcd.bpf import sampler_programs
from hpcd.bpf.events.mapping_events import MmapEvents
from hpcd.bpf.kernel import libbpf, maps, syscalls
from hpcd.bpf.kernel.syscalls import PerfEvent
from hpcd.bpf.loading import features, host_namespaces, loader, object_loader
from hpcd.bpf.loading.captured_stderr import Stderr, first_error_line
from hpcd.bpf.loading.kernel_types import KernelTypes
from hpcd.bpf.loading.object_loader import ObjectPrograms
from hpcd.bpf.rings.ring import Ring
from hpcd.bpf.sampler import Sampler
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.bpf.wire import Sample
from hpcd.errors import PlatformError, PrivilegeError

CLOCK = PerfEvent(syscalls.PERF_TYPE_SOFTWARE, syscalls.SW_CPU_CLOCK, frequency=99)
FAULTS = PerfEvent(syscalls.PERF_TYPE_SOFTWARE, 2, period=1)


def descriptors() -> set[tuple[str, str]]:
    """This process' open files, by number and kind."""
    opened = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            opened.add((path.name, str(path.readlink())))
        except FileNotFoundError:
            continue  # the one by which the folder is read
    return opened


def failing_call(number: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, but the ``number``-th call of it fails."""
    calls = 0

    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise PlatformError("as the test asks")
        return function(*arguments, **options)

    return call


@pytest.mark.root
@pytest.mark.parametrize(
    ("module", "function", "calls"),
    [
        (maps.Map, "__init__", range(1, 16)),
        (maps.Map, "update", range(1, 4)),
        (syscalls, "perf_event_open", [1, 5]),
        (sampler_programs, "load_sampler", [1]),
        (libbpf, "enable_stats", [1]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sampler_that_cannot_be_made_leaves_nothing_open(
    module: Any, function: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    Sampler(SamplerPrograms([CLOCK], [0])).close()
    before = descriptors()
    for call in calls:
        with monkeypatch.context() as patch:
            patch.setattr(module, function, failing_call(call, getattr(module, function)))
            with pytest.raises(PlatformError, match="as the test asks"):
                Sampler(SamplerPrograms([CLOCK], [0]))
        assert descriptors() == before, f"{function}, call {call}"


@pytest.mark.root
def test_a_ring_of_an_impossible_size_leaves_nothing_open() -> None:
    before = descriptors()
    with pytest.raises(libbpf.KernelRefusedError):
        SamplerPrograms([CLOCK], [0], SamplerOptions(rings=(4096, 4095, 4096)))
    assert descriptors() == before


@pytest.mark.root
def test_a_closed_sampler_leaves_nothing_open() -> None:
    Sampler(SamplerPrograms([CLOCK], [0])).close()  # what is loaded once stays
    before = descriptors()
    tested = Sampler(SamplerPrograms([CLOCK], [0]))
    tested.programs.attach()
    tested.close()
    tested.close()
    assert descriptors() == before


@pytest.mark.root
def test_a_tracepoint_that_the_kernel_lacks_is_named() -> None:
    """As page_fault_user is on aarch64."""
    with closing(SamplerPrograms([CLOCK], [0])) as tested:
        program = tested.fds["on_switch"]
        with pytest.raises(PlatformError, match="this kernel has no tracepoint no_such_thing"):
            libbpf.raw_tracepoint("no_such_thing", program)


@pytest.mark.root
@pytest.mark.parametrize(
    ("module", "function"), [(syscalls, "perf_attach"), (libbpf, "raw_tracepoint")]
)
def test_an_event_that_cannot_be_attached_leaves_nothing_open(
    module: Any, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = descriptors()
    tested = SamplerPrograms([CLOCK, FAULTS], [0])
    with monkeypatch.context() as patch:
        patch.setattr(module, function, failing_call(2, getattr(module, function)))
        with pytest.raises(PlatformError, match="as the test asks"):
            tested.attach()
    tested.close()
    assert descriptors() == before


@pytest.mark.root
def test_mapping_events_that_cannot_be_read_leave_nothing_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = descriptors()
    monkeypatch.setattr(syscalls, "perf_event_open", failing_call(2, syscalls.perf_event_open))
    with pytest.raises(PlatformError, match="as the test asks"):
        MmapEvents(2)
    assert descriptors() == before


def test_a_kernel_that_permits_no_bpf_is_a_lack_of_privilege() -> None:
    with Stderr() as stderr, pytest.raises(PrivilegeError, match="BPF object: not permitted; "):
        ObjectPrograms._check(-errno.EPERM, stderr)
    with Stderr() as stderr, pytest.raises(PlatformError, match="Invalid argument"):
        ObjectPrograms._check(-errno.EINVAL, stderr)


@pytest.mark.root
@pytest.mark.skipif(not object_loader.object_path().is_file(), reason="needs make objects")
def test_the_object_loaded_by_another_user_is_a_lack_of_privilege() -> None:
    """The maps are there; the kernel refuses the programs."""
    script = """
import os
from hpcd.bpf import sampler_programs as programs
from hpcd.bpf.sampler_options import SamplerOptions
from hpcd.bpf.sampler_programs import SamplerPrograms
from hpcd.errors import PrivilegeError
load = programs.load_sampler
def unprivileged(*arguments, **options):
    os.setresuid(65534, 65534, 65534)
    return load(*arguments, **options)
programs.load_sampler = unprivileged
event = programs.syscalls.PerfEvent(1, 0, frequency=99)
try:
    programs.SamplerPrograms([event], [0], SamplerOptions(loader="object"))
except PrivilegeError as error:
    print(error.exit_code, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout.startswith("4 ") and "run hpcd as root" in done.stdout


def test_a_compilers_error_is_shown_before_the_loaders() -> None:
    output = "x.c:1: warning: odd\nx.c:2:3: error: expected ';'\nlibbpf: failed to load object\n"
    assert first_error_line(output) == "x.c:2:3: error: expected ';'"


def test_the_verifiers_verdict_is_shown_without_its_statistics() -> None:
    output = "0: (85) call\nR1 invalid mem access\nprocessed 9 insns\nlibbpf: failed to load x\n"
    assert first_error_line(output) == "R1 invalid mem access"
    output += "libbpf: prog 'on_free': failed to load: -22\n"
    assert first_error_line(output) == "R1 invalid mem access"
    assert first_error_line("") == ""


def test_a_member_that_the_kernel_lacks_is_named() -> None:
    output = """
572: <invalid CO-RE relocation>
failed to resolve CO-RE relocation <byte_off> [103] struct task_struct.se.runtime (0:20)
processed 336 insns (limit 1000000) max_states_per_insn 0
-- END PROG LOAD LOG --
libbpf: prog 'sample_0': failed to load: -22
"""
    assert first_error_line(output) == "this kernel's task_struct has no member se.runtime"


@pytest.mark.parametrize(
    ("present", "forced", "needed"),
    [(True, "auto", False), (False, "auto", True), (True, "bcc", True), (True, "object", False)],
)
def test_bcc_is_needed_only_where_programs_are_compiled(
    present: bool, forced: str, needed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sampler.o"
    if present:
        path.touch()
    for module in (features, loader):
        monkeypatch.setattr(module, "object_path", lambda: path)
    monkeypatch.setenv("HPCD_LOADER", forced)
    by_name = {feature.name: feature for feature in features.probe()}
    assert by_name["bcc"].needed == by_name["kernel headers"].needed == needed
    assert by_name["BPF object"].available == present
    assert not by_name["BPF object"].needed


@pytest.mark.parametrize(
    ("machine", "forced", "loops", "lack"),
    [
        ("x86_64", "object", True, ""),
        ("x86_64", "object", False, "the kernel has no bpf_loop (Linux 5.17)"),
        ("x86_64", "bcc", True, "not by the loader bcc"),
        ("aarch64", "object", True, "not on aarch64"),
    ],
)
def test_why_no_python_frames_are_taken(
    machine: str, forced: str, loops: bool, lack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader.platform, "machine", lambda: machine)
    monkeypatch.setattr(loader, "chosen_loader", lambda _: forced)
    monkeypatch.setattr(loader, "has_helper", lambda _: loops)
    assert loader.python_frames_lack() == lack


def test_an_object_that_is_demanded_and_missing_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (features, loader):
        monkeypatch.setattr(module, "object_path", lambda: tmp_path / "none.o")
    monkeypatch.setenv("HPCD_LOADER", "object")
    by_name = {feature.name: feature for feature in features.probe()}
    assert by_name["BPF object"].needed and not by_name["BPF object"].available


def test_a_damaged_object_is_reported_in_libbpfs_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the kernel's types silences libbpf, for that long only."""
    KernelTypes().close()
    path = tmp_path / "sampler.o"
    path.write_bytes(b"no object")
    monkeypatch.setattr(object_loader, "object_path", lambda: path)
    with pytest.raises(PlatformError, match=r"libbpf: elf: .*sampler\.o"):
        ObjectPrograms({}, [])


@pytest.mark.root
def test_elements_of_maps_come_and_go() -> None:
    table = maps.Map("elements", maps.HASH, 4, 8, 2, flags=maps.NO_PREALLOC)
    one, two, three = (number.to_bytes(4, "little") for number in (1, 2, 3))
    assert table.lookup(one) is None and not table.delete(one)
    assert table.add(one, b"12345678") and not table.add(one, b"abcdefgh")
    assert table.lookup(one) == b"12345678"
    table.update(one, b"abcdefgh")
    assert table.lookup(one) == b"abcdefgh"
    assert table.add(two, bytes(8))
    with pytest.raises(libbpf.KernelRefusedError, match="BPF map elements") as raised:
        table.add(three, bytes(8))
    assert raised.value.errno == errno.E2BIG
    assert table.delete(one) and table.lookup(one) is None
    table.close()


@pytest.mark.root
def test_a_range_of_elements_is_set_at_once() -> None:
    table = maps.Map("range", maps.ARRAY, 4, 4, 16)
    table.update_range(3, np.array([7, 8, 9], np.uint32))
    values = [table.lookup(index.to_bytes(4, "little")) for index in range(2, 7)]
    assert [int.from_bytes(value or b"", "little") for value in values] == [0, 7, 8, 9, 0]
    with pytest.raises(libbpf.KernelRefusedError):
        table.update_range(15, np.array([1, 2], np.uint32))
    table.close()


@pytest.mark.root
def test_records_of_another_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring("records", mmap.PAGESIZE)
    header = np.zeros(2, np.uint64)
    header[0] = 24  # a record of 24 bytes, finished
    monkeypatch.setattr(ring, "_produced", np.array([40], np.uint64))
    monkeypatch.setattr(ring, "_bytes", lambda _, size: np.resize(header.view(np.uint8), size))
    with pytest.raises(PlatformError, match="ring records: record size 24, expected 32"):
        ring.take_fixed(Sample.dtype())
    monkeypatch.undo()
    ring.close()


@pytest.mark.root
@pytest.mark.parametrize(("looks", "taken"), [(3, 3), (10**9, 1)], ids=["finished", "never"])
def test_a_record_that_is_being_written_is_waited_for(
    looks: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three is finished when it has been looked at so often."""
    ring = Ring("records", mmap.PAGESIZE)
    stride = 8 + Sample.BYTES
    records = np.zeros((3, stride), np.uint8)
    records[:, :4] = np.array([Sample.BYTES], np.uint32).view(np.uint8)
    records[:, 8] = [1, 2, 3]
    looked = 0

    def content(position: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        nonlocal looked
        looked += 1
        records[1, 3] = 0x80 if looked < looks else 0
        return records.ravel()[position : position + size].copy()

    monkeypatch.setattr(ring, "_produced", np.array([3 * stride], np.uint64))
    monkeypatch.setattr(ring, "_consumed", np.zeros(1, np.uint64))
    monkeypatch.setattr(ring, "_bytes", content)
    samples = ring.take_fixed(Sample.dtype())
    assert (samples.view(np.uint8).reshape(-1, Sample.BYTES)[:, 0]).tolist() == [1, 2, 3][:taken]
    assert int(ring._consumed[0]) == taken * stride
    monkeypatch.undo()
    ring.close()


def test_a_pid_namespace_of_its_own_lacks_the_process_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another process' namespace stands for it: an inode that is not the host's."""
    monkeypatch.setattr(host_namespaces, "PID_NAMESPACE", Path("/proc/self/ns/uts"))
    with pytest.raises(PlatformError, match=r"process numbers.*--pid=host"):
        host_namespaces.require_host()
    monkeypatch.setattr(host_namespaces, "PID_NAMESPACE", Path("/proc/self/ns/none"))
    host_namespaces.require_host()
