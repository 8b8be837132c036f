"""The service pushes what the monitor records, and nothing else."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2

from tests.service.conftest import NOBODY, RunningService
from tests.support.receiver import Receiver

pytestmark = pytest.mark.root

_PROGRAM = "import sys\nprint('ready', flush=True)\nwhile True: sum(range(1000))"


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    """A program of an unprivileged user that computes."""
    process = subprocess.Popen(
        ["/usr/bin/python3", "-c", _PROGRAM], stdout=subprocess.PIPE, text=True, cwd="/",
        user=NOBODY, group=NOBODY, extra_groups=[],
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()


def series(body: bytes) -> dict[tuple[str, str], tuple[int, set[str]]]:
    """CPU time in ns, and the procedures, by user and command."""
    message = profiles_service_pb2.ExportProfilesServiceRequest.FromString(gzip.decompress(body))
    strings = message.dictionary.string_table
    costs = {}
    for resource in message.resource_profiles:
        labels = {a.key: a.value.string_value for a in resource.resource.attributes}
        for profile in resource.scope_profiles[0].profiles:
            assert profile.period > 0
            if strings[profile.sample_type.type_strindex] != "cpu":
                continue
            names = set()
            for sample in profile.samples:
                stack = message.dictionary.stack_table[sample.stack_index]
                for number in stack.location_indices:
                    line = message.dictionary.location_table[number].lines[0]
                    function = message.dictionary.function_table[line.function_index]
                    names.add(strings[function.name_strindex])
            cost = sum(sample.values[0] for sample in profile.samples)
            costs[labels["user"], labels["command"]] = cost, names
    return costs


def test_the_monitor_is_pushed_until_the_configuration_says_no(
    service: Callable[..., RunningService], busy: subprocess.Popen[str]
) -> None:
    with Receiver() as receiver:
        running = service(
            "[monitor]\nenabled = true\nusers = ['nobody']\n"
            f"[push]\nurl = '{receiver.url}'\nevery = '1s'\n"
        )
        running.wait_for_log("pushing")
        name = ("nobody", "python3")
        count = 0
        while not (seen := [s for r in receiver.wait_for(count) if name in (s := series(r.body))]):
            count = len(receiver.requests) + 1
        cost, procedures = seen[0][name]
        assert cost > 0
        # Named by a process without rights: Python's functions, or as long as its interpreter is
        # not recognised that one's own symbols.
        named = [name for name in procedures if "_Py" in name or name == "<module>"]
        assert named
        configuration = running.folder / "hpcd.toml"
        configuration.write_text(configuration.read_text().replace(receiver.url, ""))
        running.process.send_signal(signal.SIGHUP)
        running.wait_for_log("reloaded")
        assert running.end() == 0
    assert not any("push failed" in line for line in running.log)


def test_a_push_that_makes_no_sense_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hpcd", "daemon", "--config", "/dev/stdin"],
        input="[push]\nurl = 'collector:4318'\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "push.url" in done.stderr and done.stderr.count("\n") == 1
