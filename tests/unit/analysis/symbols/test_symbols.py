"""Names for addresses, compared with what the binutils say of the same files."""

from __future__ import annotations

import io
import lzma
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcd.analysis.database.check import check_database
from hpcd.analysis.database.directory import SYMBOLS
from hpcd.analysis.merge.stages import merge
from hpcd.analysis.symbols import debug_files, symbol_tables, symbolization
from hpcd.analysis.symbols.demangle import demangle
from hpcd.analysis.symbols.symbol_rows import load_symbols
from hpcd.analysis.symbols.symbol_tables import SymbolTable
from hpcd.analysis.symbols.symbolization import SymbolAnswer, SymbolTask, symbolize
from hpcd.daemon.naming.kernel_naming import KernelNaming
from hpcd.daemon.naming.kernel_symbols import KernelSymbols, KernelSymbolStore
from hpcd.elf.elf_file import ElfFile
from hpcd.errors import FormatError
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.frame import module_frame
from hpcd.model.identity import Event, Host, Module, ModuleKind, Process, Thread
from tests.support.go_programs import STRIPPED, build, code_symbols, needs_go

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
namespace numbers {
template <typename T> struct Box { T value; __attribute__((noinline)) T twice(T more); };
template <typename T> T Box<T>::twice(T more) { return value + value + more; }
}
extern "C" __attribute__((noinline)) int plain(int x) { return x * 3 + rand(); }
extern "C" int alias_of_plain(int x) __attribute__((alias("plain")));
extern "C" int _hidden_alias(int x) __attribute__((alias("plain")));
static __attribute__((noinline)) int local_one(int x) { return x ^ (int)time(NULL); }
int main(int argc, char **argv) {
    numbers::Box<int> box{argc};
    printf("%d\\n", box.twice(plain(argc)) + local_one(argc));
    puts(argv[0]);
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("symbols")
    (folder / "program.cpp").write_text(SOURCE)
    flags = ["-O1", "-g", "-fno-inline", "-rdynamic", "-Wl,--build-id", "-Wl,-z,lazy"]
    target = folder / "program"
    subprocess.run(["g++", *flags, "-o", target, folder / "program.cpp"], check=True)
    return target


def stripped(program: Path, target: Path, *options: str) -> Path:
    subprocess.run(["strip", *options, "-o", target, program], check=True)
    return target


def build_id(path: Path) -> str:
    with ElfFile.open(path) as elf:
        return elf.build_id()


def name_all(path: Path, offsets: Sequence[int], identity: str | None = None) -> SymbolAnswer:
    wanted = build_id(path) if identity is None else identity
    addresses = np.array(sorted(offsets), np.uint64)
    return symbolize(SymbolTask(ModuleKind.ELF, str(path), wanted, None, addresses))


def names_at(path: Path, offsets: Sequence[int]) -> list[str]:
    answer = name_all(path, offsets)
    return [answer.procedures[place].name for place in answer.index]


def nm(path: Path, *options: str) -> dict[str, int]:
    """Functions by name, from the binutils."""
    output = subprocess.run(["nm", *options, path], check=True, capture_output=True, text=True)
    rows = (line.split(maxsplit=2) for line in output.stdout.splitlines())
    return {row[2]: int(row[0], 16) for row in rows if len(row) == 3 and row[1] in "tTwWi"}


def stubs(path: Path) -> dict[str, int]:
    """PLT stubs by name, from the binutils."""
    command = ["objdump", "-d", "-j.plt", "-j.plt.sec", "-j.plt.got", path]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rows = [line for line in output.splitlines() if line.endswith("@plt>:")]
    return {row.split("<")[1][:-2]: int(row.split()[0], 16) for row in rows}


def test_every_function_is_found_at_its_first_and_last_byte(program: Path) -> None:
    output = subprocess.run(["nm", "-S", program], check=True, capture_output=True, text=True)
    sized = [row for row in map(str.split, output.stdout.splitlines()) if len(row) == 4]
    functions = [row for row in sized if row[2] in "tTwW"]
    assert len(functions) > 5
    for start, size, _, name in functions:
        first = int(start, 16)
        last = first + int(size, 16) - 1
        answer = name_all(program, [first, last])
        assert len(answer.procedures) == 1
        procedure = answer.procedures[0]
        assert (procedure.address, procedure.size) == (first, int(size, 16))
        if "plain" not in name and "alias" not in name:
            assert name in (procedure.linkage_name, procedure.name)


def test_names_are_demangled_and_the_linkers_kept(program: Path) -> None:
    mangled = next(name for name in nm(program) if "twice" in name)
    answer = name_all(program, [nm(program)[mangled]])
    assert answer.procedures[0].name == "numbers::Box<int>::twice(int)"
    assert answer.procedures[0].linkage_name == mangled


def test_of_aliases_the_plainest_is_chosen(program: Path) -> None:
    assert names_at(program, [nm(program)["plain"]]) == ["plain"]


def test_stubs_are_named_for_what_they_call(program: Path) -> None:
    expected = stubs(program)
    assert "puts@plt" in expected
    assert names_at(program, list(expected.values())) == [
        name for name, _ in sorted(expected.items(), key=lambda item: item[1])
    ]


@pytest.mark.parametrize("flags", [["-fcf-protection=full", "-Wl,-z,ibtplt"], ["-Wl,-z,now"]])
def test_stubs_of_other_layouts(program: Path, tmp_path: Path, flags: list[str]) -> None:
    target = tmp_path / "program"
    source = program.with_suffix(".cpp")
    subprocess.run(["g++", "-O1", *flags, "-o", target, source], check=True)
    expected = stubs(target)
    assert len(expected) >= 3
    for name, address in expected.items():
        assert names_at(target, [address + 3]) == [name]


def test_a_stripped_file_has_its_exports_and_unnamed_functions(
    program: Path, tmp_path: Path
) -> None:
    bare = stripped(program, tmp_path / "bare")
    functions = nm(program)
    local = next(address for name, address in functions.items() if "local_one" in name)
    names = names_at(bare, [functions["plain"], local, local + 1, functions["main"]])
    assert "plain" in names and "main" in names
    assert names.count(f"[bare+0x{local:x}]") == 2


def test_a_separate_debug_file_is_used(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = stripped(program, tmp_path / "bare")
    identity = build_id(bare)
    folder = tmp_path / "debug/.build-id" / identity[:2]
    folder.mkdir(parents=True)
    debug = folder / f"{identity[2:]}.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    monkeypatch.setattr(debug_files, "DEBUG_ROOT", tmp_path / "debug")
    local = next(at for name, at in nm(program).items() if "local_one" in name)
    assert names_at(bare, [local]) == ["local_one(int)"]
    # Of another build it is of no use, and costs nothing but itself.
    subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", debug], check=True)
    assert names_at(bare, [local, nm(program)["plain"]]).count("plain") == 1
    assert "another build id" in name_all(bare, [local]).note


@pytest.mark.parametrize("place", ["beside", "folder", "by path"])
@pytest.mark.parametrize("with_build_id", [True, False])
def test_a_file_named_by_a_debug_link_is_used(
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    with_build_id: bool,
) -> None:
    root = tmp_path / "debug"
    monkeypatch.setattr(debug_files, "DEBUG_ROOT", root)
    bare = tmp_path / "bin/bare"
    bare.parent.mkdir()
    folders = {
        "beside": bare.parent,
        "folder": bare.parent / ".debug",
        "by path": root / str(bare.parent).lstrip("/"),
    }
    debug = folders[place] / "bare.debug"
    debug.parent.mkdir(parents=True, exist_ok=True)
    plain = tmp_path / "plain"
    options = [] if with_build_id else ["--remove-section=.note.gnu.build-id"]
    subprocess.run(["objcopy", *options, program, plain], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", plain, debug], check=True)
    link = f"--add-gnu-debuglink={debug}"
    subprocess.run(["objcopy", "--strip-all", link, plain, bare], check=True)
    local = next(at for name, at in nm(program).items() if "local_one" in name)
    assert names_at(bare, [local]) == ["local_one(int)"]
    with debug.open("ab") as file:
        file.write(b"changed since")
    answer = name_all(bare, [local])
    assert answer.procedures[0].name == f"[bare+0x{local:x}]"
    assert "another" in answer.note
    # Nothing but a regular file is opened: a fifo would be waited for.
    debug.unlink()
    os.mkfifo(debug)
    assert names_at(bare, [local]) == [f"[bare+0x{local:x}]"]


def test_mini_debug_information_is_used(program: Path, tmp_path: Path) -> None:
    bare = stripped(program, tmp_path / "bare")
    inner = tmp_path / "inner"
    subprocess.run(["objcopy", "--only-keep-debug", program, inner], check=True)
    packed = tmp_path / "inner.xz"
    packed.write_bytes(lzma.compress(inner.read_bytes()))
    option = f"--add-section=.gnu_debugdata={packed}"
    subprocess.run(["objcopy", option, bare], check=True)
    local = next(at for name, at in nm(program).items() if "local_one" in name)
    assert names_at(bare, [local]) == ["local_one(int)"]


def test_a_bomb_in_the_mini_debug_information_is_refused(program: Path, tmp_path: Path) -> None:
    bare = stripped(program, tmp_path / "bare")
    packed = tmp_path / "inner.xz"
    packed.write_bytes(lzma.compress(bytes(130 << 20), preset=0))
    subprocess.run(["objcopy", f"--add-section=.gnu_debugdata={packed}", bare], check=True)
    answer = name_all(bare, [nm(program)["plain"]])
    assert answer.procedures[0].name == "plain"
    assert "too big" in answer.note


def test_a_changed_binary_is_given_no_names(program: Path) -> None:
    answer = name_all(program, [nm(program)["plain"]], identity="00" * 20)
    assert answer.procedures[0].name == "[program]"
    assert answer.warning
    expected = r"has changed since it was recorded \(build id 00000000… expected, \w{8}… found\);"
    assert re.match(expected + " its functions are shown by address", answer.note)


def test_a_file_without_build_id_is_known_by_its_contents(program: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["g++", "-Wl,--build-id=none", "-o", bare, program.with_suffix(".cpp")],
                   check=True)  # fmt: skip
    identity = build_id(bare)
    assert identity.startswith("hash-")
    assert names_at(bare, [nm(bare)["plain"]]) == ["plain"]
    with bare.open("ab") as file:
        file.write(b"x")
    assert build_id(bare) != identity


def test_code_without_names_is_told_apart_by_its_place(tmp_path: Path) -> None:
    source = tmp_path / "large.s"
    # Three megabytes that no table describes, and no instruction refers to.
    source.write_text(".globl _start\n_start:\n.fill 0x300000, 1, 0x90\nret\n")
    program = tmp_path / "large"
    subprocess.run(["gcc", "-nostdlib", "-static", "-s", "-o", program, source], check=True)
    with ElfFile.open(program) as elf:
        assert not len(elf.function_spans()[0])
    low, high = 0x401234, 0x601234
    answer = name_all(program, [low, low + 4, high])
    assert [procedure.name for procedure in answer.procedures] == [
        "[large+0x400000-0x40ffff]", "[large+0x600000-0x60ffff]",
    ]  # fmt: skip
    assert answer.index.tolist() == [0, 0, 1]


ASSEMBLY = """
.text
.globl first, called_later, _start
first:              # without a type or a size, as nasm writes it
    test %edi, %edi
    jz 1f
    jmp 2f
.p2align 4
1:  dec %edi        # behind a jump and padding, and still a part
    jnz 1b
    ret
.p2align 4
2:  ret
.p2align 4
hidden:             # reached by its address only, padding before it
    push %rbx
    pop %rbx
    ret
near:               # called, not aligned
    ret
called_later:
    call near
    ret
.p2align 4
_start:
    call called_later
    lea hidden(%rip), %rax
    jmp *%rax
"""


def test_a_symbol_without_a_size_ends_where_the_next_function_begins(tmp_path: Path) -> None:
    source, program = tmp_path / "kernels.s", tmp_path / "kernels"
    source.write_text(ASSEMBLY)
    subprocess.run(["gcc", "-nostdlib", "-static", "-o", program, source], check=True)
    places = nm(program)
    kept = tmp_path / "kept"
    subprocess.run(["strip", "-K", "first", "-K", "called_later", "-o", kept, program], check=True)
    first, hidden, near, later = (
        places[name] for name in ("first", "hidden", "near", "called_later")
    )
    addresses = [first, hidden - 1, hidden, near - 1, near, later, places["_start"] + 5]
    assert names_at(kept, addresses) == [
        "first", "first", f"[kept+0x{hidden:x}]", f"[kept+0x{hidden:x}]", f"[kept+0x{near:x}]",
        "called_later", "_start",
    ]  # fmt: skip


@pytest.mark.parametrize("options", [["-O2"], ["-Os", "-fno-asynchronous-unwind-tables"]])
def test_functions_of_a_stripped_static_program_are_one_each(
    tmp_path: Path, options: list[str]
) -> None:
    """Static programs have no table of functions, with and without call frame information."""
    lines = [
        f"__attribute__((noinline)) long f{number}(long x) {{"
        f" for (long i = 0; i < x; i++) if (!(x % (i + {number + 2}))) x += i * {number};"
        f" return x ^ {number}; }}"
        for number in range(40)
    ]
    calls = " + ".join(f"f{number}(c)" for number in range(40))
    source, program = tmp_path / "many.c", tmp_path / "many"
    source.write_text("\n".join([*lines, f"int main(int c, char **v) {{ return {calls}; }}"]))
    subprocess.run(["gcc", *options, "-static", "-o", program, source], check=True)
    bare = stripped(program, tmp_path / "bare")
    with ElfFile.open(bare) as elf:
        assert elf.section(".eh_frame_hdr") is None
    starts = [nm(program)[f"f{number}"] for number in range(40)]
    for inside in (0, 3):
        names = names_at(bare, [start + inside for start in starts])
        assert names == [f"[bare+0x{start:x}]" for start in starts]
    entry = [nm(program)[name] for name in ("main", "_start")]
    assert sorted(names_at(bare, entry)) == ["_start", "main"]


def test_what_cannot_be_read_costs_its_names_only(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    text = tmp_path / "text"
    text.write_text("hello")
    for path, reason in (
        (tmp_path / "absent", "No such file"),
        (fifo, "not a regular file"),
        (tmp_path, "not a regular file"),
        (text, "not an ELF file"),
    ):
        answer = name_all(path, [16], identity="")
        assert [procedure.name for procedure in answer.procedures] == [f"[{path.name}]"]
        assert reason in answer.note


@given(st.data())
@settings(max_examples=150)
def test_no_file_does_worse_than_go_unnamed(program: Path, data: st.DataObject) -> None:
    content = bytearray(program.read_bytes())
    # Damage where structure is: headers, section headers, dynamic tables.
    with ElfFile.open(program) as elf:
        ends = [(0, 64), (len(content) - 64 * len(elf.sections), len(content))]
        ends += [
            (section.offset, section.offset + section.size)
            for section in elf.sections
            if section.name in (".dynsym", ".symtab", ".rela.plt", ".plt", ".eh_frame_hdr")
        ]
    for _ in range(data.draw(st.integers(1, 6))):
        low, high = data.draw(st.sampled_from(ends))
        at = data.draw(st.integers(low, min(high, len(content)) - 1))
        content[at : at + 1] = bytes([data.draw(st.integers(0, 255))])
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    addresses = np.array([0, 0x1000, 0x1149, 1 << 39], np.uint64)
    try:
        with ElfFile(io.BytesIO(bytes(content)), "damaged") as elf:
            tables, _ = symbolization._file_tables(elf, Path("damaged"))
            for table in tables:
                for entry in table.find(addresses).tolist():
                    if entry >= 0:
                        table.symbol(entry)
    except FormatError:
        pass


# --- tables ---


@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 40)), max_size=6),
    st.lists(st.integers(0, 250), min_size=1, max_size=20),
)
def test_an_address_is_found_in_the_innermost_symbol(
    ranges: list[tuple[int, int]], addresses: list[int]
) -> None:
    table = symbol_tables.from_rows([(start, size, f"{start}") for start, size in ranges])
    rows = table.find(np.array(addresses, np.uint64))
    for address, entry in zip(addresses, rows.tolist(), strict=True):
        holding = [start for start, size in ranges if start <= address < start + size]
        if holding:
            assert entry >= 0
            symbol = table.symbol(entry)
            assert symbol.start == max(holding)
            assert symbol.start <= address < symbol.start + symbol.size
        else:
            assert entry == -1


