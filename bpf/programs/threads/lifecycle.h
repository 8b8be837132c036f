/* Lifecycle of targets, by the scheduler's raw tracepoints. A process is a target while it has an entry in
 * PROCESSES. */
#ifndef HPCD_THREADS_LIFECYCLE_H
#define HPCD_THREADS_LIFECYCLE_H

#include "runtimes/jvm_maps.h"
#include "runtimes/python_maps.h"
#include "paths/call_path.h"
#include "paths/copies.h"
#include "threads/owner.h"
#ifdef HPCD_OBJECT /* bcc's programs take no Python frames */
#include "runtimes/python_programs.h"
#else
#define begin_python(task, tgid)
#endif
#include "threads/threads.h"

SECTION("raw_tp/")
int on_fork(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	struct counters *count = counters();
	struct task_struct *forking = (void *)ctx->args[0], *child = (void *)ctx->args[1];

	if (!count)
		return 0;
	/* This tid was another thread's, which is still there: its end was not reported. Linux 6.18 was
	 * seen to call no program at sched_process_free for 1 to 4 in 1,000. Left alone, it would be
	 * the new one that is recorded, of whatever user. User space may have numbered the new one. */
	u32 tid = FIELD(child->pid);
	struct thread *before = map_lookup(MAP(THREADS), &tid);
	if (before && (before->left || (before->number & THREAD_CPU_MASK) != THREAD_CPU_MASK))
		end_thread(0, tid);
	u32 parent = FIELD(forking->tgid);
	struct process *process = map_lookup(MAP(PROCESSES), &parent);
	if (!process && !EVERYTHING)
		return 0;
	fill_thread_event(&event, EVENT_FORK, child);
	if (event.tgid != parent) {
		if (!FOLLOW_CHILDREN)
			return 0;
		/* The child has the parent's memory: it can be unwound from its first instruction. */
		struct process copy = {};
		if (process)
			copy = *process;
		copy.refresh = 0;
		if (copy.image && copy.image != event.image) /* of the program before */
			copy.space.count = 0;
		copy.image = event.image;
		/* Of a parent that user space has not met the child requests its mappings itself. */
		event.thread = !map_update(MAP(PROCESSES), &event.tgid, &copy, 0);
		struct python *python = map_lookup(MAP(PYTHONS), &parent);
		if (python)
			map_update(MAP(PYTHONS), &event.tgid, python, 0);
		if (copy.excluded)
			return 0;
		event.other = parent;
		/* Probes that are attached process by process are wanted in this one too. */
		u64 urgency = PROBING ? FORCE_WAKEUP : NO_WAKEUP;
		send_event(&event, urgency);
	} else if (process && process->excluded)
		return 0;
	/* Registered from its birth, so that its first wait for a CPU counts too. */
	register_thread(child, event.tid, 1, count);
	return 0;
}

/* Sends who the current task is by now, and what its program was started with: the kernel has just
 * written that above the new stack. Of what does not arrive user space asks /proc. */
static __always_inline void send_program(struct task_struct *task, struct thread_event *exec)
{
	u32 index = cache_of(CONTEXT_SWITCH);
	struct copier *copier = map_lookup(MAP(COPIERS), &index);

	/* Threads and stacks come first where the ring fills. */
	if (!copier || urgency_of(MAP(EVENTS), 8) == FORCE_WAKEUP)
		return;
	struct program_event *program = (struct program_event *)copier->copy.bytes;
	struct mm_struct *mm = FIELD(task->mm);
	u64 begin = FIELD(mm->arg_start), middle = FIELD(mm->arg_end), end = FIELD(mm->env_end);
	if (!begin || middle < begin || end < middle)
		return;
	program->time = exec->time;
	program->kind = EVENT_PROGRAM;
	program->tgid = exec->tgid;
	program->start = exec->start;
	/* A kernel without control groups has no helper that tells them. */
	program->group = HAS_FIELD(task_struct, cgroups) ? this_control_group() : 0;
	program->arguments = middle - begin;
	program->environment = end - middle;
	if (READ_FIELD(program->parent, FIELD(task->real_parent)->tgid) ||
	    READ_FIELD(program->user, FIELD(task->cred)->euid.val))
		return;
	u64 size = end - begin;
	if (size > PROGRAM_TEXT)
		size = PROGRAM_TEXT;
	if (!read_user(program->text, size, begin))
		ring_output(MAP(EVENTS), program, sizeof *program - PROGRAM_TEXT + size, NO_WAKEUP);
}

