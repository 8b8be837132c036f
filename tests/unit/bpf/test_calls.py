"""Recorded calls from the recorder's side: their pace, and what files are called."""

from __future__ import annotations

import re
import socket
import stat
from pathlib import Path

import numpy as np
import pytest

from hpcd.bpf.calls.io_calls import IO_CALLS, io_functions, system_call_table
from hpcd.bpf.calls.io_requests import (
    AIO_PREFIX,
    AIO_REQUESTS,
    IO_REQUESTS,
    PREFIX,
    aio_table,
    request_table,
)
from hpcd.bpf.wire import (
    AIO_KINDS,
    REQUEST_KINDS,
    SYSTEM_CALLS_32,
    EventKind,
    ObjectEvent,
    SystemCallKind,
)
from hpcd.daemon.naming.file_objects import FileObjects
from hpcd.model.calls import CalledObject


def described(names: bytes = b"", **fields: object) -> CalledObject:
    head = ObjectEvent(kind=EventKind.OBJECT, object=7, names=len(names), **fields)
    return FileObjects().describe(head.pack() + names)


def regular(names: bytes, **fields: object) -> CalledObject:
    return described(names, mode=stat.S_IFREG | 0o644, **fields)


def test_a_file_has_its_path_and_file_system() -> None:
    called = regular(b"data.bin\0run\0scratch\0", inode=12, device=8 << 20 | 1, file_system=b"ext4")
    assert (called.id, called.kind, called.name) == (7, "file", "/scratch/run/data.bin")
    assert called.details["device"] == "8:1"
    assert called.details["file_system"] == "ext4"


def test_names_are_escaped_and_say_that_they_are_cut() -> None:
    assert regular(b"a\n\x1b[31m\0b\xff\0").name == "/b\\xff/a\\n\\x1b[31m"
    assert regular(b"deep\0down\0", flags=2).name == ".../down/deep"
    assert regular(b"gone\0", flags=1).details["deleted"] is True
    assert regular(b"").name == "/"


def test_sockets_are_known_by_both_ends() -> None:
    ends = {
        "mode": stat.S_IFSOCK,
        "type": socket.SOCK_STREAM,
        "local_port": 5000,
        "peer_port": 80,
        "inode": 9,
    }
    four = described(
        family=socket.AF_INET,
        local=bytes([127, 0, 0, 1]).ljust(16, b"\0"),
        peer=bytes([10, 0, 0, 2]).ljust(16, b"\0"),
        **ends,
    )
    assert four.name == "127.0.0.1:5000 -> 10.0.0.2:80"
    assert four.details["peer"] == "10.0.0.2:80"
    six = described(family=socket.AF_INET6, peer=socket.inet_pton(socket.AF_INET6, "::1"), **ends)
    assert six.name == "[::]:5000 -> [::1]:80"
    address = b"/run/x.sock".ljust(112, b"\0")
    assert described(family=socket.AF_UNIX, address=address, mode=stat.S_IFSOCK).name == (
        "unix:/run/x.sock"
    )
    hidden = b"\0name\x1b".ljust(112, b"\0")
    assert described(family=socket.AF_UNIX, address=hidden, mode=stat.S_IFSOCK).name == (
        "unix:@name\\x1b"
    )
    unknown = described(family=4711, type=99, inode=9, mode=stat.S_IFSOCK)
    assert (unknown.name, unknown.details["type"]) == ("socket:[9]", "99")


def test_what_has_no_path_is_named_by_its_kind() -> None:
    assert described(mode=stat.S_IFIFO, inode=3, file_system=b"pipefs").name == "pipe:[3]"
    assert described(b"[eventpoll]\0", magic=0x09041934).name == "anon_inode:[eventpoll]"
    assert described(mode=stat.S_IFCHR, node=1 << 20 | 3).details["node"] == "1:3"


def test_every_system_call_is_in_the_table_once() -> None:
    table = system_call_table(10)
    used = table[table["kind"] != SystemCallKind.IGNORED]
    assert int(used["function"].min()) == 10
    assert len({call.name for call in IO_CALLS}) == len(IO_CALLS) == len(io_functions(IO_CALLS, 10))
    native = table[:SYSTEM_CALLS_32]
    functions = native["function"][native["kind"] != SystemCallKind.IGNORED]
    assert len(np.unique(functions)) == len(functions)


def test_requests_to_io_uring_are_recorded_by_opcode() -> None:
    """Opcodes are those of the kernel's header, as far as the one installed here goes."""
    table = request_table(20)
    assert len(table) == REQUEST_KINDS
    assert table["function"].tolist()[: len(IO_REQUESTS)] == list(range(20, 20 + len(IO_REQUESTS)))
    assert int(table["function"].max()) == io_functions(IO_REQUESTS, 20)[-1].id
    header = Path("/usr/include/linux/io_uring.h")
    if not header.exists():
        pytest.skip("needs linux-libc-dev")
    body = header.read_text().partition("enum io_uring_op {")[2].partition("}")[0]
    opcodes = re.findall(r"IORING_OP_(\w+),", body)
    names = [f"{PREFIX}{opcode.lower()}" for opcode in opcodes if opcode != "LAST"]
    assert names
    assert [request.name for request in IO_REQUESTS][: len(names)] == names[: len(IO_REQUESTS) - 1]


def test_requests_of_io_submit_are_recorded_by_opcode() -> None:
    """Opcodes are those of the kernel's header (enum of aio_abi.h)."""
    table = aio_table(30)
    functions = {function.id: function.name for function in io_functions(AIO_REQUESTS, 30)}
    assert len(table) == AIO_KINDS and len(functions) == len(AIO_REQUESTS)
    header = Path("/usr/include/linux/aio_abi.h")
    if not header.exists():
        pytest.skip("needs linux-libc-dev")
    opcodes = dict(re.findall(r"^\tIOCB_CMD_(\w+) = (\d+),", header.read_text(), re.MULTILINE))
    assert opcodes
    recorded = table["kind"] != SystemCallKind.IGNORED
    by_name = {
        functions[int(table["function"][at])]: at for at in np.flatnonzero(recorded).tolist()
    }
    assert by_name == {
        f"{AIO_PREFIX}{name.lower()}": int(opcode) for name, opcode in opcodes.items()
    }
