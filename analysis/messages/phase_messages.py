"""The part of a job's communication in phases that recorded calls mark.

Messages and collective operations are matched over the whole run, since which send and receive are
one message follows from all of them; then those are taken that begin in the phases.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from hpcd.analysis.database import Database
from hpcd.analysis.messages import traffic
from hpcd.analysis.messages.clock_offsets import HostClocks
from hpcd.analysis.messages.communication import Communication
from hpcd.analysis.messages.matching import Collectives, Messages
from hpcd.analysis.messages.operations import Operations
from hpcd.analysis.messages.wait_states import WaitStates
from hpcd.analysis.profile.marked_phases import MarkedPhases
from hpcd.array_types import Mask
from hpcd.masks import marked
from hpcd.rows import take_rows


class PhaseCommunication(Communication):
    """The part of ``whole`` that begins in phases: messages sent there, collective operations that
    any rank entered there, of these the calls made there, and waits of calls made there.
    """

    def __init__(self, whole: Communication, inside: Mask) -> None:
        """``inside`` ``bool[operations]``: those that begin in the phases."""
        self.calls = whole.calls
        self.rank_of_line = whole.rank_of_line
        self._hosts = whole._hosts
        self.recorded = whole.recorded
        self.ranks = whole.ranks
        self.communicators = whole.communicators
        self.requests = whole.requests
        self.late = whole.late
        self._whole = whole
        self._inside = inside
        self.sends = take_rows(whole.sends, inside[whole.sends.operation])
        self.receives = take_rows(whole.receives, inside[whole.receives.operation])

    @property
    def whole(self) -> Communication:
        """The communication of the whole run."""
        return self._whole

    @property
    def clocks(self) -> HostClocks:
        """Offsets of the hosts' clocks, by all messages."""
        return self._whole.clocks

    @property
    def operations(self) -> Operations:
        """The operations at times of one clock, all of them."""
        return self._whole.operations

    @cached_property
    def messages(self) -> Messages:
        """Messages that were sent in the phases; their receives are among all."""
        messages, inside = self._whole.messages, self._inside[self._whole.sends.operation]
        kept = inside[messages.send]
        place = np.cumsum(inside) - 1
        return Messages(
            self.sends, messages.receives, place[messages.send[kept]], messages.receive[kept],
            messages.guessed[kept],
        )  # fmt: skip

    @cached_property
    def collectives(self) -> Collectives:
        """Collective operations that a rank entered in the phases, with the calls of all ranks."""
        whole = self._whole.collectives
        entered = marked(len(whole), whole.instance[self._inside[whole.operation]])
        kept = entered[whole.instance]
        count = np.diff(whole.first)[entered]
        return Collectives(
            whole.operation[kept], np.repeat(np.arange(len(count)), count),
            np.append(0, np.cumsum(count)), whole.ended[kept], whole.complete[entered],
            whole.meeting[entered],
        )  # fmt: skip

    @cached_property
    def waits(self) -> WaitStates:
        """Waits of calls that began in the phases."""
        waits = self._whole.waits
        return take_rows(waits, self._inside[waits.operation])

    @cached_property
    def one_sided(self) -> traffic.Matrix:
        """Bytes of puts and gets that began in the phases."""
        return traffic.one_sided(self.recorded, self.communicators, self._inside)

    def by_function(self) -> list[traffic.CollectiveRow]:
        """Calls in the phases of collective operations, by function and communicator."""
        collectives = self.collectives
        mine = self._inside[collectives.operation]
        phase_collectives = replace(
            collectives,
            operation=collectives.operation[mine],
            instance=collectives.instance[mine],
        )
        return traffic.by_function(
            self.recorded, self.communicators, phase_collectives, self.payload
        )

    def _counted(self) -> Mask:
        return self._inside


def within_phases(db: Database, job_communication: Communication, text: str) -> PhaseCommunication:
    """Return the part of ``job_communication``, the communication of a job in ``db``, in the phases
    of ``text`` (as :func:`hpcd.analysis.profile.phase_specs.parse_phase_specs` takes it).
    O(n log n).

    Raises :class:`hpcd.errors.UsageError` where no call marks any.
    """
    phases = MarkedPhases(db, text)
    operations = job_communication.recorded
    inside = np.zeros(len(operations), bool)
    # Operations of one line are not next to each other: those of a rank are, by their begin.
    order = np.argsort(operations.line, kind="stable")
    bounds = np.searchsorted(operations.line[order], np.stack([phases.lines, phases.lines + 1]))
    for line, low, high in zip(phases.lines.tolist(), *bounds.tolist(), strict=True):
        mine = order[low:high]
        if len(mine):
            inside[mine] = phases.segments(line).at(operations.begin[mine]) > 0
    # All records of a call go where the call is.
    return PhaseCommunication(job_communication, inside[operations.call])
