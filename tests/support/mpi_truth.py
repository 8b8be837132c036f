"""A library between a program and MPI that writes what hpcd would record, and the truth beside it.

Generated from hpcd's declarations: values are taken from arguments the way the recorder does, and
the compiler compares every prototype with ``mpi.h``. What was truly sent, and who is in which
communicator, is asked of MPI itself.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcd.analysis.merge.stages import merge
from hpcd.analysis.messages.call_arrays import CallArrays, RecordedFunction
from hpcd.analysis.messages.communicators import Communicator
from hpcd.array_types import I64
from hpcd.measurement.call_codec import Calls
from hpcd.measurement.writer import MeasurementWriter
from hpcd.model.calls import CalledFunction, CallValue, Group, ValueKind
from hpcd.model.identity import Event, Host, Process, Thread
from hpcd.model.mpi_functions import FUNCTIONS, Function, Role
from hpcd.model.mpi_records import (
    COUNTS_EACH,
    FLAVOURS,
    MAX_REQUESTS,
    Flavour,
    Record,
    ValueSource,
    records,
)
from tests.support.paths import ROOT

C_TYPES = {
    "sbuf": "const void *", "rbuf": "void *", "count": "int", "scount": "int", "rcount": "int",
    "origin_count": "int", "target_count": "int", "blocks": "int", "block_length": "int",
    "type": "MPI_Datatype", "stype": "MPI_Datatype", "rtype": "MPI_Datatype",
    "other_type": "MPI_Datatype", "oldtype": "MPI_Datatype", "newtype": "MPI_Datatype *",
    "origin_type": "MPI_Datatype", "target_type": "MPI_Datatype",
    "dest": "int", "source": "int", "target": "int", "root": "int",
    "tag": "int", "stag": "int", "rtag": "int",
    "comm": "MPI_Comm", "newcomm": "MPI_Comm *", "freed": "MPI_Comm *", "group": "MPI_Group",
    "message": "MPI_Message *", "taken": "MPI_Message *",
    "request": "MPI_Request *", "requests": "MPI_Request *", "started": "MPI_Request *",
    "ended": "MPI_Request *", "status": "MPI_Status *", "statuses": "MPI_Status *",
    "flag": "int *", "index": "int *", "outcount": "int *", "indices": "int *",
    "op": "MPI_Op", "info": "MPI_Info", "win": "MPI_Win", "newwin": "MPI_Win *",
    "scounts": "const int *", "sdispls": "const int *", "rcounts": "const int *",
    "rdispls": "const int *", "stypes": "const MPI_Datatype *", "rtypes": "const MPI_Datatype *",
    "color": "int", "key": "int", "split_type": "int",
    "ndims": "int", "dims": "const int *", "periods": "const int *", "reorder": "int",
    "local_leader": "int", "peer_comm": "MPI_Comm", "remote_leader": "int", "high": "int",
    "command": "const char *", "arguments": "char **", "processes": "int", "errors": "int *",
    "commands": "char **", "argument_lists": "char ***", "processes_each": "const int *",
    "infos": "const MPI_Info *", "port": "const char *",
    "remain_dims": "const int *", "rank": "int *", "size": "int *",
    "bytes": "MPI_Aint", "unit": "int", "disp": "MPI_Aint", "assertion": "int",
    "stride": "int", "hstride": "MPI_Aint", "lower": "MPI_Aint", "extent": "MPI_Aint",
    "argc": "int *", "argv": "char ***", "required": "int", "provided": "int *",
}  # fmt: skip
"""The C type of each parameter name used in :data:`FUNCTIONS`."""

PROGRAM = ROOT / "tests/programs/messages.c"
LAUNCH: Mapping[str, list[str]] = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root",
                "--mca", "mpi_yield_when_idle", "1", "--mca", "btl", "self,vader"],
    # More ranks than processors: one that polls for long keeps the one it waits for from running.
    "mpich": ["mpirun.mpich", "-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1"],
}  # fmt: skip
_CALL = np.dtype(
    [("function", "<u4"), ("unused", "<u4"), ("begin", "<i8"), ("end", "<i8"),
     ("value", "<i8", (6,))]
)  # fmt: skip
_START = 10**9
_HEAD = """
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MISSING INT64_MIN
static FILE *calls, *communicators;
static int64_t latest_begin;
static int64_t sent[4096][2];
static struct { MPI_Request request; int peer; int64_t bytes; } persistent[64];
static int persistents;

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static FILE *file(const char *kind)
{
	char path[4096];
	int rank;
	PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
	snprintf(path, sizeof(path), "%s/%s.%d", getenv("TRUTH"), kind, rank);
	return fopen(path, "w");
}

