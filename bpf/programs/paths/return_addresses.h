/* Return addresses that the kernel has replaced: where it traps a function's return, the stack has
 * the address of its trampoline in place of the caller's, and the kernel a list of those replaced,
 * innermost first (struct return_instance of include/linux/uprobes.h).
 */
#ifndef HPCD_PATHS_RETURN_ADDRESSES_H
#define HPCD_PATHS_RETURN_ADDRESSES_H

#include "unwinding.h"

#ifdef HPCD_CALLS

/* Of one thread: kernel/events/uprobes.c, MAX_URETPROBE_DEPTH. */
#define MOST_REPLACED 64

#ifdef HPCD_AARCH64
#define REPLACED_AT(w) ((w)->sp)
#define PROBE_SLOT_BYTES 4
#define MOST_INSTRUCTION_BYTES 4
#define MOST_RESTORED (COPY_BYTES / 8) /* words looked at */
#define CALLERS_A_WORD 8 /* of the kernel's list passed at one word: functions that jump share a place */
#else
#define REPLACED_AT(w) ((w)->sp - 8)
#define MOST_RESTORED MOST_REPLACED
#define PROBE_SLOT_BYTES 128 /* arch/x86/include/asm/uprobes.h; the first is the trampoline */
#define MOST_INSTRUCTION_BYTES 15
#endif

/* The innermost return address of this thread that the kernel has replaced, in its list; 0: there is none. */
static __always_inline struct return_instance *innermost_replaced(void)
{
	struct uprobe_task *task = FIELD(this_task()->utask);

	return task ? FIELD(task->return_instances) : 0;
}

/* Notes where the process has the trampoline; 0: it has none. What is read on the way is kept in the
 * walk: of the programs' stacks there is little. */
static __always_inline void find_trampoline(struct walk *w)
{
	if (!PROBING)
		return;
	READ_FIELD(w->replaced, this_task()->utask);
	if (!w->replaced) /* the thread has met no probe */
		return;
	READ_FIELD(w->replaced, ((struct uprobe_task *)w->replaced)->return_instances);
	READ_FIELD(w->trampoline, this_task()->mm);
	READ_FIELD(w->trampoline, ((struct mm_struct *)w->trampoline)->uprobes_state.xol_area);
	if (w->trampoline)
		READ_FIELD(w->trampoline, ((struct xol_area *)w->trampoline)->vaddr);
	/* Where aarch64 has addresses of 52 bits, the kernel puts this page above 2^48. */
	w->trampoline = CODE_ADDRESS(w->trampoline);
}

#ifndef HPCD_AARCH64
/* Since Linux 6.11 the trampoline pushes three registers and makes a system call, which takes the innermost
 * replaced address off the list and puts it in place of the first register; it then pops the others, at
 * bytes 13 and 15, and returns, at 16 (arch/x86/kernel/uprobes.c: uretprobe_trampoline_entry). Not 0: the
 * address was taken off the list, and the walk is where it leads. */
static __always_inline int leave_ended_trampoline(struct walk *w, u64 within)
{
	u64 at = w->sp + (within == 13 ? 16 : within == 15 ? 8 : 0);
	struct return_instance *innermost = (void *)w->replaced;

	if (within != 13 && within != 15 && within != 16)
		return 0;
	/* The system call corrects sp before it takes the address off the list. */
	if (innermost && !READ_FIELD(w->spill, innermost->stack) &&
	    (w->spill == at || w->spill == w->sp - 8))
		return 0;
	if (read_user(&w->ip, 8, at))
		return 0;
	w->sp = at + 8;
	w->caller = 1;
	return 1;
}
#else
#define leave_ended_trampoline(w, within) 0
#endif

/* Continues where a thread is that executes the page which the kernel has mapped for probes: in the trampoline
 * a function has returned to its caller, elsewhere a copy of the probed instruction is executed. */
