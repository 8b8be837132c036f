/* Threads and processes as the programs know them: their tables, numbers, and how they are announced. */
#ifndef HPCD_THREADS_THREADS_H
#define HPCD_THREADS_THREADS_H

#include "rings.h"
#include "threads/owner.h"
#include "unwinding.h"

DEFINE_MAP(PROCESSES, HASH, u32, struct process);
DEFINE_MAP(THREADS, HASH, u32, struct thread);
DEFINE_MAP(REGISTERED, ARRAY, u32, struct registered); /* by tid */
DEFINE_MAP(NEXT_THREAD, PERCPU_ARRAY, u32, u32);

/* include/linux/sched.h; the numbers have not changed since 2.6 (flags) and 4.14 (states). */
#define PF_EXITING 4
#define TASK_DEAD 0x80

/* The program a task runs, as a number that its next exec changes and that its children begin with:
 * the kernel's count of execs in the line of its ancestors. Never 0. */
static __always_inline u32 image_of(struct task_struct *task)
{
	u32 execs = FIELD(task->self_exec_id);

	return execs + 1 ? execs + 1 : 1;
}

/* Where it is noted whether a tid may be a registered thread's; 0: of tids as large it is not. */
static __always_inline u8 *registration(u32 tid)
{
	u32 row = tid / TIDS_IN_ROW;
	struct registered *registered = map_lookup(MAP(REGISTERED), &row);

	return registered ? &registered->tid[tid % TIDS_IN_ROW] : 0;
}

static __always_inline u32 may_be_registered(u32 tid)
{
	u8 *noted = EVERYTHING ? 0 : registration(tid);

	return noted ? *noted : 1;
}

/* A registered thread. Of all others, which are most of those that switch, the look-up in the hash table is saved. */
static __always_inline struct thread *find_thread(u32 tid)
{
	return may_be_registered(tid) ? map_lookup(MAP(THREADS), &tid) : 0;
}

static __always_inline void fill_thread_event(struct thread_event *event, u32 kind,
					      struct task_struct *task)
{
	__builtin_memset(event, 0, sizeof *event);
	event->time = bpf_ktime_get_ns();
	event->kind = kind;
	READ_FIELD(event->tgid, task->tgid);
	READ_FIELD(event->tid, task->pid);
	READ_FIELD(event->start, task->start_time);
	READ_FIELD(event->runtime, task->se.sum_exec_runtime);
	READ_FIELD(event->comm, task->comm);
	event->image = image_of(task);
}

/* A number no other thread of this recording has: this CPU's counter beside the CPU's number. 0 when
 * there is none left: one that is given again would mix two threads, which may be two users'. */
static __always_inline u32 new_thread_number(u32 cpu)
{
	u32 zero = 0;
	u32 *next = map_lookup(MAP(NEXT_THREAD), &zero);
	if (!next || *next >= THREADS_PER_CPU)
		return 0;
	*next += 1;
	return *next << THREAD_CPU_BITS | (cpu & THREAD_CPU_MASK);
}

/* Gives a thread that was not seen before its number and announces it; 0: neither was possible. */
NOT_INLINED struct thread *register_thread(struct task_struct *task, u32 tid, u32 born,
					   struct counters *count)
{
	struct thread fresh;
	/* Also of a process that was let go of at its exec: user space, which may not know yet, can
	 * have put it among those recorded again. */
	if (owner_changed(task))
		return 0;
	__builtin_memset(&fresh, 0, sizeof fresh);
	if (born)
		fresh.since = bpf_ktime_get_ns();
	fresh.number = new_thread_number(bpf_get_smp_processor_id());
	u8 *noted = registration(tid);
	if (noted)
		*noted = 1;
	if (!fresh.number || map_update(MAP(THREADS), &tid, &fresh, BPF_NOEXIST)) {
		/* While it is attached to, user space may have numbered it since it was looked up. */
		struct thread *numbered = map_lookup(MAP(THREADS), &tid);
		if (!numbered)
			count->dropped[DROP_THREAD_TABLE]++;
		return numbered;
	}
	struct thread_event event;
	fill_thread_event(&event, EVENT_THREAD, task);
	event.thread = fresh.number;
	event.other = born;
	/* Recording everything, a process may be new to user space: its code cannot be followed yet. */
	u64 urgency = NO_WAKEUP;
	if (EVERYTHING && !born && !map_lookup(MAP(PROCESSES), &event.tgid))
		urgency = FORCE_WAKEUP;
	if (send_event(&event, urgency)) {
		map_delete(MAP(THREADS), &tid);
		return 0;
	}
	return map_lookup(MAP(THREADS), &tid);
}

static __always_inline struct thread *register_current_thread(u32 tid, struct counters *count)
{
	return register_thread(this_task(), tid, 0, count);
}

/* Whether a task was the last of its process's threads: do_exit() counts signal->live down before
 * sched_process_exit. */
static __always_inline int process_has_ended(struct task_struct *task)
{
	u32 live = 1;

	READ_FIELD(live, FIELD(task->signal)->live.counter);
	return live == 0;
}

/* Ends a recorded thread that runs no more, and reports it. task is 0 when the kernel has freed it without
 * a report: then its last CPU time and name are not known. */
NOT_INLINED int end_thread(struct task_struct *task, u32 tid)
{
	struct thread_event event;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);

	if (!thread)
		return 0;
	if (task)
		fill_thread_event(&event, EVENT_FREE, task);
	else {
		__builtin_memset(&event, 0, sizeof event);
		event.time = bpf_ktime_get_ns();
		event.kind = EVENT_FREE;
	}
	event.thread = thread->number;
	event.other = thread->lost;
	if (thread->left)
		event.time = thread->left;
	/* Before the tid may be registered anew. */
	u8 *noted = registration(tid);
	if (noted)
		*noted = 0;
	map_delete(MAP(THREADS), &tid);
	send_event(&event, NO_WAKEUP);
	return 0;
}

#endif
