"""Saved stacks, walked by the kernel's own unwind step compiled for user space."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hpcd.bpf.table_memory import MAPPING, UnwindTables, pack_rows
from hpcd.daemon.unwind.unwind_rules import RULE_DTYPE, InternedRules
from hpcd.model.codes import UnwindStatus
from tests.support.array_memory import ArrayMemory
from tests.support.paths import ROOT

MAX_FRAMES = 1152
# The walker keeps what it has found in a space: no other has its number.
_NUMBERS = itertools.count(1)


@dataclass
class SavedStack:
    """One stopped thread: registers, stack memory, mappings, tables, and its true frames.

    ``registers`` uint64[n] in the order of struct registers; ``mappings`` MAPPING rows whose
    ``dir`` is an index into ``tables``; ``frames`` uint64[n] the program counters an independent
    unwinder found, innermost first.
    """

    name: str
    registers: npt.NDArray[np.uint64]
    stack_start: int
    stack: bytes
    mappings: npt.NDArray[np.void]
    tables: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], npt.NDArray[np.void], int]]
    frames: npt.NDArray[np.uint64]
    machine: str = "x86_64"

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        columns: dict[str, npt.NDArray[np.generic]] = {
            "registers": self.registers,
            "stack_start": np.array([self.stack_start], np.uint64),
            "stack": np.frombuffer(self.stack, np.uint8),
            "mappings": self.mappings,
            "frames": self.frames,
            "machine": np.array([self.machine]),
            "pages": np.array([table[3] for table in self.tables], np.uint32),
        }
        for i, (pc, rule, rules, _) in enumerate(self.tables):
            columns |= {f"pc{i}": pc, f"rule{i}": rule, f"rules{i}": rules}
        np.savez_compressed(path, **columns)

    @classmethod
    def load(cls, path: Path) -> SavedStack:
        """Read what :meth:`save` wrote."""
        with np.load(path) as file:
            tables = [
                (file[f"pc{i}"], file[f"rule{i}"], file[f"rules{i}"], int(pages))
                for i, pages in enumerate(file["pages"])
            ]
            return cls(
                path.stem,
                file["registers"],
                int(file["stack_start"][0]),
                file["stack"].tobytes(),
                file["mappings"],
                tables,
                file["frames"],
                str(file["machine"][0]) if "machine" in file else "x86_64",
            )


class Replay:
    """The compiled walker. It takes each walk with and without known rules, and ends the process if
    they differ."""

    def __init__(self, directory: Path) -> None:
        self._walk = {
            "x86_64": self._compile(directory, "x86_64"),
            "aarch64": self._compile(directory, "aarch64", "-DHPCD_AARCH64"),
        }

    @staticmethod
    def _compile(directory: Path, machine: str, *flags: str) -> Any:
        """The walker for ``machine``; any compiler will do, it is the same arithmetic."""
        library = directory / f"replay-{machine}.so"
        options = ["-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror",
                   "-Wno-unknown-pragmas", "-Wno-unused-function", "-fsanitize=undefined",
                   "-fsanitize-undefined-trap-on-error", f"-I{ROOT}/bpf/programs",
                   *flags]  # fmt: skip
        source = Path(__file__).with_name("replay.c")
        subprocess.run(["gcc", *options, "-o", str(library), str(source)], check=True)
        return ctypes.CDLL(str(library)).replay

    def walk(self, saved: SavedStack) -> tuple[npt.NDArray[np.uint64], UnwindStatus]:
        """(frames as :mod:`hpcd.model.frame` has them, innermost first; how the path ended)."""
        image = self.image(saved.tables, saved.mappings, saved.machine)
        return image.walk(saved.registers, saved.stack_start, saved.stack)

    def image(
        self,
        tables: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.void], int]],
        mappings: npt.NDArray[np.void],
        machine: str = "x86_64",
    ) -> Image:
        """An address space to walk many stacks of; as in :class:`SavedStack`."""
        return Image(self._walk[machine], tables, mappings)


class Image:
    """The tables and mappings of a program, laid out as in the kernel."""

    def __init__(
        self,
        walk: Any,
        tables: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.void], int]],
        mappings: npt.NDArray[np.void],
    ) -> None:
        self._walk = walk
        self._memory = ArrayMemory()
        memory = UnwindTables(self._memory)
        interned = InternedRules()
        placed = []
        for pc, rule, rules, pages in tables:
            rows = pack_rows(pc, rule, pages, before=len(rules))
            placed.append(memory.add_module(rows, interned.intern(rules)).directory)
        mappings = mappings.astype(MAPPING)
        mappings["dir"] = [placed[i] for i in mappings["dir"]]
        self._space = memory.add_space(mappings)
        self._number = next(_NUMBERS)
        rows: list[npt.NDArray[np.void]] = []
        interned.store(lambda _, row: rows.append(row))
        self._rules = np.concatenate(rows).astype(RULE_DTYPE)

    def walk(
        self, registers: npt.NDArray[np.uint64], stack_start: int, stack: bytes
    ) -> tuple[npt.NDArray[np.uint64], UnwindStatus]:
        """Walk a saved stack as :meth:`Replay.walk` does."""
        frames = np.zeros(MAX_FRAMES, np.uint64)
        ending = ctypes.c_uint32()
        held = np.frombuffer(stack, np.uint8)
        registers = np.ascontiguousarray(registers, np.uint64)
        count = self._walk(
            ctypes.c_void_p(self._memory.words.ctypes.data),
            len(self._memory.words) // 1024,
            ctypes.c_void_p(self._rules.ctypes.data),
            len(self._rules),
            self._space.start * 1024,
            self._space.count,
            self._number,
            ctypes.c_void_p(registers.ctypes.data),
            ctypes.c_uint64(stack_start),
            ctypes.c_void_p(held.ctypes.data),
            ctypes.c_uint64(len(held)),
            ctypes.c_void_p(frames.ctypes.data),
            ctypes.byref(ending),
        )
        return frames[:count], UnwindStatus(ending.value)
