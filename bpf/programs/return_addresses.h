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
#define PROBE_SLOT_BYTES 4
#else
#define REPLACED_AT(w) ((w)->sp - 8)
#define PROBE_SLOT_BYTES 128 /* arch/x86/include/asm/uprobes.h; the first is the trampoline */
#endif

/* Notes where the process has the trampoline; 0: it has none. What is read on the way is kept in the
 * walk: of the programs' stacks there is little. */
static __always_inline void find_trampoline(struct walk *w)
{
	w->trampoline = 0;
	w->replaced = 0;
	if (!PROBING || SAVED_STACK)
		return;
	read_kernel(&w->replaced, 8, this_task() + OFFSET_TASK_UTASK);
	if (!w->replaced)
		return;
	read_kernel(&w->replaced, 8, w->replaced + OFFSET_UTASK_RETURNS);
	read_kernel(&w->trampoline, 8, this_task() + OFFSET_TASK_MM);
	read_kernel(&w->trampoline, 8, w->trampoline + OFFSET_MM_XOL_AREA);
	if (w->trampoline)
		read_kernel(&w->trampoline, 8, w->trampoline + OFFSET_XOL_ADDRESS);
}

/* Where execution stands in the page that the kernel has mapped for probes: in the trampoline a function
 * has returned to its caller, elsewhere a copy of the probed instruction is executed. */
static __always_inline void leave_probe_page(struct walk *w)
{
	u64 within = w->ip - w->trampoline;

	if (!PROBING || SAVED_STACK || !w->trampoline || within >= 4096)
		return;
	if (within >= PROBE_SLOT_BYTES) {
		read_kernel(&w->spill, 8, this_task() + OFFSET_TASK_UTASK);
		read_kernel(&w->ip, 8, w->spill + OFFSET_UTASK_ADDRESS);
		return;
	}
	if (!w->replaced || read_kernel(&w->spill, 8, w->replaced + OFFSET_RETURN_STACK) ||
	    read_kernel(&w->ip, 8, w->replaced + OFFSET_RETURN_ADDRESS))
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

	if (!PROBING || SAVED_STACK)
		return;
	copier->replaced = 0;
	read_kernel(&copier->replaced, 8, this_task() + OFFSET_TASK_UTASK);
	if (copier->replaced)
		read_kernel(&copier->replaced, 8, copier->replaced + OFFSET_UTASK_RETURNS);
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
