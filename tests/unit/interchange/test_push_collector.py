"""Profiles pushed to an OpenTelemetry Collector, which sends them on to who looks at them.

It runs where a Collector is on PATH, or where HPCD_OTELCOL says: any distribution with the ``otlp``
receiver and the ``otlphttp`` exporter, of a release that speaks OTLP 1.10 (from 0.148 on).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcd.__main__ import main
from tests.support.pushed import Recorder, otlp_costs
from tests.support.receiver import Receiver

_NAMES = ("otelcol-contrib", "otelcol", "otelcorecol")
COLLECTOR = os.environ.get("HPCD_OTELCOL") or next(filter(None, map(shutil.which, _NAMES)), "")

pytestmark = pytest.mark.skipif(not COLLECTOR, reason="no OpenTelemetry Collector is installed")


@contextmanager
def collector(folder: Path, onwards: str) -> Iterator[str]:
    """The URL of a Collector that sends what it gets to ``onwards``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    # JSON is YAML.
    (folder / "collector.yaml").write_text(json.dumps({
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": endpoint}}}},
        "exporters": {"otlphttp": {"endpoint": onwards}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"profiles": {"receivers": ["otlp"], "exporters": ["otlphttp"]}},
        },
    }))  # fmt: skip
    command = [COLLECTOR, "--config", str(folder / "collector.yaml"),
               "--feature-gates=+service.profilesSupport"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        output = ""
        for line in process.stderr:
            output += line
            if "Everything is ready" in line:
                break
        else:
            pytest.fail(output)
        try:
            yield f"http://{endpoint}"
        finally:
            process.terminate()
            process.communicate()


def test_a_collector_sends_on_what_was_pushed(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "m")
    recorder.record()
    recorder.writer.close()
    with Receiver() as direct:
        assert main(["push", str(tmp_path / "m"), "--to", direct.url]) == 0
        (pushed,) = direct.requests
    with Receiver() as backend:
        with collector(tmp_path, backend.url) as url:
            assert main(["push", str(tmp_path / "m"), "--to", url]) == 0
            (received,) = backend.wait_for(1)
        assert len(backend.requests) == 1
    costs = otlp_costs(received)
    assert costs == otlp_costs(pushed)
    assert sum(sum(paths.values()) for paths in costs.values()) == 568 * 10**6
