"""``hpcd view``: databases in a browser."""

from __future__ import annotations

import argparse
import contextlib
import html
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import uvicorn

import hpcd.analysis
from hpcd.analysis.arrays.freed_memory import share_freed_memory
from hpcd.analysis.database import Database
from hpcd.analysis.live.live_merge import Following
from hpcd.cli.command import Command
from hpcd.cli.example_database import example_database
from hpcd.cli.options import add_native_option, add_source_option
from hpcd.cli.output.terminal_text import say
from hpcd.cli.present_stacks import RecordedProcesses
from hpcd.cli.remote_view import RemoteDatabases, remote_databases, served_there
from hpcd.cli.result_store import database_argument, latest_result
from hpcd.daemon.service.configuration import ControlSettings
from hpcd.daemon.service.protocol import NoServiceError, ask
from hpcd.errors import NotFoundError, PrivilegeError, StorageError, TargetError, UsageError
from hpcd.signals import ENDING, interrupt_on, is_ignored
from hpcd.viewer.server.app import create_app
from hpcd.viewer.server.live_revisions import LiveRevisions
from hpcd.viewer.server.selection import Choice, LineSelection

PANES = ("trace", "flame", "calls", "lines", "compare", "source", "stacks",
         "messages", "recorded")  # fmt: skip
# The port in the URL that is printed for a socket: what one forwards to it.
_FORWARDED = 8000
# Longest wait of a request for the interpreter's lock while Python works: each of a page's
# seventy modules waited 5 ms.
_SWITCH_S = 0.0005
_RUNNING = ("attached", "recording")


class ViewCommand(Command):
    """Show databases in a browser: trace lines over time, call paths, flame graphs, comparisons.

    Serves them on the loopback address until Ctrl-C and prints a URL, whose token grants access.
    Nothing is loaded from other hosts. HOST:DB is a database on another host: hpcd there serves it
    through ssh, so that it need not be copied, and ends with this command. --example shows a
    recording that hpcd brings: four ranks of an MPI program, one of which is late. With --live it
    follows a measurement that is being written, or a recording of the service by its number (hpcd
    status lists them), or, with neither given, your only running recording; the page follows the
    end of the trace until another time is selected, and stays when the recording ends.
    """

    name = "view"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "databases", nargs="*", metavar="DB",
            help="database of hpcd merge, or name of a result (default: the latest result); with"
            " HOST: before it, one of another host",
        )  # fmt: skip
        parser.add_argument(
            "--example", action="store_true", help="show the recording that hpcd brings"
        )
        parser.add_argument(
            "--live", action="store_true",
            help="follow a running recording: DB is a measurement or the number of a recording",
        )  # fmt: skip
        parser.add_argument("--pane", choices=PANES, help="pane to show first (default: trace)")
        add_native_option(parser)
        parser.add_argument("--find", metavar="PROCEDURE", help="procedure to highlight")
        parser.add_argument(
            "--time", metavar="FROM:TO", help="initial time interval, in seconds since the origin"
        )
        parser.add_argument(
            "--lines", metavar="REGEX",
            help="initially only trace lines whose label, process, thread, job or host matches",
        )  # fmt: skip
        add_source_option(parser)
        parser.add_argument(
            "--port", type=int, default=0, help="port to serve at (default: any free one)"
        )
        parser.add_argument(
            "--listen", type=Path, metavar="PATH",
            help="serve at a Unix socket that only you can open, for ssh -L PORT:PATH, instead of a"
            " port; --port is then the forwarded one",
        )  # fmt: skip
        parser.add_argument(
            "--hpcd-there", default="hpcd", metavar="PATH",
            help="hpcd on the host of HOST:DB (default: hpcd, on that host's PATH)",
        )  # fmt: skip
        parser.add_argument(
            "--until-eof", action="store_true",
            help="end when standard input does, as HOST:DB has the server there do",
        )  # fmt: skip
        parser.add_argument(
            "--no-browser", action="store_true", help="print the URL without opening a browser"
        )
        parser.add_argument(
            "--json", action="store_true",
            help="print one JSON object in place of the URL, and open no browser",
        )  # fmt: skip

    def run(self, args: argparse.Namespace) -> int:
        if not 0 <= args.port < 1 << 16:
            raise UsageError("--port must be between 0 and 65535")
        if args.live and args.example:
            raise UsageError("--live follows a recording: no --example")
        interrupt_on(ENDING)
        remote = remote_databases(args.databases)
        if remote:
            return _show_remote(args, remote)
        share_freed_memory()
        sys.setswitchinterval(_SWITCH_S)
        with ExitStack() as stack:
            _serve(args, stack)
        return 0