/* Asked by programs that plant waits. */
long long latest_call_began(void) { return latest_begin; }

static void record(uint32_t function, int64_t begin, int64_t end, const int64_t *value)
{
	struct { uint32_t function, unused; int64_t begin, end, value[6]; } one
		= {function, 0, begin, end, {0}};
	memcpy(one.value, value, sizeof(one.value));
	latest_begin = begin;
	if (!calls)
		calls = file("calls");
	fwrite(&one, sizeof(one), 1, calls);
}

static int in_world(MPI_Comm communicator, int place)
{
	MPI_Group group, world;
	int rank = -1, between;
	if (place < 0)
		return -1;
	PMPI_Comm_test_inter(communicator, &between);
	if (between)
		PMPI_Comm_remote_group(communicator, &group);
	else
		PMPI_Comm_group(communicator, &group);
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Group_translate_ranks(group, 1, &place, world, &rank);
	PMPI_Group_free(&group);
	PMPI_Group_free(&world);
	return rank;
}

static int64_t volume(int count, MPI_Datatype type)
{
	int size;
	PMPI_Type_size(type, &size);
	return (int64_t)size * count;
}

static void send_truth(int peer, int64_t bytes)
{
	if (peer >= 0) {
		sent[peer][0]++;
		sent[peer][1] += bytes;
	}
}

static void start_truth(MPI_Request request)
{
	for (int at = 0; at < persistents; at++)
		if (persistent[at].request == request)
			send_truth(persistent[at].peer, persistent[at].bytes);
}

/* The ranks of the other group are the last ones of a line, with a -1 before them. */
static void communicator_truth(MPI_Comm communicator)
{
	int size, between, ranks[4096], places[4096];
	MPI_Group group, world;
	if (communicator == MPI_COMM_NULL)
		return;
	if (!communicators)
		communicators = file("communicators");
	for (int place = 0; place < 4096; place++)
		places[place] = place;
	PMPI_Comm_group(MPI_COMM_WORLD, &world);
	PMPI_Comm_test_inter(communicator, &between);
	PMPI_Comm_group(communicator, &group);
	PMPI_Group_size(group, &size);
	PMPI_Group_translate_ranks(group, size, places, world, ranks);
	for (int place = 0; place < size; place++)
		fprintf(communicators, "%d ", ranks[place]);
	if (between) {
		PMPI_Comm_remote_group(communicator, &group);
		PMPI_Group_size(group, &size);
		PMPI_Group_translate_ranks(group, size, places, world, ranks);
		fprintf(communicators, "-1 ");
		for (int place = 0; place < size; place++)
			fprintf(communicators, "%d ", ranks[place]);
	}
	fprintf(communicators, "\\n");
}

static void finish(void)
{
	FILE *output = file("sent");
	int size;
	PMPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int peer = 0; peer < size; peer++)
		fprintf(output, "%lld %lld\\n", (long long)sent[peer][0], (long long)sent[peer][1]);
	fclose(output);
	if (communicators)
		fclose(communicators);
}
"""


def source(flavour: Flavour) -> str:
    """The library's C source."""
    parts = [_HEAD]
    number = 0
    for function in FUNCTIONS.values():
        rows = records(function, flavour)
        parts.append(_wrapper(function, rows, number, flavour))
        number += len(rows)
    return "".join(parts)


def _type(parameter: str) -> str:
    return C_TYPES[parameter]


def _read(one: ValueSource, name: str) -> str:
    integer = f"{'u' if one.unsigned else ''}int{8 * (one.width or one.argument_width)}_t"
    if not one.width:
        return f"(int64_t)({integer})(uintptr_t)a{one.argument}"
    pointer = f"(uintptr_t)a{one.argument}{name}"
    return f"({pointer} > 1 ? (int64_t)*({integer} *)({pointer} + {one.offset}) : MISSING)"


def _values(record: Record, number: int, at_return: bool) -> list[str]:
    return [
        f"v{number}[{at}] = {_read(value.source, '')};"
        for at, value in enumerate(record.values)
        if value.source.at_return == at_return
    ]


