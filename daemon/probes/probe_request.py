"""Requests for probes, in the words of the command line; they can be sent to a service.

Few imports: most recordings have no probes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcd.daemon.probes import set_names
from hpcd.option_schema import files, flag, option, texts

if TYPE_CHECKING:
    from hpcd.daemon.probes.probe_spec import ProbeSpec


def _read(name: str) -> str:
    from hpcd.daemon.probes.probe_set import read_probes

    return read_probes(name)


_VERBS = "attach profile run top"


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Probes that are requested; nothing is checked until :meth:`specs`."""

    heap: bool = option(
        False, "--heap", flag(), _VERBS,
        "record what is allocated (malloc and the like, operator new, mmap) and what of it is"
        " freed, by call path: a sample by bytes. Each of these calls costs the program about a"
        " microsecond: docs/calls.md",
    )  # fmt: skip
    mpi: bool = option(
        False, "--mpi", flag(), _VERBS,
        "record every call of MPI (Open MPI, MPICH): bytes, peer, tag, communicator, time,"
        " call path",
    )  # fmt: skip
    texts: tuple[str, ...] = option(
        (), "--probe", texts("SPEC"), _VERBS,
        "record the calls of a function, LIB:FUNCTION or LIB:FUNCTION(int n, ...) -> TYPE, or"
        " of a static tracepoint, usdt:LIB:PROVIDER:NAME; docs/probes.md has the rest",
        key="probes",
    )  # fmt: skip
    files: tuple[tuple[str, str], ...] = option(
        (), "--probes", files("FILE", _read), _VERBS,
        f"record those in FILE, or in a set that hpcd brings: {', '.join(set_names())}",
        key="probe_files",
    )  # fmt: skip

    def __bool__(self) -> bool:
        return bool(self.texts or self.files or self.mpi or self.heap)

    def specs(self) -> list[ProbeSpec]:
        """The probes. Raises :class:`hpcd.errors.UsageError` in one line."""
        if not self:
            return []
        from hpcd.daemon.probes.heap_probes import heap_probes
        from hpcd.daemon.probes.mpi_probes import mpi_probes
        from hpcd.daemon.probes.probe_set import parse_probes
        from hpcd.daemon.probes.probe_spec import parse_probe

        return [
            *map(parse_probe, self.texts),
            *(spec for name, content in self.files for spec in parse_probes(name, content)),
            *(mpi_probes() if self.mpi else ()),
            *(heap_probes() if self.heap else ()),
        ]
