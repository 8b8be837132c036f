/* A call path, from its beginning to where the walk of the user stack starts. */
#ifndef HPCD_PATHS_CALL_PATH_H
#define HPCD_PATHS_CALL_PATH_H

#include "paths/kernel_part.h"
#include "paths/return_addresses.h"
#include "paths/stack_cache.h"
#include "threads/threads.h"

/* include/linux/sched.h; the numbers have not changed since 2.6 (flags) and 4.14 (states). */
#define PF_KTHREAD 0x00200000

/* A path that has no frames yet. */
static __always_inline void empty_path(struct walk *w)
{
	w->hash = HASH_START;
	w->frames = 0;
	w->kernel_frames = 0;
	w->depth = 0;
	w->space_number = 0;
	w->anchor = 0;
	w->python_at = 0;
	w->python_left = 0;
	w->chained = 0;
	w->code_bytes = 0;
}

/* Begins the path of a thread as of now, to be interned in this stack cache. Its report will say what `flags` say. */
static __always_inline void begin_path(struct walk *w, u32 thread, u32 tgid, u32 cache, u32 slot, u32 flags)
{
	w->time = bpf_ktime_get_ns();
	w->thread = thread;
	w->owner = flags << OWNER_FLAGS | slot;
	w->tgid = tgid;
	w->cache = cache;
	empty_path(w);
}

/* The stack cache of samples or of switches on this CPU. */
static __always_inline u32 cache_of(u32 context)
{
	return bpf_get_smp_processor_id() << 1 | context;
}

/* Puts the walk where the thread's user registers stand. */
static __always_inline void begin_walk(struct walk *w, int copied)
{
	w->bx_at = 0;
	w->interrupted = 0;
	w->words_at = NO_STACK;
	w->trampoline = 0;
	w->replaced = 0;
	if (!copied)
		find_trampoline(w);
	w->mapping.pages = 0;
	w->other.pages = 0;
	/* In a system call ip stands behind its instruction, which may be a function's last. */
	w->caller = IN_SYSTEM_CALL(&w->regs);
	w->ip = w->regs.ip;
	w->sp = w->regs.sp;
	w->bp = REGISTER_FP(&w->regs);
#ifdef HPCD_AARCH64
	w->link = w->regs.x[30];
#else
	w->link = 0;
#endif
	if (!copied)
		leave_probe_page(w);
}

/* Whether the thread is in an exec that has let go of the old memory, while the registers are
 * still those the old program called it with. */
static __always_inline int has_lost_stack(struct walk *w, struct process *process, u32 image)
{
	u64 word;

	if (!HAS_FIELD(task_struct, in_execve) || !BIT_FIELD(this_task(), task_struct, in_execve))
		return 0;
	return (process && process->image && process->image != image) ||
	       read_user(&word, 8, w->regs.sp);
}

/* Ends a walk before its first step. */
static __always_inline void end_unready(struct walk *w)
{
	u32 n = w->frames;
	u64 frame = FRAME_RAW | (w->ip & FRAME_RAW_MASK);

	if (n < MAX_FRAMES) {
		w->frame[n] = frame;
		w->frames = n + 1;
		w->hash = hash_mix(w->hash, frame);
	}
	/* Whose address it is, though the thread may execute another program and its tid be another's soon. */
	w->hash = hash_mix(w->hash, (u64)w->thread << 32 | image_of(this_task()));
	w->ending = END_NO_PROCESS;
}

/* include/uapi/linux/futex.h */
#define FUTEX_COMMAND 127
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_LOCK_PI2 13
/* The mutexes of glibc, Rust and Go have this value while threads wait for them. */
#define LOCK_HAS_WAITERS 2

/* The futex that a thread waits for in this system call, as struct sample has it. */
static __always_inline u64 futex_of(struct registers *regs)
{
	u32 command = SECOND_ARGUMENT(regs) & FUTEX_COMMAND, value = THIRD_ARGUMENT(regs);
	int waits = command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET;
	int locks = command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2 || (waits && value == LOCK_HAS_WAITERS);

	if (CALL_NUMBER(regs) != FUTEX_CALL || !(waits || locks))
		return 0;
	return (FIRST_ARGUMENT(regs) & ~3ULL) | (locks ? FUTEX_IS_LOCK : 0);
}

/* Makes ready to walk the current thread's user stack; 0: there is nothing to walk, or the process is
 * not ready (END_NO_PROCESS). */
static __always_inline int prepare_walk(struct walk *w, u32 tgid, u32 flags, int in_user_mode)
{
	/* The user registers as saved on entry to the kernel, whatever way it was entered. */
	if (flags & (PF_EXITING | PF_KTHREAD) ||
	    read_kernel(&w->regs, sizeof w->regs, task_registers(this_task_btf())) ||
	    !IN_USER_MODE(&w->regs)) {
		w->ending = END_KERNEL_ONLY;
		return 0;
	}
	begin_walk(w, 0);
	if (w->event == OUT_UNINTERRUPTIBLE && !w->caller)
		w->event = OUT_FAULT;
	if (w->event == OUT_SLEEPING && w->caller)
		w->value = futex_of(&w->regs);
	struct process *process = map_lookup(MAP(PROCESSES), &tgid);
	u32 image = image_of(this_task());
	if (!in_user_mode && has_lost_stack(w, process, image)) {
		w->ending = END_KERNEL_ONLY;
		return 0;
	}
	/* Mappings that were read before an exec, and written after it, are another program's. */
	if (!process || !process->space.count ||
	    (process->image && process->image != image)) {
		end_unready(w);
		return 0;
	}
	w->space = process->space;
	w->space_number = process->space_number;
	return 1;
}

/* Takes the current thread's path: the kernel's part here, the user's by tail calls of walk(). With `left_out`, or beyond
 * its user's budget, the path has no frames. */
static __always_inline void take_path(void *ctx, struct walk *w, struct thread *thread, u32 tgid, u32 flags,
				      int in_user_mode, int leaving, int left_out, unsigned long programs)
{
	u32 slot = user_slot(thread, this_task());

	if (w->event == WOKEN) {
		begin_path(w, thread->number, tgid, cache_of(w->context), slot, 0);
	} else {
		begin_path(w, thread->number, tgid, cache_of(w->context), slot, thread->lost);
		thread->lost = 0;
	}
	if (leaving) {
		thread->since = w->time;
		thread->away = 1;
	}
	if (left_out || is_over_budget(slot, w->time)) {
		w->ending = END_OVER_BUDGET;
	} else {
		if (!in_user_mode)
			take_kernel_part(ctx, w, leaving);
		if (prepare_walk(w, tgid, flags, in_user_mode)) {
			tail_call(ctx, programs, 0);
			/* Not loaded yet: it takes longer to verify than all the rest. */
			end_unready(w);
		}
		if (w->ending == END_NO_PROCESS)
			tail_call(ctx, programs, 1);
	}
	finish(w);
}

#endif
