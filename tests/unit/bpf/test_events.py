"""Event names as users of perf write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.bpf.events import event_spec, pmus
from hpcd.bpf.events.event_names import parse_event, parse_events
from hpcd.bpf.events.event_spec import EventSpec
from hpcd.bpf.loading import tracefs
from hpcd.errors import HpcdError, PlatformError, UsageError

SOFTWARE, TRACEPOINT, RAW = 1, 2, 4


@pytest.fixture
def pmu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one PMU, laid out as sysfs does."""
    folder = tmp_path / "cpu"
    for name, text in {
        "type": "4",
        "format/event": "config:0-7,32-35",
        "format/umask": "config:8-15",
        "format/edge": "config:18",
        "format/ldlat": "config1:0-15",
        "format/offcore": "config2",
        "format/odd": "config9:0-3",
        "events/loads": "event=0xcd,umask=0x1,ldlat=3",
        "events/asks": "event=0x1,umask=?",
        "events/energy": "event=0x2",
        "events/energy.unit": "Joules",
        "events/energy.scale": "2.5e-10",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(pmus, "_PMUS", tmp_path)
    return folder


@pytest.mark.parametrize(
    ("text", "kind", "config"),
    [
        ("cpu-clock", SOFTWARE, 0),
        ("cycles", 0, 0),
        ("branches", 0, 4),
        ("Instructions", 0, 1),
        ("cs", SOFTWARE, 3),
        ("LLC-load-misses", 3, 2 | 0 << 8 | 1 << 16),
        ("L1-dcache-stores", 3, 0 | 1 << 8 | 0 << 16),
        ("dTLB-prefetch-misses", 3, 3 | 2 << 8 | 1 << 16),
        ("r1A8", RAW, 0x1A8),
    ],
)
def test_generic_names(text: str, kind: int, config: int) -> None:
    event = parse_event(text, 997)
    assert (event.type, event.config, event.frequency, event.period) == (kind, config, 997, 0)
    assert event.name == text


def test_modifiers_are_perfs() -> None:
    assert parse_event("cycles:u", 1).flags == event_spec.EXCLUDE_KERNEL | event_spec.EXCLUDE_HV
    assert parse_event("cycles:k", 1).flags == event_spec.EXCLUDE_USER | event_spec.EXCLUDE_HV
    assert parse_event("cycles:uk", 1).flags == event_spec.EXCLUDE_HV
    assert parse_event("cycles:pp", 1).flags == 2 << 15
    assert parse_event("cycles:HI", 1).flags == event_spec.EXCLUDE_GUEST | event_spec.EXCLUDE_IDLE
    assert parse_event("cycles:u", 1).name == "cycles:u"


def test_rates() -> None:
    slow, clock, plain = parse_events("cs/period=100/,cpu-clock/freq=49/u,faults", 997)
    assert (slow.name, slow.frequency, slow.period) == ("cs", 0, 100)
    assert (clock.name, clock.frequency, clock.period) == ("cpu-clock:u", 49, 0)
    assert (plain.frequency, plain.period) == (997, 0)


def test_fields_of_a_pmu(pmu: Path) -> None:
    event = parse_event("cpu/event=0x3c,umask=0x2,edge/uk", 99)
    assert event.type == 4
    assert event.config == 0x3C | 0x2 << 8 | 1 << 18
    assert event.name == "cpu/event=0x3c,umask=0x2,edge/uk"
    # A value wider than a field's first range goes on in its second.
    assert parse_event("cpu/event=0x73c/", 99).config == 0x3C | 0x7 << 32
    assert parse_event("cpu/config=7,offcore=0xffffffffffffffff/", 99).config2 == (1 << 64) - 1
    rated = parse_event("cpu/event=1,period=5000/", 99)
    assert (rated.name, rated.period) == ("cpu/event=1/", 5000)


def test_named_events_of_a_pmu(pmu: Path) -> None:
    for text in ("loads", "cpu/loads/", "loads/period=3/"):
        event = parse_event(text, 99)
        assert (event.config, event.config1) == (0xCD | 1 << 8, 3)
    # A field given by the user wins, whichever comes first.
    assert parse_event("cpu/loads,ldlat=30/", 99).config1 == 30
    assert parse_event("cpu/ldlat=30,loads/", 99).config1 == 30
    assert parse_event("cpu/asks,umask=4/", 99).config == 1 | 4 << 8
    energy = parse_event("cpu/energy/", 99)
    assert (energy.unit, energy.scale) == ("Joules", 2.5e-10)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no event named"),
        ("cycels", "did you mean cycles"),
        ("cycles,,cs", "a comma too many"),
        ("cycles,cycles", "named twice"),
        ("cycles:", "missing after the colon"),
        ("cycles:z", "no modifier z"),
        ("cycles:pppp", "no more than three p"),
        ("cycles/period=0/", "not a number above 0"),
        ("cycles/freq=x/", "not a number above 0"),
        ("cycles/freq=1,period=1/", "not both"),
        ("cycles/event=1/", "only freq= and period="),
        ("cycles/period=1", "second slash is missing"),
        ("cycles/a/b/c/", "a slash too many"),
        ("cpu//", "a term is empty"),
        ("cpu/period=4/", "say which of cpu's"),
        ("cpu/evnt=1/", "did you mean event"),
        ("cpu/umask=256/", "does not fit"),
        ("cpu/umask=a/", "is not a number"),
        ("cpu/asks/", "asks needs umask="),
        ("cpu/loads=3/", "takes no value"),
        ("cpu/event=1,event=2/", "given twice"),
        ("cpu/../../etc/passwd/", "slash"),
        ("xpu/event=1/", "no PMU xpu; there are cpu"),
        ("{cycles,cs}", "groups"),
        ("cyc*", "patterns"),
        ("x" * 2000, "longer than"),
    ],
)
def test_errors_are_one_line(pmu: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_events(text, 997)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_format_of_a_later_kernel(pmu: Path) -> None:
    with pytest.raises(PlatformError, match="config9"):
        parse_event("cpu/odd=1/", 99)


@given(st.text("cycles:/,=ur0x9-?{. \n", max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        events = parse_events(text, 997)
    except HpcdError:
        return
    assert all(event.frequency > 0 or event.period > 0 for event in events)


def test_what_a_measurement_says_of_an_event() -> None:
    clock = parse_event("cpu-clock", 100).model(0)
    assert (clock.unit, clock.metric, clock.scale) == ("s", "cpu_time", 0.01)
    faults = parse_event("page-faults:u", 100).model(3)
    assert (faults.id, faults.name, faults.metric, faults.scale) == (
        3, "page-faults:u", "page-faults:u", 1.0,
    )  # fmt: skip


@pytest.mark.root
def test_tracepoints_by_name() -> None:
    """tracefs need not be mounted."""
    event = parse_event("sched:sched_switch", 997)
    assert (event.type, event.frequency, event.period) == (TRACEPOINT, 0, 1)
    with tracefs.events() as folder:
        assert folder.number("sched", "sched_switch") == event.config
        assert "sched_switch" in folder.names("sched")
    rated = parse_event("sched:sched_switch:k/period=10/", 997)
    assert (rated.name, rated.period) == ("sched:sched_switch:k", 10)
    event.require()
    with pytest.raises(UsageError, match="did you mean sched:sched_switch"):
        parse_event("sched:sched_swich", 997)
    with pytest.raises(UsageError, match="did you mean sched"):
        parse_event("shced:sched_switch", 997)


@pytest.mark.root
def test_software_events_open_and_others_name_the_reason() -> None:
    for name in ("cpu-clock", "task-clock", "page-faults", "context-switches:u", "minor-faults"):
        parse_event(name, 997).require()
    refused = EventSpec("no-such", SOFTWARE, 9999, frequency=99)
    with pytest.raises(PlatformError, match="event no-such: the kernel refuses it"):
        refused.require()
    with pytest.raises(PlatformError, match="perf_event_max_sample_rate"):
        parse_event("page-faults/freq=1000000/", 997).require()
    for name in ("cycles", "LLC-loads"):
        try:
            parse_event(name, 997).require()
        except PlatformError as error:
            assert f"event {name}: this machine" in str(error)
