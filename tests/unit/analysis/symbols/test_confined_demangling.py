"""Names that mean gigabytes, or take hours to read, cost seconds and stay mangled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import cxxfilt
import pytest

from hpcd.analysis.symbols import confined_demangling
from hpcd.analysis.symbols.confined_demangling import ConfinedDemangler, demangle_all
from hpcd.analysis.symbols.demangle import demangle, is_bounded
from tests.support.hostile_names import maze, tower

# Of LAMMPS and LLVM.
COSTLY = [
    "_ZN9LAMMPS_NS8PPPMDisp13poisson_2s_adEPdS1_PPS1_S3_S3_S3_S3_S3_S3_S3_S3_S3_S3_S3_S3_S3_",
    "_ZSt15__copy_move_ditILb1EPN4llvm5SUnitERS2_PS2_St15_Deque_iteratorIS2_S3_S4_EET3_S5_IT0_T1_T2_"
    "ESB_S7_",
]


def _cpu_seconds() -> float:
    """CPU time of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.fixture
def demangler(monkeypatch: pytest.MonkeyPatch) -> ConfinedDemangler:
    """The demangler of this process, as new."""
    demangler = ConfinedDemangler()
    monkeypatch.setattr(confined_demangling, "_demangler", demangler)
    return demangler


def test_costly_names_come_out_as_the_library_has_them(demangler: ConfinedDemangler) -> None:
    assert not any(map(is_bounded, COSTLY))
    names = ["main", *COSTLY, "_ZN3foo3barEv", "_Znot a name", "_ZN3f\udcffoE"]
    assert demangle_all(names) == [
        "main", *map(cxxfilt.demangle, COSTLY), "foo::bar()", "_Znot a name", "_ZN3f\udcffoE"
    ]  # fmt: skip
    demangler.close()


@pytest.mark.parametrize("make", [tower, maze])
@pytest.mark.parametrize("levels", range(1, 14))
def test_names_that_are_small_and_grow_are_bounded_in_time(make: type, levels: int) -> None:
    name = make(levels)
    assert len(demangle(name)) <= 64 * len(name)
    if is_bounded(name):
        assert len(cxxfilt.demangle(name)) <= 1 << 18


@pytest.mark.parametrize("name", [tower(24), tower(60), maze(40)])
def test_a_bomb_stays_mangled_and_costs_others_nothing(
    demangler: ConfinedDemangler, name: str
) -> None:
    began = _cpu_seconds()
    assert demangle_all([COSTLY[0], name, COSTLY[1]]) == [
        cxxfilt.demangle(COSTLY[0]), name, cxxfilt.demangle(COSTLY[1])
    ]  # fmt: skip
    demangler.close()
    assert _cpu_seconds() - began < 5


def test_a_module_of_bombs_is_given_up_and_the_next_is_not(demangler: ConfinedDemangler) -> None:
    began = _cpu_seconds()
    bombs = [maze(30 + number) for number in range(100)]
    assert demangle_all([*bombs, "_ZN3foo3barEv"]) == [*bombs, "foo::bar()"]
    assert demangle_all(COSTLY) == list(map(cxxfilt.demangle, COSTLY))
    demangler.close()
    assert _cpu_seconds() - began < 10


def test_a_worker_that_dies_is_replaced(demangler: ConfinedDemangler) -> None:
    plain = list(map(cxxfilt.demangle, COSTLY))
    for _ in range(3):
        assert demangle_all(COSTLY) == plain
        process = demangler._worker.process
        assert process is not None
        process.send_signal(signal.SIGKILL)
    demangler.close()


def test_symbols_of_a_perf_map_are_bounded() -> None:
    """The process that names them, by itself: its memory and its time."""
    program = (
        "import numpy as np\n"
        "from hpcd.analysis.symbols.symbolization import Namer\n"
        "from hpcd.model.identity import ModuleKind\n"
        "from tests.support.hostile_names import tower\n"
        "namer = Namer(ModuleKind.JIT, '[jit]', '', [(0, 16, tower(24)), (16, 16, 'work')])\n"
        "names = namer.names(np.array([4, 20], np.uint64))\n"
        "assert names == [tower(24), 'work'], [name[:100] for name in names]\n"
        # Not ru_maxrss, which begins with what the parent has.
        "status = open('/proc/self/status').read()\n"
        "print(status.split('VmHWM:')[1].split()[0])\n"
    )
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200 << 10
