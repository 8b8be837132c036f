/* Return addresses that the kernel has replaced: where it traps a function's return, the stack has
 * the address of its trampoline in place of the caller's, and the kernel a list of those replaced,
 * innermost first (struct return_instance of include/linux/uprobes.h).
 */
#ifndef HPCD_RETURN_ADDRESSES_H
#define HPCD_RETURN_ADDRESSES_H

/* Of one thread: kernel/events/uprobes.c, MAX_URETPROBE_DEPTH. */
#define MOST_REPLACED 64

#ifdef HPCD_AARCH64
#define REPLACED_AT(w) ((w)->sp)
#else
#define REPLACED_AT(w) ((w)->sp - 8)
#endif

/* Notes where the process has the trampoline; 0: it has none. */
static __always_inline void find_trampoline(struct walk *w)
{
	u64 task = this_task(), mm = 0, area = 0, of_thread = 0;

	w->trampoline = 0;
	w->replaced = 0;
	if (!PROBING || SAVED_STACK)
		return;
	read_kernel(&of_thread, 8, task + OFFSET_TASK_UTASK);
	if (!of_thread)
		return;
	read_kernel(&mm, 8, task + OFFSET_TASK_MM);
	read_kernel(&area, 8, mm + OFFSET_MM_XOL_AREA);
	if (!area)
		return;
	read_kernel(&w->trampoline, 8, area + OFFSET_XOL_ADDRESS);
	read_kernel(&w->replaced, 8, of_thread + OFFSET_UTASK_RETURNS);
}

struct restoring {
	struct copier *copier;
};

static __attribute__((noinline)) long restore_one(u32 number, struct restoring *restoring)
{
	struct copier *copier = restoring->copier;
	u64 stack = 0, address = 0;

	if (!copier || !copier->replaced)
		return 1;
	read_kernel(&stack, 8, copier->replaced + OFFSET_RETURN_STACK);
	read_kernel(&address, 8, copier->replaced + OFFSET_RETURN_ADDRESS);
	u64 at = stack - copier->copy.start;
	if (at < copier->copy.size && !(at & 7)) /* not in the link register */
		*(u64 *)(copier->copy.bytes + (at & (COPY_BYTES - 8))) = address;
	read_kernel(&copier->replaced, 8, copier->replaced + OFFSET_RETURN_NEXT);
	return 0;
}

/* Puts the addresses that were there back into a copy of the stack: it is walked when the kernel's list
 * is another. */
static __always_inline void restore_copied(struct copier *copier)
{
	struct restoring restoring = {copier};
	u64 of_thread = 0;

	if (!PROBING || SAVED_STACK)
		return;
	copier->replaced = 0;
	read_kernel(&of_thread, 8, this_task() + OFFSET_TASK_UTASK);
	if (of_thread)
		read_kernel(&copier->replaced, 8, of_thread + OFFSET_UTASK_RETURNS);
	if (copier->replaced)
		run_loop(MOST_REPLACED, restore_one, &restoring, 0);
}

/* The address that was on the stack where the trampoline's is now. Callers' stand later in the list. */
static __always_inline void restore_return_address(struct walk *w)
{
	u64 at = REPLACED_AT(w), stack, address;

	NOUNROLL
	for (u32 i = 0; i < MOST_REPLACED; i++) {
		u64 instance = w->replaced;
		if (!instance)
			return;
		stack = 0;
		address = 0;
		read_kernel(&stack, 8, instance + OFFSET_RETURN_STACK);
		read_kernel(&address, 8, instance + OFFSET_RETURN_ADDRESS);
		if (stack == at && address != w->trampoline) {
			w->ip = address;
			return;
		}
		if (stack > at)
			return;
		read_kernel(&w->replaced, 8, instance + OFFSET_RETURN_NEXT);
	}
}

#endif
