"""``--memory``: what is recorded of a program whose touches are known."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcd.analysis.database import open as open_database
from hpcd.analysis.findings import recorded_findings
from hpcd.analysis.findings.findings import findings
from tests.support.recorded import HPCD, hpcd, record
from tests.support.waiting import Recorder

pytestmark = pytest.mark.root

MEGABYTES = 32
BYTES = MEGABYTES << 20


# The kernel runs a program once at a time on a processor: a fault that happens while another task's
# has been preempted in it is not seen. So were up to 17 of 8,192 on a busy machine.
_SEEN = 0.99


def _of(process: dict[str, Any], function: str) -> Counter[str]:
    """The figures of all paths that end in ``function``: the first few may be truncated."""
    figures: Counter[str] = Counter()
    for path in process["paths"]:
        if path["path"].split(" < ")[0] == function:
            figures.update({name: path[name] for name in ("touched", "huge", "at_peak", "at_end")})
    return figures


def test_touched_memory_is_found_where_it_was_touched(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    summary = record(tmp_path / "m", [build("touches.c"), MEGABYTES], "--memory")
    assert summary["calls"]["dropped"] == {}
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "db")
    (process,) = json.loads(hpcd("memory", tmp_path / "db", "--json", "--limit", 0).stdout)[
        "processes"
    ]
    first, second = (_of(process, name) for name in ("touch_first", "touch_second"))
    assert BYTES * _SEEN <= first["touched"] == first["at_peak"] <= BYTES
    assert BYTES // 2 * _SEEN <= first["at_end"] <= BYTES // 2
    assert BYTES // 4 * _SEEN <= second["touched"] == second["at_end"] <= BYTES // 4
    assert second["at_peak"] == 0  # it came after
    assert BYTES * _SEEN <= process["peak"] < BYTES + (2 << 20)  # and the C library's own
    (mapped,) = [path for path in process["paths"] if " < grow < " in path["path"]
                 and path["mapped"]]  # fmt: skip
    assert mapped["mapped"] == BYTES + BYTES // 4
    assert sum(path["released"] for path in process["paths"]) >= BYTES // 2
    text = hpcd("memory", tmp_path / "db").stdout
    assert "touch_first < main" in text
    assert text.startswith("Pages by the path that touched them first")
    nodes = process["by_numa_node"]
    assert sum(nodes.values()) == process["touched"]
    if sum(1 for _ in Path("/sys/devices/system/node").glob("node[0-9]*")) == 1:
        assert set(nodes) == {"0"} and not any(path["remote"] for path in process["paths"])
        assert "all on NUMA node 0" in text


# What ``hpcd`` is where the kernel has no tracepoints of page faults, as on aarch64.
_WITHOUT_TRACEPOINTS = """
import sys
import hpcd.bpf.calls.call_programs
from hpcd.__main__ import main
hpcd.bpf.calls.call_programs.has_fault_tracepoints = lambda: False
sys.exit(main())
"""


def test_without_tracepoints_of_page_faults_touched_memory_is_the_same(
    tmp_path: Path, build: Callable[..., Path]
) -> None:
    program = [build("touches.c"), str(MEGABYTES)]
    subprocess.run(
        [sys.executable, "-P", "-c", _WITHOUT_TRACEPOINTS, "run", "--memory", "-o", tmp_path / "m",
         "--", *program], check=True,
    )  # fmt: skip
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "db")
    shown = hpcd("memory", tmp_path / "db", "--json", "--limit", 0).stdout
    (process,) = json.loads(shown)["processes"]
    assert _of(process, "touch_first")["touched"] == BYTES
    assert _of(process, "touch_second")["touched"] == BYTES // 4


def test_what_was_there_before_counts_from_the_attach_on(
    tmp_path: Path, build: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [str(build("touches.c")), str(MEGABYTES), "waits"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        assert target.stdout and target.stdout.readline() == b"ready\n"
        recorder = Recorder(tmp_path / "m", "--memory", "--pid", target.pid)
        target.communicate(b"\n")
        recorder.wait()
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    hpcd("check", tmp_path / "db")
    shown = hpcd("memory", tmp_path / "db", "--json", "--limit", 0).stdout
    (process,) = json.loads(shown)["processes"]
    before = _of(process, "[resident before the recording]")
    assert BYTES <= process["peak"] < BYTES + (2 << 20)  # and the C library's own
    assert before["at_peak"] == process["peak"] and before["touched"] == 0
    assert before["at_end"] == pytest.approx(before["at_peak"] - BYTES // 2, abs=1 << 17)
    second = _of(process, "touch_second")
    assert BYTES // 4 * _SEEN <= second["at_end"] == process["touched"] <= BYTES // 4
    assert process["at_end"] == before["at_end"] + second["at_end"]
    with open_database(tmp_path / "db") as db:
        (held,) = (finding for finding in findings(db) if finding.kind == "memory")
        assert held.as_json()["place"].endswith(" of it resident before the recording")
        # Of more calls than are added up for a sentence, that is said.
        monkeypatch.setattr(recorded_findings, "_MOST_CALLS", 1)
        (told,) = (finding.text for finding in findings(db) if finding.kind == "memory")
    assert told == "More than 1 calls of memory were recorded: hpcd memory adds them up."


def test_huge_pages_are_those_of_the_kernel(tmp_path: Path, build: Callable[..., Path]) -> None:
    with (tmp_path / "said").open("wb") as output:
        command = [*HPCD, "run", "--memory", "-o", tmp_path / "m", "--json-file", "/dev/null", "--"]
        program = [build("touches.c"), 16, "huge"]
        subprocess.run([*map(str, command), *map(str, program)], stdout=output, check=True)
    huge = int((tmp_path / "said").read_text())
    if not huge:
        pytest.skip("the kernel has no huge pages")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    shown = hpcd("memory", tmp_path / "db", "--json", "--limit", 0).stdout
    (process,) = json.loads(shown)["processes"]
    total = sum(path["huge"] for path in process["paths"])
    # Of 8 pages one fault may not be seen, as above.
    assert huge - (2 << 20) <= total <= huge
    assert _of(process, "touch_second")["huge"] >= total - (2 << 20)


def test_bytes_of_allocators_by_call_path(tmp_path: Path, build: Callable[..., Path]) -> None:
    record(tmp_path / "m", [build("leaks.c")], "--probes", "malloc")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    shown = json.loads(hpcd("calls", tmp_path / "db", "--json", "--by", "path").stdout)
    sizes: Counter[str] = Counter()
    for row in shown["totals"]["path"]:
        sizes[" < ".join(row["name"].split(" < ")[:2])] += row["size"]
    assert sizes["malloc < leak"] == 1000 * 65000
    assert sizes["calloc < borrow"] == 2000 * 20 * 5000
    assert sizes["free < borrow"] == 0
    assert "bytes" in hpcd("calls", tmp_path / "db", "--by", "path").stdout
    refused = hpcd("memory", tmp_path / "db", check=False)
    assert refused.returncode == 2 and "--heap" in refused.stderr


def test_memory_and_io_are_recorded_together(tmp_path: Path, build: Callable[..., Path]) -> None:
    record(tmp_path / "m", [build("touches.c"), 1], "--memory", "--io")
    hpcd("merge", tmp_path / "m", "-o", tmp_path / "db")
    groups = json.loads(hpcd("calls", tmp_path / "db", "--json").stdout)["functions"]
    assert {group["group"] for group in groups} == {"io", "memory"}
    refused = hpcd("calls", tmp_path / "db", "--group", "mpi", check=False)
    assert refused.returncode == 2
