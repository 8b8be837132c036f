"""Time a person waits in the browser, at 2560 x 1600.

``python -m benchmarks.viewer [--memory] [DB ...]``; without a database, of 64 lines with 10^5
records each, grown from a recording of an MPI program (see :mod:`benchmarks.shapes`).
Headless Chromium without a graphics processor, on the machine of the server. A time runs from the
key or the mouse to the frame that shows the answer; *script* is the page's own code's share of a
change of depth. The peer is a picture of one colour in the same browser: no page can be faster.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import psutil
from playwright.sync_api import Browser, Page, sync_playwright
from rich.console import Console
from rich.table import Table

from benchmarks.merge import make
from benchmarks.workloads import sized
from hpcd.analysis.merge.stages import merge
from hpcd.measurement.synthetic import Shape
from tests.support.viewer import served

SIZE = {"width": 2560, "height": 1600}
MOVES = sized(100, 10)
MORE_MOVES = sized(1000, 20)
DEPTHS = sized(20, 2)
RECORDS = sized(100_000, 1000)
_WAIT_MS = 60_000

_TOOLS = """
window.shown = () => new Promise((resolve) => requestAnimationFrame(() => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = resolve;
  port2.postMessage(0);
}));
let pictures = 0;
const fetched = window.fetch;
window.fetch = (...request) => {
  pictures += String(request[0]).includes("/grid?");
  return fetched(...request);
};
// Milliseconds of act itself, and from it to the frame after attribute name of <main> was set anew;
// null for an act that changes nothing, such as a shift at the end of the recording: neither the
// URL, which follows the wheel when it rests, nor the picture, which is requested at once.
window.timed = (name, act) => new Promise((resolve) => {
  const before = [location.hash, pictures].join();
  const began = performance.now();
  let acted = 0;
  const watch = new MutationObserver(async () => {
    watch.disconnect();
    await shown();
    resolve([acted, performance.now() - began]);
  });
  watch.observe(document.getElementById("main"), { attributes: true, attributeFilter: [name] });
  act();
  acted = performance.now() - began;
  if ([location.hash, pictures].join() === before) { watch.disconnect(); resolve(null); }
});
window.press = (key) =>
  document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