static __always_inline void leave_probe_page(struct walk *w)
{
	u64 within = CODE_ADDRESS(w->ip) - w->trampoline;

	if (!PROBING || !w->trampoline || within >= 4096)
		return;
	if (within >= PROBE_SLOT_BYTES) {
		READ_FIELD(w->spill, this_task()->utask);
		READ_FIELD(w->ip, ((struct uprobe_task *)w->spill)->vaddr);
		/* Once the copy has been executed, the thread is past it, and its sp is that of the next instruction. */
		READ_FIELD(w->spill, ((struct uprobe_task *)w->spill)->xol_vaddr);
		within = CODE_ADDRESS(w->trampoline + within) - CODE_ADDRESS(w->spill);
		if (within <= MOST_INSTRUCTION_BYTES)
			w->ip += within;
		w->regs.ip = w->ip; /* for a copy of the stack */
		return;
	}
	if (leave_ended_trampoline(w, within))
		return;
	struct return_instance *innermost = (void *)w->replaced;
	if (!innermost || READ_FIELD(w->spill, innermost->stack) ||
	    READ_FIELD(w->ip, innermost->orig_ret_vaddr))
		return;
#ifdef HPCD_AARCH64
	w->sp = w->spill;
#else
	w->sp = w->spill + 8;
#endif
	w->caller = 1;
}

struct restoring {
	struct copier *copier;
	u64 trampoline;
};

#ifdef HPCD_AARCH64
/* A function may save its return address anywhere below its caller's sp, which is what the kernel notes. */
static __attribute__((noinline)) long restore_one(u32 number, struct restoring *restoring)
{
	struct copier *copier = restoring->copier;
	u64 at = 8 * (u64)number;

	if (!copier || !copier->replaced || at >= copier->copy.size)
		return 1;
	u64 *word = (u64 *)(copier->copy.bytes + (at & (COPY_BYTES - 8)));
	NOUNROLL
	for (u32 i = 0; i < CALLERS_A_WORD; i++) {
		struct return_instance *instance = (void *)copier->replaced;
		if (!instance || copier->copy.start + at < FIELD(instance->stack))
			break;
		READ_FIELD(copier->replaced, instance->next);
	}
	if (copier->replaced && CODE_ADDRESS(*word) == restoring->trampoline)
		*word = FIELD(((struct return_instance *)copier->replaced)->orig_ret_vaddr);
	return 0;
}
#else
static __attribute__((noinline)) long restore_one(u32 number, struct restoring *restoring)
{
	struct copier *copier = restoring->copier;

	if (!copier || !copier->replaced)
		return 1;
	struct return_instance *instance = (void *)copier->replaced;
	u64 address = FIELD(instance->orig_ret_vaddr);
	u64 at = FIELD(instance->stack) - copier->copy.start;
	if (at < copier->copy.size && !(at & 7))
		*(u64 *)(copier->copy.bytes + (at & (COPY_BYTES - 8))) = address;
	READ_FIELD(copier->replaced, instance->next);
	return 0;
}
#endif

/* Puts the addresses that were there back into a copy of the stack: it is walked when the kernel's list
 * is another. */
static __always_inline void restore_copied(struct walk *w, struct copier *copier)
{
	struct restoring restoring = {copier, w->trampoline};

	if (!PROBING || !w->trampoline)
		return;
	struct return_instance *innermost = innermost_replaced();
	copier->replaced = (u64)innermost;
#ifdef HPCD_AARCH64
	if (innermost && CODE_ADDRESS(copier->copy.regs.x[30]) == w->trampoline)
		copier->copy.regs.x[30] = FIELD(innermost->orig_ret_vaddr);
#endif
	if (copier->replaced)
		run_loop(MOST_RESTORED, restore_one, &restoring, 0);
}

/* The address that was on the stack where the trampoline's is now. Callers' stand later in the list. */
static __always_inline void restore_return_address(struct walk *w)
{
	u64 at = REPLACED_AT(w);

	NOUNROLL
	for (u32 i = 0; i < MOST_REPLACED; i++) {
		struct return_instance *instance = (void *)w->replaced;
		if (!instance)
			return;
		u64 stack = FIELD(instance->stack), address = FIELD(instance->orig_ret_vaddr);
		if (stack == at && address != w->trampoline) {
			w->ip = address;
			return;
		}
		if (stack > at)
			return;
		READ_FIELD(w->replaced, instance->next);
	}
}

#else /* nothing is probed */
#define PROBING 0
#define find_trampoline(w)
#define restore_copied(w, copier)
#define leave_probe_page(w)
#endif

#endif
