"""Every option of a recording goes wherever a recording is requested, or is refused in a line."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcd.__main__ import build_parser
from hpcd.cli.record_options import recording_options, selected
from hpcd.daemon.capture.recording_options import Options
from hpcd.daemon.service.configuration import Configuration
from hpcd.daemon.service.control import Control
from hpcd.daemon.service.permission import Permission
from hpcd.daemon.service.protocol import Peer, encoded
from hpcd.daemon.service.recorder_process import options_of as handed_over
from hpcd.errors import HpcdError, UsageError
from hpcd.option_schema import Option, options_of, parts_of, request_of, shown

# Fields that are no options: set by the service, for what its user may have, or by the process
# that records.
OF_THE_SERVICE = {
    "output", "owner", "only_user", "only_groups", "table_bytes", "max_memory", "max_cpu",
    "max_probed", "existing",
}  # fmt: skip
OF_HPCD_RUN = {"before_exec", "command", "release", "analysing", "analysing_last", "extra"}
# What each option's words give. A new option has its line here.
GIVEN: dict[str, tuple[list[str], Any]] = {
    "--pid": (["-p", str(os.getpid())], (os.getpid(),)),
    "--comm": (["--comm", "a-name-of-16-bytes"], ("a-name-of-16-by",)),
    "--user": (["--user", "root"], (0,)),
    "--cgroup": (["--cgroup", "/"], ("/",)),
    "--container": (["--container", "0123abcd"], ("0123abcd",)),
    "--job": (["--job", "17", "--job", "18"], ("17", "18")),
    "--all": (["-a"], True),
    "--duration": (["-d", "3.5"], 3.5),
    "--event": (["-e", "page-faults,cs", "-e", "cpu-clock"], ("page-faults,cs", "cpu-clock")),
    "--frequency": (["-F", "100"], 100),
    "--overhead": (["--overhead", "25%"], 0.25),
    "--no-blocked": (["--no-blocked"], False),
    "--no-wakers": (["--no-wakers"], False),
    "--blocked-threshold": (["--blocked-threshold", "0.5"], 500),
    "--no-children": (["--no-children"], False),
    "--io": (["--io"], True),
    "--memory": (["--memory"], True),
    "--heap": (["--heap"], True),
    "--mpi": (["--mpi"], True),
    "--probe": (["--probe", "libc:puts"], ("libc:puts",)),
    "--probes": (["--probes", "/dev/null"], (("/dev/null", ""),)),
    "--loader": (["--loader", "bcc"], "bcc"),
}
EVERY = options_of(Options)
VERBS = ("attach", "profile", "run", "stacks", "top")


def named(option: Option) -> str:
    return option.flag


def value(option: Option, options: Options) -> Any:
    for name in option.path.split("."):
        options = getattr(options, name)
    return options


def parsed(words: list[str], verb: str = "attach") -> argparse.Namespace:
    return build_parser(verb).parse_args([verb, *words])


def options_for(words: list[str]) -> Options:
    args = parsed(words)
    return recording_options(args, selected(args), Path("/"))


def served(request: dict[str, Any]) -> Options:
    """Return the options that the service reads from root's ``request``."""
    control = Control(Configuration(), *[None] * 4)  # type: ignore[arg-type]
    permission = Permission(Peer(os.getpid(), 0, 0, ()), "hpcd")
    return control._options(json.loads(encoded(request)), permission)


def some_target(option: Option) -> list[str]:
    return [] if option.path.startswith("selector.") else ["--comm", "none"]


def test_every_field_is_accounted_for() -> None:
    names = {field.name for field in dataclasses.fields(Options)}
    options = {option.path.split(".")[0] for option in EVERY}
    parts = [options, OF_THE_SERVICE, OF_HPCD_RUN]
    assert names == set().union(*parts) and len(names) == sum(map(len, parts))
    assert set(parts_of(Options)) <= options
    assert [option.flag for option in EVERY] == list(GIVEN)
    assert len({option.key for option in EVERY}) == len(EVERY)


@pytest.mark.parametrize("option", EVERY, ids=named)
def test_an_option_means_what_it_says_and_belongs_to_its_verbs(option: Option) -> None:
    words, wanted = GIVEN[option.flag]
    assert value(option, options_for([])) == option.default != wanted
    assert value(option, options_for(words)) == wanted
    for verb in VERBS:
        given = build_parser(verb).parse_known_args([verb, *words])[0]
        assert (option.parsed(given) == wanted) == (verb in option.verbs)


@pytest.mark.parametrize("option", EVERY, ids=named)
def test_an_option_goes_through_the_service_or_is_refused_in_a_line(option: Option) -> None:
    options = options_for([*GIVEN[option.flag][0], *some_target(option)])
    request = request_of(options)
    assert option.key in request
    if not option.served:
        with pytest.raises(UsageError, match=f"does not take {option.flag}; record as root"):
            served(request)
        return
    arrived = served(request)
    for other in EVERY:
        assert value(other, arrived) == value(other, options)
    specification = json.dumps(dataclasses.asdict(arrived), default=str)
    assert handed_over(json.loads(specification)) == arrived


@pytest.mark.parametrize("option", EVERY, ids=named)
def test_an_option_goes_to_another_hpcd_by_its_command_line(option: Option) -> None:
    args = parsed(GIVEN[option.flag][0])
    words = [word for other in EVERY for word in other.words(args)]
    assert options_for(words) == options_for(GIVEN[option.flag][0])


@pytest.mark.parametrize("option", EVERY, ids=named)
def test_a_measurement_shows_an_option(option: Option) -> None:
    words, wanted = GIVEN[option.flag]
    document = json.loads(json.dumps(shown(options_for(words))))
    assert document.keys() == {other.key for other in EVERY}
    told = document[option.key]
    assert told == json.loads(json.dumps(wanted)) or told == [words[-1]] or told == ["0"]


BOUNDED = [option for option in EVERY if option.kind.bounds(float("nan"))]


@pytest.mark.parametrize("option", BOUNDED, ids=named)
@pytest.mark.parametrize("text", ["-1000000001", "1000000001", "inf", "nan"])
def test_numbers_out_of_bounds_are_refused_wherever_they_come_from(
    option: Option, text: str
) -> None:
    if option.kind.argument["type"] is not int or text not in ("inf", "nan"):
        with pytest.raises(UsageError, match=f"^{option.flag} must be "):
            options_for([f"{option.flag}={text}"])
    number = float(text) * (1000 if option.key.endswith("_ns") else 1)
    with pytest.raises(UsageError, match=f"^({option.flag}|{option.key}) must be "):
        served({"verb": "attach", "names": ["none"], option.key: number})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([option.key for option in EVERY]), ANYTHING))
def test_a_request_of_anything_is_taken_or_refused(request: dict[str, Any]) -> None:
    with contextlib.suppress(HpcdError):
        assert served({"verb": "attach", **request}).selector


def test_unknown_fields_and_too_many_values_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown field frequencies"):
        served({"verb": "attach", "names": ["none"], "frequencies": 9})
    with pytest.raises(UsageError, match="names must be at most 64 texts"):
        served({"verb": "attach", "names": ["none"] * 65})
    with pytest.raises(UsageError, match="users must be numbers"):
        served({"verb": "attach", "users": ["²"]})