def _serve(args: argparse.Namespace, stack: ExitStack) -> None:
    """Serve databases of this machine until the end; ``stack`` closes all resources."""
    opened: dict[str, Database | LiveRevisions] = {}
    present = None
    if args.live:
        stacks = RecordedProcesses(os.environ.get("HPCD_SOCKET", ControlSettings().socket))
        present = stack.enter_context(contextlib.closing(stacks)).read
        path = _recording(args.databases)
        live = stack.enter_context(_followed(path))
        opened[path.resolve().name] = live
        first: Database = live.at("").db
    else:
        for path in _paths(args, stack):
            name = path.resolve().name
            while name in opened:
                name += "'"
            opened[name] = stack.enter_context(hpcd.analysis.open(path))
        first = next(db for db in opened.values() if isinstance(db, Database))
    view = _view(args, next(iter(opened)), first)
    if args.listen:
        listener = stack.enter_context(_at_socket(args.listen))
        host, port = "", args.port or _FORWARDED
    else:
        listener = stack.enter_context(_at_port(args.port))
        port = listener.getsockname()[1]
        host = f"127.0.0.1:{port}"
    token = secrets.token_urlsafe(16)
    # After the #, so that it is in no log and is never sent.
    url = f"http://127.0.0.1:{port}/#{urlencode({'token': token, **view})}"
    served = {"url": url, "socket": args.listen and str(args.listen.absolute()),
              "databases": list(opened)}  # fmt: skip
    print(json.dumps(served) if args.json else url, flush=True)
    if args.until_eof:
        threading.Thread(target=_end_with_input, name="input", daemon=True).start()
    elif args.listen:
        say(f"hpcd: open it after ssh -L {port}:{args.listen.absolute()} {socket.gethostname()}")
    if not (args.listen or args.no_browser or args.json):
        webbrowser.open(stack.enter_context(_leading_to(url)))
    config = uvicorn.Config(
        create_app(opened, token, host, args.source, present), log_level="error", lifespan="off"
    )
    _Server(config).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that ends at any signal of ``ENDING`` that is not ignored.

    uvicorn by itself takes SIGINT and SIGTERM, also where they are ignored. Nothing may be raised
    while it serves: it takes what is raised during a request for that request's failure.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ignored = [number for number in ENDING if is_ignored(number)]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve ``sockets``; uvicorn has set its signal handlers just before."""
        for number in ENDING:
            ignored = number in self._ignored
            signal.signal(number, signal.SIG_IGN if ignored else self.handle_exit)
        await super().startup(sockets)


def _paths(args: argparse.Namespace, stack: ExitStack) -> list[Path]:
    """The databases to show; that of --example, beside its source, is removed by ``stack``."""
    if not args.example:
        return list(map(database_argument, args.databases)) or [latest_result()]
    path = stack.enter_context(example_database())
    args.source.append(path.parent)
    return [path, *map(database_argument, args.databases)]


def _end_with_input() -> None:
    """End this process, cleanly, at the end of its standard input."""
    while os.read(sys.stdin.fileno(), 1 << 12):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _show_remote(args: argparse.Namespace, remote: RemoteDatabases) -> int:
    """Show databases of another host until the end, there or here; the exit code."""
    if args.listen or args.example or args.until_eof:
        raise UsageError("HOST:DB is shown here: no --listen, --example or --until-eof")
    given = {"pane": args.pane, "find": args.find, "time": args.time, "lines": args.lines}
    options = [f"--{name}={value}" for name, value in given.items() if value]
    options += [f"--source={folder}" for folder in args.source]
    options += ["--live"] if args.live else []
    with ExitStack() as stack:
        server = stack.enter_context(served_there(remote, options, args.port, args.hpcd_there))
        url = server.url()
        if url:
            served = {"url": url, "socket": None, "databases": args.databases}
            print(json.dumps(served) if args.json else url, flush=True)
            if not (args.no_browser or args.json):
                webbrowser.open(stack.enter_context(_leading_to(url)))
        return server.exit_code()


def _view(args: argparse.Namespace, name: str, db: Database) -> dict[str, object]:
    """Return the page's initial state as its URL has it. Raises :class:`UsageError`."""
    view: dict[str, object] = {"pane": args.pane} if args.pane else {}
    if args.find:
        view["search"] = args.find
    if args.native:
        view["native"] = "1"
    if args.time or args.lines:
        count = len(LineSelection(db).order(Choice(args.lines or "")))
        if not count:
            raise UsageError("no trace line matches --lines")
        t0, t1 = _interval(args.time, db.duration_ns) if args.time else (0, db.duration_ns)
        view |= {"db": name, "t0": t0, "t1": t1, "l0": 0, "l1": count}
        view |= {"filter": args.lines} if args.lines else {}
    return view


