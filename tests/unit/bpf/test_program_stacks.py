"""The BPF programs' stacks: before Linux 6.13 all frames of a chain of calls share 512 bytes."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from hpcd.bpf.loading.object_loader import calls_object_path
from tests.support.paths import ROOT

# include/linux/filter.h, and the verifier's rounding of frames (check_max_stack_depth).
_MOST_BYTES, _ROUNDED_TO = 512, 32
# include/uapi/linux/bpf.h: instructions, and the register that holds the frame's end.
_FRAME = 10
_LOAD, _STORE_NUMBER, _STORE, _ALU, _ALU64 = 1, 2, 3, 4, 7
_COPY, _ADD_NUMBER, _CALL, _LOAD_ADDRESS = 0xBF, 0x07, 0x85, 0x18
_CALL_OF_PROGRAM = 1
_SOURCES = ROOT / "bpf/programs"
_FLAGS = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-DHPCD_OBJECT", f"-I{_SOURCES}", "-Wall",
          "-Werror", "-Wno-unused-function"]  # fmt: skip
_OBJECTS = {
    "sampler": ["sampler.bpf.c"],
    "sampler_calls": ["sampler.bpf.c", "-DHPCD_CALLS"],
    "task_stacks": ["iterators/task_stacks.bpf.c"],
}
Place = tuple[int, int]
"""A section's number and an offset in it."""


class _Functions:
    """The functions of an object: their frames, and what each calls or has bpf_loop() call."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            elf = ELFFile(file)
            self._text = elf.get_section_index(".text")
            symbols = elf.get_section_by_name(".symtab")
            functions = [s for s in symbols.iter_symbols() if s["st_info"]["type"] == "STT_FUNC"]
            self._names = {(s["st_shndx"], s["st_value"]): s.name for s in functions}
            self.programs = [s.name for s in functions if s["st_shndx"] != self._text]
            self.frames: dict[str, int] = {}
            self.calls: dict[str, set[str]] = defaultdict(set)
            for symbol in functions:
                number = symbol["st_shndx"]
                section = elf.get_section(number)
                related = elf.get_section_by_name(f".rel{section.name}")
                targets = {
                    r["r_offset"]: symbols.get_symbol(r["r_info_sym"])
                    for r in (related.iter_relocations() if related else ())
                }
                begin = symbol["st_value"]
                code = section.data()[begin : begin + symbol["st_size"]]
                self._read(symbol.name, code, (number, begin), targets)

    def _read(self, name: str, code: bytes, place: Place, targets: dict[int, object]) -> None:
        """Note the frame of one function and what it calls."""
        used, copies = 1, set()
        section, begin = place
        for at in range(0, len(code), 8):
            kind, registers, offset, number = struct.unpack_from("<BBhi", code, at)
            written, read = registers & 15, registers >> 4
            family = kind & 7
            base = read if family == _LOAD else written
            if family in (_LOAD, _STORE_NUMBER, _STORE) and base in (_FRAME, *copies):
                used = max(used, -offset)
            if kind == _COPY and read == _FRAME:
                copies.add(written)
                continue
            if kind == _ADD_NUMBER and written in copies:
                used = max(used, -number)
            if family in (_LOAD, _ALU, _ALU64):
                copies.discard(written)
            target = targets.get(begin + at)
            if kind == _CALL and read == _CALL_OF_PROGRAM:
                here = (section, begin + at + 8 * (number + 1))
                self._call(name, target, 8 * (number + 1), here)
            elif kind == _LOAD_ADDRESS and target is not None:
                self._call(name, target, number, None)
        self.frames[name] = -(-used // _ROUNDED_TO) * _ROUNDED_TO

    def _call(self, name: str, target: object, offset: int, here: Place | None) -> None:
        """Note the function at ``offset`` of section or function ``target``, or else ``here``."""
        if target is None:
            assert here in self._names
            self.calls[name].add(self._names[here])
        elif target["st_info"]["type"] == "STT_FUNC":  # type: ignore[index]
            self.calls[name].add(target.name)  # type: ignore[attr-defined]
        elif target["st_info"]["type"] == "STT_SECTION":  # type: ignore[index]
            self.calls[name].add(self._names[self._text, offset])

    def deepest(self, name: str) -> tuple[int, list[str]]:
        """The bytes of the chain of calls from ``name`` that takes most, and its functions."""
        size, chain = max(map(self.deepest, sorted(self.calls[name])), default=(0, []))
        return size + self.frames[name], [name, *chain]


@pytest.mark.skipif(not shutil.which("clang"), reason="needs clang: make objects")
@pytest.mark.parametrize("processor", ["HPCD_X86_64", "HPCD_AARCH64"])
@pytest.mark.parametrize("arguments", _OBJECTS.values(), ids=_OBJECTS)
def test_every_chain_of_calls_has_room_for_its_frames(
    processor: str, arguments: list[str], tmp_path: Path
) -> None:
    """The objects of both processors, compiled without a warning."""
    source, *options = arguments
    compiled = tmp_path / "object"
    command = [
        "clang",
        *_FLAGS,
        f"-D{processor}",
        *options,
        "-c",
        _SOURCES / source,
        "-o",
        compiled,
    ]
    subprocess.run(command, check=True)
    functions = _Functions(compiled)
    chains = [functions.deepest(name) for name in functions.programs]
    assert chains
    assert not [chain for chain in chains if chain[0] > _MOST_BYTES]


def test_calls_and_callbacks_are_followed() -> None:
    if not calls_object_path().is_file():
        pytest.skip("needs make objects")
    functions = _Functions(calls_object_path())
    assert functions.calls["on_request"] >= {"take_call_path", "complete_request"}
    assert "step" in functions.calls["take_call_path"]
    assert functions.deepest("on_call_exit")[1][0] == "on_call_exit"
    assert functions.frames["take_call_path"] > _ROUNDED_TO
