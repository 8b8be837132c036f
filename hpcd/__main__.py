"""The ``hpcd`` command."""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import warnings
from pathlib import Path
from textwrap import dedent
from typing import TextIO

from hpcd import __version__
from hpcd.cli.caller_state import caller_state
from hpcd.cli.output.standard_streams import harmless_streams, outlive_readers
from hpcd.cli.output.terminal_text import say
from hpcd.cli.verbs import GROUPS, VERBS, load
from hpcd.errors import HpcdError, NotFoundError, StorageError, UsageError, did_you_mean
from hpcd.sandbox.limits import raise_descriptor_limit
from hpcd.signals import interrupt_on, is_ignored
from hpcd.startup.fast_imports import fast_imports
from hpcd.startup.isolation import isolate_import_path

_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
_INTERRUPTED = 130  # as shells say of a command ended by SIGINT
# Errors of storage wherever hpcd writes, standard output included: no internal error.
_STORAGE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO}
# Paths that the user named and has no way to.
_NO_ACCESS = {errno.EACCES, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message} (see {self.prog} --help)")

    def suggestion(self, word: str) -> str:
        """Return the message for an argument that none of the options takes."""
        options = self._option_string_actions
        if word.startswith("-"):
            name = word.partition("=")[0]
            shown = [option for option in options if option.startswith("--")]
            return f"unknown option {name}{did_you_mean(name, shown)}"
        if word.isdigit() and "--pid" in options:
            return f"unexpected argument {word}; did you mean --pid {word}?"
        return f"unexpected argument {word}"


class _VerbFormatter(argparse.HelpFormatter):
    """Wraps each paragraph of a description by itself, and leaves indented ones as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(
            part if "\n " in part else super(_VerbFormatter, self)._fill_text(part, width, indent)
            for part in text.split("\n\n")
        )


class _VerbsFormatter(argparse.HelpFormatter):
    """Lists verbs by purpose."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=16)

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        text = ""
        for title, verbs in GROUPS.items():
            self._indent()
            listed = (action._ChoicesPseudoAction(verb, (), VERBS[verb][1]) for verb in verbs)
            text += f"\n  {title}\n" + "".join(map(self._format_action, listed))
            self._dedent()
        return text.removeprefix("\n")


def build_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of ``verb``, or of all verbs (None), which takes 7 ms more.

    The parser for an unknown verb lists all verbs, without their options.
    """
    parser = _Parser(
        prog="hpcd",
        description="Call path tracing of running programs, by eBPF: no relaunch, no "
        "recompilation, no frame pointers.",
        epilog="hpcd VERB --help describes each verb.",
        formatter_class=_VerbsFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hpcd {__version__}")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="show tracebacks of errors, as HPCD_DEBUG=1 does",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, title="verbs")
    for name in (verb,) if verb in VERBS else VERBS:
        verb_parser = verbs.add_parser(name, help=VERBS[name][1])
        if verb in (None, name):
            command = load(name)
            verb_parser.description = _cleaned(command.__doc__ or "")
            verb_parser.formatter_class = _VerbFormatter
            command.configure(verb_parser)
            verb_parser.set_defaults(command_object=command, verb_parser=verb_parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code (``docs/exit-codes.md``).

    Without ``arguments`` it takes this process's, which is hpcd's own then: its import path is
    isolated first, and Ctrl-C shows no traceback. Exits by itself, with 0, only after ``--help``
    and ``--version``.
    """
    caller_state()  # before any of that state changes
    _open_streams()
    if arguments is not None:
        return _main(arguments)
    interrupt_on((signal.SIGINT,))
    # A process whose caller ignores SIGCHLD cannot wait for its children (sigaction(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    isolate_import_path()
    outlive_readers()
    try:
        return _main(sys.argv[1:])
    finally:
        # From here on Python ends, and would show a KeyboardInterrupt as a traceback.
        if not is_ignored(signal.SIGINT):
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _open_streams() -> None:
    # None is a stream that was closed before the start.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Paths of programs may hold any byte; a terminal may know ASCII only.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _main(arguments: list[str]) -> int:
    raise_descriptor_limit()
    with harmless_streams():
        return _reported(arguments)


