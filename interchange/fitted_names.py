"""Names escaped for other formats, and names from other tools' files checked for hpcd.

Recorded programs choose the names of procedures, threads and files: they may have line ends,
control characters, invalid UTF-8, and any length. Characters that a format cannot hold are written
as escapes such as ``\\n`` or ``\\x1b``.
"""

from __future__ import annotations

MAX_NAME = 1 << 17
"""Characters of an imported name that is kept whole: C++ templates of 64 kB are."""
_KEPT = 1 << 16
NAMELESS = "[no name]"


def utf8(text: str) -> str:
    """Return ``text`` in valid UTF-8: lone surrogates as escapes such as ``\\udc80``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def one_line(text: str, forbidden: str = "") -> str:
    """Return ``text`` with control characters, line ends, and the characters of ``forbidden``
    escaped; ``[unnamed]`` if it is empty. Nothing is cut."""
    return _escape(utf8(text), forbidden) or "[unnamed]"


def readable(name: bytes | str) -> str:
    r"""Return ``name`` as printable text, different for different names except for the escapes.

    Bytes that are no UTF-8 become ``\xff``, control characters, line ends and characters that
    change the direction of writing ``\n``, ``\x1b``, ``\u202e``; a name beyond :data:`MAX_NAME`
    characters keeps the first 65,536 and ends in its length and a hash; no name is
    :data:`NAMELESS`.
    """
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    if len(text) > MAX_NAME:
        # Loads OpenSSL: 4 MB that few exports need.
        import hashlib

        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        text = f"{text[:_KEPT]}…[{len(text):,} characters, {digest}]"
    return _escape(text) or NAMELESS


def _escape(text: str, forbidden: str = "") -> str:
    if text.isprintable() and not any(letter in text for letter in forbidden):
        return text
    return "".join(_escape_letter(letter, forbidden) for letter in text)


def _escape_letter(letter: str, forbidden: str) -> str:
    if not letter.isprintable():
        return letter.encode("unicode_escape").decode()
    return f"\\x{ord(letter):02x}" if letter in forbidden else letter
