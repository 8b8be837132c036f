"""Names of procedures without what compilers and linkers append."""

from __future__ import annotations

import re

# GCC's and LLVM's specialised copies, and symbol versions of shared libraries (not "@plt").
_APPENDED = re.compile(
    r"( \[clone )?\.(constprop|isra|lto_priv|llvm|clone)\.\d+\]?|@@?[A-Z][\w.]*$"
)
_NUMBER = re.compile(r"(?<=\.(?:part|cold))\.\d+")


def bare_name(name: str) -> str:
    """``name`` without the numbers of specialised copies and without its version; ``.part`` and
    ``.cold``, which are other code, stay."""
    if "." not in name and "@" not in name:
        return name
    return _NUMBER.sub("", _APPENDED.sub("", name))
