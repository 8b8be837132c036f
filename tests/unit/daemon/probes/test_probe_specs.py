"""Accepted forms of ``--probe`` and files of probes, and the answers to the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcd.bpf.wire import NO_SOURCE, VALUE_PROGRAM_BYTES
from hpcd.daemon.probe_places.static_tracepoints import operand_programs
from hpcd.daemon.probe_places.value_program import ValueProgram, register_index
from hpcd.daemon.probe_places.value_types import type_called
from hpcd.daemon.probes import set_names
from hpcd.daemon.probes.mpi_probes import mpi_probes
from hpcd.daemon.probes.probe_budget import FunctionCost, ProbeBudget
from hpcd.daemon.probes.probe_set import parse_probes, read_probes
from hpcd.daemon.probes.probe_spec import ProbeSpec, library_matches, parse_probe
from hpcd.errors import HpcdError, NotFoundError, UsageError


def load_probes(name: str) -> list[ProbeSpec]:
    return parse_probes(name, read_probes(name))


def steps(program: ValueProgram) -> list[tuple[int, int, bool, bool]]:
    return [(s.offset, s.type.size, s.type.signed, s.load) for s in program.steps]


def test_parameters_take_their_places_and_named_ones_are_values() -> None:
    spec = parse_probe("libx:f(int n, long, const char *text, u16) -> ssize_t")
    assert [value.name for value in spec.values] == ["n", "text", "returned"]
    registers = [value.program.register for value in spec.values]
    assert registers == [register_index(name) for name in ("rdi", "rdx", "rax")]
    assert [value.kind for value in spec.values] == ["signed", "address", "signed"]
    assert steps(spec.values[0].program) == [(0, 4, True, False)]
    assert spec.values[2].program.at_return


def test_the_seventh_argument_is_on_the_stack() -> None:
    spec = parse_probe("libx:f(int, int, int, int, int, int, u32 seventh, u64 eighth)")
    assert spec.values[0].program.register == register_index("rsp")
    assert steps(spec.values[0].program) == [(8, 4, False, True)]
    assert steps(spec.values[1].program) == [(16, 8, False, True)]


def test_expressions_read_memory_and_add() -> None:
    spec = parse_probe("libx:f(void *p, u64 a = *(u64*)(p+24), int b = *(s32*)(*(void**)arg2 - 8))")
    assert steps(spec.values[1].program) == [(24, 8, False, True)]
    assert steps(spec.values[2].program) == [(0, 8, False, True), (-8, 4, True, True),
                                             (0, 4, True, False)]  # fmt: skip


def test_what_an_argument_points_at_is_read_at_the_return() -> None:
    (value,) = parse_probe("libx:f(int out = *(int*)arg3 @return)").values
    packed = value.program.pack()
    assert len(packed) == VALUE_PROGRAM_BYTES
    assert packed[:4] == bytes([register_index("rdx"), 2, 0, 0])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("libx", "LIB:FUNCTION"),
        ("libx:", "LIB:FUNCTION"),
        (":f", "LIB:FUNCTION"),
        ("libx:f(int n", "parenthesis"),
        ("libx:f(int n) extra", "not understood"),
        ("libx:f(double x)", "register"),
        ("libx:f() -> float", "register"),
        ("libx:f(struct box b)", "pointer"),
        ("libx:f(unt n)", "did you mean"),
        ("libx:f(MPI_Comm c)", "unknown type"),
        ("libx:f(int a, int a)", "two values"),
        ("libx:f(int a, int b, int c, int d, int e, int f, int g)", "7 values"),
        ("libx:f(x = arg1 + arg2)", "only numbers"),
        ("libx:f(x = *arg1)", "'('"),
        ("libx:f(x = nosuch)", "neither argN"),
        ("libx:f(x = 1 ; 2)", "not understood"),
        ("libx:f(x = *(u8*)(99999999999))", "2^31"),
        ("libx:f(x = arg1 + 2147483647 + 2147483647)", "2^31"),
        ("libx:f(x = arg1 @return)", "@return needs"),
        ("libx:f(x = " + "*(u64*)" * 5 + "arg1)", "more than 4"),
        ("libx:f(x = " + "(" * 50 + "arg1" + ")" * 50 + ")", "nested"),
        ("libx:f(x = arg99)", "neither argN"),
        ("libx:f(...) -> int", "debug information"),
        ("usdt:libx:name", "usdt:LIB:PROVIDER:NAME"),
        ("usdt:libx:p:n -> int", "returns nothing"),
        ("libx:f\x1b[2J", "printable"),
        ("libx:" + "f" * 5000, "4096"),
    ],
)  # fmt: skip
def test_nonsense_is_one_clear_line(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_probe(text)
    assert why in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("libmpi", "/usr/lib/libmpi.so.40.30.4", True),
        ("libmpi.so.4", "/usr/lib/libmpi.so.40.30.4", False),
        ("libmpi.so.40", "/usr/lib/libmpi.so.40.30.4", True),
        ("libmpi", "/usr/lib/libmpi_cxx.so.40", False),
        ("libmpi*", "/usr/lib/libmpi_cxx.so.40", True),
        ("lmp", "/opt/lmp", True),
        ("/opt/lmp", "/opt/lmp", True),
        ("/opt/lmp", "/usr/lmp", False),
        ("/opt/*/lmp", "/opt/a/lmp", True),
        ("./lmp", "/opt/lmp", True),
        ("../bin/lmp", "/opt/bin/lmp", True),
        ("bin/lmp", "/opt/sbin/lmp", False),
        ("*bin/lmp", "/opt/sbin/lmp", True),
    ],
)
def test_libraries_are_found_by_name_or_path(pattern: str, path: str, matches: bool) -> None:
    assert library_matches(pattern, path) is matches


def test_types_have_the_sizes_that_c_gives_them() -> None:
    assert type_called("unsigned long long int") == (8, False, False)
    assert type_called("const volatile short") == (2, True, False)
    assert type_called("int[]") == (8, False, True)
    assert type_called("handle", {"handle": "u32"}) == (4, False, False)
    assert type_called("void") is None


def test_every_set_that_hpcd_brings_can_be_read() -> None:
    assert {"malloc", "threads", "openmp", "cuda", "hip"} <= set(set_names())
    for name in set_names():
        assert load_probes(name)


def test_a_file_of_probes_has_defaults_types_and_units(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        'library = ["liba", "libb"]\noptional = true\n[types]\nhandle_t = "void *"\n'
        '[[probe]]\nfunction = "solve(handle_t h, size_t size) -> int"\n'
        'units = { size = "bytes" }\none_in = 10\nreturns = "instructions"\n'
        '[[probe]]\nusdt = "solver:step(int number)"\nlibrary = "libc"\n'
    )
    first, second, tracepoint = load_probes(str(path))
    assert (first.library, second.library) == ("liba", "libb")
    assert (first.one_in, first.returns, first.values[1].unit) == (10, "instructions", "bytes")
    assert first.values[0].type.address
    assert (tracepoint.provider, tracepoint.function) == ("solver", "step")
    assert tracepoint.optional


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no [[probe]]"),
        ("probe = 3", "[[probe]]"),
        ("x = 1\n[[probe]]\n", "unknown key x"),
        ("[[probe]]\nfunction = 'f'\n", "no library"),
        ("library='a'\n[[probe]]\nfuncton = 'f'\n", "did you mean function"),
        ("library='a'\n[[probe]]\nfunction = 'f(quux q)'\n", "unknown type"),
        ("library='a'\n[[probe]]\nfunction = 'f'\none_in = 0\n", "one_in"),
        ("library='a'\n[[probe]]\nfunction = 'f'\nreturns = 'maybe'\n", "returns is one of"),
        ("library='a'\ngroup='io'\n[[probe]]\nfunction = 'f'\n", "group is one of"),
        ("library='a'\n[[probe]]\nusdt = 'f'\n", "PROVIDER:NAME"),
        ("library='a'\n[[probe]]\nfunction = 'f'\nusdt = 'p:f'\n", "either function or usdt"),
        ("[[probe]\n", "]"),
    ],
)
def test_a_bad_file_of_probes_is_one_clear_line(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(HpcdError) as caught:
        load_probes(str(path))
    assert why in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_missing_is_answered_with_the_sets() -> None:
    with pytest.raises(NotFoundError, match="malloc"):
        load_probes("no-such-set")


def test_operands_of_static_tracepoints() -> None:
    text = "-4@%edi 8@%r10 -2@-16(%rbp) 4@$5 -8@$-5 1@%al 8@foo(%rip) 8@(%rax,%rbx,8)"
    programs = operand_programs(text, "x86_64")
    known = [program for program in programs if isinstance(program, ValueProgram)]
    assert [program.register for program in known] == [
        *(register_index(name, "x86_64") for name in ("rdi", "r10", "rbp")),
        NO_SOURCE, NO_SOURCE, register_index("rax", "x86_64"),
    ]  # fmt: skip
    assert steps(known[2]) == [(-16, 2, True, True)]
    assert steps(known[4])[0][0] == -5
    assert [program for program in programs if isinstance(program, str)] == [
        "its place foo(%rip) is not understood",
        "its place (%rax,%rbx,8) is not understood",
    ]
    arm = operand_programs("8@x0 -4@[sp, 16] 4@w3 -4@7", "aarch64")
    assert [p.register for p in arm if isinstance(p, ValueProgram)] == [0, 31, 3, NO_SOURCE]


def test_the_budget_records_fewer_calls_and_lets_go_of_what_costs_too_much() -> None:
    budget = ProbeBudget(0.02, trap=10e-6)
    assert budget.step(0.0, 0.0, []) == []
    # 0.02 of one second are 20 ms, and 400 are lent: 3000 traps are 30, and as records 19.5 more.
    changes = [
        budget.step(
            float(second), float(second), [FunctionCost(0, 3000 * second, 3000 * second, 1)]
        )
        for second in range(1, 15)
    ]
    assert not any(changes[:13])
    assert [(change.index, change.one_in) for change in changes[13]] == [(0, 0)]
    # From then on nothing is saved up: what is over the share is thinned at once.
    busy = FunctionCost(2, 1500, 1500, 1)
    assert [(c.index, c.one_in) for c in budget.step(15.0, 15.0, [busy])] == [(2, 2)]
    for second in range(16, 20):
        assert budget.step(float(second), float(second), [FunctionCost(2, 1500, 1500, 4)]) == []
    (change,) = budget.step(20.0, 20.0, [FunctionCost(2, 1500, 1500, 4)])
    assert (change.index, change.one_in) == (2, 2)


def test_what_was_saved_up_pays_for_a_time_of_many_messages() -> None:
    budget = ProbeBudget(0.02, trap=10e-6)
    quiet = [budget.step(float(second), float(second), []) for second in range(40)]
    # No more than 20 seconds' 20 ms are saved up: seconds of 49.5 take 29.5 of them each.
    burst = [
        budget.step(40.0 + second, 40.0 + second, [FunctionCost(0, 3000 * n, 3000 * n, 1)])
        for second, n in enumerate(range(1, 15))
    ]
    assert not any(quiet) and not any(burst[:13]) and burst[13]


def test_polls_are_let_go_of_before_messages_are_thinned() -> None:
    budget = ProbeBudget(0.02, trap=10e-6)
    budget.step(0.0, 0.0, [])
    # Together they are over 20 ms, neither alone is: the tests go, all sends stay.
    sends = FunctionCost(0, 1000, 1000, 1)
    tests = FunctionCost(1, 900, 3, 1, expendable=True)
    waits = FunctionCost(2, 10, 10, 1, expendable=True)
    changes = budget.step(1.0, 1.0, [sends, tests, waits])
    assert [(change.index, change.one_in) for change in changes] == [(1, 0)]


def test_what_a_poll_leaves_when_it_found_nothing() -> None:
    polls = {spec.function: spec.poll for spec in mpi_probes() if spec.poll}
    assert polls == {
        "MPI_Test": "flag", "MPI_Testall": "flag", "MPI_Testany": "flag", "MPI_Testsome": "ended",
        "MPI_Iprobe": "flag", "MPI_Improbe": "flag",
    }  # fmt: skip


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_constant_is_in_no_register(machine: str) -> None:
    """On aarch64 it had the stack pointer's number."""
    names = [f"x{number}" for number in range(31)] if machine == "aarch64" else ["r15", "rax"]
    registers = {register_index(name, machine) for name in (*names, "sp", "rsp")} - {-1}
    assert len(registers) >= 3 and max(registers) < NO_SOURCE
