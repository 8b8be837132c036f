"""Readers of exported files, from the formats' descriptions: call paths and what they cost."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import otf2

from tests.support import perfetto_rules
from tests.support.hpctoolkit_reader import read_hpctoolkit
from tests.support.protobuf_reader import message, packed

Costs = dict[str, Counter[tuple[str, ...]]]
"""Metric → exclusive cost by call path, outermost first; times in s."""


def empty() -> Costs:
    return defaultdict(Counter)


def read_collapsed(path: Path) -> Costs:
    costs = empty()
    for line in path.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        costs["cpu_time"][tuple(stack.split(";"))] += int(count) / 1e9
    return costs


def read_speedscope(path: Path) -> Costs:
    document = json.loads(path.read_bytes())
    names = [frame["name"] for frame in document["shared"]["frames"]]
    whole, lines = empty(), empty()
    for profile in document["profiles"]:
        assert profile["type"] == "sampled"
        assert len(profile["samples"]) == len(profile["weights"])
        assert abs(profile["endValue"] - sum(profile["weights"])) < 1e-5
        metric, _, what = profile["name"].partition(": ")
        scale = {"nanoseconds": 1e-9, "none": 1}[profile["unit"]]
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            costs = whole if what == "all trace lines" else lines
            costs[metric][tuple(names[frame] for frame in stack)] += weight * scale
    # Both halves of the file tell the same.
    for metric, by_path in whole.items():
        assert by_path.keys() == lines[metric].keys()
        for stack, cost in by_path.items():
            assert abs(cost - lines[metric][stack]) < 1e-5
    return whole


def read_pprof(path: Path) -> Costs:
    profile = message(gzip.decompress(path.read_bytes()))
    strings = [text.decode() for text in profile[6]]
    assert strings[0] == ""
    types = [message(kind) for kind in profile[1]]
    metrics = [(strings[kind[1][0]], strings[kind[2][0]]) for kind in types]
    functions = {m[1][0]: strings[m[2][0]] for m in map(message, profile[5])}
    mappings = {m[1][0] for m in map(message, profile.get(3, []))}
    locations = {}
    for location in map(message, profile[4]):
        assert location.get(2, [0])[0] in {0, *mappings}
        (line,) = location[4]
        locations[location[1][0]] = functions[message(line)[1][0]]
    costs = empty()
    for sample in map(message, profile.get(2, [])):
        stack = tuple(locations[number] for number in reversed(packed(sample[1][0])))
        for (metric, unit), value in zip(metrics, packed(sample[2][0]), strict=True):
            costs[metric][stack] += value * (1e-9 if unit == "nanoseconds" else 1)
        for label in map(message, sample[3]):
            assert strings[label[1][0]]
    return costs


def read_firefox(path: Path) -> Costs:
    profile = json.loads(path.read_bytes())
    assert profile["meta"]["preprocessedProfileVersion"] == 70
    shared = profile["shared"]
    for name, table in shared.items():
        if name != "stringArray":
            assert {len(column) for key, column in table.items() if key != "length"} <= {
                table["length"]
            }, name
    names = [shared["stringArray"][name] for name in shared["funcTable"]["name"]]
    frames = [names[function] for function in shared["frameTable"]["func"]]
    paths: list[tuple[str, ...]] = []
    stacks = shared["stackTable"]
    for frame, offset in zip(stacks["frame"], stacks["prefixOffset"], strict=True):
        paths.append((*(paths[len(paths) - offset] if offset else ()), frames[frame]))
    costs = empty()
    end = profile["meta"]["profilingEndTime"]
    assert profile["meta"]["sampleUnits"]["threadCPUDelta"] == "ns"
    for thread in profile["threads"]:
        samples = thread["samples"]
        # Firefox's range of time excludes its end.
        assert not samples["time"] or samples["time"][-1] < end
        cpu_ns = [
            0 if place[-1].endswith("_time]") else round(weight * 1e6)
            for place, weight in zip(
                (paths[stack] for stack in samples["stack"]), samples["weight"], strict=True
            )
        ]
        assert samples.get("threadCPUDelta", cpu_ns) == cpu_ns
        assert len(samples["stack"]) == len(samples["time"]) == samples["length"]
        assert samples["time"] == sorted(samples["time"])
        for stack, weight in zip(samples["stack"], samples["weight"], strict=True):
            place = paths[stack]
            metric = "cpu_time"
            if place[-1].startswith("[") and place[-1].endswith("_time]"):
                metric, place = place[-1][1:-1], place[:-1]
            if samples["weightType"] == "samples":
                costs["records"][place] += weight
            else:
                costs[metric][place] += weight / 1e3
    return costs


def read_csv(path: Path) -> Costs:
    tables = {
        file.stem: list(csv.DictReader(file.open(encoding="utf-8", newline="")))
        for file in path.glob("*.csv")
    }
    paths: list[tuple[str, ...]] = [()]
    for row in tables["contexts"][1:]:
        assert int(row["context"]) == len(paths)
        paths.append((*paths[int(row["parent"])], row["name"]))
        assert int(row["depth"]) == len(paths[-1])
    costs, traced = empty(), empty()
    for table, sums in (("costs", costs), ("trace", traced)):
        for row in tables[table]:
            for metric in (row["name"] for row in tables["metrics"]):
                sums[metric][paths[int(row["context"])]] += float(row[metric])
    for metric, by_path in costs.items():
        for stack, cost in by_path.items():
            assert abs(cost - traced[metric][stack]) < 1e-6
    return costs


def read_hatchet(path: Path) -> Costs:
    costs = empty()
    (root,) = json.loads(path.read_bytes())
    waiting: list[tuple[dict[str, Any], tuple[str, ...]]] = [(root, ())]
    while waiting:
        node, place = waiting.pop()
        assert node["name"] == node["frame"]["name"]
        for metric, value in node["metrics"].items():
            name, _, kind = metric.partition(" (")
            if name == "time":
                assert value in (
                    node["metrics"][f"{own}_time{kind and ' (inc)'}"] for own in ("cpu", "blocked")
                )
            elif not kind:
                costs[name][place] += value
                within = sum(child["metrics"][f"{name} (inc)"] for child in node["children"])
                assert abs(node["metrics"][f"{name} (inc)"] - value - within) < 1e-6
        waiting += [(child, (*place, child["name"])) for child in node["children"]]
    return costs


def read_tau(path: Path) -> Costs:
    costs = empty()
    for folder in path.glob("MULTI__*"):
        metric = folder.name.removeprefix("MULTI__")
        scale = 1 if metric == "records" else 1e-6
        flat: Counter[str] = Counter()
        paths: Counter[str] = Counter()
        for file in folder.iterdir():
            assert re.fullmatch(r"profile\.\d+\.0\.\d+", file.name)
            head, about, *entries = file.read_text(encoding="utf-8").splitlines()
            assert f"<value>{metric.upper()}</value>" in about
            assert head == f"{len(entries) - 1} templated_functions_MULTI_{metric.upper()}"
            assert entries.pop() == "0 aggregates"
            for entry in entries:
                match = re.fullmatch(r'"([^"]*)" \d+ 0 (\S+) (\S+) 0 GROUP="(\w+)"', entry)
                assert match, entry
                name, excl, _, group = match.groups()
                if group == "TAU_CALLPATH":
                    stack = tuple(name.split(" => ")[1:])
                    costs[metric][stack] += float(excl) * scale
                    paths[stack[-1]] += float(excl) * scale
                else:
                    flat[name] += float(excl) * scale
        for name, cost in flat.items():
            assert abs(cost - paths[name]) < 1e-6, name
    return costs


def read_perfetto(path: Path) -> Costs:
    perfetto_rules.parsed(path)
    strings: dict[int, dict[int, str]] = defaultdict(dict)
    frames: dict[int, int] = {}
    stacks: dict[int, list[int]] = {}
    counters: dict[int, tuple[str, bool]] = {}
    tasks: set[int] = set()
    costs = empty()
    for packet in map(message, message(path.read_bytes())[1]):
        for interned in map(message, packet.get(12, [])):
            for field in (5, 16, 17, 18):
                for entry in map(message, interned.get(field, [])):
                    strings[field][entry[1][0]] = entry[2][0].decode()
            for frame in map(message, interned.get(6, [])):
                frames[frame[1][0]] = frame[2][0]
            for stack in map(message, interned.get(7, [])):
                stacks[stack[1][0]] = stack[2]
            for counter in map(message, interned.get(50, [])):
                counters[counter[1][0]] = counter[2][0].decode(), counter.get(3) == [1]
            for task in map(message, interned.get(48, [])):
                tasks.add(task[1][0])
        for sample in map(message, packet.get(135, [])):
            assert packet[8][0] > 10**18 and packet[13] == [2] and sample[2][0] in tasks
            metric, timed = counters[sample[10][0]]
            place = tuple(strings[5][frames[frame]] for frame in stacks[sample[6][0]])
            costs[metric][place] += sample[11][0] * (1e-9 if timed else 1)
    return costs


def read_otf2(path: Path) -> Costs:
    costs = empty()
    with otf2.reader.open(str(path / "traces.otf2")) as trace:
        timed = {a.name: a.description == "ns" for a in trace.definitions.attributes}
        last: dict[Any, int] = defaultdict(int)
        counts: Counter[Any] = Counter()
        for location, event in trace.events:
            assert last[location] <= event.time
            last[location] = event.time
            counts[location] += 1
            if not isinstance(event, otf2.events.CallingContextSample):
                continue
            names = []
            context = event.calling_context
            while context is not None:
                names.append(context.region.name)
                context = context.parent
            ((attribute, value),) = event.attributes.items()
            scale = 1e-9 if timed[attribute.name] else 1
            costs[attribute.name][tuple(reversed(names))] += value * scale
        for location in trace.definitions.locations:
            assert location.number_of_events == counts[location]
            assert location.group.system_tree_parent.class_name == "node"
    return costs


READERS = {
    "collapsed": read_collapsed,
    "speedscope": read_speedscope,
    "pprof": read_pprof,
    "firefox": read_firefox,
    "csv": read_csv,
    "hatchet": read_hatchet,
    "tau": read_tau,
    "hpctoolkit": read_hpctoolkit,
    "perfetto": read_perfetto,
    "otf2": read_otf2,
}
