"""Write ``bpf/wire.py``, ``hpcd/model/codes.py`` and ``hpcd/kernels/sources/wire.h`` from headers.

``wire.py`` has what the BPF programs share with Python, ``codes.py`` the enumerations whose numbers
are in measurements or databases (readers of these may not import ``hpcd.bpf``), and ``wire.h`` the
part that the compiled kernels read.

Compiles the headers for each processor with clang and reads the structures and enumerations from
the object's BTF, and the values of macros from a section of it. With ``--check`` writes nothing,
and exits with 1 if a file is not up to date.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
import textwrap
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import ClassVar, NamedTuple

from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "bpf/programs"
MODULE = ROOT / "bpf/wire.py"
CODES = ROOT / "hpcd/model/codes.py"
HEADER = ROOT / "hpcd/kernels/sources/wire.h"
# Where the numbers are used that the module has: tests and benchmarks read them, too.
_PYTHON = ("bpf", "daemon", "hpcd", "tests", "benchmarks")
HEADERS = (
    "records.h", "values.h", "calls/probe_values.h", "stack/rules.h", "stack/table.h",
    "stack/unwind_status.h", "stack/unwind.h", "runtimes/python_values.h",
    "runtimes/jvm_values.h",
    "iterators/task_stacks.h", "../../hpcd/kernels/sources/states.h",
)  # fmt: skip
# Enumerations of codes.py.
OF_MODEL = ("interferer", "state", "unwind_status", "waker")
MACHINES = {"x86_64": "HPCD_X86_64", "aarch64": "HPCD_AARCH64"}
# Structures that Python knows by size alone: keys and values that only the programs read.
OPAQUE = {
    "block", "budget", "cache_set", "call_key", "call_slots", "copier", "heap_block", "kernel_part",
    "jvm_frame", "known_rules", "long_walk", "object_key", "occupancy", "occupant", "open_call",
    "open_calls", "polled", "python_chain", "registered", "registers", "request", "shot_key",
    "waking",
}  # fmt: skip
# Parts of structures that no declaration has; declared apart, none could be told from the rest.
SPANS = {"stack_event": ("walk", "time", "frame"), "event_head": ("thread_event", "time", "tid")}
UNSHARED = {"known_rule", "mapping_block", "space", "steps", "task_stack_buffer"}

# What programs define before they include the headers.
_PREAMBLE = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32;
typedef unsigned long long u64; typedef short s16; typedef int s32; typedef long long s64;
#define __always_inline inline
#define BLOCK_AT(address) ((struct block *)0)
#define RULE_AT(index) ((struct rule *)0)
#define READ_USER(copied, dst, size, src) (-1)
#define HASH_FIRST 1
#define HASH_SECOND 1
"""


class Field(NamedTuple):
    """A member of a structure: numpy's ``kind`` of its elements and their number, ``length`` (0: no
    array)."""

    name: str
    offset: int
    kind: str
    length: int = 0

    @property
    def size(self) -> int:
        """Bytes of the member."""
        return int(self.kind[1:]) * (self.length or 1)

    @property
    def token(self) -> str:
        """The member's type as numpy calls it."""
        if self.kind[0] == "S":
            return f"S{self.size}"
        return f"{self.length or ''}{self.kind}"


class Layout(NamedTuple):
    """A structure: its size, and its fields up to the first that is no number or row of numbers."""

    size: int
    fields: list[Field]


