"""Places of probes in a file: in what compilers make, and in what nobody would."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hpcd.daemon.probe_places.debug_prototypes import DeclaredType, Prototype
from hpcd.daemon.probe_places.probe_points import probe_points
from hpcd.daemon.probe_places.return_instructions import exits_of
from hpcd.daemon.probes.found_points import find_points
from hpcd.daemon.probes.probe_spec import parse_probe
from hpcd.daemon.probes.probed_functions import prototype_values
from hpcd.daemon.unwind.decoder_process import Decoder
from hpcd.elf.elf_view import ElfView
from hpcd.errors import FormatError

SOURCE = """
#include <stdlib.h>
#define KEPT __asm__ volatile("" ::: "memory")
typedef unsigned long count_t;
struct pair { long a, b; };
enum colour { RED, BLUE };
__attribute__((noinline)) int plain(short n, double x, const char *name, count_t c) {
	KEPT; return n ? 1 : (int)c; }
__attribute__((noinline)) int parts(enum colour first, struct pair both, int after) {
	KEPT; return first + both.a + after; }
__attribute__((noinline)) int recursive(int n) {
	KEPT; int r = n ? recursive(n - 1) : 0; KEPT; return r + 1; }
__attribute__((noinline)) int jumping(int n) { KEPT; return plain(n, 0, 0, 0); }
void unlikely(const char *) __attribute__((cold, noipa));
void unlikely(const char *text) { KEPT; if (!*text) abort(); }
__attribute__((noinline)) int split(int n) {
	KEPT; if (n == 12345) { unlikely("one"); n += rand(); unlikely("two"); } KEPT; return n + 1; }
static int chosen(int n) { return n; }
static void *choose(void) { return chosen; }
int indirect(int n) __attribute__((ifunc("choose")));
int main(int count, char **words) {
	struct pair both = {1, 2};
	return plain(count, 1, words[0], 2) + parts(RED, both, 3) + recursive(2) + jumping(1) +
		indirect(1) + split(count);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("points")
    (folder / "points.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-o", folder / "points", folder / "points.c"], check=True)
    return folder / "points"


def points_of(path: Path, *queries: dict[str, Any]) -> dict[str, Any]:
    data = memoryview(path.read_bytes())
    reply: dict[str, Any] = json.loads(probe_points(ElfView(data), json.dumps(queries).encode()))
    return reply