def _wrapper(function: Function, rows: tuple[Record, ...], number: int, flavour: Flavour) -> str:
    signature = ", ".join(
        f"{_type(parameter)}a{at}"
        if _type(parameter).endswith("*")
        else f"{_type(parameter)} a{at}"
        for at, parameter in enumerate(function.parameters)
    )
    passed = ", ".join(f"a{at}" for at in range(len(function.parameters)))
    lines = [f"\nint {function.name}({signature or 'void'})\n{{"]
    arrays = (Role.LISTED, Role.COUNTS)
    single = [(number + at, record) for at, record in enumerate(rows) if record.role not in arrays]
    several = [
        (number + at, record) for at, record in enumerate(rows) if record.role == Role.LISTED
    ]
    counted = [
        (number + at, record) for at, record in enumerate(rows) if record.role == Role.COUNTS
    ]
    for at, record in single:
        lines.append(f"int64_t v{at}[6] = {{{', '.join(['MISSING'] * 6)}}};")
        lines += _values(record, at, False)
    if several:
        count = function.parameters.index("count")
        requests = function.parameters.index("requests")
        lines.append(
            f"int64_t saved[{MAX_REQUESTS}]; for (int i = 0; i < a{count} && i < {MAX_REQUESTS};"
            f" i++) saved[i] = {_handle(flavour, f'a{requests}[i]')};"
        )
    lines += _truth_before(function)
    if function.name == "MPI_Finalize":
        lines.append("finish();")
    lines.append(f"int64_t begin = now(); int result = P{function.name}({passed});")
    lines.append("int64_t end = now();")
    if function.name == "MPI_Finalize":
        lines.append(f"record({number}, begin, end, v{number}); fclose(calls); return result;")
    for at, record in single:
        lines += _values(record, at, True)
        lines.append(f"record({at}, begin, end, v{at});")
    for at, _ in several:
        lines.append(
            f"for (int i = 0; i < a{count} && i < {MAX_REQUESTS}; i++) {{ int64_t v[6] ="
            f" {{saved[i], i}}; record({at}, begin, begin, v); }}"
        )
    for at, record in counted:
        array = f"a{record.values[0].source.argument}"
        lines.append(
            f"int n; PMPI_Comm_size(a{function.parameters.index('comm')}, &n);"
            f" for (int i = 0; i < n; i += {COUNTS_EACH}) {{ int64_t v[6] = {{i}};"
            f" memcpy(v + 1, {array} + i, 4 * (n - i < {COUNTS_EACH} ? n - i : {COUNTS_EACH}));"
            f" record({at}, begin, begin, v); }}"
        )
    if Role.SEND_INIT in function.roles:
        names = {parameter: f"a{at}" for at, parameter in enumerate(function.parameters)}
        lines.append(_PERSISTENT.format(**names))
    if "newcomm" in function.parameters:
        lines.append(f"communicator_truth(*a{function.parameters.index('newcomm')});")
    return "\n\t".join([*lines, "return result;"]) + "\n}\n"


def _handle(flavour: Flavour, text: str) -> str:
    return f"(int64_t)(uintptr_t){text}" if flavour.handle == 8 else f"(int64_t)(uint32_t){text}"


def _truth_before(function: Function) -> list[str]:
    """Return the C statements that ask MPI what is truly sent."""
    names = {parameter: f"a{at}" for at, parameter in enumerate(function.parameters)}
    if Role.SEND in function.roles:
        count = names.get("count") or names["scount"]
        kind = names.get("type") or names["stype"]
        return [f"send_truth(in_world({names['comm']}, {names['dest']}), volume({count}, {kind}));"]
    if Role.START in function.roles:
        return [f"start_truth(*{names['started']});"]
    if Role.START_MANY in function.roles:
        return [f"for (int i = 0; i < {names['count']}; i++) start_truth({names['requests']}[i]);"]
    return []


_PERSISTENT = """
	persistent[persistents].request = *{request};
	persistent[persistents].peer = in_world({comm}, {dest});
	persistent[persistents++].bytes = volume({count}, {type});
"""


@dataclass(frozen=True)
class Truth:
    """The traffic of a run: ``sent`` ``int64[ranks, ranks, 2]`` messages and bytes by sender and
    receiver; ``communicators`` the members of each one made, once (:func:`members_of`); ``claims``
    what it printed."""

    calls: CallArrays
    ranks: int
    sent: I64
    communicators: set[tuple[int, ...]]
    claims: list[dict[str, Any]]


def build(folder: Path, flavour: str) -> tuple[Path, Path]:
    """The library and the program."""
    text = source(FLAVOURS[flavour])
    code = folder / f"truth-{flavour}.c"
    code.write_text(text)
    library, program = folder / f"truth-{flavour}.so", folder / f"messages-{flavour}"
    compiler = f"mpicc.{flavour}"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-w", "-o", str(library), str(code)], check=True
    )
    subprocess.run([compiler, "-w", "-O1", "-o", str(program), str(PROGRAM)], check=True)
    return library, program


