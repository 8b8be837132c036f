"""Structure of binaries: exactness and rates against llvm-symbolizer and addr2line, loops, memory.

``python -m benchmarks.structure [--program FILE] [--addresses N]`` prints tables. Without a
program one is compiled from Eigen's templates (libeigen3-dev), 110 MB in two minutes. Rates are of
distinct addresses spread over the text; the peers demangle names as hpcd does. Seconds depend on
the machine: compare them only with each other.

``python -m benchmarks.structure --scattered`` prints the memory that some addresses in many places
take, in a library of several big units with compressed debug information.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import sized
from hpcd.analysis.structure import Structure, StructureReader
from hpcd.analysis.structure.structure_cache import StructureCache
from hpcd.elf.elf_file import ElfFile
from tests.support.nests import PROGRAM, TRUTH, nests

SOURCE = """
#include <Eigen/Dense>
#include <cstdio>
template <typename S, int R, int C> double work(unsigned seed) {
    std::srand(seed);
    using Matrix = Eigen::Matrix<S, R, C>;
    Matrix a = Matrix::Random(), b = Matrix::Random();
    Eigen::Matrix<S, R, R> d = (a * b.transpose() + a * a.transpose()).eval();
    auto inverse = d.partialPivLu().inverse().eval();
    Eigen::HouseholderQR<Eigen::Matrix<S, R, R>> qr(d);
    Eigen::Matrix<S, R, R> q = qr.householderQ();
    Eigen::LLT<Eigen::Matrix<S, R, R>> llt(d * d.transpose());
    return double((inverse * q).sum() + a.array().abs().log().sum() + d.norm()
                  + a.cwiseProduct(b).colwise().sum().sum() + llt.matrixL().solve(d).sum());
}
template <int N> double each(unsigned s) {
    return work<double, N, N + 1>(s) + work<float, N + 1, N>(s) + each<N - 1>(s);
}
template <> double each<1>(unsigned) { return 0; }
int main(int argc, char **) { std::printf("%f\\n", each<5>(argc)); }
"""
LIBRARIES = sized(
    ("libLLVM-14.so.1", "libc.so.6", "libstdc++.so.6", "libopenblas.so.0"), ("libc.so.6",)
)

Chain = list[tuple[str, int]]


def compile_program(folder: Path) -> Path:
    """A heavily inlined program of over 100 MB."""
    source, program = folder / "eigen.cpp", folder / "eigen"
    source.write_text(SOURCE)
    command = ["g++", "-O2", "-g", "-I/usr/include/eigen3", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    return program


def addresses_of(program: Path, count: int) -> list[int]:
    """Distinct addresses, spread over the text."""
    with ElfFile.open(program) as elf:
        text = next(section for section in elf.sections if section.name == ".text")
    every = range(text.address, text.address + text.size)
    return sorted(random.Random(1).sample(every, min(count, len(every))))


def ask(command: list[str], addresses: list[int]) -> tuple[str, float]:
    """Return another symbolizer's output and its duration in seconds."""
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        input="".join(f"{address:#x}\n" for address in addresses),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout, time.perf_counter() - begin


def peers(program: Path) -> dict[str, list[str]]:
    """Commands of the other symbolizers."""
    return {
        "llvm-symbolizer": ["llvm-symbolizer", "-e", str(program), "--inlining"],
        "addr2line -i": ["addr2line", "-aCife", str(program)],
    }


def chains(tool: str, text: str) -> Iterator[Chain]:
    """Files and lines, innermost first, of each address."""
    if tool == "llvm-symbolizer":
        for block in text.rstrip("\n").split("\n\n"):
            yield [place(line.rsplit(":", 1)[0]) for line in block.split("\n")[1::2]]
        return
    chain: Chain = []
    lines = iter(text.splitlines())
    next(lines)
    for name in lines:
        if name.startswith("0x0") and len(name) == 18:
            yield chain
            chain = []
        else:
            chain.append(place(next(lines).split(" (")[0]))
    yield chain


def place(text: str) -> tuple[str, int]:
    """``file:line``; empty and 0 where unknown."""
    file, _, line = text.rpartition(":")
    return (os.path.normpath(file), int(line)) if line.isdigit() and line != "0" else ("", 0)