def _interval(text: str, duration: int) -> tuple[int, int]:
    """``FROM:TO`` in seconds, either may be left out, as ns within ``duration``."""
    start, colon, end = text.partition(":")
    try:
        t0 = int(float(start or 0) * 1e9)
        t1 = int(float(end) * 1e9) if end else duration
    except (ValueError, OverflowError):
        colon = ""
    if not colon or not 0 <= t0 < min(t1, duration):
        raise UsageError(
            f"--time is FROM:TO in seconds, within the {duration * 1e-9:g} s of the database"
        )
    return t0, min(t1, duration)


# --- recordings being followed ---


def _recording(named: list[str]) -> Path:
    """The measurement to follow."""
    if len(named) > 1:
        raise UsageError("--live follows one recording")
    if named and not (named[0].isdigit() and not Path(named[0]).exists()):
        path = Path(named[0])
        if path.is_dir() and not os.access(path, os.R_OK | os.X_OK):
            raise PrivilegeError(f"{path}: another user's measurement")
        return path
    control = os.environ.get("HPCD_SOCKET", ControlSettings().socket)
    if named:
        (recording,) = ask(control, {"verb": "status", "id": int(named[0])})["recordings"]
        return Path(recording["measurement"])
    try:
        recordings = ask(control, {"verb": "status"})["recordings"]
    except NoServiceError as error:
        raise UsageError(f"give the measurement to follow: {error}") from None
    running = [recording for recording in recordings if recording["state"] in _RUNNING]
    if not running:
        raise TargetError("no recordings; hpcd attach starts one")
    if len(running) > 1:
        choices = ", ".join(f"{recording['id']} ({recording['what']})" for recording in running)
        raise UsageError(f"several recordings are running, give one: {choices}")
    return Path(running[0]["measurement"])


@contextlib.contextmanager
def _followed(path: Path) -> Iterator[LiveRevisions]:
    """Follows ``path`` while the block runs; what that needs is in a directory that goes then."""
    if not path.is_dir():
        raise NotFoundError(f"{path}: no such measurement")
    with tempfile.TemporaryDirectory(prefix="hpcd-view-") as folder:
        following = Following(path, Path(folder))
        first = following.first(threading.Event())
        assert first is not None
        live = LiveRevisions(following, first)
        live.start()
        try:
            yield live
        finally:
            live.close()


# --- where it is served ---


@contextlib.contextmanager
def _leading_to(url: str) -> Iterator[str]:
    """The address of a file that only its user can read, and that leads a browser to ``url``.

    All users of a machine see what commands are given, a browser's among them: the token must not
    be there.
    """
    with tempfile.TemporaryDirectory(
        prefix="hpcd-view-", dir=os.environ.get("XDG_RUNTIME_DIR") or None
    ) as folder:
        page = Path(folder) / "open.html"
        fd = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        address = html.escape(url)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(
                '<!doctype html><meta charset="utf-8"><title>hpcd</title>'
                '<meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0;url={address}">'
                f'<a href="{address}">hpcd view</a>'
            )
        yield page.as_uri()


@contextlib.contextmanager
def _at_port(port: int) -> Iterator[socket.socket]:
    # By its number, not 0: only so does asyncio take it for TCP and set TCP_NODELAY. Without, an
    # answer's body waits up to 40 ms for the acknowledgement of its header.
    with socket.socket(proto=socket.IPPROTO_TCP) as listener:
        try:
            listener.bind(("127.0.0.1", port))
            # A client that follows the URL at once waits rather than being refused.
            listener.listen(128)
        except OSError as error:
            raise UsageError(f"port {port}: {error.strerror}") from None
        yield listener


@contextlib.contextmanager
def _at_socket(path: Path) -> Iterator[socket.socket]:
    """A socket at ``path``, mode 0600, gone afterwards; a stale socket is replaced."""
    with socket.socket(socket.AF_UNIX) as listener:
        # Never open to others, not even for the moment before a chmod.
        mask = os.umask(0o177)
        try:
            if path.is_socket() and not _served(path):
                path.unlink()
            listener.bind(str(path))
            listener.listen(128)
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror or error}") from None
        finally:
            os.umask(mask)
        mine = path.stat()
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                now = path.lstat()
                if (now.st_dev, now.st_ino) == (mine.st_dev, mine.st_ino):
                    path.unlink()


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True
