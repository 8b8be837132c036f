/* Requests to io_uring as recorded functions, by the tracepoints at which the kernel takes one
 * (io_uring_submit_req) and posts its completion (io_uring_complete).
 *
 * A call begins when the request is submitted, on the thread and the call path that do so, and ends
 * when its completion is posted, by whichever thread. Values as of system calls (system_calls.h). The
 * file is that which the kernel holds for the request when it completes: also one that was registered
 * with the ring, and has no descriptor.
 */
#ifndef HPCD_REQUESTS_H
#define HPCD_REQUESTS_H

#include "ended_request.h"

/* include/linux/sched.h: threads that work for io_uring, which have no user stack. */
#define PF_IO_WORKER 0x10
/* IOSQE_CQE_SKIP_SUCCESS: only a failure is reported. The first flags of the kernel's are the program's. */
#define SKIPS_SUCCESS (1 << 6)
/* SPLICE_F_FD_IN_FIXED */
#define SOURCE_IS_REGISTERED (1u << 31)

/* How much is asked for, and where in the file. */
static __always_inline void fill_length(struct request *request, u64 address, u32 length)
{
	request->position = ~0ULL;
	if (length == LENGTH_OF_BUFFER)
		request->asked = kernel_half(address + OFFSET_TRANSFER_LENGTH);
	if (length == LENGTH_OF_BUFFER || length == LENGTH_OF_VECTOR)
		request->position = kernel_word(address + OFFSET_TRANSFER_POSITION);
	if (length == LENGTH_OF_MESSAGE && OFFSET_MESSAGE_LENGTH)
		request->asked = kernel_half(address + OFFSET_MESSAGE_LENGTH);
	if (length == LENGTH_OF_SPLICE && OFFSET_SPLICE_LENGTH)
		request->asked = kernel_word(address + OFFSET_SPLICE_LENGTH);
}

/* Where bytes come from that another file gets; a file registered with the ring is not looked for. */
static __always_inline u64 source_of(u64 address, u32 length)
{
	if (length != LENGTH_OF_SPLICE || !OFFSET_SPLICE_DESCRIPTOR ||
	    kernel_half(address + OFFSET_SPLICE_FLAGS) & SOURCE_IS_REGISTERED)
		return 0;
	return file_of(kernel_half(address + OFFSET_SPLICE_DESCRIPTOR));
}

/* Whether what a request opens gets no descriptor, or it is not known whether. */
static __always_inline u32 is_placed(u64 address, u32 length)
{
	u32 offset = length == LENGTH_OF_OPEN	   ? OFFSET_OPEN_PLACE
		     : length == LENGTH_OF_ACCEPT ? OFFSET_ACCEPT_PLACE
		     : length == LENGTH_OF_SOCKET ? OFFSET_SOCKET_PLACE
						   : 0;
	return !offset || kernel_half(address + offset);
}

/* Sends the call that a completion of `request` with this result is. Not inline: its values take room of
 * the stack that the search for the file needs. */
static __attribute__((noinline)) int complete_request(struct request *request, u64 address, s32 result)
{
	struct system_call *kind;
	struct counters *count = counters();
	struct call call;

	if (!request || !count)
		return 0;
	kind = kind_of_request(FIRST_REQUEST, REQUEST_KINDS, request->opcode);
	if (!kind)
		return 0;
	fill_ended(&call, request, kind, result);
	u64 file = kernel_word(address + OFFSET_REQUEST_FILE);
	/* Completions are posted by threads of the process, or the kernel's, which have its files. */
	if (kind->kind == CALL_OPENS && result >= 0 && !request->placed)
		file = file_of(result);
	call.value[VALUE_FILE] = object_of(file);
	call.value[VALUE_OTHER] = request->other;
	send_call(&call, count);
	return 0;
}

/* The thread that submits, if it is recorded. */
static __always_inline struct thread *submitter(struct counters *count)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, tgid = id >> 32;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);

	if (!thread) {
		/* The thread by which the kernel polls a ring is announced by nothing. */
		struct process *process = map_lookup(MAP(PROCESSES), &tgid);
		if (process ? process->excluded : !EVERYTHING)
			return 0;
		thread = register_current_thread(tid, count);
	}
	return thread && !thread->hidden ? thread : 0;
}

