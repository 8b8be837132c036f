/* Probes: the kernel traps at the entry of a function, and where it returns.
 *
 * A call is recorded when it returns, with the path at its entry. Entry and return are paired by the
 * thread and the place of the return address on its stack, and never by order: calls that are left
 * by longjmp, by an exception or by their thread's end are found when the stack has been unwound
 * above them.
 *
 * on_probe() serves sessions (Linux 6.13): one program for entry and return, which for calls that
 * are passed over tells the kernel not to trap the return; on_probe_entry() serves what needs no
 * return. Elsewhere on_probe_entry() and on_probe_return() are attached apart.
 */
#ifndef HPCD_PROBES_H
#define HPCD_PROBES_H

#include "probe_values.h"

#define MOST_LEFT 16384 /* open calls of a thread that are given up at once */
#define DEEPLY_NESTED 64
#define IGNORE_RETURN 1 /* what a session's program returns at an entry */

#ifdef HPCD_AARCH64
#define CALLER_SP(regs) ((regs)->sp)
#define RETURNED_SP(regs) ((regs)->sp)
#else
/* At the entry, and at a return instruction, sp points at the return address. */
#define CALLER_SP(regs) ((regs)->sp)
#define RETURNED_SP(regs) ((regs)->sp - 8)
#endif

static u64 (*attach_cookie)(void *ctx) = (void *)174;
static u64 (*function_address)(void *ctx) = (void *)173;

static __always_inline void count_up(u64 *counter)
{
	__sync_fetch_and_add(counter, 1); /* the program may be preempted */
}

static __always_inline u64 cut(u64 value, const struct value_step *step)
{
	u32 size = step->size;

	if (size == 0 || size > 7)
		return value;
	u32 shift = 64 - 8 * size;
	value <<= shift;
	return step->is_signed ? (u64)((s64)value >> shift) : value >> shift;
}

/* Steps first..end of a program, from `value` on. */
static __always_inline u64 run_steps(const struct value_program *program, u32 first, u32 end,
				     u64 value, struct probe_count *count)
{
	NOUNROLL
	for (u32 i = 0; i < PROBE_STEPS; i++) {
		const struct value_step *step = &program->step[i];
		if (i < first || i >= end)
			continue;
		value += (s64)step->offset;
		if (step->load) {
			u64 word = 0;
			u32 size = step->size & 15;
			if (size > 8)
				size = 8;
			if (read_user(&word, size, value)) {
				if (program->marks)
					return UNREADABLE;
				count_up(&count->unreadable);
				return 0;
			}
			value = word;
		}
		value = cut(value, step);
	}
	return value;
}

static __always_inline u64 register_at(struct walk *w, u32 source)
{
	const u64 *word = (const u64 *)&w->regs;

	source &= NO_SOURCE;
	if (source >= sizeof w->regs / 8)
		return 0;
	return word[source];
}

/* Works out the values of function number `index` into words[] of the walk of a slot: what is known at
 * the entry, or with `returned` the rest. What cannot be read is counted for function `counted`. Not
 * static: verified once. */
__attribute__((noinline)) int take_values(u32 slot, u32 index, u32 counted, u32 returned)
{
	u32 context = FIRST_CALL_CONTEXT + slot;
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct probed_function *function = map_lookup(MAP(PROBED), &index);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &counted);

	if (!w || !function || !count)
		return 0;
	NOUNROLL
	for (u32 i = 0; i < PROBE_VALUES; i++) {
		struct value_program *program = &function->value[i];
		u64 value = returned ? w->words[i] : 0;
		if (i < function->values && (returned || !program->at_return)) {
			u32 first = returned ? program->late : 0;
			u32 end = returned ? program->steps : program->late;
			if (!returned || program->at_return)
				value = register_at(w, program->source);
			value = run_steps(program, first, end, value, count);
		}
		w->words[i] = value;
	}
	return 0;
}

/* The second record of a function's calls, if there is one. */
static __always_inline struct probed_function *second_record(struct probed_function *function)
{
	u32 index = function->second - 1;

	return function->second ? map_lookup(MAP(PROBED), &index) : 0;
}

struct listing {
	struct call call;
	struct counters *counted;
	u64 address;
	u32 entries, width;
};

