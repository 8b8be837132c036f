"""The process that holds the connections of users, for the service.

A connection may carry any file of its user's, also where nobody asked for one: the kernel keeps
the file until the connection is read or closed, and whoever does that closes the file. That waits
for the server of the file, if it is in a file system of the user's (FUSE) and locked, for example,
and cannot be killed meanwhile. So the service never holds a connection of a user's: this process
does, with a thread for each. Where one of them never ends, the process is left behind when the
service stops.

Started by :class:`hpcd.daemon.service.request_server.RequestServer`, with the descriptor of the
listening socket as its argument, and ``json`` if the journal is. Its standard input is a socket to
the service, on which it sends a socket for each request; it ends when the service closes that.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from hpcd.daemon.service import journal
from hpcd.daemon.service.control_socket import ControlSocket


def main() -> int:
    """Serve until the service ends."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if "json" in sys.argv[2:]:
        journal.print_json()
    listener = socket.socket(fileno=int(sys.argv[1]))
    with socket.socket(fileno=os.dup(0)) as service:
        ControlSocket(listener, service).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
