"""Colours of procedures: the same procedure has the same colour in every picture and database.

A colour follows from the procedure's name alone. Hues are spread in OKLCH, whose steps look equally
large, and lightness alternates, so that neighbours differ for colour-blind eyes too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

RGB = npt.NDArray[np.uint8]

_LIGHTNESS = (0.52, 0.64, 0.76, 0.86)
_CHROMA = (0.09, 0.13, 0.16)
TRUNCATED = (150, 150, 150)
BLANK_LIGHT, BLANK_DARK = (255, 255, 255), (24, 26, 30)


def colours(names: Sequence[str]) -> RGB:
    """``uint8[n, 3]``: sRGB of each procedure name. Markers are grey, kernel procedures muted."""
    digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
    seeds = np.frombuffer(b"".join(digests), np.uint64) if names else np.zeros(0, np.uint64)
    hue = (seeds & np.uint64(0xFFFF)).astype(np.float64) / 65536 * 2 * np.pi
    lightness = np.array(_LIGHTNESS)[(seeds >> np.uint64(16)) % np.uint64(len(_LIGHTNESS))]
    chroma = np.array(_CHROMA)[(seeds >> np.uint64(32)) % np.uint64(len(_CHROMA))]
    kernel = np.array([name.endswith(" [k]") for name in names], bool)
    chroma = np.where(kernel, 0.035, chroma)
    rgb = _srgb(lightness, chroma, hue)
    marker = np.array([name.startswith("[truncated") for name in names], bool)
    rgb[marker] = TRUNCATED
    return rgb


def _srgb(
    lightness: npt.NDArray[np.float64],
    chroma: npt.NDArray[np.float64],
    hue: npt.NDArray[np.float64],
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