static __attribute__((noinline)) long list_one(u32 number, struct listing *listing)
{
	u64 word = 0;
	u32 width = listing->width == 4 ? 4 : 8;

	if (number >= listing->entries || read_user(&word, width, listing->address + number * width))
		return 1;
	listing->call.value[0] = word;
	listing->call.value[1] = number;
	send_call(&listing->call, listing->counted);
	return 0;
}

static __attribute__((noinline)) long list_packed(u32 number, struct listing *listing)
{
	u32 at = COUNTS_EACH * number;

	if (at >= listing->entries)
		return 1;
	u32 size = 4 * (listing->entries - at);
	KEEP(size);
	if (size > 4 * COUNTS_EACH)
		size = 4 * COUNTS_EACH;
	listing->call.value[0] = at;
	listing->call.value[PROBE_VALUES - 1] = 0;
	if (read_user(&listing->call.value[1], size, listing->address + 4 * at))
		return 1;
	send_call(&listing->call, listing->counted);
	return 0;
}

/* A record of each entry of an array that the function is entered with, or of several at once. */
NOT_INLINED void list_entries(struct open_call *open, struct probed_function *second,
			      struct counters *counted)
{
	struct listing listing = {.call = open->call, .counted = counted};

	listing.call.function = second->number;
	listing.address = open->second[0];
	listing.entries = open->second[1];
	listing.width = second->width;
	if (second->flags & PROBE_PACKED_LIST) {
		listing.entries = second->width;
		run_loop(MOST_PACKED, list_packed, &listing, 0);
	} else {
		run_loop(MOST_LISTED, list_one, &listing, 0);
	}
}

/* Keeps the array that a poll is entered with: what has ended is no longer in it at the return. */
static __attribute__((noinline)) long keep_entries(struct walk *w, struct call_key *key, u64 address,
						   u64 entries, u32 width)
{
	if (!w || !key)
		return 0;
	if (entries > MOST_LISTED)
		entries = MOST_LISTED;
	/* By constants: of the product of two numbers Linux 6.1 knows no bounds. */
	u64 size = width == 4 ? 4 * entries : 8 * entries;
	KEEP(size);
	if (size > 8 * MOST_LISTED)
		size = 8 * MOST_LISTED;
	w->frame[0] = entries;
	if (read_user(&w->frame[1], size, address))
		w->frame[0] = 0;
	map_update(MAP(POLLED), key, w->frame, 0);
	return 0;
}

struct kept_listing {
	struct call call;
	struct counters *counted;
	struct polled *polled;
	u32 width;
	u32 pad;
};

static __attribute__((noinline)) long list_kept(u32 number, struct kept_listing *listing)
{
	struct polled *polled = listing->polled;
	u32 at = number & (MOST_LISTED - 1);

	if (!polled || number >= MOST_LISTED || number >= polled->entries)
		return 1;
	if (listing->width == 4)
		listing->call.value[0] = ((u32 *)polled->words)[at];
	else
		listing->call.value[0] = polled->words[at];
	listing->call.value[1] = number;
	send_call(&listing->call, listing->counted);
	return 0;
}

/* A record of each entry of the array that a poll was entered with. */
NOT_INLINED void list_kept_entries(struct open_call *open, struct call_key *key,
				   struct probed_function *second, struct counters *counted)
{
	struct kept_listing listing = {.call = open->call, .counted = counted, .width = second->width};

	listing.polled = map_lookup(MAP(POLLED), key);
	listing.call.function = second->number;
	listing.call.duration = 0;
	run_loop(MOST_LISTED, list_kept, &listing, 0);
}

/* Calls of a thread that are over without having returned: those whose stack is gone. */
struct leaving {
	struct open_calls *top;
	struct counters *counted;
	u64 sp;
	u64 end;      /* when they ended; 0: it is not known, they have no duration */
	u32 tid;
	u32 function; /* of the calls at sp itself, the one that is not left; NO_FUNCTION: all are */
	u32 same;     /* 1: calls at sp itself are left too */
	u32 pad;
};
#define NO_FUNCTION 0xffffffffu