class Types:
    """The types of an object, from the BTF in its section ``.BTF`` (kernel: btf.rst)."""

    _INT, _ARRAY, _STRUCT, _ENUM, _TYPEDEF = 1, 3, 4, 6, 8
    # By kind: bytes of an entry behind the head, and whether there are as many as the head says.
    _REST: ClassVar = {1: (4, False), 3: (12, False), 4: (12, True), 5: (12, True), 6: (8, True),
             13: (8, True), 14: (4, False), 15: (12, True)}  # fmt: skip

    def __init__(self, section: bytes) -> None:
        head, start, size, names, _ = struct.unpack_from("<5I", section, 4)
        self._names, at = section[head + names :], head + start
        self._types = [(0, 0, 0, b"")]
        while at < head + start + size:
            name, info, size_or_type = struct.unpack_from("<3I", section, at)
            width, many = self._REST.get(info >> 24 & 31, (0, False))
            rest = width * (info & 0xFFFF) if many else width
            at += 12 + rest
            self._types.append((name, info >> 24 & 31, size_or_type, section[at - rest : at]))

    def _name(self, offset: int) -> str:
        return self._names[offset : self._names.index(0, offset)].decode()

    def _find(self, kind: int, name: str) -> int:
        return next(
            number for number, (label, own, *_) in enumerate(self._types)
            if own == kind and self._name(label) == name
        )  # fmt: skip

    def enumeration(self, name: str) -> dict[str, int]:
        """The members of an enumeration."""
        rest = self._types[self._find(self._ENUM, name)][3]
        return {self._name(label): value for label, value in struct.iter_unpack("<Ii", rest)}

    def layout(self, name: str) -> Layout:
        """The layout of a structure, or of the span of one."""
        whole, first, end = SPANS.get(name, (name, "", ""))
        number = self._find(self._STRUCT, whole)
        fields, size = self._fields(number), self._types[number][2]
        if first:
            names = [field.name for field in fields]
            start, stop = names.index(first), names.index(end)
            begin, size = fields[start].offset, fields[stop].offset - fields[start].offset
            fields = [f._replace(offset=f.offset - begin) for f in fields[start:stop]]
        fields = list(takewhile(lambda field: field.kind and field.size < _LONGEST, fields))
        at = 0
        for field in fields:
            if field.offset != at and name not in OPAQUE:
                raise SystemExit(f"struct {name}: a field is missing before {field.name}")
            at += field.size
        return Layout(size, fields)

    def _fields(self, number: int) -> list[Field]:
        """All members of a structure, with the members of a small structure within it."""
        fields: list[Field] = []
        for label, member, bits in struct.iter_unpack("<3I", self._types[number][3]):
            name, at = self._name(label), bits // 8
            field = self._field(name, at, member)
            if self._types[member][1] == self._STRUCT and self._types[member][2] <= 8:
                inner = self._fields(member)
                fields += [Field(f"{name}_{f.name}", at + f.offset, *f[2:]) for f in inner]
            else:
                fields.append(field)
        return fields

    def _field(self, name: str, offset: int, number: int) -> Field:
        """A member; its kind is empty unless it is a number or an array of numbers."""
        _, kind, size, rest = self._types[number]
        if kind == self._TYPEDEF:
            return self._field(name, offset, size)
        if kind == self._INT:
            is_text, signed = self._name(self._types[number][0]) == "char", rest[3] & 1
            return Field(name, offset, f"{'S' if is_text else 'i' if signed else 'u'}{size}")
        if kind == self._ARRAY:
            element, _, count = struct.unpack("<3I", rest)
            one = self._field(name, offset, element)
            if one.kind and not one.length:
                return one._replace(length=count)
        return Field(name, offset, "")


# Text and memory that a structure ends in: records have as much of it as is used.
_LONGEST = 4096
_LINE = 100


@cache
def header_text() -> str:
    """The headers without their comments."""
    text = "\n".join((PROGRAMS / name).read_text() for name in HEADERS)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def structures() -> list[str]:
    """Names of the structures that the headers declare."""
    return list(dict.fromkeys(re.findall(r"^struct (\w+) \{", header_text(), re.MULTILINE)))


def enumerations() -> list[str]:
    """Names of the enumerations that the headers declare."""
    return re.findall(r"^enum (\w+) \{", header_text(), re.MULTILINE)


