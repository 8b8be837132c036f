"""The ``hpcd`` command."""

from __future__ import annotations

import argparse
import errno
import inspect
import io
import os
import sys
import traceback

from hpcd import __version__
from hpcd.commands import VERBS, load
from hpcd.errors import HpcdError, StorageError, UsageError
from hpcd.sandbox.limits import raise_descriptor_limit

_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
_INTERRUPTED = 130  # as shells say of a command ended by SIGINT
# What the disk may say wherever hpcd writes, standard output included: the user's to mend, no bug.
_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message} (see {self.prog} --help)")


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The parser; only ``verb`` gets its options, so that starting is quick (None: all do)."""
    parser = _Parser(
        prog="hpcd",
        description="Call path tracing of running programs, by eBPF: no relaunch, no "
        "recompilation, no frame pointers.",
        epilog="hpcd VERB --help tells more of each.",
    )
    parser.add_argument("--version", action="version", version=f"hpcd {__version__}")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show where errors come from, as HPCD_DEBUG=1 does",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, (_, summary) in VERBS.items():
        each = verbs.add_parser(name, help=summary)
        if verb in (None, name):
            command = load(name)
            each.description = inspect.getdoc(command)
            each.formatter_class = argparse.RawDescriptionHelpFormatter
            command.configure(each)
            each.set_defaults(command_object=command)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code (``docs/exit-codes.md``).

    Exits by itself, with 0, only after ``--help`` and ``--version``.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        # Paths of programs may hold any byte; a terminal may know ASCII only.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    raise_descriptor_limit()
    try:
        return _run(arguments)
    except HpcdError as error:
        return _failed(error, str(error), error.exit_code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe went away: nothing is wrong, and nothing is left to say.
        _silence()
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _STORAGE:
            _silence()
            where = error.filename or "writing output"
            message = f"{where}: {os.strerror(error.errno)}"
            return _failed(error, message, StorageError.exit_code)
        message = (
            f"internal error: {type(error).__name__}: {error} "
            "(HPCD_DEBUG=1 shows where; please report it)"
        )
        return _failed(error, message, _INTERNAL_ERROR)


def _run(arguments: list[str]) -> int:
    verb = next((word for word in arguments if not word.startswith("-")), "")
    try:
        args = build_parser(verb).parse_args(arguments)
    except SystemExit:
        _flush()
        raise
    if args.verbose:
        os.environ["HPCD_DEBUG"] = "1"
    code: int = args.command_object.run(args)
    _flush()
    return code


def _flush() -> None:
    """Write out what print() holds back, while an error can still be told."""
    if sys.stdout is not None:  # None when it was closed before the start
        sys.stdout.flush()


def _failed(error: Exception, message: str, code: int) -> int:
    """Tell of an error in one line, whatever file names are in it."""
    if os.environ.get("HPCD_DEBUG"):
        traceback.print_exception(error)
    line = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in message
    )
    print(f"hpcd: {line}", file=sys.stderr)
    return code


def _silence() -> None:
    """Have what is left to print go nowhere: the interpreter would try it again as it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
