"""Regular expressions people type: matched in linear time, whatever they are."""

from __future__ import annotations

from typing import Any

import re2

from hpcd.errors import UsageError

_LONGEST = 200
_BYTES = 1 << 20


def compile_pattern(text: str, what: str) -> Any:
    """The expression (RE2, any case). Raises :class:`UsageError` that calls it ``what``."""
    if len(text) > _LONGEST:
        raise UsageError(f"{what} has at most {_LONGEST} characters")
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    options.max_mem = _BYTES
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise UsageError(f"{what} is no regular expression: {reason}") from None
