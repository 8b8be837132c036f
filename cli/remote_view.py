"""``hpcd view HOST:DB``: databases of another host, shown here.

Over one ssh connection hpcd there serves the databases at a socket of its own, which ssh forwards
to a port of this machine. Only what is looked at is transferred. The server ends with the
connection: it ends when its standard input does, whichever side goes first.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpcd.errors import HpcdError, PlatformError, UsageError
from hpcd.wording import harmless

# A name of ~/.ssh/config or of a host, perhaps with a user's. It can be no option of ssh.
_HOST = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
# What one may write before the colon; of anything else the colon belongs to a path.
_REMOTE = re.compile(r"([^/:]*):(.*)", re.DOTALL)
_LONGEST_URL = 64 << 10
_ENDING_S = 5
# Exit codes: a shell's for a command that is not there, ssh's own.
_NO_COMMAND, _NO_CONNECTION = 127, 255


@dataclass(frozen=True)
class RemoteDatabases:
    """Databases of ``host``, as its hpcd names them; none is its latest result."""

    host: str
    databases: tuple[str, ...]


def remote_databases(words: Sequence[str]) -> RemoteDatabases | None:
    """The databases that ``words`` name on another host, as scp names files; None if none does.

    Raises :class:`UsageError` for a host that cannot be one, and for databases of several hosts.
    """
    matches = [None if os.path.lexists(word) else _REMOTE.fullmatch(word) for word in words]
    places = [(match[1], match[2]) for match in matches if match]
    if not places:
        return None
    host = places[0][0]
    if len(places) < len(words) or any(other != host for other, _ in places):
        raise UsageError("databases are of one host: all here, or all of one HOST:DB")
    if not _HOST.fullmatch(host):
        raise UsageError(
            f"{harmless(words[0])}: HOST:DB needs a host of letters, digits, . _ and -"
        )
    named = [database.removeprefix("~/") for _, database in places if database]
    if any(not name.isprintable() for name in named):
        raise UsageError(f"{host}: a database's path has only printable characters")
    return RemoteDatabases(host, tuple(named))


@contextlib.contextmanager
def served_there(
    remote: RemoteDatabases, options: Sequence[str], port: int, command: str
) -> Iterator[RemoteServer]:
    """Serve ``remote`` at ``port`` of this machine while the block runs; 0 is any free one.

    ``options`` are those of ``hpcd view`` there, ``command`` is hpcd there. Raises
    :class:`PlatformError` where there is no ssh.
    """
    port = port or _free_port()
    # A name that cannot be guessed: all users may write to the folder, and none can take it first.
    path = f"/tmp/hpcd-view-{secrets.token_hex(16)}"
    words = [
        command, "view", "--no-browser", "--until-eof", "--listen", path, "--port", str(port),
        *options, "--", *remote.databases,
    ]  # fmt: skip
    forwarding = f"127.0.0.1:{port}:{path}"
    ssh = [
        "ssh", "-T", "-a", "-x", "-o", "ExitOnForwardFailure=yes", "-L", forwarding, "--",
        remote.host, shlex.join(words),
    ]  # fmt: skip
    try:
        process = subprocess.Popen(ssh, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise PlatformError("HOST:DB needs ssh, which is not on this machine's PATH") from None
    with process:
        try:
            yield RemoteServer(remote.host, port, process)
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                process.terminate()


@dataclass(frozen=True)
class RemoteServer:
    """The server at the far end of a connection."""

    host: str
    port: int
    process: subprocess.Popen[bytes]

    def url(self) -> str | None:
        """The address that it prints once it serves; None if it ended before.

        Raises :class:`HpcdError` for any other than that of this machine's port.
        """
        assert self.process.stdout
        line = self.process.stdout.readline(_LONGEST_URL)
        if not line:
            return None
        text = line.decode(errors="replace").strip()
        if not text.startswith(f"http://127.0.0.1:{self.port}/#") or not text.isprintable():
            raise HpcdError(f"{self.host}: instead of a viewer's address it says {harmless(text)}")
        return text

    def exit_code(self) -> int:
        """Wait for the end; the exit code of hpcd there, which has said why it ended.

        Raises :class:`HpcdError` where it never began, or the connection broke.
        """
        code = self.process.wait()
        if code == _NO_CONNECTION:
            raise HpcdError(f"{self.host}: the connection ended; ssh says why above")
        if code == _NO_COMMAND:
            raise PlatformError(f"{self.host}: no such command there; --hpcd-there PATH names hpcd")
        return max(code, 0)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