def test_a_symbol_without_size_reaches_to_the_next() -> None:
    rows = [(10, 0, "a"), (20, 5, "b"), (40, 0, "c")]
    table = symbol_tables.from_rows(rows)
    addresses = np.array([9, 10, 19, 20, 24, 25, 39, 40, 1 << 50], np.uint64)
    names = ["" if e < 0 else table.symbol(e).name for e in table.find(addresses).tolist()]
    assert names == ["", "a", "a", "b", "b", "", "", "c", "c"]


def test_limits_end_symbols_without_size() -> None:
    starts = np.array([10, 50], np.uint64)
    table = SymbolTable(starts, starts, lambda n: "ab"[n], limits=np.array([10, 30], np.uint64))
    assert table.find(np.array([29, 30, 60], np.uint64)).tolist() == [0, -1, 1]


def _kallsyms(folder: Path) -> Path:
    path = folder / "kallsyms"
    lines = [
        "ffffffff81000000 T _stext",
        "ffffffff81000000 T _text",
        "ffffffff81000040 t schedule",
        "ffffffff81000080 D jiffies",
        "ffffffff810000c0 W weak",
        "ffffffffc0001000 t read_page\t[nfs]",
        "ffffffffc0000000 T nfs_open\t[nfs]",
        "ffffffffc0002000 b buffer\t[ext4]",
        "ffffffffc0003000 t ext4_read\t[ext4]",
        "short",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_kernel_symbols_are_those_of_code_by_address_and_module(tmp_path: Path) -> None:
    symbols = KernelSymbols(_kallsyms(tmp_path))
    assert symbols.modules == ["[kernel]", "[nfs]", "[ext4]"]
    assert symbols.available and [hex(base)[-5:] for base in symbols.base] == [
        "00000", "00000", "03000",
    ]  # fmt: skip
    addresses = np.array([0xFFFFFFFF81000045, 0xFFFFFFFFC0001001, 0xFFFFFFFFC0003000], np.uint64)
    modules, offsets = symbols.locate(addresses)
    named = [
        symbols.symbol(*place) for place in zip(modules.tolist(), offsets.tolist(), strict=True)
    ]
    assert named == [(64, 128, "schedule"), (0x1000, 0x2000, "read_page"), (0, 4096, "ext4_read")]
    assert symbols.range_of("schedule") == (0xFFFFFFFF81000040, 0xFFFFFFFF810000C0)
    assert symbols.range_of("jiffies") == (0, 0)


class _Names:
    """A receiver of the kernel's parts and their symbols."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.rows: list[tuple[int, int, int, str]] = []

    def kernel(self, name: str, _build_id: str) -> int:
        if name not in self.modules:
            self.modules.append(name)
        return 1 + self.modules.index(name)

    def add_symbols(self, module: int, rows: list[tuple[int, int, str]]) -> None:
        self.rows += [(module, *row) for row in rows]


def test_what_the_kernel_has_loaded_is_read_when_an_address_lies_there(tmp_path: Path) -> None:
    path = _kallsyms(tmp_path)
    reads, names = [], _Names()

    def read() -> KernelSymbols:
        reads.append(path)
        return KernelSymbols(path)

    packed = KernelSymbols(path).packed_core()
    assert KernelSymbols.from_packed_core(packed[:-1]) is None
    core = KernelSymbols.from_packed_core(packed)
    whole, again = KernelSymbols(path), KernelSymbols(path, core)
    assert (whole.modules, whole.base.tolist()) == (again.modules, again.base.tolist())
    for symbols in whole, again:
        text = [symbols._name(at) for at in range(len(symbols._address))]
        assert text[:2] + text[4:] == ["_stext", "_text", "nfs_open", "read_page", "ext4_read"]
    assert (whole._address.tolist(), again.whole) == (again._address.tolist(), True)
    assert core and core.range_of("schedule") == (0xFFFFFFFF81000040, 0xFFFFFFFF810000C0)
    program = (0xFFFFFFFFC0009000, 0x80, "bpf_prog_0123_on_switch")
    kernel = KernelNaming(read, names, names, lambda: core, lambda: [program])  # type: ignore[arg-type]
    own = np.array([0xFFFFFFFF81000045], np.uint64)
    assert hex(kernel.to_module_frames(own)[0])[-2:] == "45"
    assert kernel.addresses(["schedule+0x5"]).tolist() == own.tolist()
    assert (reads, names.modules) == ([], ["[kernel]"])
    both = kernel.to_module_frames(np.array([0xFFFFFFFFC0009010, own[0]], np.uint64))
    assert [hex(frame) for frame in both.tolist()] == ["0x2ffc0009010", "0x10000000045"]
    assert (reads, names.rows.pop()) == ([], (2, 0xFFC0009000, 0x80, "bpf_prog_0123_on_switch"))
    loaded = np.array([0xFFFFFFFFC0001001], np.uint64)
    kernel.to_module_frames(loaded)
    assert (len(reads), names.modules) == (1, ["[kernel]", "[bpf]", "[nfs]", "[ext4]"])
    assert names.rows == [(1, 64, 128, "schedule"), (3, 0x1000, 0x2000, "read_page")]


@pytest.mark.root
def test_the_kernels_own_symbols_are_kept_until_the_next_boot(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    store = KernelSymbolStore(tmp_path)
    assert store.load() is None
    read, kept = store.read(), store.load()
    assert kept and not kept.whole
    assert kept.range_of("__schedule") == read.range_of("__schedule") != (0, 0)
    store._boot = "0" * 36
    assert store.load() is None


def test_no_function_reaches_beyond_the_kernels_code(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(
        "ffffffff81000000 T _text\nffffffff81000040 T last\nffffffff81000080 T _einittext\n"
        "ffffffffc0211000 t ftrace_trampoline\t[__builtin__ftrace]\n"
    )
    symbols = KernelSymbols(path)
    assert symbols.symbol(0, 0x41) == (0x40, 0x40, "last")
    assert symbols.symbol(0, 0x80) is None and symbols.symbol(0, 0x3F000000) is None


def test_kernel_symbols_come_from_the_measurement(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_module(Module(1, ModuleKind.KERNEL, "[kernel]"))
    writer.add_symbols(1, [(0, 16, "_text"), (64, 0, "do_syscall_64"), (128, 1 << 62, "last")])
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    store = tmp_path / "db" / SYMBOLS
    assert [row[2] for row in load_symbols(store, 1)] == ["_text", "do_syscall_64", "last"]
    offsets = np.array([3, 20, 70], np.uint64)
    answer = symbolize(SymbolTask(ModuleKind.KERNEL, "[kernel]", "", (store, 1), offsets))
    names = [answer.procedures[place].name for place in answer.index]
    assert names == ["_text", "[kernel]", "do_syscall_64"]


def test_a_procedure_may_be_larger_than_any_rank(tmp_path: Path) -> None:
    writer = MeasurementWriter(tmp_path / "m", Host("h", "b", "6", "x86_64", 1), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_module(Module(1, ModuleKind.KERNEL, "[kernel]"))
    writer.add_symbols(1, [(0, 1 << 30, "_text")])
    writer.add_clock_pair(0, 10**18)
    writer.add_process(Process(1, 10, 1, "app", "", (), 0, 0))
    writer.add_thread(Thread(0, 1, 10, "app", 0, 100))
    writer.add_nodes(np.array([0], np.uint32), np.array([module_frame(1, 64)], np.uint64))
    writer.add_records(np.zeros(1, np.uint32), np.ones(1, np.uint64), np.ones(1, np.uint32), 0)
    writer.close()
    merge([tmp_path / "m"], tmp_path / "db")
    assert check_database(tmp_path / "db") == []


def test_the_vdso_is_looked_up_in_this_process() -> None:
    answer = symbolize(
        SymbolTask(ModuleKind.VDSO, "[vdso]", "", None, np.arange(0, 4096, 16, dtype=np.uint64))
    )
    # Not as the function of the C library that calls it.
    assert "__vdso_clock_gettime" in {procedure.name for procedure in answer.procedures}


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("main", "main"),
        ("_ZN3foo3barEv", "foo::bar()"),
        ("_ZN3foo3barEv@plt", "foo::bar()@plt"),
        ("_ZNotaname", "_ZNotaname"),
        ("_Z" + "x" * 10_000, "_Z" + "x" * 10_000),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
    ],
)
def test_demangling(mangled: str, plain: str) -> None:
    assert demangle(mangled) == plain


@pytest.mark.parametrize(
    ("mangled", "plain"),
    [
        ("_ZN3foo3barEv", "foo::bar()"),
        ("_ZN1t4main17hc89f1824c9b61e1dE", "t::main"),
        (
            "_ZN42_$LT$$RF$T$u20$as$u20$core..fmt..Debug$GT$3fmt17h199ed126650a6352E.llvm.59373782",
            "<&T as core::fmt::Debug>::fmt",
        ),
        ("_RNvC6_123foo3bar", "123foo::bar"),
        ("runtime.goexit.abi0", "runtime.goexit"),
        # As llvm-cxxfilt has them.
        ("_RINvC1a1bAhj4_E", "a::b::<[u8; 4]>"),
        ("_RINvC1a1bRShE", "a::b::<&[u8]>"),
        ("_RINvC1a1bFhEjE", "a::b::<fn(u8) -> usize>"),
        ("_RINvC1a1bThjEPhE", "a::b::<(u8, usize), *const u8>"),
        ("_RINvC1a1bKb1_E", "a::b::<true>"),
        (
            "_RINvMNtCsgEmfK2I1SDS_4core5sliceSh11copy_withinINtNtNtB5_3ops5range"
            "14RangeInclusivejEECsfEOYDRpO4Ta_11miniz_oxide",
            "<[u8]>::copy_within::<core::ops::range::RangeInclusive<usize>>",
        ),
        (
            "_RNCNCNvNtNtCsjrHSEGnQ3l9_3std3sys9backtrace10__print_fmts_00B9_",
            "std::sys::backtrace::_print_fmt::{closure#1}::{closure#0}",
        ),
        ("__solver_MOD_sweep", "solver::sweep"),
        ("__assert_fail", "__assert_fail"),
        ("runtime.mallocgc", "runtime.mallocgc"),
    ],
)
def test_names_are_demangled(mangled: str, plain: str) -> None:
    assert demangle(mangled) == plain


@settings(max_examples=500)
@given(st.text(st.sampled_from("NvCMXYIBsuEKLpTSARQPOFDGj_0123456789abz~|\x7f "), max_size=60))
def test_no_name_breaks_demangling(body: str) -> None:
    assert isinstance(demangle("_R" + body), str)


def test_names_that_grow_without_end_are_left_alone() -> None:
    # Each tuple holds the one before twice.
    body = "INvC1a1b"
    names = ["TmmE"]
    for _ in range(60):
        where = len(body) + sum(map(len, names[:-1]))
        digits = ""
        number = where - 1
        while True:
            digits = ALPHABET[number % 62] + digits
            number //= 62
            if not number:
                break
        names.append(f"TB{digits}_B{digits}_E")
    assert len(demangle("_R" + body + "".join(names) + "E")) < 1 << 17


def test_a_name_may_begin_with_the_mark_of_versions(tmp_path: Path) -> None:
    (tmp_path / "odd.s").write_text(
        '.type "@begin", @function\n"@begin": nop\nret\n.size "@begin", 2\n'
    )
    program = tmp_path / "odd.so"
    command = ["gcc", "-shared", "-nostdlib", "-Wl,--build-id", "-o", program, tmp_path / "odd.s"]
    subprocess.run(command, check=True)
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    (address,) = (int(line.split()[0], 16) for line in listed.splitlines() if "@begin" in line)
    answer = name_all(program, [address])
    assert answer.procedures[int(answer.index[0])].name == "@begin"


@needs_go
def test_a_stripped_go_program_has_the_names_of_its_symbols(tmp_path: Path) -> None:
    known = code_symbols(build(tmp_path / "whole"))
    program = build(tmp_path / "stripped", STRIPPED)
    places = sorted(at for at, names in known.items() if "runtime.etext" not in names)
    offsets = np.array(places, np.uint64)
    answer = symbolize(SymbolTask(ModuleKind.ELF, str(program), "", None, offsets))
    assert answer.note == "Go's table, function ranges"
    named = [answer.procedures[number] for number in answer.index.tolist()]
    assert [procedure.address for procedure in named] == places
    assert all(procedure.name in known[at] for at, procedure in zip(places, named, strict=True))