static __attribute__((noinline)) long leave_one(u32 number, struct leaving *leaving)
{
	struct open_calls *top = leaving->top;

	if (!top || !top->depth || top->sp > leaving->sp)
		return 1;
	if (top->sp == leaving->sp && (!leaving->same || top->function == leaving->function))
		return 1;
	struct call_key key = {top->sp, leaving->tid, top->function};
	struct open_call *open = map_lookup(MAP(OPEN_CALLS), &key);
	struct probed_function *function = map_lookup(MAP(PROBED), &key.function);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &key.function);
	if (!open || !function || !count) {
		top->depth = 0;
		return 1;
	}
	open->call.duration = leaving->end ? leaving->end - open->call.time : 0;
	send_call(&open->call, leaving->counted);
	count_up(&count->left);
	top->sp = open->outer_sp;
	top->function = open->outer_function;
	top->depth--;
	if (function->poll)
		map_delete(MAP(POLLED), &key);
	map_delete(MAP(OPEN_CALLS), &key);
	return 0;
}

static __always_inline void leave_calls(struct leaving *leaving, u64 sp, int same, u32 function)
{
	leaving->sp = sp;
	leaving->same = same;
	leaving->function = function;
	if (leaving->top->depth)
		run_loop(MOST_LEFT, leave_one, leaving, 0);
}

/* The thread ends, or runs another program: nothing it has called returns. */
static __always_inline void leave_all_calls(u32 tid)
{
	struct open_calls *top = map_lookup(MAP(OPEN_THREADS), &tid);

	if (!top)
		return;
	struct leaving leaving = {.top = top, .counted = counters(), .tid = tid};
	leaving.end = bpf_ktime_get_ns();
	if (leaving.counted)
		leave_calls(&leaving, ~0ULL, 1, NO_FUNCTION);
	map_delete(MAP(OPEN_THREADS), &tid);
}

/* The thread a probe has fired in, if it is a target's. */
static __always_inline struct thread *probed_thread(u64 id, struct counters *count)
{
	u32 tid = (u32)id, tgid = id >> 32;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);

	if (!thread && EVERYTHING) {
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (!process || !process->excluded)
			thread = register_current_thread(tid, count);
	}
	return thread && !thread->hidden ? thread : 0;
}

static __always_inline int passed_over(struct probed_function *function, struct probe_count *count)
{
	if (function->one_in <= 1)
		return 0;
	if (count->skip) {
		count->skip--;
		return 1;
	}
	/* At random, 1 in n in the mean: any rule could fall into step with the target. */
	count->skip = bpf_get_prandom_u32() % (2 * function->one_in - 1);
	return 0;
}

/* The memory of a slot, with the thread's registers in user mode; 0: it has none. */
static __always_inline struct walk *registers_in(u32 slot)
{
	u32 context = FIRST_CALL_CONTEXT + slot;
	struct walk *w = map_lookup(MAP(SCRATCH), &context);

	if (!w || read_kernel(&w->regs, sizeof w->regs, task_registers(this_task_btf())) ||
	    !IN_USER_MODE(&w->regs))
		return 0;
	return w;
}

static __always_inline struct open_calls *calls_of(u32 tid)
{
	struct open_calls none = {};
	struct open_calls *top = map_lookup(MAP(OPEN_THREADS), &tid);

	if (top)
		return top;
	map_update(MAP(OPEN_THREADS), &tid, &none, BPF_NOEXIST);
	return map_lookup(MAP(OPEN_THREADS), &tid);
}

/* The thread's calls, those that are over found; 0: there is no room for them. */
NOT_INLINED struct open_calls *calls_around(struct call_key *key, struct counters *counted)
{
	struct leaving leaving = {.top = calls_of(key->tid), .counted = counted, .tid = key->tid};

	if (!leaving.top)
		return 0;
	/* The function was left and has been called again, where it was; else calls at the same place
	 * go on: they have jumped to this one. */
	int again = map_lookup(MAP(OPEN_CALLS), key) != 0;
	leave_calls(&leaving, again ? key->sp : key->sp - 1, again, NO_FUNCTION);
	return leaving.top;
}

/* The path of a call: of those nested deeply, such as recursion, that of the call around it. Each would
 * be a path of its own otherwise, and as deep. */
static __always_inline void path_of_call(struct call *call, u32 slot, struct open_calls *around,
					 u32 tid, struct counters *counted)
{
	struct call_key key = {around->sp, tid, around->function};
	struct open_call *outer = 0;

	if (around->depth >= DEEPLY_NESTED)
		outer = map_lookup(MAP(OPEN_CALLS), &key);
	if (outer) {
		call->stack = outer->call.stack;
		call->cache = outer->call.cache;
	} else {
		call_path(call, slot, 0);
	}
}