def difference(mine: Structure, number: int, theirs: Chain) -> str:
    """Why the chains of an address differ, empty where they do not."""
    ours = [(call.file, call.line) if call.line else ("", 0) for call in mine.chain(number)]
    if ours == theirs:
        return ""
    if ours == [("", 0)]:
        return "between functions: padding has no line of its own"
    if len(ours) != len(theirs):
        return "another depth"
    if [line for _, line in ours] == [line for _, line in theirs]:
        return "the same lines, of other files"
    return "other lines"


def exactness(program: Path, count: int) -> Table:
    """Chains and lines compared with both peers."""
    addresses = addresses_of(program, count)
    with tempfile.TemporaryDirectory() as folder, reader(folder) as structures:
        mine = structures.structure(program, np.array(addresses, np.uint64))
    table = Table("against", "addresses", "same", "difference", title=f"chains of {program.name}")
    for tool, command in peers(program).items():
        text, _ = ask(command, addresses)
        causes = Counter(
            difference(mine, number, theirs) for number, theirs in enumerate(chains(tool, text))
        )
        same = causes.pop("", 0)
        why = "; ".join(f"{cause}: {n}" for cause, n in causes.items())
        table.add_row(tool, f"{len(addresses):,}", f"{same / len(addresses):.2%}", why or "none")
    return table


def reader(folder: str) -> StructureReader:
    """A reader with a cache in ``folder``."""
    return StructureReader(StructureCache(Path(folder)))


def rates(program: Path, count: int) -> Table:
    """Addresses a second, with nothing cached and cached, as multiples of the peers'."""
    addresses = addresses_of(program, count)
    wanted = np.array(addresses, np.uint64)
    seconds: dict[str, float] = {}
    for tool, command in peers(program).items():
        seconds[tool] = min(ask(command, addresses)[1] for _ in range(2))
    for what, loops in (("hpcd", False), ("hpcd with loops", True)):
        cold, warm = [], []
        for _ in range(3):
            with tempfile.TemporaryDirectory() as folder:
                for taken in (cold, warm, warm):
                    begin = time.perf_counter()
                    with reader(folder) as structures:
                        structures.structure(program, wanted, loops=loops)
                    taken.append(time.perf_counter() - begin)
        seconds[f"{what}, nothing cached"], seconds[f"{what}, cached"] = min(cold), min(warm)
    size = program.stat().st_size / 1e6
    table = Table("", "seconds", "addresses/s", *(f"x {tool}" for tool in peers(program)),
                  title=f"{len(addresses):,} addresses of {size:.0f} MB")  # fmt: skip
    for what, taken in seconds.items():
        table.add_row(what, f"{taken:.3f}", f"{len(addresses) / taken:,.0f}",
                      *(f"{seconds[tool] / taken:.1f}" for tool in peers(program)))  # fmt: skip
    return table


def nesting(folder: Path) -> Table:
    """The loops of tests/programs/nests.c, by compiler, against its comments."""
    table = Table("compiler", "in the source", "found", "with the right parent", "copies nested",
                  "missing", "elsewhere", title="loops of nests.c")  # fmt: skip
    for compiler in ("gcc", "clang", "aarch64-linux-gnu-gcc"):
        if shutil.which(compiler) is None:
            continue
        for level in ("-O0", "-O2", "-O3"):
            path = folder / "nests"
            command = [compiler, "-w", "-g", level, str(PROGRAM), "-o", str(path)]
            subprocess.run(command, check=True)
            loops = nests(path)
            parents = {name: around for name, around in TRUTH.parent.items()}
            right = {name for name, around in loops if parents.get(name) == around}
            copies = sum(name == around for name, around in loops)
            names = {name for name, _ in loops}
            wrong = [f"{name} in {around or 'none'}" for name, around in loops
                     if parents.get(name) != around and name != around]  # fmt: skip
            table.add_row(f"{compiler} {level}", str(len(parents)), str(len(names & set(parents))),
                          str(len(right)), str(copies), ", ".join(sorted(set(parents) - names)),
                          ", ".join(wrong))  # fmt: skip
    return table


