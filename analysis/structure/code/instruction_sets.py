"""The instruction sets whose code is understood."""

from __future__ import annotations

from collections.abc import Iterable

from hpcd.analysis.structure.code import arm64, x86
from hpcd.analysis.structure.code.control_flow import Branch, Tables
from hpcd.analysis.structure.code.section_image import Image
from hpcd.elf.elf_reader import AARCH64, X86_64


def branches_of(image: Image, start: int, end: int) -> Iterable[Branch]:
    """The branches of a function, in order of address; none in code of other machines."""
    code = image.data(start, end - start)
    if image.machine == X86_64:
        return x86.branches_of(code, start)
    return arm64.branches_of(code, start) if image.machine == AARCH64 else ()


def tables_of(image: Image, start: int, end: int) -> Tables:
    """Return the reader of a function's jump tables for the image's instruction set."""
    code = image.data(start, end - start)
    if image.machine == X86_64:
        return x86.X86JumpTables(image, code, start).targets
    return arm64.Arm64JumpTables(image, code, start).targets
