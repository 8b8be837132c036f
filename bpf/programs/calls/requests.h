/* Requests to io_uring as recorded functions, by the tracepoints at which the kernel takes one
 * (io_uring_submit_req) and posts its completion (io_uring_complete).
 *
 * A call begins when the request is submitted, on the thread and the call path that do so, and ends
 * when its completion is posted, by whichever thread. Values as of system calls (system_calls.h). The
 * file is that which the kernel holds for the request when it completes: also one that was registered
 * with the ring, and has no descriptor.
 */
#ifndef HPCD_CALLS_REQUESTS_H
#define HPCD_CALLS_REQUESTS_H

#include "calls/calls.h"
#include "calls/ended_request.h"
#include "calls/files.h"

DEFINE_MAP(REQUESTS, HASH, u64, struct request);
DEFINE_MAP(SHOTS, LRU_HASH, struct shot_key, u64);

/* include/linux/sched.h: threads that work for io_uring, which have no user stack. */
#define PF_IO_WORKER 0x10
/* IOSQE_CQE_SKIP_SUCCESS: only a failure is reported. The first flags of the kernel's are the program's. */
#define SKIPS_SUCCESS (1 << 6)
/* SPLICE_F_FD_IN_FIXED */
#define SOURCE_IS_REGISTERED (1u << 31)

/* How much is requested, and where in the file. */
static __always_inline void fill_length(struct request *request, void *taken, u32 length)
{
	struct io_rw *transfer = taken;

	request->position = ~0ULL;
	if (length == LENGTH_OF_BUFFER)
		request->asked = FIELD(transfer->len);
	if (length == LENGTH_OF_BUFFER || length == LENGTH_OF_VECTOR)
		request->position = FIELD(transfer->kiocb.ki_pos);
	if (length == LENGTH_OF_MESSAGE && HAS_FIELD(io_sr_msg, len))
		request->asked = (u32)FIELD(((struct io_sr_msg *)taken)->len);
	if (length == LENGTH_OF_SPLICE && HAS_FIELD(io_splice, len))
		request->asked = FIELD(((struct io_splice *)taken)->len);
}

/* Where bytes come from that another file gets; a file registered with the ring is not looked for. */
static __always_inline struct file *source_of(struct io_splice *splice, u32 length)
{
	if (length != LENGTH_OF_SPLICE || !HAS_FIELD(io_splice, splice_fd_in) ||
	    FIELD(splice->flags) & SOURCE_IS_REGISTERED)
		return 0;
	return file_of(FIELD(splice->splice_fd_in));
}

/* Whether what a request opens gets no descriptor, or it is not known whether. */
static __always_inline u32 is_placed(void *taken, u32 length)
{
	if (length == LENGTH_OF_OPEN && HAS_FIELD(io_open, file_slot))
		return FIELD(((struct io_open *)taken)->file_slot);
	if (length == LENGTH_OF_ACCEPT && HAS_FIELD(io_accept, file_slot))
		return FIELD(((struct io_accept *)taken)->file_slot);
	if (length == LENGTH_OF_SOCKET && HAS_FIELD(io_socket, file_slot))
		return FIELD(((struct io_socket *)taken)->file_slot);
	return 1;
}

/* Sends the call that a completion of `request` with this result is. Not inline: its values take room of
 * the stack that the search for the file needs. */
static __attribute__((noinline)) int complete_request(struct request *request, struct io_kiocb *taken, s32 result)
{
	struct counters *count = counters();

	if (!request || !count)
		return 0;
	struct system_call *kind = kind_of_request(FIRST_REQUEST, REQUEST_KINDS, request->opcode);
	if (!kind)
		return 0;
	struct file *file = FIELD(taken->file);
	/* Completions are posted by threads of the process, or the kernel's, which have its files. */
	if (kind->kind == CALL_OPENS && result >= 0 && !request->placed)
		file = file_of(result);
	u32 object = object_of(file);
	struct call call;
	fill_ended(&call, request, kind, result);
	call.value[VALUE_FILE] = object;
	call.value[VALUE_OTHER] = request->other;
	send_call(&call, count);
	return 0;
}

/* The thread that submits, if it is recorded. */
static __always_inline struct thread *submitter(struct counters *count)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, tgid = id >> 32;
	struct thread *thread = find_thread(tid);

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
	struct io_kiocb *taken = (void *)address;
	u32 flags = FIELD(this_task()->flags);
	struct counters *count = counters();

	/* One in the same memory whose end was not seen. */
	map_delete(MAP(REQUESTS), &address);
	if (!count)
		return 0;
	u8 opcode = FIELD(taken->opcode);
	struct system_call *kind = kind_of_request(FIRST_REQUEST, REQUEST_KINDS, opcode);
	struct thread *thread = submitter(count);
	if (!kind || !thread)
		return 0;
	u32 weight = call_weight(kind->function, count);
	if (!weight)
		return 0;
	struct request request;
	__builtin_memset(&request, 0, sizeof request);
	request.time = bpf_ktime_get_ns();
	request.thread = thread->number;
	request.weight = weight;
	request.opcode = opcode;
	fill_length(&request, taken, kind->size);
	request.placed = is_placed(taken, kind->size);
	request.other = object_of(source_of((void *)taken, kind->size));
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
	if (FIELD(taken->flags) & SKIPS_SUCCESS) {
		request.placed = 1;
		complete_request(&request, taken, 0); /* what becomes of it is not told */
		return 0;
	}
	if (map_update(MAP(REQUESTS), &address, &request, 0)) {
		count->calls_lost++;
		return 0;
	}
	if (kind->other == 1) {
		struct shot_key shot = {(u64)FIELD(taken->ctx), FIELD(taken->cqe.user_data)};
		map_update(MAP(SHOTS), &shot, &address, 0);
	}
	return 0;
}

/* One of several completions of a request: the kernel says only the program's number of it. */
static __always_inline void on_shot(u64 ring, u64 number, s32 result)
{
	struct shot_key shot = {ring, number};
	u64 *known = map_lookup(MAP(SHOTS), &shot);

	if (!known)
		return;
	u64 address = *known;
	struct io_kiocb *taken = (void *)address;
	struct request *request = map_lookup(MAP(REQUESTS), &address);
	if (!request || FIELD(taken->cqe.user_data) != number || (u64)FIELD(taken->ctx) != ring)
		return;
	complete_request(request, taken, result);
	request->time = bpf_ktime_get_ns();
}

SECTION("raw_tp/")
int on_request_end(struct bpf_raw_tracepoint_args *ctx)
{
	u64 ring = ctx->args[0], address = ctx->args[1], third = ctx->args[2];
	struct io_kiocb *taken = (void *)address;

	if (!address) {
		/* A program that may read more arguments than there are cannot be attached. */
		if (COMPLETION_IS_ENTRY) {
			struct io_uring_cqe *entry = (void *)third;
			on_shot(ring, FIELD(entry->user_data), FIELD(entry->res));
		} else
			on_shot(ring, third, ctx->args[3]);
		return 0;
	}
	struct request *request = map_lookup(MAP(REQUESTS), &address);
	if (!request)
		return 0;
	struct system_call *kind = kind_of_request(FIRST_REQUEST, REQUEST_KINDS, request->opcode);
	if (kind && kind->other == 1) {
		struct shot_key shot = {ring, FIELD(taken->cqe.user_data)};
		map_delete(MAP(SHOTS), &shot);
	}
	complete_request(request, taken, FIELD(taken->cqe.res));
	map_delete(MAP(REQUESTS), &address);
	return 0;
}

#endif
