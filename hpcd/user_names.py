"""Names of users on this machine."""

from __future__ import annotations

import pwd


def user_name(uid: int) -> str:
    """The name of a user on this machine, or the number; -1 is an unknown user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid) if uid >= 0 else "[unknown]"