#include "heap.h"

/* Records the beginning of a call, `weight` calls stand behind, of the heap for `bytes`; 0: the kernel is
 * to trap its return. */
static __always_inline int begin_call(u32 slot, u32 index, struct thread *thread, u32 tid,
				      struct counters *counted, struct probed_function *function,
				      struct probe_count *count, u32 weight, u64 bytes)
{
	/* In memory of the slot: it would be a third of all frames. */
	struct open_call *open = map_lookup(MAP(NEW_CALLS), &slot);
	struct walk *w = registers_in(slot);

	if (!w || !open)
		return IGNORE_RETURN;
	__builtin_memset(open, 0, sizeof *open);
	open->call.time = bpf_ktime_get_ns();
	open->call.thread = thread->number;
	open->call.function = function->number;
	open->call.weight = weight;
	take_values(slot, index, index, 0);
	__builtin_memcpy(open->call.value, w->words, sizeof open->call.value);
	if (function->heap)
		open->call.value[HEAP_ALLOCATED] = bytes;
	struct probed_function *second = second_record(function);
	if (second) {
		take_values(slot, function->second - 1, index, 0);
		__builtin_memcpy(open->second, w->words, sizeof open->second);
	}
	if (!function->poll)
		count_up(&count->recorded);
	if (!(function->flags & PROBE_RETURNS)) {
		call_path(&open->call, slot, 0);
		send_call(&open->call, counted);
		return IGNORE_RETURN;
	}
	struct call_key key = {CALLER_SP(&w->regs), tid, index};
	struct open_calls *around = calls_around(&key, counted);
	if (!around) {
		count_up(&count->lost);
		return IGNORE_RETURN;
	}
	/* Most polls do nothing: their path is taken when one has. It begins with the function. */
	if (function->poll)
		open->call.duration = w->regs.ip;
	else
		path_of_call(&open->call, slot, around, tid, counted);
	open->outer_sp = around->sp;
	open->outer_function = around->function;
	if (map_update(MAP(OPEN_CALLS), &key, open, 0)) {
		count_up(&count->lost);
		return IGNORE_RETURN;
	}
	around->sp = key.sp;
	around->function = index;
	around->depth++;
	if (second && second->flags & (PROBE_LIST | PROBE_PACKED_LIST)) {
		if (function->poll)
			keep_entries(w, &key, open->second[0], open->second[1], second->width);
		else
			list_entries(open, second, counted);
	}
	return function->flags & PROBE_TRAMPOLINE ? 0 : IGNORE_RETURN;
}

static __always_inline int probe_entry(struct user_registers *ctx, u32 index)
{
	u64 id = bpf_get_current_pid_tgid();
	struct counters *counted = counters();
	struct probed_function *function = map_lookup(MAP(PROBED), &index);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &index);

	if (!counted || !function || !count || !function->one_in)
		return IGNORE_RETURN;
	struct thread *thread = probed_thread(id, counted);
	if (!thread) {
		count_up(&count->foreign);
		return IGNORE_RETURN;
	}
	count_up(&count->hits);
	u32 weight = function->one_in > 1 ? function->one_in : 1;
	u64 bytes = 0;
	if (function->heap) {
		weight = heap_weight(ctx, function, id >> 32, thread, count, &bytes);
		if (!weight)
			return IGNORE_RETURN;
	} else if (passed_over(function, count)) {
		return IGNORE_RETURN;
	}
	u32 slot = take_slot();
	if (slot >= CALL_SLOTS) {
		count_up(&count->lost);
		return IGNORE_RETURN;
	}
	int ignored = begin_call(slot, index, thread, (u32)id, counted, function, count, weight,
				 bytes);
	give_slot(slot);
	return ignored;
}

/* A poll returns: records it, and what it was entered with, unless it did nothing. */
static __attribute__((noinline)) long end_poll(struct open_call *open, u32 slot, struct call_key *key,
					       struct probed_function *function, u64 end)
{
	struct counters *counted = counters();

	if (!open || !key || !function || !counted)
		return 0;
	u32 index = key->function, flag = function->poll - 1;
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &index);
	if (!count)
		return 0;
	if (flag >= PROBE_VALUES)
		flag = 0;
	if (!open->call.value[flag]) {
		count_up(&count->unsuccessful);
		return 0;
	}
	count_up(&count->recorded);
	call_path(&open->call, slot, open->call.duration);
	open->call.duration = end - open->call.time;
	send_call(&open->call, counted);
	struct probed_function *second = second_record(function);
	if (second)
		list_kept_entries(open, key, second, counted);
	return 0;
}

