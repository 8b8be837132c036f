"""Declarations of MPI's entry points, compared with the installed headers and libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcd.model.mpi_functions import FUNCTIONS
from hpcd.model.mpi_records import FLAVOURS, MAX_VALUES, VALUES, records
from tests.support.mpi_truth import C_TYPES, source

_CONSTANTS = """
#include <mpi.h>
#include <stddef.h>
_Static_assert(MPI_ANY_SOURCE == {any_source}, "any source");
_Static_assert(MPI_PROC_NULL == {proc_null}, "no process");
_Static_assert(MPI_ROOT == {root}, "the root itself");
_Static_assert(MPI_ANY_TAG == {any_tag}, "any tag");
_Static_assert(offsetof(MPI_Status, MPI_SOURCE) == {status_source}, "source");
_Static_assert(offsetof(MPI_Status, MPI_TAG) == {status_tag}, "tag");
_Static_assert(sizeof(MPI_Status) == {status_width}, "status");
_Static_assert(sizeof(MPI_Comm) == {handle}, "handle");
_Static_assert(sizeof(MPI_Request) == {handle}, "handle");
"""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_headers_agree(tmp_path: Path, flavour: str) -> None:
    """The compiler refuses a definition whose prototype is another than the header's."""
    one = FLAVOURS[flavour]
    named = {name: getattr(one, name) for name in type(one).__slots__}
    code = tmp_path / "check.c"
    code.write_text(source(one) + _CONSTANTS.format(**named))
    compiler = [f"mpicc.{flavour}", "-w", "-Werror=incompatible-pointer-types", "-fsyntax-only"]
    subprocess.run([*compiler, str(code)], check=True)


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=lambda flavour: flavour.name)
def test_records_fit(flavour: object) -> None:
    names = [
        (record.name, record.function)
        for function in FUNCTIONS.values()
        for record in records(function, flavour)  # type: ignore[arg-type]
    ]
    assert len(set(names)) == len(names)
    for function in FUNCTIONS.values():
        assert set(function.parameters) <= set(C_TYPES)
        for record in records(function, flavour):  # type: ignore[arg-type]
            wanted = [name for name in VALUES[record.role]]
            got = [value.name.replace("datatype_size", "datatype") for value in record.values]
            assert got == [name for name in wanted if name in got]
            assert len(record.values) <= MAX_VALUES
            for value in record.values:
                assert 0 <= value.source.argument < len(function.parameters)


def test_every_prototype_has_what_its_role_says() -> None:
    """Every declaration of a role has what matching cannot do without."""
    needed = {
        "SEND": {"communicator", "peer", "tag", "count"},
        "RECEIVE": {"communicator", "peer", "tag", "status_source", "status_bytes"},
        "RECEIVE_POST": {"communicator", "peer", "tag", "request"},
        "COMPLETE": {"request"},
        "FROM_ROOT": {"communicator", "root"},
        "TO_ROOT": {"communicator", "root"},
        "SPLIT": {"communicator", "new_communicator", "color", "key"},
    }
    for function in FUNCTIONS.values():
        for record in records(function, FLAVOURS["mpich"]):
            names = {value.name for value in record.values}
            assert needed.get(record.role.name, set()) <= names, record.name
