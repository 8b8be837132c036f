"""A module's unwind table as it is made: rows by address."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hpcd.array_types import U16, U32
from hpcd.elf.elf_view import Segment

# No program has more text than this: the page directory alone would take 4 MiB.
MAX_SPAN = 1 << 30
MACHINES = ("x86_64", "aarch64")


@dataclass(slots=True)
class ModuleTable:
    """Unwind rows of one module.

    ``pc`` is ``uint32[n]``, strictly increasing, relative to ``base`` (an ELF virtual address);
    ``rule`` is ``uint16[n]``, indices of ``rules`` (RULE_DTYPE). A row holds up to the next one's
    pc. ``functions`` had call frame information, ``bad`` of them malformed; ``analysed`` bytes of
    code had none and were followed instruction by instruction. ``corrected`` are prologues and
    epilogues whose information was wrong. ``runtime`` has the addresses of a language's runtime
    (:mod:`hpcd.daemon.unwind.runtime_symbols`).
    """

    build_id: str
    machine: str
    base: int
    segments: list[Segment]
    pc: U32
    rule: U16
    rules: npt.NDArray[np.void]
    functions: int = 0
    bad: int = 0
    analysed: int = 0
    corrected: int = 0
    runtime: dict[str, int] = field(default_factory=dict)