def by_name(reply: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {point["name"]: point for point in reply["points"]}


def test_functions_are_found_by_name_and_by_pattern(program: Path) -> None:
    reply = points_of(program, {"function": "plain"}, {"function": "*ecur*"}, {"function": "x"})
    assert {point["query"]: point["name"] for point in reply["points"]} == {
        0: "plain", 1: "recursive",
    }  # fmt: skip
    data = program.read_bytes()
    for point in reply["points"]:
        assert point["returns"]
        assert all(data[place] in (0xC3, 0xC2) for place in point["returns"])
    assert not reply["thrown"]


def test_a_part_that_a_function_jumps_to_is_no_function(program: Path) -> None:
    """Its probe would take a variable on the stack for the return address, and replace it."""
    listing = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    assert "split.cold" in listing
    assert by_name(points_of(program, {"function": "split*"})).keys() == {"split"}


def test_a_name_that_is_not_there_is_answered_with_the_near_ones(program: Path) -> None:
    reply = points_of(program, {"function": "recursiv", "near": True})
    assert reply["near"] == {"0": "; did you mean recursive?"}


def test_how_functions_end(program: Path) -> None:
    functions = by_name(points_of(program, *({"function": name} for name in (
        "plain", "recursive", "jumping", "indirect"))))  # fmt: skip
    assert (functions["plain"]["exits"], functions["plain"]["recursive"]) == ("", False)
    assert "jump" in functions["jumping"]["exits"]
    assert "IFUNC" in functions["indirect"]["why"]


def test_exits_by_machine_code() -> None:
    #          ret;  call own start; jmp 0x1020 (outside); jmp *rax; jmp *table(,rax,8)
    assert exits_of(b"\xc3", 0x1000, "x86_64").returns == (0x1000,)
    assert exits_of(b"\xe8\xfb\xff\xff\xff\xc3", 0x1000, "x86_64").recursive
    assert "jump" in exits_of(b"\xe9\x1b\x00\x00\x00\xc3", 0x1000, "x86_64").why
    assert "may end" in exits_of(b"\xff\xe0\xc3", 0x1000, "x86_64").why
    assert not exits_of(b"\xff\x24\xc5\x00\x20\x40\x00\xc3", 0x1000, "x86_64").why
    assert "understood" in exits_of(b"\x06\xc3", 0x1000, "x86_64").why
    assert "size" in exits_of(b"", 0x1000, "x86_64").why
    assert "too large" in exits_of(b"\xc3" * 70_000, 0x1000, "x86_64").why
    assert "more than 64" in exits_of(b"\xc3" * 100, 0x1000, "x86_64").why
    ret, inside, outside = 0xD65F03C0, 0x14000001, 0x14000040
    code = b"".join(word.to_bytes(4, "little") for word in (inside, ret))
    assert exits_of(code, 0, "aarch64").returns == (4,)
    code = b"".join(word.to_bytes(4, "little") for word in (outside, ret))
    assert "jump" in exits_of(code, 0, "aarch64").why


def test_prototypes_by_debug_information(program: Path) -> None:
    functions = by_name(points_of(program, *({"function": name, "debug": True} for name in (
        "plain", "parts"))))  # fmt: skip
    assert functions["plain"]["parameters"] == [
        ["n", ["signed", 2]], ["x", ["floating", 8]], ["name", ["address", 8]],
        ["c", ["unsigned", 8]],
    ]  # fmt: skip
    assert functions["plain"]["result"] == ["signed", 4]
    parts = Prototype(
        [(name, DeclaredType(*kind)) for name, kind in functions["parts"]["parameters"]],
        DeclaredType(*functions["parts"]["result"]),
    )
    values, left_out = prototype_values(parts)
    assert [value.name for value in values] == ["first", "returned"]
    assert left_out == ["both and later parameters: it is passed in parts"]


def test_the_decoder_answers_and_its_answer_is_checked(program: Path) -> None:
    decoder = Decoder(probing=True)
    try:
        specs = [parse_probe("points:plain(...)"), parse_probe("points:nothing")]
        with program.open("rb") as file:
            answer = find_points(decoder, file.fileno(), str(program), specs)
        assert [point.name for point in answer.points] == ["plain"]
        assert answer.points[0].prototype is not None
    finally:
        decoder.close()


class Lying:
    """A decoder that a file has taken over."""

    def __init__(self, reply: object) -> None:
        self._reply = reply

    def probe_points(self, _fd: int, _label: str, _request: bytes) -> bytes:
        return json.dumps(self._reply).encode()


GOOD = {"query": 0, "name": "f", "offset": 64}


@pytest.mark.parametrize(
    "reply",
    [
        {},
        [],
        {"points": [{**GOOD, "query": 5}]},
        {"points": [{**GOOD, "query": -1}]},
        {"points": [{**GOOD, "offset": 1 << 60}]},
        {"points": [{**GOOD, "name": 7}]},
        {"points": [{**GOOD, "returns": list(range(1000))}]},
        {"points": [{**GOOD, "returns": ["x"]}]},
        {"points": [{**GOOD, "parameters": [["a"]], "result": ["signed", 4]}]},
        {"points": [{**GOOD, "parameters": [], "result": "int"}]},
        {"points": [GOOD] * 5000},
    ],
)
def test_what_a_file_makes_up_is_refused(reply: object) -> None:
    whole = (
        {"symbols": 1, "thrown": False, "near": {}, **reply} if isinstance(reply, dict) else reply
    )
    with pytest.raises(FormatError):
        find_points(Lying(whole), 0, "file", [parse_probe("x:f")])  # type: ignore[arg-type]


def test_damaged_files_are_refused_or_have_fewer_functions(program: Path) -> None:
    data = bytearray(program.read_bytes())
    request = json.dumps([{"function": "*", "debug": True}, {"function": "x", "provider": "p"}])
    for at in range(0, len(data), 97):
        changed = bytes(data[:at]) + bytes([data[at] ^ 0xFF]) + bytes(data[at + 1 :])
        # What the worker answers with a line.
        with contextlib.suppress(FormatError, ValueError, LookupError, OverflowError, MemoryError):
            probe_points(ElfView(memoryview(changed)), request.encode())
