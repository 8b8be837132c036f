"""Options of a sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # most recordings record no calls
    from hpcd.bpf.calls.call_programs import CallOptions
    from hpcd.bpf.kernel.syscalls import PerfEvent

# 210,000 records, samples and switches: half a second of 400,000 switches a second, as many as
# ranks make that yield while they wait, should the reader be held up. Without switches of each CPU
# a second of 25,000 samples.
_SAMPLE_RING, _CPU_SAMPLES = 8 << 20, 1 << 20
# New stacks of 60 frames are 500 bytes; programs that never repeat one send a few MB a second, and
# the ring is emptied when it is an eighth full.
_EVENT_RING = 4 << 20
# Stacks of what is not ready to be unwound, a few KB each: of each CPU as many as the programs copy
# in 64 ms at most, for samples and, as many again, for switches. Emptied when it is an eighth full.
_COPY_RING, _CPU_COPIES = 32 << 20, 4 << 20
# A user may put a 128th of a ring into it in 17 ms: a single user fills a ring in two seconds.
_RING_SHARE = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOptions:
    """Options of a :class:`~hpcd.bpf.sampler.Sampler` besides its events.

    - ``follow_children``: child processes of targets are targets too.
    - ``waiting``: threads that leave their CPU and come back are reported
      (:class:`hpcd.bpf.wire.SwitchEvent`); with ``wakers`` also who woke them, and what ran while
      they waited for a CPU.
    - ``everything``: all processes are targets.
    - ``selecting``: processes that are no targets are reported when they exec;
      ``control_groups``: when they enter a control group.
    - ``only_user``: a target that runs a program with another user's rights is one no longer.
    - ``calls``: calls of functions are recorded, by :attr:`Sampler.calls`.
    - ``loader``: one of :data:`hpcd.bpf.loading.loader.LOADERS`.
    - ``background``: it is made by a thread beside others; of programs from the object those that
      walk stacks are left out until :meth:`hpcd.bpf.sampler_programs.SamplerPrograms.load_walkers`.
    - ``rings``: bytes of the rings of samples, events and copied stacks, powers of two, where they
      are not :meth:`ring_bytes`.
    - ``walk_budget``: frames that are walked on one CPU for one user's programs in 17 ms, where
      several users' are recorded. These take a fifth of that time.
    - ``long_wait_ns``: the waits from which on the waker's call path is taken.
    """

    follow_children: bool = True
    waiting: bool = True
    wakers: bool = True
    everything: bool = False
    selecting: bool = False
    control_groups: bool = False
    only_user: int | None = None
    calls: CallOptions | None = None
    loader: str = "auto"
    background: bool = False
    rings: tuple[int, int, int] | None = None
    walk_budget: int = 1 << 16
    long_wait_ns: int = 50_000

    @property
    def on_demand(self) -> bool:
        """Whether mappings of a program that begins are read when it is sampled: of a whole node's
        most are not, where waits are left out. Else at once, before it is."""
        return self.everything and not self.waiting and self.calls is None

    @property
    def several_users(self) -> bool:
        """Whether programs of several users may be recorded, each within budgets."""
        return (self.everything or self.selecting) and self.only_user is None

    def _budgets(self) -> dict[str, int]:
        """Frames walked on each CPU, and bytes of paths, switches, copied stacks and calls that one
        user's programs may take in 17 ms, of the rings once they fill; 0: without bounds."""
        samples, events, copies = (size >> _RING_SHARE for size in self.ring_bytes(1))
        budgets = {
            "WALK_BUDGET": self.walk_budget,
            "PATH_BUDGET": events,
            "SWITCH_BUDGET": samples,
            "COPY_BUDGET": copies,
            "CALL_BUDGET": self.calls.ring_bytes >> _RING_SHARE if self.calls else 0,
        }
        return budgets if self.several_users else dict.fromkeys(budgets, 0)

    def ring_bytes(self, cpus: int) -> tuple[int, int, int]:
        """Return the bytes of the rings of samples, events and copied stacks of ``cpus`` CPUs."""
        if self.rings:
            return self.rings
        room = 1 << (cpus - 1).bit_length()  # powers of two
        samples = _SAMPLE_RING if self.waiting else min(room * _CPU_SAMPLES, _SAMPLE_RING)
        copies = min(room * _CPU_COPIES * (2 if self.waiting else 1), _COPY_RING)
        # Calls have paths of their own, several times as many as samples have.
        return samples, _EVENT_RING * (4 if self.calls else 1), copies

    def constants(self) -> dict[str, int]:
        """Return the constants of the programs."""
        return {
            "FOLLOW_CHILDREN": int(self.follow_children),
            "EVERYTHING": int(self.everything),
            "ONLY_USER": 0xFFFFFFFF if self.only_user is None else self.only_user,
            "SELECTING": int(self.selecting),
            "ON_DEMAND": int(self.on_demand),
            "LONG_WAIT": self.long_wait_ns,
            "WAKERS": int(self.wakers),
            **self._budgets(),
            "TOUCHED_FUNCTION": (self.calls and self.calls.touched_function) or 0,
        }

    def tracepoints(self) -> dict[str, str]:
        """The raw tracepoint of each program that runs at one."""
        tracepoints = {
            "on_fork": "sched_process_fork",
            "on_exec": "sched_process_exec",
            "on_exit": "sched_process_exit",
            "on_free": "sched_process_free",
        }
        if self.waiting:
            tracepoints |= {"on_switch": "sched_switch", "on_waking": "sched_waking"}
        if self.waiting and self.wakers:
            tracepoints |= {
                "on_hrtimer": "hrtimer_expire_entry",
                "on_hrtimer_end": "hrtimer_expire_exit",
                "on_timer": "timer_expire_entry",
                "on_timer_end": "timer_expire_exit",
                "on_queued": "workqueue_queue_work",
                "on_work": "workqueue_execute_start",
                "on_softirq": "softirq_entry",
                "on_interrupt": "irq_handler_entry",
                "on_interrupt_end": "irq_handler_exit",
            }
        if self.control_groups:
            tracepoints["on_cgroup"] = "cgroup_attach_task"
        return tracepoints | (self.calls.tracepoints() if self.calls else {})

    def events(self) -> dict[str, PerfEvent]:
        """The perf event of each program that runs at one and takes no sample."""
        return self.calls.events() if self.calls else {}
