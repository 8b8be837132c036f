"""The process that holds the connections of users, for the service.

A connection may carry any file of its user's, also where nobody asked for one: the kernel keeps
the file until the connection is read or closed, and whoever does that closes the file. That waits
for the server of the file, if it is in a file system of the user's (FUSE) and locked, for example,
and cannot be killed meanwhile. So the service never holds a connection of a user's: this process
does, with a thread for each. Where one of them never ends, the process is left behind when the
service stops.

Started by :class:`hpcd.daemon.service.request_server.RequestServer`; its arguments are the
descriptor of the listening socket, ``json`` or ``text`` for the journal, and the descriptor of the
socket for figures and the path of their token, if they are served. Its standard input is a socket
to the service, on which it sends a socket for each request; it ends when the service closes that.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from hpcd.daemon.service import journal
from hpcd.daemon.service.control_socket import ControlSocket
from hpcd.daemon.service.metrics_socket import MetricsSocket

# A thread gives up the interpreter to a waiting thread after this time, not after 5 ms.
_SWITCH_SECONDS = 0.0005


def main() -> int:
    """Serve until the service ends."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_SECONDS)
    listener, kind, *metrics = sys.argv[1:]
    if kind == "json":
        journal.print_json()
    with socket.socket(fileno=os.dup(0)) as service:
        control = ControlSocket(socket.socket(fileno=int(listener)), service)
        if metrics:
            MetricsSocket(socket.socket(fileno=int(metrics[0])), Path(metrics[1]), control.figures)
        control.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
