"""Distances between colours, also as people see them who see few colours."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hpcd.array_types import F64

# What is left of colours (linear sRGB) for people without red or green cones, and without blue ones
# (Machado, Oliveira and Fernandes, IEEE TVCG 2009, severity 1.0).
SEEN = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                 [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                [0.004733, 0.691367, 0.303900]],
}  # fmt: skip


def seen_colours(rgb: npt.NDArray[np.generic], eyes: str) -> F64:
    """``float64[n, 3]``: linear sRGB, from 0 to 1, of how sRGB colours ``[n, 3]`` of 0 to 255 look
    to ``eyes``, of :data:`SEEN`."""
    share = rgb / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    seen: F64 = np.clip(linear @ np.array(SEEN[eyes]).T, 0, 1)
    return seen


def least_distance(rgb: npt.NDArray[np.generic], eyes: str, grounds: npt.ArrayLike = ()) -> float:
    """Return the least distance (CIE 1976) of sRGB colours ``[n, 3]`` from each other and from
    ``grounds`` ``[m, 3]``, as ``eyes`` see them."""
    every = np.concatenate([rgb, np.reshape(grounds, (-1, 3))])
    xyz = seen_colours(every, eyes) @ np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722],
                                              [0.0193, 0.1192, 0.9505]]).T  # fmt: skip
    xyz /= (0.9505, 1.0, 1.089)
    root = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    x, y, z = root.T
    lab = np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)
    distance = np.linalg.norm(lab[:, None] - lab[None], axis=2)
    return float(distance[: len(rgb)][np.triu_indices(len(rgb), 1, len(lab))].min())
