"""The members of kernel structures that the programs read: ``programs/kernel.h``, the one list.

In an object compiled ahead libbpf finds them itself. bcc is given the same structures as a header,
padded to the running kernel's offsets: the headers it compiles against may be another kernel's.
"""

from __future__ import annotations

import re
from contextlib import closing
from typing import NamedTuple

from hpcd.bpf.loading.kernel_types import KernelTypes
from hpcd.bpf.loading.object_loader import SOURCES
from hpcd.errors import PlatformError

_STRUCT = re.compile(r"^struct (\w+) \{[^\n]*\n(.*?)^\};", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r"^\t([^:\n]*\W)(\w+)(\[\d+\])?( : 1)?;$", re.MULTILINE)


class Member(NamedTuple):
    """A member of a structure as ``kernel.h`` declares it; ``is_bit``: a bit field of one bit."""

    type: str
    name: str
    array: str
    is_bit: bool


def read_members() -> dict[str, list[Member]]:
    """Parse ``kernel.h``: the members that are read, by structure."""
    text = (SOURCES / "kernel.h").read_text(encoding="utf-8")
    return {
        struct: [
            Member(kind, name, array, bool(bit)) for kind, name, array, bit in _MEMBER.findall(body)
        ]
        for struct, body in _STRUCT.findall(text)
    }


def count_members() -> int:
    """Return how many of the members the running kernel has. Raises :class:`PlatformError`."""
    with closing(KernelTypes()) as types:
        return sum(
            _offset(types, struct, member) is not None
            for struct, members in read_members().items()
            for member in members
        )


def require_members(*structs: str) -> None:
    """Raise :class:`PlatformError` for the first member of ``structs`` the kernel does not have."""
    members = read_members()
    with closing(KernelTypes()) as types:
        for struct in structs:
            for member in members[struct]:
                if _offset(types, struct, member) is None:
                    raise PlatformError(f"this kernel's {struct} has no member {member.name}")


def padded_header() -> str:
    """Return the structures with padding to the running kernel's offsets (``kernel_layouts.h``).

    A member that this kernel does not have is somewhere in its structure, and its ``HAS_`` macro is
    0. Raises :class:`PlatformError` when the kernel has no BTF.
    """
    structs = read_members()
    # The headers of the kernel declare some of these, too.
    renamed = [f"#define {struct} hpcd_{struct}" for struct in structs]
    lines = []
    with closing(KernelTypes()) as types:
        has_state = int(types.tracepoint_arguments("sched_switch") >= 4)
        for struct, members in structs.items():
            lines.append(f"struct {struct} {{ union {{")
            for member in members:
                bits = _offset(types, struct, member)
                renamed.append(f"#define HAS_{struct}_{member.name} {int(bits is not None)}")
                if member.is_bit:
                    renamed.append(f"#define BIT_{struct}_{member.name} {bits or 0}")
                    continue
                padding = f"char pad_{member.name}[{(bits or 0) // 8}];"
                declared = f"{member.type}{member.name}{member.array};"
                lines.append(f"struct {{ {padding} {declared} }} __attribute__((packed));")
            lines.append("}; };")
    return "\n".join([f"#define SWITCH_HAS_STATE {has_state}", *renamed, *lines, ""])


def _offset(types: KernelTypes, struct: str, member: Member) -> int | None:
    return types.member(struct.split("___")[0], member.name)
