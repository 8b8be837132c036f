/* The occupants of a CPU while a target's thread waits for it. Each CPU notes the threads that leave it; when a target's
 * thread comes to it after a wait that is not short, a report names each process that ran there meanwhile. */
#ifndef HPCD_EVENTS_INTERFERENCE_H
#define HPCD_EVENTS_INTERFERENCE_H

#include "paths/call_path.h"
#include "threads/threads.h"

DEFINE_MAP(OCCUPANCY, ARRAY, u32, struct occupancy); /* of each CPU */
DEFINE_MAP(OUTSIDERS, LRU_HASH, u32, struct outsider);

/* The key of a process that is not recorded, whose name is announced in a map, once. */
static __always_inline u32 note_outsider(struct task_struct *task, u32 process)
{
	struct task_struct *leader = FIELD(task->group_leader);
	u64 name[2] = {0};

	READ_FIELD(name, leader->comm);
	u32 key = hash_mix(hash_mix(hash_mix(HASH_START, process), name[0]), name[1]);
	if (!map_lookup(MAP(OUTSIDERS), &key)) {
		struct outsider outsider = {.user = FIELD(FIELD(task->cred)->euid.val), .process = process};
		__builtin_memcpy(outsider.comm, name, sizeof name);
		map_update(MAP(OUTSIDERS), &key, &outsider, 0);
	}
	return key;
}

/* Whether a limit keeps the control group of a task, or one above, from the CPU that it waits for. */
static __always_inline u32 is_limited(struct task_struct *task)
{
	return HAS_FIELD(cfs_rq, throttle_count) && FIELD(FIELD(task->se.cfs_rq)->throttle_count) > 0;
}

/* Notes that the present thread leaves this CPU now. */
static __always_inline struct occupancy *note_occupant(struct task_struct *task, u64 id, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct occupancy *occupancy = map_lookup(MAP(OCCUPANCY), &cpu);

	if (!occupancy)
		return 0;
	struct occupant *last = &occupancy->ran[occupancy->newest % OCCUPANTS];
	occupancy->before = last->time;
	if (last->id >> 32 != id >> 32) {
		occupancy->newest++;
		last = &occupancy->ran[occupancy->newest % OCCUPANTS];
	}
	last->task = (u64)task;
	last->id = id;
	last->time = now;
	return occupancy;
}

/* Adds time in which a process ran on a CPU to its sum. A function of numbers alone, which the verifier takes by itself:
 * once, not for each of the stretches. */
VERIFIED_ONCE int add_occupant(u32 cpu, u64 task, u64 id, u64 ns)
{
	struct occupancy *occupancy = map_lookup(MAP(OCCUPANCY), &cpu);

	for (u32 at = 0; occupancy && at < OCCUPANT_SUMS; at++) {
		struct occupant *sum = &occupancy->sum[at];
		if (!sum->time) {
			sum->task = task;
			sum->id = id;
		} else if (sum->id >> 32 != id >> 32)
			continue;
		sum->time += ns;
		break;
	}
	return 0;
}

/* Names an occupant in the report's stack and cache. */
static __always_inline void name_occupant(struct sample *report, struct occupant *ran)
{
	struct task_struct *task = (void *)ran->task;
	u32 tid = ran->id;

	report->stack = 0;
	if (!tid) {
		report->cache = INTERFERER_IDLE;
		return;
	}
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (thread && !thread->hidden) {
		report->cache = INTERFERER_THREAD;
		report->stack = thread->number;
		return;
	}
	report->cache = INTERFERER_NOT_SEEN;
	if (FIELD(task->pid) != tid) /* it has ended since, and its memory is another's */
		return;
	report->cache = (FIELD(task->flags) & PF_KTHREAD ? INTERFERER_KERNEL_THREAD : INTERFERER_THREAD) | OTHER_WAKER;
	report->stack = note_outsider(task, ran->id >> 32);
}

/* Reports the occupant of a sum, if there is one: else returns 0. Verified by itself, too. */
VERIFIED_ONCE int report_occupant(u32 at, u32 thread, u32 slot, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct occupancy *occupancy = map_lookup(MAP(OCCUPANCY), &cpu);
	struct counters *count = counters();

	if (!occupancy || !count || at >= OCCUPANT_SUMS || !occupancy->sum[at].time)
		return 0;
	struct sample report = {.time = now, .thread = thread, .event = RAN_INSTEAD};
	report.value = occupancy->sum[at].time;
	name_occupant(&report, &occupancy->sum[at]);
	send_report(&report, slot, count);
	return 1;
}

/* Reports the occupants of this CPU while a thread waited for it: from when it was woken, or had to leave, until now. */
NOT_INLINED int report_interference(struct occupancy *occupancy, struct task_struct *task, u64 since, u64 now)
{
	u32 tid = FIELD(task->pid), tgid = FIELD(task->tgid);
	u64 end = now, limited = 0;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	struct counters *count = counters();

	if (!thread || !count || !occupancy)
		return 0;
	for (u32 at = 0; at < OCCUPANT_SUMS; at++)
		occupancy->sum[at].time = 0;
	for (u32 back = 0; back < OCCUPANTS - 1 && end > since; back++) {
		u32 place = occupancy->newest - back;
		struct occupant *ran = &occupancy->ran[place % OCCUPANTS];
		u64 began = occupancy->ran[(place - 1) % OCCUPANTS].time;
		if (!began)
			break;
		if (began < since)
			began = since;
		if (thread->limited && ran->id >> 32 != tgid)
			limited += end - began;
		else
			add_occupant(bpf_get_smp_processor_id(), ran->task, ran->id, end - began);
		end = began;
	}
	u32 slot = user_slot(thread, task), number = thread->number;
	if (thread->limited) { /* as of its begin, so the time that is not known, too */
		struct sample report = {.time = now, .thread = number, .event = RAN_INSTEAD};
		report.cache = INTERFERER_LIMIT;
		report.value = limited + end - since;
		send_report(&report, slot, count);
	}
	for (u32 at = 0; at < OCCUPANT_SUMS && report_occupant(at, number, slot, now); at++)
		;
	return 0;
}

#endif
