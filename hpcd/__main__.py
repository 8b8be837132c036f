"""The ``hpcd`` command."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import traceback

from hpcd import __version__
from hpcd.commands import VERBS, load
from hpcd.errors import HpcdError, UsageError

_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
_INTERRUPTED = 130  # as shells say of a command ended by SIGINT


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
    """Run the command line; returns the exit code (``docs/exit-codes.md``)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        verb = next((word for word in arguments if not word.startswith("-")), "")
        args = build_parser(verb).parse_args(arguments)
        code: int = args.command_object.run(args)
        sys.stdout.flush()
        return code
    except HpcdError as error:
        print(f"hpcd: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe went away: nothing is wrong, and nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("HPCD_DEBUG"):
            traceback.print_exc()
        print(
            f"hpcd: internal error: {type(error).__name__}: {error} "
            "(HPCD_DEBUG=1 shows where; please report it)",
            file=sys.stderr,
        )
        return _INTERNAL_ERROR


if __name__ == "__main__":
    sys.exit(main())