window.wheel = (x, y, deltaY, shiftKey) => {
  const canvas = document.querySelector("#trace-canvas canvas");
  const box = canvas.getBoundingClientRect();
  canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, shiftKey, cancelable: true,
    clientX: box.left + x * box.width, clientY: box.top + y * box.height }));
};
"""
# Bytes of the pictures since this was asked last, as they were sent.
_BYTES = """() => {
  const sizes = performance.getEntriesByType("resource")
    .filter(({ name }) => name.includes("/grid?") && !name.includes("line="))
    .map(({ encodedBodySize }) => encodedBodySize);
  performance.clearResourceTimings();
  performance.setResourceTimingBufferSize(100000);
  return sizes;
}"""
_PEER = """async () => {
  const pen = document.querySelector("canvas").getContext("2d");
  const image = new ImageData(2560, 1600);
  const taken = [];
  for (let i = 0; i < 20; i++) {
    const began = performance.now();
    new Uint32Array(image.data.buffer).fill(0xff000000 + i);
    pen.putImageData(image, 0, 0);
    await shown();
    taken.push(performance.now() - began);
  }
  return taken;
}"""


def moves(page: Page, count: int = MOVES) -> list[float]:
    """Milliseconds of random zooms and shifts in both dimensions."""
    random = np.random.default_rng(0)
    taken = []
    for number in range(count):
        x, y, turn = random.uniform(size=3).tolist()
        if number % 20 == 19:
            act = "press('Home')"
        elif turn < 0.5:
            act = f"wheel({x}, {y}, -{random.integers(100, 900)}, false)"
        elif turn < 0.6:
            act = f"wheel({x}, {y}, -{random.integers(100, 500)}, true)"
        else:
            act = f"press('{random.choice(['a', 'd', 's', 'w'])}')"
        taken.append(page.evaluate(f"timed('data-picture', () => {act})"))
    return [answer[1] for answer in taken if answer]


def transferred(sizes: list[int]) -> float:
    """The median size of a picture as it was sent."""
    return float(np.median(sizes)) if sizes else 0.0


def measure(browser: Browser, path: Path) -> list[str]:
    """A row of the table."""
    with served(path) as (url, process):
        page = browser.new_page(viewport=SIZE)
        page.add_init_script(_TOOLS)
        page.goto(url + "&pane=trace")
        page.wait_for_selector("main[data-drawn]", timeout=_WAIT_MS)
        first = float(page.evaluate("Number(document.getElementById('main').dataset.firstMs)"))
        page.evaluate(_BYTES)
        moved = moves(page)
        page_bytes = page.evaluate(_BYTES)
        page.evaluate("timed('data-drawn', () => press('Home'))")
        page.wait_for_load_state("networkidle")
        deeper = np.array(
            [page.evaluate("timed('data-depth', () => press(']'))") for _ in range(DEPTHS)]
        )
        _, flame = page.evaluate("timed('data-boxes', () => press('2'))")
        memory = held(process.pid)
        page.close()
    script, frame = np.median(deeper, axis=0).tolist()
    figures = [first, np.median(moved), np.percentile(moved, 95), script, frame, flame]
    return [f"{figure:.0f} ms" for figure in figures] + [
        f"{transferred(page_bytes) / 1e3:.0f} kB", memory,
    ]  # fmt: skip


def held(pid: int) -> str:
    """Format a process's memory: resident, and its own without mapped files."""
    memory = psutil.Process(pid).memory_info()
    return f"{memory.rss / 1e6:.0f}, {(memory.rss - memory.shared) / 1e6:.0f} MB"


def growth(browser: Browser, path: Path) -> Table:
    """Measure the server's memory over many moves."""
    table = Table("moves", "server: all, its own", title=f"memory of the server, {path.name}")
    with served(path) as (url, process):
        page = browser.new_page(viewport=SIZE)
        page.add_init_script(_TOOLS)
        page.goto(url + "&pane=trace")
        page.wait_for_selector("main[data-drawn]", timeout=_WAIT_MS)
        table.add_row("0", held(process.pid))
        for done in range(MORE_MOVES // 10, MORE_MOVES + 1, MORE_MOVES // 10):
            moves(page, MORE_MOVES // 10)
            table.add_row(f"{done}", held(process.pid))
        page.close()
    return table


def one_colour(browser: Browser) -> float:
    """Milliseconds for a picture that needs no thought."""
    page = browser.new_page(viewport=SIZE)
    page.set_content("<canvas width=2560 height=1600></canvas>")
    page.add_script_tag(content=_TOOLS)
    taken = page.evaluate(_PEER)
    page.close()
    return float(np.median(taken))


def run(databases: list[Path] | None = None, *, memory: bool = False) -> Table:
    """The table; with ``memory`` that of what the server holds is printed before."""
    table = Table("database", "first picture", "move, median", "95 %", "depth, script",
                  "depth, frame", "flame graph", "a picture", "server: all, its own",
                  title="from the act to the frame, 2560 x 1600, shape mpi")  # fmt: skip
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        if not databases:
            merge(make(Path(folder) / "m", Shape(64, RECORDS)), Path(folder) / "db")
            databases = [Path(folder) / "db"]
        for path in databases:
            table.add_row(path.name, *measure(browser, path))
            if memory:
                Console(width=140).print(growth(browser, path))
        table.caption = f"a picture of one colour in the same browser: {one_colour(browser):.0f} ms"
        browser.close()
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("databases", nargs="*", type=Path)
    parser.add_argument("--memory", action="store_true", help="of the server, over many moves")
    options = parser.parse_args()
    Console(width=140).print(run(options.databases, memory=options.memory))


if __name__ == "__main__":
    main()