def whole(files: list[Path]) -> Table:
    """Everything of whole modules, each in a process of its own."""
    table = Table("module", "MB", "code, MB", "loops", "seconds", "s a MB of code", "peak, MB",
                  "a worker's, MB", title="whole modules, nothing cached")  # fmt: skip
    for path in files:
        if not path.exists():
            continue
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.structure", "--whole", str(path)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        table.add_row(path.name, *done.stdout.split())
    return table


def measure_whole(path: Path) -> None:
    """Print the figures of one module: only the loops are timed."""
    from hpcd.analysis.structure.module_structure import AnalysedModule

    with tempfile.TemporaryDirectory() as folder, reader(folder) as structures:
        module = AnalysedModule(structures, path)
        functions = module.functions()
        code = float((functions.end - functions.start).sum()) / 1e6
        begin = time.perf_counter()
        table = module.loops(functions)
        taken = time.perf_counter() - begin
        structures.structure(path, functions.start)
        own = peak(os.getpid())
        workers = max(peak(one.process.pid) for one in structures.readers if one.process)
    size = path.stat().st_size / 1e6
    print(f"{size:.0f} {code:.1f} {len(table.parent)} {taken:.2f} {taken / code:.3f} "
          f"{own:.0f} {workers:.0f}")  # fmt: skip


def compile_library(folder: Path) -> Path:
    """A library of twelve units with 11 MB of ``.debug_info`` each, compressed."""
    source, unit, library = folder / "unit.cpp", folder / "unit.o", folder / "library.so"
    body = SOURCE.partition("int main")[0]
    source.write_text(body + "double unit(unsigned seed) { return each<3>(seed); }\n")
    command = ["g++", "-O2", "-g", "-fPIC", "-I/usr/include/eigen3", "-c", str(source)]
    subprocess.run([*command, "-o", str(unit)], check=True)
    copies = [folder / f"unit{number}.o" for number in range(12)]
    for number, copy in enumerate(copies):
        command = ["objcopy", f"--prefix-symbols=copy{number}_", str(unit), str(copy)]
        subprocess.run(command, check=True)
    command = ["g++", "-shared", "-g", "-gz=zlib", *map(str, copies), "-o", str(library)]
    subprocess.run(command, check=True)
    return library


def scattered(library: Path) -> Table:
    """The memory it takes to tell all of a few addresses, each in a process of its own."""
    table = Table("addresses", "seconds", "peak, MB", "a worker's, MB",
                  title=f"addresses all over {library.stat().st_size / 1e6:.0f} MB")  # fmt: skip
    for count in (10, 40, 160):
        code = f"measure_scattered(Path({str(library)!r}), {count})"
        code = f"from benchmarks.structure import *; {code}"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        table.add_row(str(count), *done.stdout.split())
    return table


def measure_scattered(library: Path, count: int) -> None:
    """Print the figures for this number of addresses."""
    wanted = np.array(addresses_of(library, count), np.uint64)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        with StructureReader(StructureCache(Path(folder)), workers=1) as structures:
            structures.structure(library, wanted)
            worker = structures.readers[0].process
            taken = time.perf_counter() - begin
            print(f"{taken:.1f} {peak(os.getpid()):.0f} {peak(worker.pid) if worker else 0:.0f}")


def peak(pid: int) -> float:
    """The most memory a process had, pages of mapped files included, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--addresses", type=int, default=sized(100_000, 100))
    parser.add_argument("--scattered", action="store_true")
    parser.add_argument("--whole", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.whole:
        measure_whole(options.whole)
        return
    console = Console(width=None if sys.stdout.isatty() else 140)
    with tempfile.TemporaryDirectory() as folder:
        if options.scattered:
            console.print(scattered(options.program or compile_library(Path(folder))))
            return
        program = options.program or compile_program(Path(folder))
        console.print(exactness(program, sized(2000, 20)))
        console.print(nesting(Path(folder)))
        console.print(rates(program, options.addresses))
        console.print(whole([program, *(Path("/usr/lib/x86_64-linux-gnu") / library
                                        for library in LIBRARIES)]))  # fmt: skip


if __name__ == "__main__":
    main()
