"""The recorder makes the maps that the programs declare, with the same sizes."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess

import numpy as np
import pytest

from hpcd.bpf import sampler_maps
from hpcd.bpf.calls import call_programs
from hpcd.bpf.kernel import maps
from hpcd.bpf.kernel.libbpf import library
from hpcd.bpf.loading.object_loader import SOURCES, calls_object_path
from hpcd.bpf.wire import SystemCall

pytestmark = pytest.mark.skipif(not calls_object_path().is_file(), reason="needs make objects")


def test_the_maps_have_the_sizes_that_the_programs_declare() -> None:
    sampled = sampler_maps.SamplerMaps(maps.possible_cpus())
    table = np.zeros(1, SystemCall.dtype())
    options = call_programs.CallOptions(system_calls=table, probes=True)
    calls = call_programs.CallPrograms(options, "object")
    lib = library()
    lib.bpf_map__key_size.argtypes = lib.bpf_map__value_size.argtypes = [ctypes.c_void_p]
    handle = lib.bpf_object__open_file(str(calls_object_path()).encode(), None)
    try:
        sizes, declared = {}, {}
        for created in (
            *sampled._maps.values(),
            *calls._maps.values(),
            *calls.probes._maps.values(),
        ):
            declaration = lib.bpf_object__find_map_by_name(
                handle, f"map_{created.name.upper()}".encode()
            )
            assert declaration, created.name
            declared[created.name] = (
                lib.bpf_map__key_size(declaration),
                lib.bpf_map__value_size(declaration),
            )
            sizes[created.name] = (created.key_size, created.value_size)
        assert declared == sizes
    finally:
        lib.bpf_object__close(handle)
        calls.close()
        sampled.close()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_programs_of_each_processor_have_the_maps(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    sampled = sampler_maps.SamplerMaps(maps.possible_cpus())
    names = {created.name.upper() for created in sampled._maps.values()}
    sampled.close()
    processor = f"-DHPCD_{machine.upper()}"
    preprocess = ["clang", "-E", "-P", "-target", "bpf", "-DHPCD_OBJECT", processor]
    text = subprocess.run(
        [*preprocess, f"-I{SOURCES}", SOURCES / "sampler.bpf.c"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert names <= {*re.findall(r"\bmap_(\w+) __attribute__", text)}