def macros() -> list[str]:
    """Names of the macros that are numbers."""
    body = dict(re.findall(r"^#define ([A-Z]\w+) +(\S.*)$", header_text(), re.MULTILINE))
    known: set[str] = set()
    while True:
        names = {
            name for name, text in body.items()
            if re.fullmatch(r"[\w\s()<>|+*/-]+", text)
            and all(word in known or word[0].isdigit() for word in re.findall(r"\w+", text))
        }  # fmt: skip
        if names == known:
            return [name for name in body if name in known]
        known = names


@cache
def python_words() -> frozenset[str]:
    """The words of all Python sources but the generated ones."""
    sources = (path for folder in _PYTHON for path in (ROOT / folder).rglob("*.py"))
    texts = (path.read_text() for path in sources if path not in (MODULE, CODES))
    return frozenset(re.findall(r"\w+", " ".join(texts)))


@cache
def compiled(machine: str) -> tuple[Types, dict[str, int]]:
    """The types that the headers declare for a processor, and the values of the macros."""
    code = _PREAMBLE + "".join(f'#include "{name}"\n' for name in HEADERS)
    code += "".join(f"struct {name} the_{name};\n" for name in structures())
    code += "".join(f"enum {name} one_{name};\n" for name in enumerations())
    values = "".join(f"\n#ifdef {name}\n1, {name},\n#else\n0, 0,\n#endif\n" for name in macros())
    code += f'const u64 values[] __attribute__((section(".wire"), used)) = {{{values}}};\n'
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "wire.c", Path(folder) / "wire.o"
        source.write_text(code)
        command = ["clang", "-target", "bpf", "-O1", "-g", "-w", f"-D{MACHINES[machine]}"]
        command += [f"-I{PROGRAMS}", "-c", str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        with target.open("rb") as file:
            sections = {section.name: section.data() for section in ELFFile(file).iter_sections()}
        types, numbers = Types(sections[".BTF"]), struct.iter_unpack("<QQ", sections[".wire"])
        defined = zip(macros(), numbers, strict=True)
        return types, {name: value for name, (is_defined, value) in defined if is_defined}


def by_machine(value: dict[str, int]) -> str:
    """A number, or one for each processor where they differ, as Python."""
    if len(set(value.values())) == 1:
        return _number(next(iter(value.values())))
    return "{" + ", ".join(f'"{name}": {_number(one)}' for name, one in value.items()) + "}"


def _number(value: int) -> str:
    return f"0x{value:X}" if value > 0xFFFF else str(value)


def structure_lines(name: str, layout: Layout) -> list[str]:
    """The class of a structure."""
    bases = ["WireStructure", f'kinds="{" ".join(field.token for field in layout.fields)}"']
    lines = [f"class {camel(name)}({', '.join(bases)}):"]
    if len(lines[0]) > _LINE:
        rows = textwrap.wrap(bases[1], _LINE - 12)
        bases[1:] = ['"\n    " '.join(rows)]
        lines = [f"class {camel(name)}(", *(f"    {base}," for base in bases), "):"]
    for field in layout.fields:
        number = not field.length and field.kind[0] != "S"
        lines.append(f"    {field.name}: {'int = 0' if number else 'bytes = b' + chr(34) * 2}")
    return [*lines, "", ""]


def enumeration_lines(name: str, members: dict[str, int]) -> list[str]:
    """The class of an enumeration, of names without what all begin with."""
    prefix = next(iter(members)).partition("_")[0] + "_"
    if not all(member.startswith(prefix) for member in members):
        prefix = ""
    base = "IntFlag" if name.endswith("_flag") else "IntEnum"
    lines = [f"class {camel(name)}({base}):"]
    lines += [f"    {member.removeprefix(prefix)} = {value}" for member, value in members.items()]
    return [*lines, "", ""]


def camel(name: str) -> str:
    """The name of a class."""
    return name.title().replace("_", "")


def module() -> str:
    """The text of the module."""
    objects = {machine: compiled(machine) for machine in MACHINES}
    types = objects["x86_64"][0]
    lines = [*_HEAD.splitlines(), ""]
    for name in macros():
        if name not in python_words() or not all(name in vs for _, vs in objects.values()):
            continue  # only the programs use it, or one processor lacks it
        value = {machine: values[name] for machine, (_, values) in objects.items()}
        lines.append(f"{name} = {by_machine(value)}")
    sized = [name for name in structures() if name not in UNSHARED]
    for name in sized:
        sizes = {machine: types.layout(name).size for machine, (types, _) in objects.items()}
        whole = sum(field.size for field in types.layout(name).fields) == types.layout(name).size
        if (name in OPAQUE or not whole) and f"{name.upper()}_BYTES" in python_words():
            lines.append(f"{name.upper()}_BYTES = {by_machine(sizes)}")
    lines += ["", ""]
    for name in enumerations():
        if name not in OF_MODEL:
            lines += enumeration_lines(name, types.enumeration(name))
    for name in [*SPANS, *(name for name in sized if name not in OPAQUE)]:
        layouts = [types.layout(name) for types, _ in objects.values()]
        if len({tuple(layout.fields) for layout in layouts}) > 1:
            raise SystemExit(f"struct {name}: the fields differ by processor")
        lines += structure_lines(name, layouts[0])
    return "\n".join(lines[:-2]) + "\n"


def codes() -> str:
    """The text of the module of numbers that measurements and databases hold."""
    types, _ = compiled("x86_64")
    lines = [*_CODES_HEAD.splitlines(), "", ""]
    for name in OF_MODEL:
        lines += enumeration_lines(name, types.enumeration(name))
    return "\n".join(lines[:-2]) + "\n"


_CODES_HEAD = '''"""Numbers that measurements and databases hold; their comments are in C.

``State``: ``hpcd/kernels/sources/states.h``; ``UnwindStatus``:
``bpf/programs/stack/unwind_status.h``; ``Waker``: ``bpf/programs/records.h``. Generated by
``setup/wire.py``, which ``make objects`` runs: not to be edited.
"""

from __future__ import annotations

from enum import IntEnum
'''

_HEAD = '''"""Structures, enumerations and numbers of ``bpf/programs``, where the comments are.

Generated by ``setup/wire.py``, which ``make objects`` runs: not to be edited.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from hpcd.bpf.wire_structure import WireStructure
'''


# What the kernels read: numbers, enumerations and structures by their names in the headers.
_OF_KERNELS = (
    ("MAX_USER_FRAMES", "OUTERMOST_FRAMES", "INNERMOST_FRAMES", "FRAME_MODULE_SHIFT"),
    ("report_flag", "switch_event", "unwind_status", "waker"),
    ("sample", "stack_event"),
)


def header() -> str:
    """The text of the kernels' header, as C and cffi read it."""
    types, values = compiled("x86_64")
    numbers, enums, structs = _OF_KERNELS
    lines = ["/* Generated by setup/wire.py from bpf/programs, which has the comments. */"]
    lines += ["#ifndef HPCD_WIRE_H", "#define HPCD_WIRE_H", "", "#include <stdint.h>", ""]
    lines += [f"#define {name} {values[name]}" for name in numbers]
    for name in enums:
        members = types.enumeration(name).items()
        lines += ["", f"enum {name} {{", *(f"\t{key} = {value}," for key, value in members), "};"]
    for name in structs:
        lines += ["", f"struct {name} {{"]
        lines += [f"\tuint{8 * f.size}_t {f.name};" for f in types.layout(name).fields] + ["};"]
    return "\n".join([*lines, "", "#endif", ""])


def main() -> int:
    """Write the files, or check them."""
    for path, text in ((MODULE, module()), (CODES, codes()), (HEADER, header())):
        if not path.exists() or path.read_text() != text:
            if "--check" in sys.argv:
                return 1
            path.write_text(text)
            print(f"+ wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
