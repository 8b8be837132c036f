"""Reading an HPCToolkit database as its FORMATS.md describes it (with a {PI} of 48 bytes)."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

Costs = dict[str, Counter[tuple[str, ...]]]

_FOOTER = {"meta": b"_meta.db", "prof": b"_prof.db", "ctxt": b"__ctx.db", "trce": b"trace.db"}


class File:
    """A file's bytes and sections."""

    def __init__(self, path: Path, kind: str, sections: int) -> None:
        self.data = path.read_bytes()
        assert self.data[:16] == b"HPCTOOLKIT" + kind.encode() + b"\x04\x00"
        assert self.data.endswith(_FOOTER[kind])
        self.sections = []
        for number in range(sections):
            size, at = self.take("<QQ", 16 + 16 * number)
            assert at % 8 == 0 and at + size <= len(self.data) - 8
            self.sections.append(at)

    def take(self, form: str, at: int) -> tuple[Any, ...]:
        return struct.unpack_from(form, self.data, at)

    def string_in(self, at: int, section: int) -> str:
        """A string that must lie, with its NUL, in a section."""
        size, begin = self.take("<QQ", 16 + 16 * section)
        end = self.data.index(b"\0", at)
        assert begin <= at and end < begin + size
        return self.data[at:end].decode()


def read_hpctoolkit(path: Path) -> Costs:
    """Exclusive costs by call path of functions; asserts that the files agree with each other."""
    meta = File(path / "meta.db", "meta", 8)
    metrics, exclusive, scopes = _metrics(meta)
    paths, contexts = _contexts(meta)
    profiles = _profiles(path, set(contexts))
    count = len(metrics) // 2
    summed: dict[int, Counter[int]] = defaultdict(Counter)
    for profile in profiles[1:]:
        for context, values in profile.items():
            for metric, value in values.items():
                summed[context][metric + 2 * count] += value
    for context, values in profiles[0].items():
        for metric, value in values.items():
            assert abs(value - summed[context][metric]) < 1e-6
    _check_cct(path, profiles, max(contexts) + 1)
    _check_trace(path, set(contexts), len(profiles))
    costs: Costs = defaultdict(Counter)
    for context, values in profiles[0].items():
        # Costs of functions are those of their lines.
        if contexts.get(context) == 0 or context == 1:
            for metric, value in values.items():
                if metric - 2 * count in exclusive:
                    costs[metrics[metric - 2 * count]][paths[context]] += value
    for metric, name in metrics.items():
        if scopes[metric] == "execution":
            whole = profiles[0].get(0, {}).get(metric + 2 * count, 0.0)
            assert abs(whole - sum(costs[name].values())) < 1e-6
    return costs


def _metrics(meta: File) -> tuple[dict[int, str], set[int], dict[int, str]]:
    at = meta.sections[2]
    table, count, size, instance_size, _ = meta.take("<QIBBB", at)
    names: dict[int, str] = {}
    scopes: dict[int, str] = {}
    for number in range(count):
        name_at, instances, _, many, _ = meta.take("<QQQHH", table + number * size)
        name = meta.string_in(name_at, 2).removesuffix(" (sec)")
        name = {"CPUTIME": "cpu_time"}.get(name, name)
        for place in range(many):
            scope, metric = meta.take("<QH", instances + place * instance_size)
            names[metric] = name
            scopes[metric] = meta.string_in(*meta.take("<Q", scope), 2)
    return names, {metric for metric, scope in scopes.items() if scope == "function"}, scopes


