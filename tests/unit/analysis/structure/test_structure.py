"""Procedures, inlined calls and lines of addresses, compared with what addr2line says."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from hpcd.analysis.structure import ScopeKind, Structure, StructureReader
from hpcd.analysis.structure.dwarf import symcache
from hpcd.analysis.structure.dwarf.address_ranges import AddressRanges
from hpcd.analysis.structure.structure_cache import StructureCache
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from tests.support.paths import ROOT
from tests.support.recorded import hpcd

PROGRAM = ROOT / "tests/programs/inlined.cpp"
SMALL = ROOT / "tests/programs/nested.cpp"
Frames = list[tuple[str, int]]


@cache
def compiled(*options: str, source: Path = PROGRAM) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        subprocess.run(["g++", "-g", *options, str(source), "-o", path], check=True, cwd=folder)
        return path.read_bytes()


def compile_to(path: Path, *options: str, source: Path = PROGRAM) -> Path:
    path.write_bytes(compiled(*options, source=source))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def inlined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_to(tmp_path_factory.mktemp("inlined") / "inlined", "-O2")


def some_addresses(path: Path, count: int = 2000) -> list[int]:
    """Addresses inside functions with lines, spread over the text."""
    with ElfFile.open(path) as elf:
        text = next(section for section in elf.sections if section.name == ".text")
    every = range(text.address, text.address + text.size)
    return sorted(random.Random(1).sample(every, min(count, len(every))))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def structure(path: Path, addresses: list[int], cache: Path | None = None) -> Structure:
    """With a cache of its own, unless one is given."""
    with (
        tempfile.TemporaryDirectory() as folder,
        StructureReader(StructureCache(cache or Path(folder)), workers=1) as reader,
    ):
        return reader.structure(path, np.array(addresses, np.uint64))


def mine(described: Structure, count: int) -> list[Frames]:
    return [[(call.file, call.line) for call in described.chain(number)] for number in range(count)]


def addr2line(path: Path, addresses: list[int]) -> list[Frames]:
    done = subprocess.run(
        ["addr2line", "-aife", str(path)],
        input="".join(f"{address:x}\n" for address in addresses),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    chains: list[Frames] = []
    for line in done.stdout.splitlines():
        if line.startswith("0x0"):
            chains.append([])
        elif ":" in line and (line.startswith(("/", "?"))):
            file, number = line.split(" (")[0].rsplit(":", 1)
            has_line = number.isdigit() and number != "0"
            chains[-1].append((os.path.normpath(file), int(number)) if has_line else ("", 0))
    return chains


@pytest.mark.parametrize("options", [("-O0", "-no-pie"), ("-O2",), ("-O3", "-gdwarf-4"),
                                     ("-O2", "-gz")],
                         ids=" ".join)  # fmt: skip
def test_chains_are_those_of_addr2line(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = compile_to(tmp_path / "program", *options)
    addresses = some_addresses(path)
    ours = mine(structure(path, addresses), len(addresses))
    theirs = addr2line(path, addresses)
    assert len(ours) == len(theirs) == len(addresses)
    # Between functions, where nothing runs, addr2line gives the line before: nothing to compare.
    inside = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != [("", 0)]]
    same = sum(a == b for a, b in inside)
    assert same >= 0.99 * len(inside)
    assert len(inside) > 0.9 * len(addresses)


@pytest.mark.parametrize("options", [(), ("-gdwarf-4",), ("-gdwarf64",)], ids=" ".join)
def test_lines_without_procedures_are_those_of_the_line_table(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """As programs have them whose debug information is in .dwo files."""
    split = compile_to(tmp_path / "split", "-O2", *options, "-gsplit-dwarf", source=SMALL)
    whole = compile_to(tmp_path / "whole", "-O2", *options, source=SMALL)
    addresses = some_addresses(whole)
    count = len(addresses)
    lines, chains = structure(split, addresses), structure(whole, addresses)
    assert set(lines.forest.kind.tolist()) == {
        ScopeKind.PROCEDURE,
        ScopeKind.LOOP,
        ScopeKind.STATEMENT,
    }
    pairs = [
        (one[0], other[0])
        for one, other in zip(
            mine(lines, len(addresses)), mine(chains, len(addresses)), strict=True
        )
        if other[0] != ("", 0)
    ]
    assert len(pairs) > 0.75 * count  # the rest is code that the compiler brings
    # DWARF 4 has the compiler's folder elsewhere: relative names stay so.
    assert all(one[1] == other[1] and other[0].endswith(one[0]) for one, other in pairs)


def test_inlined_calls_nest_below_their_procedure(inlined: Path) -> None:
    with StructureReader() as reader:
        described = reader.everything(inlined)
    forest = described.forest
    value = [scope for scope, _ in forest.walk()
             if forest.label(scope) == "Polynomial<3>::value(double)"]  # fmt: skip
    assert value
    for scope in value:
        outwards = forest.path(scope)
        kinds = [ScopeKind(int(forest.kind[scope])) for scope in outwards]
        assert kinds[-1] == ScopeKind.PROCEDURE and set(kinds[:-1]) <= {
            ScopeKind.INLINED,
            ScopeKind.LOOP,
        }
        # Called by Polynomial<4>, in line 14 of the program.
        assert forest.label(outwards[1]) == "Polynomial<4>::value(double)"
        assert forest.place(scope) == (str(PROGRAM), 14)


def test_a_procedure_begins_where_the_source_says(inlined: Path) -> None:
    with StructureReader() as reader:
        described = reader.everything(inlined)
    forest = described.forest
    begins = {forest.label(scope): forest.place(scope)
              for scope in np.flatnonzero(forest.kind == ScopeKind.PROCEDURE).tolist()}  # fmt: skip
    text = PROGRAM.read_text().splitlines()
    for name in ("main", "step", "tally"):
        file, line = begins[next(begin for begin in begins if begin.startswith(name))]
        # Its first instruction's line, which may be the opening brace's.
        assert file == str(PROGRAM) and f" {name}(" in "".join(text[line - 2 : line])


def test_stripped_programs_have_procedures(inlined: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(inlined)], check=True)
    addresses = some_addresses(stripped, 100)
    described = structure(stripped, addresses)
    assert "no debug information" in described.notes[0]
    assert bool((described.scope >= 0).all())
    assert set(described.forest.kind.tolist()) == {ScopeKind.PROCEDURE, ScopeKind.LOOP}


@pytest.mark.parametrize("how", ["beside", "folder", "no build id"])
def test_separate_debug_files_are_found(inlined: Path, tmp_path: Path, how: str) -> None:
    program = tmp_path / "program"
    folder = tmp_path / ".debug" if how == "folder" else tmp_path
    folder.mkdir(exist_ok=True)
    debug = folder / "program.debug"
    options = ["--remove-section=.note.gnu.build-id"] if how == "no build id" else []
    plain = tmp_path / "plain"
    subprocess.run(["objcopy", *options, str(inlined), str(plain)], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", str(plain), str(debug)], check=True)
    subprocess.run(
        ["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", str(plain), str(program)],
        check=True,
    )
    addresses = some_addresses(inlined, 300)
    assert mine(structure(program, addresses), 300) == mine(structure(inlined, addresses), 300)
    # Another program's file does not count.
    compile_to(debug, source=SMALL)
    assert structure(program, addresses).notes


def test_debuginfod_is_asked_only_where_configured(
    inlined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(inlined)], check=True)
    client = tmp_path / "bin/debuginfod-find"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\necho {inlined}\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    addresses = some_addresses(stripped, 100)
    assert structure(stripped, addresses).notes
    assert not (tmp_path / "asked").exists()
    monkeypatch.setenv("DEBUGINFOD_URLS", "https://debuginfod.example.org")
    assert mine(structure(stripped, addresses), 100) == mine(structure(inlined, addresses), 100)
    with ElfFile.open(inlined) as elf:
        assert (tmp_path / "asked").read_text() == f"debuginfo {elf.build_id()}\n"


@pytest.mark.skipif(shutil.which("debuginfod") is None, reason="no debuginfod here")
def test_a_debuginfod_server_is_asked(
    inlined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped, folder = tmp_path / "stripped", tmp_path / "served"
    folder.mkdir()
    subprocess.run(["strip", "-o", str(stripped), str(inlined)], check=True)
    debug = folder / "inlined.debug"
    subprocess.run(["objcopy", "--only-keep-debug", str(inlined), str(debug)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["debuginfod", "-vvv", "-p", str(port), "-d", str(tmp_path / "index"), "-F"]
    with subprocess.Popen(
        [*command, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            # It serves before it has looked at its files, and says which it has.
            assert server.stderr and any("atype=D" in line for line in server.stderr)
            monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "client"))
            addresses = some_addresses(stripped, 100)
            served = mine(structure(stripped, addresses), 100)
        finally:
            server.terminate()
    assert served == mine(structure(inlined, addresses), 100)


def test_a_changed_binary_is_refused(inlined: Path) -> None:
    with StructureReader() as reader, pytest.raises(FormatError, match="another build id"):
        reader.structure(inlined, np.zeros(1, np.uint64), "0123456789")


def test_the_command_prints_a_tree(inlined: Path) -> None:
    done = hpcd("structure", str(inlined), "--procedure", "tally")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "inlined calls" in lines[0]
    assert "tally" in lines[1] and f"{PROGRAM}:" in lines[1]
    # A procedure without a name is called by its address, which stands there once.
    printed = hpcd("structure", "/bin/true").stdout
    assert re.search(r"^\[true\+0x[0-9a-f]+\]", printed, re.M)
    assert not re.search(r"^0x([0-9a-f]+) \[.*\+0x\1\]", printed, re.M)
    assert any(line.startswith("  inlined ") and f"at {PROGRAM}:" in line for line in lines)


def test_the_command_prints_json(inlined: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"no program")
    address = some_addresses(inlined, 1)[0]
    done = hpcd("structure", str(bad), str(inlined), "--json", "--address", f"{address:#x}",
                check=False)  # fmt: skip
    assert done.returncode == FormatError.exit_code
    assert "bad: not an ELF file" in done.stderr
    (file,) = json.loads(done.stdout)["files"]
    assert file["path"] == str(inlined)
    assert file["scopes"][0]["kind"] == "procedure"
    for number, scope in enumerate(file["scopes"]):
        assert scope["parent"] is None or scope["parent"] < number


def same(one: Structure, other: Structure) -> bool:
    forests = one.forest, other.forest
    return bool((one.scope == other.scope).all()) and all(
        bool((getattr(forests[0], name) == getattr(forests[1], name)).all())
        for name in ("parent", "kind", "name", "file", "line", "address")
    )


def test_what_is_cached_is_the_same(inlined: Path, own_cache: Path) -> None:
    addresses = some_addresses(inlined)
    first = structure(inlined, addresses, own_cache)
    kept = sorted(own_cache.rglob("*.*"))
    assert [path.suffix for path in kept] == [".lines", ".loops"]
    before = [path.stat().st_ino for path in kept]
    assert same(first, structure(inlined, addresses, own_cache))
    assert [path.stat().st_ino for path in kept] == before, "written again"


def test_loops_are_kept_function_by_function(inlined: Path, own_cache: Path) -> None:
    addresses = some_addresses(inlined)
    structure(inlined, addresses[:1], own_cache)
    (loops,) = own_cache.rglob("*.loops")
    size = loops.stat().st_size
    assert same(structure(inlined, addresses, own_cache), structure(inlined, addresses))
    assert loops.stat().st_size > size


def test_a_damaged_cache_is_made_again(inlined: Path, own_cache: Path) -> None:
    addresses = some_addresses(inlined, 200)
    first = structure(inlined, addresses, own_cache)
    kept = {path: path.read_bytes() for path in own_cache.rglob("*.*")}
    for path, content in kept.items():
        data = bytearray(content)
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert same(first, structure(inlined, addresses, own_cache))
    assert kept == {path: path.read_bytes() for path in own_cache.rglob("*.*")}
    assert same(first, structure(inlined, addresses, own_cache))


def test_damaged_programs_never_fail_otherwise_than_said(inlined: Path, tmp_path: Path) -> None:
    """Headers, debug information and code overwritten at random."""
    image = inlined.read_bytes()
    addresses = np.array(some_addresses(inlined, 100), np.uint64)
    chance = random.Random(7)
    outcomes = set()
    with StructureReader(StructureCache(tmp_path / "none" / "such"), workers=1) as reader:
        for number in range(60):
            data = bytearray(image)
            for _ in range(chance.choice([1, 10, 1000])):
                at = chance.randrange(64 if number % 3 == 0 else len(data))
                data[at] = chance.randrange(256)
            if number % 10 == 9:
                del data[chance.randrange(len(data)) :]
            path = tmp_path / f"damaged{number}"
            path.write_bytes(data)
            try:
                described = reader.structure(path, addresses)
                assert len(described.scope) == len(addresses)
                outcomes.add("noted" if described.notes else "whole")
            except FormatError:
                outcomes.add("refused")
    assert outcomes == {"noted", "whole", "refused"}


def test_a_reader_that_dies_idle_costs_nothing(inlined: Path, own_cache: Path) -> None:
    addresses = np.array(some_addresses(inlined, 10), np.uint64)
    with StructureReader(StructureCache(own_cache), workers=1) as reader:
        reader.structure(inlined, addresses)
        for path in own_cache.rglob("*.*"):
            path.unlink()
        dead = reader.readers[0].process
        assert dead is not None
        dead.kill()
        dead.wait()
        assert not reader.structure(inlined, addresses).notes
        assert reader.readers[0].process is not dead


def test_the_installed_symbolic_writes_a_format_that_is_read(inlined: Path) -> None:
    data = symcache.make_symcache(inlined.read_bytes(), "inlined")
    _, version = struct.unpack_from("<4sI", data)
    assert version in symcache.FILE_NUMBERS, (
        f"symbolic {metadata.version('symbolic')} writes symcache format {version}: read it in"
        " analysis/structure/dwarf/symcache.py, or bound symbolic in pyproject.toml"
    )
    table = symcache.parse_symcache(data, AddressRanges.everything())
    assert len(table.start) > 10
    struct.pack_into("<I", later := bytearray(data), 4, max(symcache.FILE_NUMBERS) + 1)
    with pytest.raises(FormatError, match="symcache format 10 is not supported, only 8 and 9"):
        symcache.parse_symcache(bytes(later), AddressRanges.everything())


def test_symbolic_is_bounded() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (requirement,) = (name for name in project["dependencies"] if name.startswith("symbolic"))
    assert re.fullmatch(r"symbolic>=\d+,<\d+", requirement)
