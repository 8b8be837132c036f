"""Requests for probes, in the words of the command line; they can be sent to a service.

Few imports: most recordings have no probes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcd.daemon.probes.probe_spec import ProbeSpec


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Probes that are requested; nothing is checked until :meth:`specs`."""

    texts: tuple[str, ...] = ()
    """Arguments of ``--probe``."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and contents of the files of ``--probes``."""
    mpi: bool = False
    """Every entry point of MPI."""
    heap: bool = False
    """Functions that allocate memory and free it."""

    @staticmethod
    def of(texts: Iterable[str], files: Iterable[str], *, mpi: bool, heap: bool) -> ProbeRequest:
        """Return a request with the contents of ``files``, read with the rights of this process.

        Raises :class:`hpcd.errors.NotFoundError` and :class:`hpcd.errors.UsageError`.
        """
        read = []
        for name in files:
            from hpcd.daemon.probes.probe_set import read_probes

            read.append((name, read_probes(name)))
        return ProbeRequest(tuple(texts), tuple(read), mpi, heap)

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
