"""Pixels of trace lines in pictures: the procedure's colour where a thread runs, and less of it
where it does not. As ``viewer/web/core/paint.js`` draws them in the page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpcd.analysis.profile.state_times import times_by_state
from hpcd.array_types import U8, U32
from hpcd.model.cct import NO_NODE
from hpcd.viewer.depth_slice import NO_PROCEDURE, entities_shown, shares
from hpcd.viewer.palette import RGB
from hpcd.viewer.picture_colours import colours_of_rest, depth_colours, entity_colours
from hpcd.viewer.picture_tree import ASLEEP, ON_CPU, RUNNABLE, RUNNING, WAITING, PictureTree
from hpcd.viewer.pictures.picture import Page

ASLEEP_GROUND = ((244, 245, 247), (32, 35, 42))
WAITING_GROUND = ((251, 243, 220), (50, 44, 28))
"""What is behind threads that do not run, in light and dark pictures."""
# Parts of eight of a colour that are left of it where a thread could run.
_PALE = 3
_LOW, _GAPPED = 7, 14
_NOTES = {
    RUNNABLE: "pale: ready, without a CPU",
    ASLEEP: "blank below a thin line: asleep",
    WAITING: "tinted below a line: waits for others",
}
_NAMES = {RUNNING: "running", RUNNABLE: "ready", WAITING: "waiting", ASLEEP: "asleep"}


class ThreadStates:
    """The contents of a page's trace lines, pixel by pixel, and their colours."""

    def __init__(self, page: Page) -> None:
        self.picture = PictureTree(page.db)
        self.depth = page.view.depth
        rgb, distinct = entity_colours(self.picture, page.view.colours)
        self.shown = self.picture.at(self.depth)
        self.colours = (
            depth_colours(self.shown, self.picture.cost, rgb, distinct)
            if self.depth
            else colours_of_rest(distinct, rgb)
        )
        dark = int(page.view.dark)
        self._ground: RGB = page.ground
        self._asleep = np.array(ASLEEP_GROUND[dark], np.uint8)
        self._waiting = np.array(WAITING_GROUND[dark], np.uint8)

    @property
    def title(self) -> str:
        """The rule or the depth of the colours, in words."""
        return f"call path depth {self.depth}" if self.depth else self.picture.rule

    def seconds(self, page: Page) -> dict[str, float]:
        """Return how long the lines of ``page`` were in each state in its time, in seconds.

        Nothing if its view does not want them. ``waiting`` is for others; ``waiting_on_cpu`` the
        part of it that was spent on a CPU.
        """
        if not page.view.states:
            return {}
        times = times_by_state(page.db, page.lines, page.start, page.end)
        by_node = self.picture.costs(times.seconds)
        by_state = np.bincount(self.picture.state, by_node, len(_NAMES))
        seconds = {name: round(float(by_state[kind]), 6) for kind, name in _NAMES.items()}
        on_cpu = (self.picture.state == WAITING) & (self.picture.cause >= ON_CPU)
        return {**seconds, "waiting_on_cpu": round(float(by_node[on_cpu].sum()), 6)}

    def nodes(self, pixels: U32) -> U32:
        """Return the tree's nodes of a picture of the database's ``pixels``."""
        return self.picture.of_pixels(pixels)

    def state(self, nodes: U32) -> U8:
        """``uint8``, as ``nodes``: the state of each pixel's thread; RUNNING where none is."""
        state: U8 = np.take(np.append(self.picture.state, np.uint8(RUNNING)), nodes, mode="clip")
        return state

    def shares(self, nodes: U32) -> list[tuple[int, float]]:
        """(entity, share of the pixels), largest first."""
        return shares(entities_shown(self.shown, nodes))

    def named(self, ranked: Sequence[tuple[int, float]]) -> list[tuple[str, float]]:
        """Return ``ranked`` entities by their whole names."""
        return [(self.picture.names[number], share) for number, share in ranked]

    def legend(
        self, ranked: Sequence[tuple[int, float]]
    ) -> tuple[list[tuple[str, float]], dict[str, RGB]]:
        """Return ``ranked`` entities by their short names, and the colour of each name."""
        names = self.picture.short_names
        return (
            [(names[number], share) for number, share in ranked],
            {names[number]: self.colours[number] for number, _ in ranked},
        )

    def notes(self, state: U8) -> list[str]:
        """Return how the states among ``state`` look, in words."""
        return [text for kind, text in _NOTES.items() if bool((state == kind).any())]

    def own(self, entity: U32) -> RGB:
        """``uint8[..., 3]``: the colours of entities; the ground where there is none."""
        table = np.concatenate([self.colours, self._ground[None]])
        return table[np.minimum(entity, np.uint32(len(self.colours)))]

    def bodies(self, entity: U32, state: U8) -> RGB:
        """``uint8[..., 3]``: the colours of pixels of ``entity`` whose threads are in ``state``."""
        own = self.own(entity)
        pale = (own.astype(np.uint16) * _PALE + self._ground.astype(np.uint16) * (8 - _PALE)) // 8
        there = entity != NO_PROCEDURE
        own = np.where(((state == RUNNABLE) & there)[..., None], pale.astype(np.uint8), own)
        own = np.where(((state == ASLEEP) & there)[..., None], self._asleep, own)
        return np.where(((state == WAITING) & there)[..., None], self._waiting, own)

    def painted(self, nodes: U32, height: int) -> tuple[RGB, list[str]]:
        """``uint8[height, w, 3]``: rows of ``nodes``, as high as each other; and notes."""
        entity, state = entities_shown(self.shown, nodes), self.state(nodes)
        own, body = self.own(entity), self.bodies(entity, state)
        row = np.arange(height) * len(nodes) // height
        pixels = body[row]
        begin = np.searchsorted(row, np.arange(len(nodes)))
        for at, first in enumerate(begin.tolist()):
            end = int(begin[at + 1]) if at + 1 < len(begin) else height
            _head(pixels, first, end, own[at], state[at], self._ground)
        return pixels, self.notes(state[nodes != NO_NODE])


def _head(pixels: RGB, first: int, end: int, own: RGB, state: U8, ground: RGB) -> None:
    """Draw the lines on top of a row where its thread does not run, and the gap below it."""
    height = end - first
    if height < _LOW:
        return
    thick = max(1, min(round(height / 24), 2))
    for count, kinds in ((thick, (ASLEEP, WAITING)), (2 * thick, (WAITING,))):
        where = np.isin(state, kinds)
        pixels[first : first + count, where] = own[where]
    if height >= _GAPPED:
        pixels[end - 2 : end] = ground