SECTION("raw_tp/")
int on_exec(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	struct task_struct *task = (void *)ctx->args[0];
	u32 old = (u32)ctx->args[1], ended = 0;
	u64 urgency = NO_WAKEUP;

	fill_thread_event(&event, EVENT_EXEC, task);
	struct process *process = map_lookup(MAP(PROCESSES), &event.tgid);
	if (process) {
		if (process->excluded)
			return 0;
		process->space.count = 0;
		process->image = event.image;
		process->refresh = !ON_DEMAND;
		map_delete(MAP(JVMS), &event.tgid);
		map_delete(MAP(PYTHONS), &event.tgid);
		begin_python(task, event.tgid);
		struct thread *hidden = map_lookup(MAP(THREADS), &event.tid);
		if (hidden)
			hidden->user = 0;
		if (hidden && hidden->hidden) {
			/* Since the last tick, where the kernel's count ends, it may have run for 1 ms. */
			u64 used = event.time - hidden->woken;
			if (hidden->woken && used > event.runtime)
				event.runtime = used;
			event.thread = hidden->number;
			hidden->woken = 0;
			hidden->hidden = 0;
		}
		/* A thread that execs takes over its leader's tid: its own line ends, the leader's goes on. */
		if (old != event.tid) {
			struct thread *leader = map_lookup(MAP(THREADS), &event.tid);
			struct thread *thread = map_lookup(MAP(THREADS), &old);
			if (leader)
				event.other = leader->number;
			if (thread)
				ended = thread->number;
			map_delete(MAP(THREADS), &old);
		}
		if (owner_changed(task)) {
			struct thread *thread = map_lookup(MAP(THREADS), &event.tid);
			if (thread)
				event.thread = thread->number;
			map_delete(MAP(THREADS), &event.tid);
			process->excluded = 1;
			event.kind = EVENT_EXIT;
			event.other = 1;
			__builtin_memset(event.comm, 0, sizeof event.comm); /* the new program's */
			send_event(&event, NO_WAKEUP);
			event.kind = EVENT_FREE;
			urgency = FORCE_WAKEUP; /* what is probed in it is to be let go of, too */
		} else
			send_program(task, &event);
	} else if (SELECTING)
		urgency = FORCE_WAKEUP; /* every instruction until then is one not recorded */
	else if (!EVERYTHING)
		return 0;
	send_event(&event, urgency);
	if (ended) {
		event.kind = EVENT_FREE;
		event.thread = ended;
		__builtin_memset(event.comm, 0, sizeof event.comm);
		send_event(&event, NO_WAKEUP);
	}
	return 0;
}

/* A process enters a control group: it may become a target by that. */
SECTION("raw_tp/")
int on_cgroup(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;

	fill_thread_event(&event, EVENT_MOVED, (void *)ctx->args[2]);
	if (!map_lookup(MAP(PROCESSES), &event.tgid))
		send_event(&event, FORCE_WAKEUP);
	return 0;
}

/* A thread begins to end. It still runs: what it frees, it frees in its own CPU time, and its samples
 * count until on_free(). */
SECTION("raw_tp/")
int on_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread_event event;
	struct task_struct *task = (void *)ctx->args[0];

	fill_thread_event(&event, EVENT_EXIT, task);
	struct thread *thread = map_lookup(MAP(THREADS), &event.tid);
	if (thread) {
		event.thread = thread->number;
		thread->left = event.time;
	}
	if (!map_lookup(MAP(PROCESSES), &event.tgid) && !event.thread)
		return 0;
	if (process_has_ended(task)) {
		event.other = 1;
		map_delete(MAP(PROCESSES), &event.tgid);
		map_delete(MAP(JVMS), &event.tgid);
		map_delete(MAP(PYTHONS), &event.tgid);
	}
	send_event(&event, NO_WAKEUP);
	return 0;
}

/* The kernel drops a task that runs no more: where on_switch() does not see the last of it, only now is
 * its CPU time final. At on_exit() it stands where the scheduler's last tick left it, which of a
 * program of 1 ms is nowhere. */
SECTION("raw_tp/")
int on_free(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];

	return end_thread(task, FIELD(task->pid));
}

#endif
