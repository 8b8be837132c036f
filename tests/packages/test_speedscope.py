"""speedscope itself, from npm, in a browser: its schema, and what its table of procedures shows."""

from __future__ import annotations

import functools
import http.server
import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from playwright.sync_api import Page, expect, sync_playwright

import hpcd.analysis
from hpcd.__main__ import main
from hpcd.analysis.database import Database
from tests.support.made import make

VERSION = "1.25.0"
UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@pytest.fixture(scope="module")
def speedscope(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its page."""
    folder = tmp_path_factory.mktemp("speedscope")
    subprocess.run(
        ["npm", "pack", "--silent", f"speedscope@{VERSION}"], cwd=folder, check=True,
        capture_output=True,
    )  # fmt: skip
    (archive,) = folder.glob("*.tgz")
    subprocess.run(["tar", "-xzf", archive.name], cwd=folder, check=True)
    return folder / "package/dist/release"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """Two ranks that compute and wait."""
    ranks = {
        0: [("main/solve/dot", "cpu", 0.3), ("main/MPI_Wait/k_sched", "blocked", 0.1),
            ("main/solve", "cpu", 0.05)],
        1: [("main/solve/dot", "cpu", 0.1), ("main/größe", "cpu", 0.05),
            ("main/MPI_Wait/k_sched", "blocked", 0.3)],
    }  # fmt: skip
    return hpcd.analysis.open(make(tmp_path_factory.mktemp("db") / "db", ranks, weight=2))


@pytest.fixture(scope="module")
def served(speedscope: Path, db: Database) -> Iterator[str]:
    """The URL of the page with the export beside it."""
    exported = speedscope / "run.speedscope.json"
    assert main(["export", str(db.path), "--format", "speedscope", "-o", str(exported)]) == 0

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(speedscope))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def page(served: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser.new_page(viewport={"width": 1200, "height": 900})
        browser.close()


def test_the_export_fits_its_schema(speedscope: Path, served: str) -> None:
    schema = json.loads((speedscope / "file-format-schema.json").read_text())
    jsonschema.validate(json.loads((speedscope / "run.speedscope.json").read_text()), schema)


def own_costs(db: Database, metric: str) -> Counter[str]:
    """Exclusive cost by procedure."""
    costs: Counter[str] = Counter()
    exclusive = db.metrics.exclusive(metric)
    for node in np.flatnonzero(exclusive).tolist():
        costs[db.procedure_names[db.procedure_of_node[node]]] += float(exclusive[node])
    return costs


def amount(text: str) -> float:
    """Parse an amount written as ``200 (79%)`` or ``1.50ms``, times in s."""
    match = re.match(r"([\d.,]+)(ns|µs|ms|s|)( |$)", text.strip())
    assert match, text
    return float(match[1].replace(",", "")) * UNITS.get(match[2], 1.0)


def test_its_page_has_the_costs_of_every_metric(page: Page, served: str, db: Database) -> None:
    page.goto(f"{served}/index.html#profileURL={served}/run.speedscope.json&view=sandwich")
    for metric in db.metrics.names:
        expect(page.get_by_text(f"{metric}: all trace lines").first).to_be_visible(timeout=60_000)
        costs = {}
        for row in page.locator("table:visible tr").all():
            cells = row.locator("td").all_inner_texts()
            if len(cells) == 3 and amount(cells[1]):
                costs[cells[2]] = amount(cells[1])
        # It shows two decimals.
        assert costs == pytest.approx(own_costs(db, metric), rel=1e-3)
        page.keyboard.press("n")
    # The list of profiles, which is hidden.
    totals = {}
    for row in page.locator("tr[title]").all():
        _, name, total = row.locator("td").all_text_contents()
        totals[name] = amount(total)
    expected = {}
    for metric in db.metrics.names:
        expected[f"{metric}: all trace lines"] = float(db.metrics.exclusive(metric).sum())
        for number, label in enumerate(db.lines.label):
            expected[f"{metric}: {label}"] = float(db.metrics.by_line(metric, number)[1].sum())
    assert totals == pytest.approx(expected, rel=1e-3)