def run(built: tuple[Path, Path], folder: Path, flavour: str, name: str, ranks: int) -> Truth:
    """Run the program called ``name`` and read what was written."""
    library, program = built
    folder.mkdir(parents=True, exist_ok=True)
    launch = [*LAUNCH[flavour], "-n", str(ranks)]
    environment = ["env", f"LD_PRELOAD={library}", f"TRUTH={folder}"]
    done = subprocess.run(
        [*launch, *environment, str(program), name], check=True, capture_output=True, timeout=120
    )
    return read(folder, flavour, ranks, done.stdout.decode())


def read(folder: Path, flavour: str, ranks: int, printed: str) -> Truth:
    """Read what the ranks wrote, as arrays; the trace line of a rank is its number."""
    functions = [
        RecordedFunction(record.name, tuple((v.name, v.unit) for v in record.values))
        for function in FUNCTIONS.values()
        for record in records(function, FLAVOURS[flavour])
    ]
    columns = [np.fromfile(folder / f"calls.{rank}", _CALL) for rank in range(ranks)]
    calls = np.concatenate(columns)
    line = np.repeat(np.arange(ranks), [len(column) for column in columns])
    sent = np.array([np.loadtxt(folder / f"sent.{rank}", ndmin=2) for rank in range(ranks)])
    members = {
        _sorted_groups(tuple(map(int, row.split())))
        for path in folder.glob("communicators.*")
        for row in path.read_text().splitlines()
    }
    origin = int(calls["begin"].min())
    return Truth(
        CallArrays(
            line=line,
            time=calls["begin"] - origin,
            duration=calls["end"] - calls["begin"],
            node=np.zeros(len(calls), np.int64),
            function=calls["function"].astype(np.int64),
            weight=np.ones(len(calls)),
            value=calls["value"].astype(np.int64),
            functions=functions,
        ),
        ranks,
        sent.astype(np.int64),
        members,
        [json.loads(row) for row in printed.splitlines() if row.startswith("{")],
    )


def database(truth: Truth, folder: Path) -> Path:
    """A database of the calls of a run, without samples."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = MeasurementWriter(folder / "m", Host("host", "b", "6", "x86_64", 2), options={})
    writer.add_event(Event(0, "cpu-clock", "s", 1e-3, "cpu_time", 1000))
    writer.add_clock_pair(_START, 10**18)
    calls = truth.calls
    end = _START + int((calls.time + calls.duration).max()) + 1
    for rank in range(truth.ranks):
        writer.add_process(
            Process(rank, 100 + rank, 1, "app", "", (), 0, _START, "job", rank, truth.ranks)
        )
        writer.add_thread(Thread(rank, rank, 100 + rank, "app", _START, end))
    for number, function in enumerate(calls.functions):
        values = tuple(
            CallValue(name, ValueKind.HANDLE if unit in FLAVOURS else ValueKind.SIGNED, unit)
            for name, unit in function.values
        )
        writer.add_function(CalledFunction(number, function.name, "libmpi.so", Group.MPI, values))
    recorded = Calls(
        calls.line.astype(np.uint32), (calls.time + _START).astype(np.uint64),
        calls.duration.astype(np.uint64), np.zeros(len(calls), np.uint32),
        calls.function.astype(np.uint16), np.ones(len(calls), np.uint32),
        calls.value.astype(np.uint64),
    )  # fmt: skip
    writer.add_calls(recorded.in_order())
    writer.close()
    merge([folder / "m"], folder / "db", workers=1)
    return folder / "db"


def _sorted_groups(members: tuple[int, ...]) -> tuple[int, ...]:
    """Put the group with the lower first rank foremost, of two groups with a -1 between them."""
    if -1 not in members:
        return members
    at = members.index(-1)
    first, second = sorted((members[:at], members[at + 1 :]))
    return (*first, -1, *second)


def members_of(communicator: Communicator) -> tuple[int, ...]:
    """As in :attr:`Truth.communicators`: of one between two groups both, with a -1 between them."""
    members = tuple(communicator.members.tolist())
    if communicator.remote is None:
        return members
    return _sorted_groups((*members, -1, *communicator.remote.tolist()))


def vector_truth(ranks: int) -> dict[tuple[int, int], float]:
    """Bytes from rank to rank in ``vectors`` of the program."""
    bytes_of: dict[tuple[int, int], float] = {}

    def add(source: int, target: int, volume: int) -> None:
        if source != target and volume:
            bytes_of[source, target] = bytes_of.get((source, target), 0) + volume

    for source, target in np.ndindex(ranks, ranks):
        add(source, target, 20 * 4 * (1 + source * ranks + target))
        add(source, target, 8 * (source + 1))
        add(source, target, 2 * (source + 1) * (target == ranks - 1))
        add(source, target, (target + 1) * (source == 0))
        add(source, target, target // 2 * (source % 2 == target % 2))
    return bytes_of