static __always_inline void end_call(struct walk *w, u32 slot, u32 index, u32 tid, u64 sp, u64 end,
				     struct counters *counted, struct probed_function *function,
				     struct probe_count *count)
{
	struct call_key key = {sp, tid, index};
	struct open_call *open = map_lookup(MAP(OPEN_CALLS), &key);
	struct leaving leaving = {.top = calls_of(tid), .counted = counted, .tid = tid};

	if (!open || !leaving.top) {
		/* Of the heap's functions most calls are not recorded. */
		if (!function->heap)
			count_up(&count->unpaired);
		return;
	}
	leave_calls(&leaving, sp, 1, index);
	struct open_calls *top = leaving.top;
	if (top->depth && top->sp == sp && top->function == index) {
		top->sp = open->outer_sp;
		top->function = open->outer_function;
		top->depth--;
	}
	__builtin_memcpy(w->words, open->call.value, sizeof open->call.value);
	take_values(slot, index, index, 1);
	__builtin_memcpy(open->call.value, w->words, sizeof open->call.value);
	if (function->poll) {
		end_poll(open, slot, &key, function, end);
		count_up(&count->returned);
		map_delete(MAP(POLLED), &key);
		map_delete(MAP(OPEN_CALLS), &key);
		return;
	}
	open->call.duration = end - open->call.time;
	if (!function->heap || hold_block(&open->call, count))
		send_call(&open->call, counted);
	struct probed_function *second = second_record(function);
	if (second && !(second->flags & (PROBE_LIST | PROBE_PACKED_LIST))) {
		__builtin_memcpy(w->words, open->second, sizeof open->second);
		take_values(slot, function->second - 1, index, 1);
		open->call.function = second->number;
		__builtin_memcpy(open->call.value, w->words, sizeof open->second);
		send_call(&open->call, counted);
	}
	count_up(&count->returned);
	map_delete(MAP(OPEN_CALLS), &key);
}

static __always_inline int probe_return(u32 index, int at_instruction)
{
	u64 end = bpf_ktime_get_ns();
	u32 tid = (u32)bpf_get_current_pid_tgid();
	struct counters *counted = counters();
	struct probed_function *function = map_lookup(MAP(PROBED), &index);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &index);

	/* Of a thread that is no target's, nothing is open. */
	if (!counted || !function || !count || !function->one_in || !map_lookup(MAP(OPEN_THREADS), &tid))
		return 0;
	u32 slot = take_slot();
	if (slot >= CALL_SLOTS) {
		count_up(&count->lost);
		return 0;
	}
	struct walk *w = registers_in(slot);
	if (w) {
		u64 sp = at_instruction ? CALLER_SP(&w->regs) : RETURNED_SP(&w->regs);
		end_call(w, slot, index, tid, sp, end, counted, function, count);
	}
	give_slot(slot);
	return 0;
}

SECTION("raw_tp/")
int on_probed_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (void *)ctx->args[0];

	leave_all_calls(FIELD(task->pid));
	return 0;
}

SECTION("raw_tp/")
int on_probed_exec(struct bpf_raw_tracepoint_args *ctx)
{
	leave_all_calls((u32)ctx->args[1]);
	return 0;
}

SECTION("kprobe/")
int on_probe(struct user_registers *ctx)
{
	u64 cookie = attach_cookie(ctx);

	if (cookie & POINT_RETURN) {
		probe_return((u32)cookie, 1);
		return IGNORE_RETURN;
	}
	/* A session's program is called at the entry, and again behind the call. */
	if (ctx->ip != function_address(ctx))
		return probe_return((u32)cookie, 0);
	return probe_entry(ctx, (u32)cookie);
}

SECTION("kprobe/")
int on_probe_entry(struct user_registers *ctx)
{
	u64 cookie = attach_cookie(ctx);

	if (cookie & POINT_RETURN)
		probe_return((u32)cookie, 1);
	else
		probe_entry(ctx, (u32)cookie);
	return 0;
}

SECTION("kprobe/")
int on_probe_return(struct user_registers *ctx)
{
	probe_return((u32)attach_cookie(ctx), 0);
	return 0;
}

#endif
