"""Every error hpcd raises on purpose, and the exit code each one ends the command with.

The command line catches :class:`HpcdError` once, prints it as one line and exits with its
``exit_code``. A traceback shown to a user is therefore always a bug. The codes are documented
in ``docs/exit-codes.md``; they start where the shell's own conventions leave room.
"""

from __future__ import annotations

from collections.abc import Iterable

# Names compared letter by letter: some tenths of a second.
_COMPARED = 5000
_LONGEST = 120


class HpcdError(Exception):
    """Base of all errors that users see. ``str()`` of it is one clear line."""

    exit_code = 1

    def __init__(self, message: object = "", code: int = 0) -> None:
        """A ``code`` above 0 is the exit code in place of the class's."""
        super().__init__(message)
        if code > 0:
            self.exit_code = code


class UsageError(HpcdError):
    """The command line makes no sense: an unknown option, a value out of range."""

    exit_code = 2


class TargetError(HpcdError):
    """A target cannot be recorded: no such pid, a zombie, a kernel thread."""

    exit_code = 3


class PrivilegeError(HpcdError):
    """The kernel refuses for lack of privilege."""

    exit_code = 4


class PlatformError(HpcdError):
    """This machine lacks something: BTF, kernel headers, bcc, an event, a kernel feature."""

    exit_code = 5


class StorageError(HpcdError):
    """Writing failed or cannot begin: disk full, unwritable directory, existing output."""

    exit_code = 6


class FormatError(HpcdError):
    """A file has the wrong format: it is foreign, truncated, damaged, or of another version."""

    exit_code = 7


class NotFoundError(HpcdError):
    """A file or directory named on the command line does not exist or cannot be read."""

    exit_code = 8


def did_you_mean(name: str, choices: Iterable[str], most: int = 3) -> str:
    """``; did you mean this or that?`` for the end of an error's line; "" when nothing is near.

    Near are names that contain ``name`` in any case, the shortest first, or else names with a
    similar spelling.
    """
    names = [choice for choice in dict.fromkeys(choices) if 0 < len(choice) <= _LONGEST]
    wanted = name.casefold()
    near = sorted((choice for choice in names if wanted and wanted in choice.casefold()), key=len)
    if not near:
        import difflib  # only now: most commands have no such error

        likeness = {
            choice: difflib.SequenceMatcher(None, choice, name).ratio()
            for choice in difflib.get_close_matches(name, names[:_COMPARED], most, 0.55)
        }
        # Names much less similar than the nearest one are no useful suggestion.
        near = [choice for choice in likeness if likeness[choice] > max(likeness.values()) - 0.1]
    return f"; did you mean {' or '.join(near[:most])}?" if near else ""
