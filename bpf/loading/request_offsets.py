"""Where the running kernel keeps what a request to io_uring is, and which tracepoint takes it.

The tracepoints' own arguments have changed many times: all of them but the request's address is
read from the request itself, as the kernel's type information says.
"""

from __future__ import annotations

from functools import cache

from hpcd.bpf.loading.btf import KernelTypes
from hpcd.errors import PlatformError

_MEMBERS = {
    "OFFSET_REQUEST_FILE": ("io_kiocb", "file"),
    "OFFSET_REQUEST_OPCODE": ("io_kiocb", "opcode"),
    "OFFSET_REQUEST_FLAGS": ("io_kiocb", "flags"),
    "OFFSET_REQUEST_RESULT": ("io_kiocb", "cqe", "res"),
    "OFFSET_REQUEST_NUMBER": ("io_kiocb", "cqe", "user_data"),
    "OFFSET_REQUEST_RING": ("io_kiocb", "ctx"),
    "OFFSET_TRANSFER_LENGTH": ("io_rw", "len"),
    "OFFSET_TRANSFER_POSITION": ("io_rw", "kiocb", "ki_pos"),
    "OFFSET_ENTRY_RESULT": ("io_uring_cqe", "res"),
}
# Of kernels without networks, or of others than these: 0 then, and it is not told.
_OPTIONAL = {
    "OFFSET_MESSAGE_LENGTH": ("io_sr_msg", "len"),
    "OFFSET_SPLICE_LENGTH": ("io_splice", "len"),
    "OFFSET_SPLICE_DESCRIPTOR": ("io_splice", "splice_fd_in"),
    "OFFSET_SPLICE_FLAGS": ("io_splice", "flags"),
    "OFFSET_OPEN_PLACE": ("io_open", "file_slot"),
    "OFFSET_ACCEPT_PLACE": ("io_accept", "file_slot"),
    "OFFSET_SOCKET_PLACE": ("io_socket", "file_slot"),
}
# Of the tracepoint at a completion: the ring, the request, its entry of the completion queue; or,
# before 6.15, the entry's members.
_WITH_ENTRY, _WITH_MEMBERS = 3, 7


@cache
def submission() -> str:
    """The tracepoint at which the kernel takes a request, with its address as first argument.

    Raises :class:`PlatformError` where there is none, as before Linux 6.0.
    """
    types = KernelTypes()
    try:
        # Arguments of either, and those of older kernels' that have the request elsewhere.
        for name, most in (("io_uring_submit_req", 1), ("io_uring_submit_sqe", 2)):
            try:
                if types.tracepoint_arguments(name) <= most:
                    return name
            except PlatformError:
                continue
        raise PlatformError("this kernel does not tell which requests io_uring takes")
    finally:
        types.close()


@cache
def request_offsets() -> dict[str, int]:
    """The constants the programs read requests with.

    Raises :class:`PlatformError` where requests cannot be recorded, with what the kernel lacks.
    """
    submission()
    types = KernelTypes()
    try:
        arguments = types.tracepoint_arguments("io_uring_complete")
        if arguments not in (_WITH_ENTRY, _WITH_MEMBERS):
            raise PlatformError("this kernel does not tell which request of io_uring has ended")
        found = {name: types.offset(*path) for name, path in _MEMBERS.items()}
        for name, path in _OPTIONAL.items():
            try:
                found[name] = types.offset(*path)
            except PlatformError:
                found[name] = 0
        return {**found, "COMPLETION_IS_ENTRY": int(arguments == _WITH_ENTRY)}
    finally:
        types.close()
