"""The answers of the viewer's server, and the clients that get them."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shlex
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from numpy.typing import NDArray

from hpcd.analysis import open as open_database
from hpcd.analysis.arrays.named_arrays import NamedArrays
from hpcd.analysis.parallel.comparison import compare
from hpcd.analysis.parallel.comparison_sides import whole_runs
from hpcd.viewer.picture_tree import PictureTree
from hpcd.viewer.server.app import WEB
from tests.support.recorded import hpcd
from tests.support.viewer import ask, served


def picture(body: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint16]]:
    """Places and nodes of a picture of few nodes."""
    arrays = NamedArrays(body)
    assert arrays["nodes"].dtype == np.uint16
    return arrays["places"], arrays["nodes"].reshape(len(arrays["lines"]), -1)


def test_a_picture_of_runs_shows_the_same(url: str) -> None:
    path = "api/v1/db/run.db/grid?t0=0&t1=1000000000&l0=0&l1=8&h=4&w=1000"
    _, pixels = picture(ask(url, path)[1])
    runs = NamedArrays(ask(url, f"{path}&runs=1&folds=1")[1])
    node, end = runs["nodes"], runs["ends"].astype(np.int64)
    assert len(runs["lines"]) == len(runs["folded"]) == 4 and 0 < len(node) == len(end) < 4000
    first = np.concatenate(([0], end[:-1] % 1000))
    assert np.array_equal(node.repeat(end - first), pixels.ravel())
    # Every pixel another: no runs.
    body = ask(url, "api/v1/db/run.db/grid?t0=0&t1=1000000000&l0=0&l1=8&h=4&w=1&runs=1")[1]
    assert list(NamedArrays(body)) == ["lines", "places", "nodes"]
    assert NamedArrays(body)["nodes"].shape == (4,)


def test_the_page_is_one_script(url: str) -> None:
    scripts = re.findall('<script[^>]* src="([^"]+)"', ask(url, "")[1].decode())
    assert scripts == ["core/first_request.js", "core/app.js"]
    assert ask(url, scripts[0])[1] == (WEB / scripts[0]).read_bytes()
    page = ask(url, scripts[1])[1].decode()
    modules = {path.relative_to(WEB).as_posix() for path in WEB.rglob("*.js")}
    assert set(re.findall(r"^// (\w+/\w+\.js)$", page, re.MULTILINE)) == {
        name for name in modules if name != scripts[0] and not name.endswith("_types.js")
    }
    assert ask(url, "../app.py")[0] == 404


def test_a_grid_is_what_the_library_samples(url: str, database: Path) -> None:
    path = "api/v1/db/run.db/grid?t0=0&t1=1000000000&l0=0&l1=8&h=4&w=100"
    status, body = ask(url, path)
    place, nodes = picture(body)
    assert status == 200 and place.tolist() == [1, 3, 5, 7] and nodes.shape == (4, 100)
    with open_database(database) as db:
        pixels = db.sample_grid(None, 0, 10**9, 4, 100)
        assert nodes.tolist() == PictureTree(db).of_pixels(pixels).tolist()
    assert ask(url, path, **{"accept-encoding": "gzip, zstd"})[1] == body


def values(body: bytes) -> tuple[int, np.ndarray[tuple[int, int], np.dtype[np.float64]]]:
    arrays = NamedArrays(body)
    return int(arrays["kind"]), arrays["values"]


def test_profiles_of_some_lines_add_up_to_the_whole(url: str) -> None:
    base = "api/v1/db/run.db/profile?t0=0&t1=1000000000"
    kind, whole = values(ask(url, base + "&l0=0&l1=8")[1])
    assert kind == 0
    halves = [values(ask(url, f"{base}&sort=cpu_time&{part}")[1])[1]
              for part in ("l0=0&l1=4", "l0=4&l1=8")]  # fmt: skip
    np.testing.assert_allclose(halves[0] + halves[1], whole)
    # Time of part of the run: all 8 lines were somewhere all the time.
    kind, times = values(ask(url, base.replace("t1=1000000000", "t1=500000000") + "&l0=0&l1=8")[1])
    assert kind == 1 and abs(times.sum() - 4.0) < 0.02
    _, grid = picture(ask(url, "api/v1/db/run.db/grid?t0=0&t1=500000000&l0=0&l1=8&h=8&w=4000")[1])
    share = np.bincount(grid[grid != 0xFFFF], minlength=times.shape[1]) / 32000
    np.testing.assert_allclose(share, times[0] / times.sum(), atol=0.01)


def test_a_context_over_lines_and_the_heat_map(url: str) -> None:
    query = "t0=0&t1=1000000000&l0=0&l1=8&metric=cpu_time"
    answer = json.loads(ask(url, f"api/v1/db/run.db/over?{query}&context=n0")[1])
    assert answer["lines"] == 8 and sum(answer["counts"]) == 8
    assert answer["curve"]["line"][-1] == 7 and answer["max"] == answer["curve"]["value"][-1]
    assert abs(answer["sum"] - 8 * answer["mean"]) < 1e-9
    value = np.array(answer["curve"]["value"])
    assert answer["stddev"] == pytest.approx(value.std()) and value.std() > 0
    assert answer["cv"] == pytest.approx(value.std() / value.mean())
    assert answer["imbalance"] == pytest.approx(value.max() / value.mean() - 1)
    assert answer["median"] == pytest.approx(np.median(value)) and answer["min"] == value.min()
    cells = NamedArrays(ask(url, f"api/v1/db/run.db/heat?{query}&h=100&w=10")[1])
    assert len(cells["lines"]) == 8 and cells["values"].size == 8 * len(cells["procedures"])
    np.testing.assert_allclose(cells["values"].sum(), answer["sum"], rtol=1e-5)


def aligned(url: str, query: str) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    head, *columns = dict(NamedArrays(ask(url, f"api/v1/compare?{query}")[1])).values()
    return json.loads(head.tobytes()), columns


def test_a_comparison_is_what_the_library_compares(url: str, runs: list[Path]) -> None:
    head, (cost, variance, parent, place, owner) = aligned(url, "db=ranks-2.db&db=ranks-4.db")
    assert [side["label"] for side in head["sides"]] == ["ranks-2.db", "ranks-4.db"]
    assert [side["size"] for side in head["sides"]] == [2, 4] and head["metric"] == "work"
    assert head["heading"] == "run time: 690.0 ms -> 940.0 ms (+36.2 %, worse)"
    with open_database(runs[0]) as one, open_database(runs[1]) as two:
        comparison = compare(whole_runs([one, two]), metric="work")
        nodes, costs, _ = comparison.regions()
    np.testing.assert_allclose(cost.sum(axis=1), comparison.total)
    np.testing.assert_allclose(variance.sum(axis=1), comparison.variance.sum(axis=1))
    assert (parent[1:] < np.arange(1, len(parent))).all()
    own = np.stack([np.bincount(owner, row_costs) for row_costs in cost])
    by_name = {head["procedures"][place[node]]: own[:, node].tolist() for node in set(owner)}
    for node, expected in zip(nodes, costs.T, strict=True):
        name = comparison.places[int(comparison.matching.tree.frame[node])].label
        assert by_name[name] == pytest.approx(expected.tolist())
    calls = json.loads(ask(url, "api/v1/compare/calls?db=ranks-2.db&db=ranks-4.db")[1])
    (saved,) = [call for call in calls["calls"] if call["name"] == "checkpoint"]
    assert (saved["visits"][1], saved["change"]) == (3, ["new"])


def test_parts_of_one_run_are_compared(url: str) -> None:
    for query, labels in (
        ("window=0:250000000&window=250000000:500000000", ["0.000 to 0.250 s", "0.250 to 0.500 s"]),
        ("rank=0&rank=1", ["rank 0", "rank 1"]),
        ("pid=100&pid=101", ["process 100", "process 101"]),
        ("iteration=1&iteration=3&metric=time", ["iteration 1", "iteration 3"]),
        ("iteration=&phase=sweep", ["sweep 1", "sweep 2", "sweep 3"]),
    ):
        head, columns = aligned(url, f"db=ranks-2.db&{query}")
        assert sorted(side["label"] for side in head["sides"]) == labels
        assert columns[0].any(axis=1).all()


def test_what_a_page_begins_with_is_one_answer(url: str) -> None:
    depths = json.loads(ask(url, "api/v1/db/ranks-2.db/depths")[1])
    names = json.loads(ask(url, "api/v1/databases")[1])["databases"]
    for asked, name in (("ranks-2.db", "ranks-2.db"), ("none", names[0])):
        status, body = ask(url, f"api/v1/opening?db={asked}")
        arrays = dict(NamedArrays(body))
        head = json.loads(arrays.pop("head").tobytes())
        assert status == 200 and head["databases"] == names and head["db"] == name
        assert head["summary"] == json.loads(ask(url, f"api/v1/db/{name}")[1])
        assert head["depths"] == depths or name != asked
        tree = NamedArrays(ask(url, f"api/v1/db/{name}/cct")[1])
        assert list(arrays) == list(tree)
        assert all(np.array_equal(arrays[column], tree[column]) for column in tree)


def test_others_are_refused(url: str) -> None:
    assert ask(url, "")[0] == 200
    for headers in (
        {"x-hpcd-token": ""},
        {"x-hpcd-token": "x" * 22},
        {"origin": "http://evil.example"},
        {"host": "evil.example"},
    ):
        assert ask(url, "api/v1/databases", **headers)[0] == 403
    with urllib.request.urlopen(url.partition("#")[0]) as answer:
        policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy


@pytest.mark.parametrize(
    "path",
    ["api/v1/db/none", "api/v1/db/..%2F..%2Fetc", "../../etc/passwd", "%2e%2e/%2e%2e/app.py",
     "api/v1/db/run.db/selection?sort=none", "api/v1/db/run.db/selection?filter=(",
     "api/v1/db/run.db/profile?t0=0&t1=9&l0=4&l1=4", "api/v1/db/run.db/over?l0=0&l1=8&t0=0&t1=9",
     "api/v1/db/run.db/over?l0=0&l1=8&t0=0&t1=9&metric=records&context=n99999",
     "api/v1/db/run.db/heat?l0=0&l1=8&t0=0&t1=9&metric=records&h=0&w=1",
     "api/v1/db/run.db/lines?from=9&count=1",
     "api/v1/db/run.db/profile?t0=9&t1=9&l0=0&l1=8",
     "api/v1/db/run.db/grid?t0=0&t1=0&l0=0&l1=1&h=1&w=1",
     "api/v1/db/run.db/grid?t0=0&t1=9&l0=0&l1=1&h=10000&w=10000",
     "api/v1/db/run.db/grid?t0=x&t1=9&l0=0&l1=1&h=1&w=1",
     "api/v1/compare", "api/v1/compare?db=run.db", "api/v1/compare?db=run.db&db=run.db",
     "api/v1/compare?db=run.db&db=none", "api/v1/compare?db=run.db&window=0:9",
     "api/v1/compare?db=run.db&rank=0&rank=9", "api/v1/compare?db=run.db&window=9:0&window=0:9",
     "api/v1/compare?db=run.db&rank=0&pid=1", "api/v1/compare?db=run.db&db=ranks-2.db&rank=0",
     "api/v1/compare?db=run.db&db=ranks-2.db&metric=none", "api/v1/compare?" + 9 * "db=run.db&",
     "api/v1/compare?db=run.db&iteration=900", "api/v1/compare/calls?db=run.db&phase=nothing",
     "api/v1/compare?db=run.db&rank=0&rank=1&within=nothing"],
)  # fmt: skip
def test_what_makes_no_sense_is_said_in_a_line(url: str, path: str) -> None:
    status, body = ask(url, path)
    assert status in (400, 404)
    assert b"Traceback" not in body and body.count(b"\n") == 0


def test_hostile_requests_never_break_it(url: str) -> None:
    choice = random.Random(1)
    words = ["t0", "t1", "l0", "l1", "h", "w", "from", "count", "grid", "lines", "cct", "run.db",
             "-1", "0", "1e9", "9" * 30, "%00", "%ff", "..", "/", "&", "=", "?",
             "metric"]  # fmt: skip
    for _ in range(1000):
        path = "".join(
            choice.choice(words) + choice.choice("/?&=") for _ in range(choice.randrange(8))
        )
        status, body = ask(url, "api/v1/db/" + path)
        assert status in (200, 307, 400, 403, 404, 405) and b"Traceback" not in body, path
    assert ask(url, "api/v1/databases")[0] == 200


def test_at_a_socket_for_its_owner_alone(database: Path, tmp_path: Path) -> None:
    """The address in a report's hint opens through a socket: mode 0600, any forwarded port, gone
    after."""
    output = hpcd("report", database).stderr.splitlines()[-1].removeprefix("view in a browser: ")
    verb, view, *arguments = shlex.split(output)
    assert (verb, view) == ("hpcd", "view") and arguments[1:] == ["--find", "kernel"]
    place = tmp_path / "s.sock"
    with served(*arguments, "--lines", "rank [0-2]$", "--time", ":0.5", "--listen", place,
                "--port", "8123") as (url, process):  # fmt: skip
        base, _, view = url.partition("#")
        parameters = dict(parse_qsl(view))
        assert base == "http://127.0.0.1:8123/" and parameters.pop("token")
        assert parameters == {"search": "kernel", "db": "run.db", "filter": "rank [0-2]$",
                         "t0": "0", "t1": "500000000", "l0": "0", "l1": "3"}  # fmt: skip
        assert place.stat().st_mode & 0o777 == 0o600
        token = dict(parse_qsl(view))["token"]
        for host, code in (("localhost:9999", 200), ("127.0.0.1:1", 200), ("evil.example:80", 403)):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(place))
                connection.sendall(
                    f"GET /api/v1/databases HTTP/1.1\r\nHost: {host}\r\nx-hpcd-token: {token}\r\n"
                    "Connection: close\r\n\r\n".encode()
                )
                assert connection.makefile("rb").readline().split()[1] == str(code).encode()
        second = hpcd("view", "--no-browser", "--listen", place, database, check=False)
        assert second.returncode == 6 and "in use" in second.stderr
        process.terminate()
        process.wait()
    assert not place.exists()


def test_views_that_cannot_be_are_said(database: Path) -> None:
    for words in (("--time", "5:1"), ("--time", "x:1"), ("--lines", "nobody"), ("--lines", "(")):
        done = hpcd("view", "--no-browser", database, *words, check=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1


def test_an_answer_does_not_wait_for_the_acknowledgement_of_its_header() -> None:
    from hpcd.cli.verbs.view import _at_port

    without_delay = []

    def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        without_delay.append(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def connect(listener: socket.socket) -> None:
        async with await asyncio.start_server(accepted, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            assert await reader.read() == b""
            writer.close()

    with _at_port(0) as listener, ThreadPoolExecutor(1) as other:
        # This thread may have a loop already: playwright's.
        other.submit(asyncio.run, connect(listener)).result()
    assert without_delay == [1]
