"""Interpreters known from earlier recordings: as long as their files are what they were."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hpcd.bpf import wire
from hpcd.bpf.wire import PythonAnchor
from hpcd.daemon.runtimes.python.python_programs import KnownPythons, PythonProgram
from hpcd.model.region import Region

CODE = 0x400000


def mapping_of(file: Path, start: int) -> Region:
    status = file.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    return Region(start, start + 4096, 0x2000, device, status.st_ino, str(file))


def program_of(
    file: Path, anchor: PythonAnchor = PythonAnchor.ENTRY_FRAME, library: Path | None = None
) -> PythonProgram:
    entry = wire.Python(interpreters=CODE + 0x1000, unset_begin=7, anchor=anchor, code=3)
    region = mapping_of(library or file, CODE + 0x200)
    return PythonProgram.of(mapping_of(file, 0x1000), 1000, entry, region, CODE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "python with a space"
    file.write_bytes(b"one")
    return file


def test_addresses_count_from_the_begin_of_the_code(file: Path) -> None:
    entry = wire.Python.unpack(program_of(file).entry)
    assert (entry.interpreters, entry.code, entry.gil) == (0x1000, 3, 0)
    assert entry.unset_begin == 7 - CODE + (1 << 64)
    # Of 3.9 it is the number of a load module and an offset there.
    assert wire.Python.unpack(program_of(file, PythonAnchor.COUNTED).entry).unset_begin == 7


def test_those_of_a_library_count_from_the_begin_of_its_file(file: Path, tmp_path: Path) -> None:
    library = Path(shutil.copy(file, tmp_path / "libpython.so"))
    program = program_of(file, library=library)
    entry = wire.Python.unpack(program.entry)
    assert (entry.interpreters, entry.library) == (0x1000 - 0x200 + 0x2000, library.stat().st_ino)
    assert wire.PythonProgram.unpack(program.key).inode == file.stat().st_ino
    known = KnownPythons(tmp_path / "cache")
    known.remember([program])
    assert [*known.load()] == [program]
    library.write_bytes(b"upgraded")
    assert [*known.load()] == []


def test_programs_are_known_until_their_file_changes(file: Path, tmp_path: Path) -> None:
    other = Path(shutil.copy(file, tmp_path / "other"))
    known = KnownPythons(tmp_path / "cache")
    known.remember([program_of(file)])
    known.remember([program_of(other)])
    assert {*known.load()} == {program_of(file), program_of(other)}
    file.write_bytes(b"another")
    assert [*known.load()] == [program_of(other)]
    other.unlink()
    assert [*known.load()] == []


def test_what_is_good_for_one_recording_is_not_kept(file: Path, tmp_path: Path) -> None:
    known = KnownPythons(tmp_path / "cache")
    elsewhere = program_of(file)._replace(paths=("/bin/true",))  # as in another container
    known.remember([program_of(file, PythonAnchor.COUNTED), elsewhere])
    assert [*known.load()] == []


def test_damaged_lines_are_passed_over(file: Path, tmp_path: Path) -> None:
    known = KnownPythons(tmp_path / "cache")
    known.remember([program_of(file)])
    (kept,) = (tmp_path / "cache/unwind").glob("*.pythons")
    kept.write_bytes(b"\xff\n1 2\n1 zz 00 /bin/true\n1 00 00 /bin/true\n" + kept.read_bytes())
    assert [*known.load()] == [program_of(file)]
