"""Documents say what the program does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpcd.commands import VERBS
from hpcd.measurement.chunk import Kind
from hpcd.model.ending import Ending

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("what", "page"), [([], "hpcd.1"), (["configuration"], "hpcd.toml.5")])
def test_the_manual_pages_are_current(what: list[str], page: str) -> None:
    done = subprocess.run(
        [sys.executable, "setup/manpage.py", *what], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == (ROOT / "docs" / page).read_text(), "run: make man"


def test_the_readme_names_every_verb_and_no_other() -> None:
    text = (ROOT / "README.md").read_text()
    named = {line.split("hpcd ")[1].split()[0] for line in text.splitlines()
             if line.startswith(("hpcd ", "sudo hpcd ")) and " # " in line}  # fmt: skip
    assert named == set(VERBS)


def test_every_chunk_kind_is_documented() -> None:
    text = (ROOT / "docs/formats.md").read_text()
    for kind in Kind:
        assert f"| {kind.value} | {kind.name} |" in text


def test_endings_are_the_same_in_c_and_python() -> None:
    text = (ROOT / "bpf/stack/unwind.h").read_text()
    known_to_the_programs = [ending for ending in Ending if ending < Ending.BEFORE_ATTACH]
    for ending in known_to_the_programs:
        assert f"\tEND_{ending.name} = {ending.value},\n" in text
        assert ending.label


def test_rules_are_the_same_in_c_and_python() -> None:
    from hpcd.daemon.unwind.rules import CfaKind, FpKind, RaKind

    text = (ROOT / "bpf/stack/rules.h").read_text()
    for prefix, kinds in (("CFA", CfaKind), ("FP", FpKind), ("RA", RaKind)):
        for kind in kinds:
            assert f"\t{prefix}_{kind.name} = {kind.value}," in text


def test_nothing_generic_is_importable() -> None:
    """Only hpcd: not "daemon", "analysis", "bpf", "viewer"."""
    script = (
        "import importlib.util as u; import hpcd.daemon, hpcd.bpf, hpcd.analysis, hpcd.viewer; "
        "print([n for n in ('daemon', 'analysis', 'bpf', 'viewer') if u.find_spec(n)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_configuration_is_documented_as_it_is() -> None:
    from hpcd.daemon.service.configuration import Configuration, as_toml

    assert (ROOT / "docs/hpcd.toml").read_text() == as_toml(Configuration())


def test_constants_are_the_same_in_c_and_python() -> None:
    from hpcd.bpf.object_loader import CONSTANTS

    text = (ROOT / "bpf/object.h").read_text()
    assert f"constants[{len(CONSTANTS)}]" in text
    for number, name in enumerate(CONSTANTS):
        assert f"#define {name} constants[{number}]\n" in text
