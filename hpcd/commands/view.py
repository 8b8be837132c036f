"""``hpcd view``: look at databases in a browser."""

from __future__ import annotations

import argparse
import secrets
import socket
import webbrowser
from contextlib import ExitStack
from pathlib import Path

import uvicorn

import hpcd.analysis
from hpcd.commands.base import Command
from hpcd.errors import UsageError
from hpcd.viewer.server.app import create_app


class View(Command):
    """Look at databases in a browser: trace lines over time, call paths, flame graphs, comparisons.

    Serves them on this machine's own address until Ctrl-C and prints a URL; only who has it sees
    anything. Nothing is loaded from elsewhere.
    """

    name = "view"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("databases", type=Path, nargs="+", metavar="DB")
        parser.add_argument("--port", type=int, default=0, help="default: any that is free")
        parser.add_argument(
            "--no-browser", action="store_true", help="print the URL and open nothing"
        )

    def run(self, args: argparse.Namespace) -> int:
        if not 0 <= args.port < 1 << 16:
            raise UsageError("a port lies between 0 and 65535")
        with ExitStack() as stack:
            opened = {}
            for path in args.databases:
                name = path.resolve().name
                while name in opened:
                    name += "'"
                opened[name] = stack.enter_context(hpcd.analysis.open(path))
            listener = stack.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", args.port))
                # Whoever follows the URL at once waits rather than being refused.
                listener.listen(128)
            except OSError as error:
                raise UsageError(f"port {args.port}: {error.strerror}") from None
            host = f"127.0.0.1:{listener.getsockname()[1]}"
            token = secrets.token_urlsafe(16)
            # After the #, so that it is in no log and sent to nobody.
            url = f"http://{host}/#token={token}"
            print(url, flush=True)
            if not args.no_browser:
                webbrowser.open(url)
            config = uvicorn.Config(
                create_app(opened, token, host), log_level="error", lifespan="off"
            )
            uvicorn.Server(config).run(sockets=[listener])
        return 0
