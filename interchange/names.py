"""Names out of other tools' files: made fit to be shown, stored and told apart."""

from __future__ import annotations

import hashlib

MAX_NAME = 1 << 17
"""Characters of a name that is kept whole: C++ templates of 64 kB are."""
_KEPT = 1 << 16
NAMELESS = "[no name]"


def readable(name: bytes | str) -> str:
    r"""``name`` as printable text, different for different names but for the escapes themselves.

    Bytes that are no UTF-8 become ``\xff``, control characters, line ends and characters that
    change the direction of writing ``\n``, ``\x1b``, ``\u202e``; a name beyond :data:`MAX_NAME`
    characters keeps the first 65,536 and ends in its length and a hash; no name is
    :data:`NAMELESS`.
    """
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    if len(text) > MAX_NAME:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        text = f"{text[:_KEPT]}…[{len(text):,} characters, {digest}]"
    if not text.isprintable():
        text = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in text
        )
    return text or NAMELESS