def _reported(arguments: list[str]) -> int:
    """Run the command line, reporting errors in one line; returns the exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _Warnings().show
            return _run(arguments)
    except HpcdError as error:
        return _failed(error, str(error), error.exit_code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe closed it: no error.
        _silence(1, 2)
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _STORAGE:
            _silence(1)
            where = error.filename or "writing output"
            message = f"{where}: {os.strerror(error.errno)}"
            return _failed(error, message, StorageError.exit_code)
        if isinstance(error, OSError) and error.errno in _NO_ACCESS and error.filename:
            message = f"{os.fsdecode(error.filename)}: {os.strerror(error.errno)}"
            return _failed(error, message, NotFoundError.exit_code)
        message = (
            f"internal error: {type(error).__name__}: {error} "
            "(HPCD_DEBUG=1 shows the traceback; please report it)"
        )
        return _failed(error, message, _INTERNAL_ERROR)


class _Warnings:
    """Shows numpy's warnings about figures that it cannot compute as one line, once."""

    def __init__(self) -> None:
        self._shown = False
        self._show = warnings.showwarning

    def show(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        """Replace :func:`warnings.showwarning`."""
        if not issubclass(category, RuntimeWarning):
            self._show(message, category, filename, lineno, file, line)
        elif not self._shown:
            self._shown = True
            say("hpcd: costs are too large to compute with; some figures are wrong")


def _run(arguments: list[str]) -> int:
    verb = next((word for word in arguments if not word.startswith("-")), "")
    if not {"-h", "--help"}.isdisjoint(arguments[: arguments.index(verb)] if verb else ()):
        verb = ""  # help on all of them
    if os.environ.get("_ARGCOMPLETE"):
        _complete()
    if verb and verb not in VERBS:
        near = did_you_mean(verb, VERBS) or f"; there are {', '.join(VERBS)}"
        raise UsageError(f"no verb {verb}{near} (see hpcd --help)")
    try:
        with fast_imports():
            parser = build_parser(verb)
        args, unknown = parser.parse_known_args(arguments)
    except SystemExit:
        _flush()
        raise
    if unknown:
        prog = args.verb_parser.prog
        raise UsageError(f"{args.verb_parser.suggestion(unknown[0])} (see {prog} --help)")
    if args.verbose:
        os.environ["HPCD_DEBUG"] = "1"
    code: int = args.command_object.run(args)
    _flush()
    return code


def _cleaned(documentation: str) -> str:
    """A docstring without its indentation; importing ``inspect`` for that takes 5 ms."""
    first, newline, rest = documentation.strip().partition("\n")
    return first + newline + dedent(rest)


def _complete() -> None:
    """Answer a shell that asks for completions of a command line, and exit."""
    with contextlib.suppress(ImportError):
        argcomplete = importlib.import_module("argcomplete")
        words = os.environ.get("COMP_LINE", "").split()
        verb = next((word for word in words[1:] if not word.startswith("-")), "")
        argcomplete.autocomplete(build_parser(verb if verb in VERBS else ""))


def _flush() -> None:
    """Flush standard output while an error can still be reported."""
    sys.stdout.flush()


def _failed(error: Exception, message: str, code: int) -> int:
    """Report an error in one line, even if a file name contains line ends."""
    if os.environ.get("HPCD_DEBUG"):
        import traceback

        traceback.print_exception(error)
    try:
        say(f"hpcd: {message}")
    except BrokenPipeError:
        _silence(1, 2)
    return code


def _silence(*descriptors: int) -> None:
    """Discard buffered output, which the interpreter would try to write again as it exits."""
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in descriptors:
        os.dup2(null, descriptor)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
