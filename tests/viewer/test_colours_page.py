"""Colours of the trace view, as they are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from playwright.sync_api import Browser, Page

from tests.support.colour_distance import least_distance
from tests.support.made import Step, make
from tests.support.page import load, watched
from tests.support.viewer import served


def colours_drawn(page: Page) -> npt.NDArray[np.uint8]:
    """``uint8[n, 3]``: the colours of at least a hundredth of the picture."""
    pixels = page.evaluate(
        """() => {
          const canvas = document.querySelector("#trace-canvas canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const counts = new Map();
          for (const pixel of new Uint32Array(data.buffer)) {
            counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
          }
          return [...counts].filter(([, n]) => n > data.length / 400).map(([pixel]) => pixel);
        }"""
    )
    colours: npt.NDArray[np.uint8] = np.array(pixels, np.uint32).view(np.uint8).reshape(-1, 4)
    return colours[:, :3]


def test_colours_of_many_procedures_are_far_apart_and_stay(
    browser: Browser, tmp_path: Path
) -> None:
    steps: list[Step] = [(f"main/work_{i}", "cpu", 0.02 + 0.001 * i) for i in range(20)]
    steps.append(("main/k_sleep", "blocked", 0.05))
    with (
        served(make(tmp_path / "many.db", {0: steps})) as (url, _),
        watched(browser, url) as page,
    ):
        for theme in ("light", "dark"):
            load(page, f"{url}&theme={theme}")
            page.wait_for_selector("main[data-exact]")
            drawn = colours_drawn(page)
            # Twelve, the one of the rest, and a thread that sleeps.
            assert len(drawn) == 14
            for eyes in ("all", "no red", "no green"):
                assert least_distance(drawn, eyes) >= 25, (theme, eyes)
        load(page, f"{url}&theme=dark&t0=300000000&t1=500000000")
        page.wait_for_selector("main[data-exact*='500000000']")
        zoomed = colours_drawn(page)
        assert len(zoomed) > 4
        assert {*map(tuple, zoomed.tolist())} <= {*map(tuple, drawn.tolist())}
