"""Colours of procedures: the same procedure has the same colour in every picture and database.

A colour follows from the procedure's name alone, or from the first of a person's patterns that fits
it. Colours lie in OKLCH, whose steps look equally large. What red-green blindness leaves, lightness
and the way from blue to yellow, is used evenly, so that as few colours as possible look alike then.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcd.analysis.profile.filters import bare
from hpcd.array_types import F64, U8
from hpcd.errors import UsageError
from hpcd.model.scope import KERNEL_ENDING
from hpcd.viewer.patterns import compile_pattern

RGB = U8

_DARKEST, _LIGHTEST, _LEVELS = 0.46, 0.88, 8
_CHROMA, _MUTED = 0.15, 0.035
_MOST_PATTERNS = 50
# Weights of red, green and blue in how bright a colour looks; text on darker ones is white.
_BRIGHTNESS = np.array([0.3, 0.59, 0.11])
_DARK = 130
TRUNCATED = (150, 150, 150)
DISTINCT = np.array(
    [
        (26, 100, 247), (207, 90, 0), (89, 64, 170), (64, 135, 174), (148, 38, 7), (246, 168, 0),
        (141, 201, 128), (140, 111, 81), (47, 163, 254), (72, 50, 103), (239, 191, 255),
        (237, 234, 124),
    ],
    np.uint8,
)  # fmt: skip
"""Colours of the costliest procedures: at least 25 apart (CIE 1976), from each other, from
:data:`REST` and from the grounds, those of threads that sleep or wait for others among them, also
to people without red or green cones."""
_STRONG = 10  # of these, the first; the others are light
REST = (152, 152, 152)
"""The colour of all other procedures."""
BLANK_LIGHT, BLANK_DARK = (255, 255, 255), (24, 26, 30)


@dataclass(frozen=True)
class ColourPattern:
    """The colour of the procedures whose whole name ``fits``, with or without its parameters."""

    fits: Any
    rgb: tuple[int, int, int]


def parse_pattern(text: str) -> ColourPattern:
    """``REGEX = #rrggbb``. Raises :class:`UsageError`."""
    name, _, colour = text.rpartition("=")
    match = re.fullmatch(r"\s*#([0-9a-fA-F]{6})\s*", colour)
    if not name.strip() or match is None:
        raise UsageError(f"{text[:80]}: a colour is PATTERN = #rrggbb")
    red, green, blue = bytes.fromhex(match[1])
    return ColourPattern(compile_pattern(name.strip(), "the pattern"), (red, green, blue))


def parse_patterns(texts: Sequence[str]) -> list[ColourPattern]:
    """Those of ``texts``, empty ones left out. Raises :class:`UsageError`."""
    given = [text for text in texts if text.strip()]
    if len(given) > _MOST_PATTERNS:
        raise UsageError(f"at most {_MOST_PATTERNS} colours can be chosen")
    return [parse_pattern(text) for text in given]


def colours(names: Sequence[str], patterns: Sequence[ColourPattern] = ()) -> RGB:
    """``uint8[n, 3]``: sRGB of each procedure name. Markers are grey, kernel procedures muted."""
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    seeds = np.frombuffer(b"".join(digests), np.uint64) if names else np.zeros(0, np.uint64)

    def part(shift: int) -> F64:
        return ((seeds >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.float64) / 65536

    # How yellow is even between the extremes; whether red or green is the other half's.
    hue = np.arcsin(2 * part(0) - 1)
    hue = np.where(part(32) < 0.5, hue, np.pi - hue)
    level = np.floor(part(16) * _LEVELS) / (_LEVELS - 1)
    lightness = _DARKEST + (_LIGHTEST - _DARKEST) * level
    kernel = np.array([name.endswith(KERNEL_ENDING) for name in names], bool)
    rgb = _srgb(lightness, np.where(kernel, _MUTED, _CHROMA), hue)
    marker = np.array([name.startswith("[truncated") for name in names], bool)
    rgb[marker] = TRUNCATED
    for at, colour in by_pattern(names, patterns).items():
        rgb[at] = colour
    return rgb


def by_pattern(
    names: Sequence[str], patterns: Sequence[ColourPattern]
) -> dict[int, tuple[int, int, int]]:
    """Return the colours that ``patterns`` give, by the number of the name."""
    given: dict[int, tuple[int, int, int]] = {}
    for at, name in enumerate(names if patterns else ()):
        for pattern in patterns:
            if pattern.fits.fullmatch(name) or pattern.fits.fullmatch(bare(name)):
                given[at] = pattern.rgb
                break
    return given


def distinct_places(names: Sequence[str]) -> list[int]:
    """The place in :data:`DISTINCT` of each of ``names``, at most as many, the costliest first: as
    its name alone decides, or the next that is free. So most keep theirs from run to run. The last
    of these get the light colours, which are the last."""
    taken: set[int] = set()
    places = []
    for rank, name in enumerate(names):
        count = _STRONG if rank < _STRONG else len(DISTINCT)
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "little") % count
        while place in taken:
            place = (place + 1) % count
        taken.add(place)
        places.append(place)
    return places


def is_dark(rgb: RGB) -> bool:
    """Whether text on a colour (``uint8[3]``) must be light."""
    return bool(rgb @ _BRIGHTNESS < _DARK)


def _srgb(
    lightness: F64,
    chroma: F64,
    hue: F64,
) -> RGB:
    """OKLCH to sRGB (Ottosson, "A perceptual color space for image processing", 2020)."""
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    root = np.stack(
        [
            lightness + 0.3963377774 * a + 0.2158037573 * b,
            lightness - 0.1055613458 * a - 0.0638541728 * b,
            lightness - 0.0894841775 * a - 1.2914855480 * b,
        ]
    )
    linear = (
        np.array(
            [
                [4.0767416621, -3.3077115913, 0.2309699292],
                [-1.2684380046, 2.6097574011, -0.3413193965],
                [-0.0041960863, -0.7034186147, 1.7076147010],
            ]
        )
        @ root**3
    )
    linear = np.clip(linear, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return (gamma.T * 255 + 0.5).astype(np.uint8)
