/* System calls as recorded functions, by the kernel's raw tracepoints at their entry and exit.
 *
 * Values of a call are as in calls.h.
 */
#ifndef HPCD_CALLS_SYSTEM_CALLS_H
#define HPCD_CALLS_SYSTEM_CALLS_H

#include "calls/arguments.h"
#include "calls/asynchronous.h"
#include "calls/calls.h"
#include "calls/files.h"
#include "calls/memory.h"

#define MAX_ERRNO 4095

static __always_inline struct system_call *system_call(u64 number, int compat)
{
	u32 index = number;

	if (number >= SYSTEM_CALLS_32)
		return 0;
	if (compat)
		index += SYSTEM_CALLS_32;
	return map_lookup(MAP(SYSTEM_CALLS), &index);
}

/* Messages of sendmmsg() and recvmmsg(): UIO_MAXIOV, the most that one call moves. */
#define MAX_MESSAGES 1024

struct messages {
	u64 length; /* address of the first one's msg_len */
	u64 stride;
	u64 count, bytes;
};

static __attribute__((noinline)) long add_message(u32 number, struct messages *messages)
{
	u32 length = 0;

	if (number >= messages->count)
		return 1;
	read_user(&length, 4, messages->length + number * messages->stride);
	messages->bytes += length;
	return 0;
}

static __always_inline u64 message_bytes(u64 address, u64 count, int compat)
{
	struct messages messages = {address + 56, 64, count, 0};

	if (compat) {
		messages.length = address + 28;
		messages.stride = 32;
	}
	run_loop(MAX_MESSAGES, add_message, &messages, 0);
	return messages.bytes;
}

SECTION("raw_tp/")
int on_call_enter(struct bpf_raw_tracepoint_args *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, tgid = id >> 32;
	int compat = is_compat();
	struct system_call *made = system_call(ctx->args[1], compat);

	if (!made || made->kind == CALL_IGNORED)
		return 0;
	struct thread *thread = find_thread(tid);
	struct counters *count = counters();
	if (!count)
		return 0;
	if (!thread) {
		if (!EVERYTHING)
			return 0;
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (process && process->excluded)
			return 0;
		thread = register_current_thread(tid, count);
	}
	if (!thread || thread->hidden)
		return 0;
	thread->entered = 0;
	u32 weight = call_weight(made->function, count);
	if (!weight)
		return 0;
	/* Those of arguments alone: all of an Arm processor's are more than half of the stack. */
	u64 words[ARGUMENT_REGISTERS];
	struct registers *regs = (void *)words;
	if (read_kernel(words, sizeof words, ctx->args[0]))
		return 0;
	u32 object = 0, other = 0;
	if (made->file != NO_ARGUMENT)
		object = object_of(file_of(argument(regs, made->file, compat)));
	if (made->other != NO_ARGUMENT)
		other = object_of(file_of(argument(regs, made->other, compat)));
	if (made->kind == CALL_BREAKS)
		thread->end = FIELD(FIELD(this_task()->mm)->brk);
	thread->object = object;
	thread->other = other;
	thread->weight = weight;
	thread->entered = bpf_ktime_get_ns();
	return 0;
}

/* Fills in the call that the thread returns from with these registers, and returns an enum
 * system_call_kind that is not of memory, or 1; 0: it is not to be recorded. */
static __always_inline int fill_call(struct call *call, struct thread *thread, struct registers *regs,
				     s64 result)
{
	int compat = is_compat();
#ifdef HPCD_AARCH64
	u64 number = regs->syscall_number;
#else
	u64 number = regs->orig_ax;
#endif
	struct system_call *made = system_call(number, compat);
	if (!made || made->kind == CALL_IGNORED)
		return 0;
	if (compat)
		result = (s32)result;
	int failed = result < 0 && result >= -MAX_ERRNO;
	call->thread = thread->number;
	call->function = made->function;
	call->weight = thread->weight;
	if (made->kind >= CALL_MAPS_MEMORY && made->kind <= CALL_DISCARDS)
		return fill_memory_call(call, made->kind, regs, thread->end, result, failed, compat);
	call->value[VALUE_FILE] = thread->object;
	call->value[VALUE_OTHER] = thread->other;
	call->value[VALUE_POSITION] = ~0ULL;
	if (failed)
		call->value[VALUE_ERROR] = -result;
	else if (made->kind == CALL_MOVES)
		call->value[VALUE_BYTES] = result;
	else if (made->kind == CALL_OPENS)
		call->value[VALUE_FILE] = object_of(file_of(result));
	else if (made->kind == CALL_CONNECTS)
		call->value[VALUE_FILE] = object_of(file_of(argument(regs, made->file, compat)));
	else if (made->kind == CALL_MESSAGES)
		call->value[VALUE_BYTES] = message_bytes(argument(regs, 1, compat), result, compat);
	if (made->kind == CALL_MAPS && !call->value[VALUE_FILE])
		return 0;
	if (made->size != NO_ARGUMENT)
		call->value[VALUE_ASKED] = argument(regs, made->size, compat);
	if (made->offset != NO_ARGUMENT)
		call->value[VALUE_POSITION] = argument(regs, made->offset, compat);
	return made->kind;
}

SECTION("raw_tp/")
int on_call_exit(struct bpf_raw_tracepoint_args *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct call call;

	struct thread *thread = find_thread(tid);
	struct counters *count = counters();
	if (!thread || !thread->entered || !count)
		return 0;
	__builtin_memset(&call, 0, sizeof call);
	call.time = thread->entered;
	call.duration = bpf_ktime_get_ns() - call.time;
	thread->entered = 0;
	if (thread->hidden)
		return 0;
	u32 slot = take_slot(), context = FIRST_CALL_CONTEXT + slot;
	if (slot >= CALL_SLOTS) {
		count->calls_lost++;
		return 0;
	}
	/* The registers are read into the walk's memory: they are half of what a program's stack holds. */
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	if (w && !read_kernel(&w->regs, sizeof w->regs, ctx->args[0])) {
#ifdef HPCD_AARCH64
		/* In place of the result, which is in ctx (syscall_set_return_value of arch/arm64). */
		w->regs.x[0] = w->regs.orig_x0;
#endif
		u32 kind = fill_call(&call, thread, &w->regs, ctx->args[1]);
		/* Where requests are, or what has become of them: the walk changes the registers. */
		u64 list = kind == CALL_SUBMITS ? argument(&w->regs, 2, 0) : argument(&w->regs, 3, 0);
		if (kind) {
			call_path(&call, slot, 0);
			send_call(&call, count);
		}
		if ((kind == CALL_SUBMITS || kind == CALL_COLLECTS) && !is_compat())
			asynchronous(&call, kind, list, ctx->args[1]);
	}
	give_slot(slot);
	return 0;
}

#endif
