"""Colours of pictures over time: few that can be distinguished, for what costs most, and one for
the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.analysis.arrays.sparse_sums import sum_by
from hpcd.array_types import F64, U32, Mask
from hpcd.viewer import palette
from hpcd.viewer.palette import RGB, ColourPattern
from hpcd.viewer.picture_tree import PictureTree


def entity_colours(
    picture: PictureTree, patterns: Sequence[ColourPattern] = ()
) -> tuple[RGB, Mask]:
    """``uint8[entities, 3]``: the colour of each entity, by its procedure's name; and ``bool``:
    which have one that is told apart, of the costliest that own colours, or by a pattern."""
    names = picture.plain_names
    rgb = palette.colours(names, patterns)
    distinct = np.zeros(len(names), bool)
    given = list(palette.by_pattern(names, patterns))
    distinct[given] = True
    cost = sum_by(picture.owner, picture.cost, len(names))
    # What is not known, and libraries' code without a name, are no story of their own.
    cost[distinct | ~picture.is_telling] = 0
    first = _costliest(cost)
    for at, place in zip(first, palette.distinct_places([names[at] for at in first]), strict=True):
        rgb[at], distinct[at] = palette.DISTINCT[place], True
    # What is inlined and what is called of one name have one colour.
    return rgb[picture.same], distinct[picture.same]


def view_colours(
    picture: PictureTree, names: Sequence[str], patterns: Sequence[ColourPattern]
) -> RGB:
    """``uint8[n, 3]``: colours of a view's procedures ``names``, those of pictures where these have
    one."""
    rgb, distinct = entity_colours(picture, patterns)
    number = {name: at for at, name in enumerate(picture.plain_names) if distinct[at]}
    colours = palette.colours(names, patterns)
    for at, name in enumerate(names):
        if name in number:
            colours[at] = rgb[number[name]]
    return colours


def colours_of_rest(distinct: Mask, rgb: RGB) -> RGB:
    """``rgb`` where an entity has a distinct colour, else the one of the rest."""
    rest = np.array(palette.REST, np.uint8)
    colours: RGB = np.where(distinct[:, None], rgb, rest)
    return colours


def depth_colours(shown: U32, cost: F64, rgb: RGB, distinct: Mask) -> RGB:
    """``uint8[entities, 3]``: colours where nodes show the entities ``shown``, and have ``cost``.

    An entity with a colour of its own (:func:`entity_colours`) keeps it as long as it is among the
    costliest; the rest of these have the colours that are left.
    """
    ranked = _costliest(sum_by(shown, cost, len(rgb)))
    keeps = np.zeros(len(rgb), bool)
    keeps[ranked] = distinct[ranked]
    colours = colours_of_rest(keeps, rgb)
    used = {tuple(colour) for colour in colours[keeps].tolist()}
    free = [colour for colour in palette.DISTINCT.tolist() if tuple(colour) not in used]
    for at, colour in zip((at for at in ranked if not distinct[at]), free, strict=False):
        colours[at] = colour
    return colours


def _costliest(cost: F64) -> list[int]:
    """The entities of most ``cost``, as many as there are distinct colours."""
    order = np.lexsort((np.arange(len(cost)), -cost))[: len(palette.DISTINCT)]
    return [int(at) for at in order if cost[at] > 0]