SECTION("raw_tp/")
int on_request(struct bpf_raw_tracepoint_args *ctx)
{
	u64 address = ctx->args[0];
	u32 flags = task_flags(this_task());
	struct counters *count = counters();
	struct request request;
	u8 opcode = 0;

	/* One in the same memory whose end was not seen. */
	map_delete(MAP(REQUESTS), &address);
	if (!count)
		return 0;
	read_kernel(&opcode, 1, address + OFFSET_REQUEST_OPCODE);
	struct system_call *kind = kind_of_request(FIRST_REQUEST, REQUEST_KINDS, opcode);
	struct thread *thread = submitter(count);
	if (!kind || !thread)
		return 0;
	u32 weight = call_weight(kind->function, count);
	if (!weight)
		return 0;
	__builtin_memset(&request, 0, sizeof request);
	request.time = bpf_ktime_get_ns();
	request.thread = thread->number;
	request.weight = weight;
	request.opcode = opcode;
	fill_length(&request, address, kind->size);
	request.placed = is_placed(address, kind->size);
	request.other = object_of(source_of(address, kind->size));
	if (!(flags & PF_IO_WORKER)) {
		u32 slot = take_slot();
		if (slot >= CALL_SLOTS) {
			count->calls_lost++;
			return 0;
		}
		request.stack = take_call_path(slot, thread->number, 0);
		request.cache = CALL_CPUS * (FIRST_CALL_CONTEXT + slot) + bpf_get_smp_processor_id();
		give_slot(slot);
	}
	if (kernel_half(address + OFFSET_REQUEST_FLAGS) & SKIPS_SUCCESS) {
		request.placed = 1;
		complete_request(&request, address, 0); /* what becomes of it is not told */
		return 0;
	}
	if (map_update(MAP(REQUESTS), &address, &request, 0)) {
		count->calls_lost++;
		return 0;
	}
	if (kind->other == 1) {
		struct shot_key shot = {kernel_word(address + OFFSET_REQUEST_RING),
					kernel_word(address + OFFSET_REQUEST_NUMBER)};
		map_update(MAP(SHOTS), &shot, &address, 0);
	}
	return 0;
}

/* One of several completions of a request, of which the kernel says only the program's number. */
static __always_inline void on_shot(u64 ring, u64 number, s32 result)
{
	struct shot_key shot = {ring, number};
	u64 *known = map_lookup(MAP(SHOTS), &shot);

	if (!known)
		return;
	u64 address = *known;
	struct request *request = map_lookup(MAP(REQUESTS), &address);
	if (!request || kernel_word(address + OFFSET_REQUEST_NUMBER) != number ||
	    kernel_word(address + OFFSET_REQUEST_RING) != ring)
		return;
	complete_request(request, address, result);
	request->time = bpf_ktime_get_ns();
}

SECTION("raw_tp/")
int on_request_end(struct bpf_raw_tracepoint_args *ctx)
{
	u64 ring = ctx->args[0], address = ctx->args[1], third = ctx->args[2];

	if (!address) {
		/* A program that may read more arguments than there are cannot be attached. */
		if (COMPLETION_IS_ENTRY)
			on_shot(ring, kernel_word(third), kernel_half(third + OFFSET_ENTRY_RESULT));
		else
			on_shot(ring, third, ctx->args[3]);
		return 0;
	}
	struct request *request = map_lookup(MAP(REQUESTS), &address);
	if (!request)
		return 0;
	struct system_call *kind = kind_of_request(FIRST_REQUEST, REQUEST_KINDS, request->opcode);
	if (kind && kind->other == 1) {
		struct shot_key shot = {ring, kernel_word(address + OFFSET_REQUEST_NUMBER)};
		map_delete(MAP(SHOTS), &shot);
	}
	complete_request(request, address, kernel_half(address + OFFSET_REQUEST_RESULT));
	map_delete(MAP(REQUESTS), &address);
	return 0;
}

#endif