def _contexts(meta: File) -> tuple[dict[int, tuple[str, ...]], dict[int, int]]:
    """Path of functions, and lexical type, of each context."""
    entries, count, size = meta.take("<QHB", meta.sections[3])
    assert (count, size) == (1, 32)
    span, begin, root, _, pretty = meta.take("<QQIH2xQ", entries)
    assert meta.string_in(pretty, 4) == "all threads"
    paths: dict[int, tuple[str, ...]] = {0: (), root: ()}
    kinds: dict[int, int] = {root: -1}
    waiting = [(span, begin, root)]
    while waiting:
        span, begin, above = waiting.pop()
        at = begin
        while at < begin + span:
            children, first, context, flags, relation, kind, words = meta.take("<QQIBBBB", at)
            assert context not in paths
            kinds[context] = kind
            paths[context] = paths[above]
            if kind == 0:
                assert flags == 1 and relation in (1, 2) and words == 1
                (function,) = meta.take("<Q", at + 32)
                assert meta.sections[7] < function
                name, *_ = meta.take("<QQQQII", function)
                paths[context] = (*paths[above], meta.string_in(name, 4))
            else:
                assert (kind, flags) in ((2, 2), (3, 4)) and relation == 0 and words == 2
                where, place = meta.take("<QQ", at + 32)
                section = meta.sections[6] if kind == 2 else meta.sections[5]
                assert section < where and meta.string_in(*meta.take("<Q", where + 8), 4)
                assert place or kind == 3
            waiting.append((children, first, context))
            at += 32 + 8 * words
        assert at == begin + span
    return paths, kinds


def _profiles(path: Path, contexts: set[int]) -> list[dict[int, dict[int, float]]]:
    file = File(path / "profile.db", "prof", 2)
    table, count, size = file.take("<QIB", file.sections[0])
    assert size == 48
    profiles = []
    for number in range(count):
        at = table + number * size
        values, values_at, used, index_at, tuple_at, flags = file.take("<QQI4xQQI", at)
        assert flags == (number == 0) and bool(tuple_at) == (number > 0)
        assert values_at + 10 * values <= index_at
        starts = [file.take("<IQ", index_at + 12 * n) for n in range(used)]
        assert starts == sorted(starts)
        profile = {}
        for context, start, end in _spans(starts, values):
            assert context in contexts or context == 0
            pairs = [file.take("<Hd", values_at + 10 * n) for n in range(start, end)]
            assert pairs == sorted(pairs)
            profile[context] = dict(pairs)
        profiles.append(profile)
    return profiles


def _spans(starts: list[tuple[Any, ...]], count: int) -> list[tuple[int, int, int]]:
    """(identifier, begin, end) of each entry of an index."""
    ends = [start for _, start in starts[1:]] + [count]
    return [(*entry, end) for entry, end in zip(starts, ends, strict=False)]


def _check_cct(path: Path, profiles: list[dict[int, dict[int, float]]], contexts: int) -> None:
    """cct.db has what profile.db has."""
    file = File(path / "cct.db", "ctxt", 1)
    table, count, size = file.take("<QIB", file.sections[0])
    assert (count, size) == (contexts, 32)
    cells = 0
    for context in range(count):
        values, values_at, used, index_at = file.take("<QQH6xQ", table + context * size)
        starts = [file.take("<HQ", index_at + 10 * n) for n in range(used)]
        assert starts == sorted(starts) and values_at + 12 * values <= index_at
        for metric, start, end in _spans(starts, values):
            pairs = [file.take("<Id", values_at + 12 * n) for n in range(start, end)]
            assert pairs and pairs == sorted(pairs)
            for profile, value in pairs:
                assert profiles[profile][context][metric] == value
                cells += 1
    assert cells == sum(len(values) for profile in profiles[1:] for values in profile.values())


def _check_trace(path: Path, contexts: set[int], profiles: int) -> None:
    file = File(path / "trace.db", "trce", 1)
    table, count, size, earliest, latest = file.take("<QIB3xQQ", file.sections[0])
    assert size == 24 and count == profiles - 1
    ends = []
    for number in range(count):
        profile, begin, end = file.take("<I4xQQ", table + number * size)
        assert profile == number + 1 and (end - begin) % 12 == 0
        elements = [file.take("<QI", at) for at in range(begin, end, 12)]
        times = [time for time, _ in elements]
        assert times == sorted(times)
        ends += [*times[:1], *times[-1:]]
        ids = [context for _, context in elements]
        assert set(ids) <= contexts | {0}
        assert not [1 for a, b in pairwise(ids) if a == b == 0]
        assert not ids or ids[-1] == 0
    if ends:
        assert (earliest, latest) == (min(ends), max(ends))
