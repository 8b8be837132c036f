/* Reads the stacks of threads where they stand, asleep or not, without stopping or tracing them.
 *
 * A sleepable iterator over all tasks. User space names the processes in map_WANTED and reads the
 * iterator's descriptor; each thread of theirs sends a struct task_stack into the ring STACKS. The
 * registers a thread had in user space lie at the top of its kernel stack, where its last entry to
 * the kernel put them, and the stack is copied out of its memory page by page (what was swapped out
 * comes back for that). User space then walks the copy, as it does for samples of code that was not
 * ready (hpcd.bpf.saved_walk).
 *
 * Compiled ahead only, with the kernel's types by CO-RE: bcc knows no sleepable iterators.
 * bpf_copy_from_user_task() came with Linux 5.18.
 */
#include "iterators/task_stacks.h"
#include "kernel.h"

#define SECTION(name) __attribute__((section(name), used))

/* include/uapi/linux/bpf.h */
#define HASH 1
#define ARRAY 2
#define RINGBUF 27

/* include/linux/sched.h; PF_USER_WORKER came with 6.4 and was unused before. */
#define PF_EXITING 4
#define PF_IO_WORKER 0x10
#define PF_USER_WORKER 0x4000
#define PF_KTHREAD 0x00200000

#define PAGE 4096

struct bpf_iter_meta;
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*ktime_get_ns)(void) = (void *)5;
static long (*read_kernel)(void *dst, u32 size, const void *src) = (void *)113;
static long (*ring_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static long (*get_task_stack)(struct task_struct *task, void *buffer, u32 size, u64 flags) = (void *)141;
static struct task_struct *(*current_task)(void) = (void *)158;
static const void *(*task_registers)(struct task_struct *task) = (void *)175;
static long (*copy_from_user_task)(void *dst, u32 size, u64 src, struct task_struct *task,
				   u64 flags) = (void *)191;

/* Maps by user space: which processes, and how (enum wanted); where threads are sent. */
struct {
	int(*type)[HASH];
	int(*key_size)[4];
	int(*value_size)[4];
	int(*max_entries)[1];
} map_WANTED SECTION(".maps");
struct {
	int(*type)[RINGBUF];
	int(*max_entries)[4096];
} map_STACKS SECTION(".maps");
struct {
	int(*type)[ARRAY];
	u32 *key;
	struct task_stack_buffer *value;
	int(*max_entries)[1];
} map_BUFFER SECTION(".maps");

/* By how much the scheduler's clock for tasks, which leaves interrupts and what a hypervisor took
 * away out, is behind its clock where this one ran last. Not known without CONFIG_FAIR_GROUP_SCHED. */
static __attribute__((always_inline)) inline u64 clock_lag(struct task_struct *task)
{
	struct rq *queue = 0;

	if (HAS_FIELD(task_struct, se.cfs_rq) && HAS_FIELD(cfs_rq, rq) && task->se.cfs_rq)
		queue = task->se.cfs_rq->rq;
	return queue ? queue->clock - queue->clock_task : 0;
}

/* The stack from below its pointer up to where memory ends, but at most COPY_BYTES of it. */
static __attribute__((always_inline)) inline u32 copy_stack(struct task_stack_buffer *buffer,
							    struct task_struct *task)
{
	u64 start = buffer->head.stack_start;
	u32 size = 0;

	for (int page = 0; page < MOST_STACK_BYTES / PAGE + 1; page++) {
		u64 at = start + size;
		u32 part = PAGE - (at & (PAGE - 1));

		if (size >= MOST_STACK_BYTES)
			break;
		if (copy_from_user_task(buffer->bytes + size, part, at, task, 0))
			break;
		size += part;
	}
	return size < MOST_STACK_BYTES ? size : MOST_STACK_BYTES;
}

SECTION("iter.s/task")
int read_task_stack(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task, *reader;
	u32 zero = 0, tgid;
	u64 size;

	if (!task)
		return 0;
	tgid = task->tgid;
	u32 *wanted = map_lookup(&map_WANTED, &tgid);
	struct task_stack_buffer *buffer = map_lookup(&map_BUFFER, &zero);
	if (!wanted || !buffer)
		return 0;
	struct task_stack *head = &buffer->head;
	reader = current_task();
	head->time = ktime_get_ns();
	head->reader_arrival = reader ? reader->sched_info.last_arrival : 0;
	head->start = task->start_time;
	head->arrival = task->sched_info.last_arrival;
	head->departure = task->se.exec_start + clock_lag(task);
	head->tgid = tgid;
	head->tid = task->pid;
	head->parent = task->real_parent ? task->real_parent->tgid : 0;
	head->flags = task->flags;
	head->image = task->self_exec_id + 1 ? task->self_exec_id + 1 : 1;
	read_kernel(head->comm, sizeof head->comm, task->comm);
	head->parts = 0;
	head->kernel_frames = 0;
	head->size = 0;
	head->stack_start = 0;
	head->thread_pointer = 0;
#ifndef HPCD_AARCH64
	head->thread_pointer = task->thread.fsbase;
#endif
	head->switches = *(volatile unsigned long *)&task->nvcsw + *(volatile unsigned long *)&task->nivcsw;
	head->on_cpu = *(volatile int *)&task->on_cpu;
	head->state = *(volatile unsigned int *)&task->__state | (u32)task->exit_state;
	if (!head->on_cpu && *wanted >= WANT_KERNEL) {
		long bytes = get_task_stack(task, buffer->kernel, sizeof buffer->kernel, 0);
		head->kernel_frames = bytes > 0 ? (u32)bytes / 8 : 0;
		if (task->mm && !(head->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER | PF_EXITING)) &&
		    !read_kernel(buffer->registers, sizeof buffer->registers, task_registers(task)) &&
		    WAS_IN_USER_MODE(buffer->registers)) {
			head->parts |= HAS_REGISTERS;
			head->stack_start = buffer->registers[STACK_POINTER] - STACK_COPY_BELOW;
			if (*wanted >= WANT_USER)
				head->size = copy_stack(buffer, task);
		}
	}
	/* Whoever ran meanwhile has left the CPU once more, or is on one. */
	u64 switches = *(volatile unsigned long *)&task->nvcsw + *(volatile unsigned long *)&task->nivcsw;
	if (switches != head->switches || (!head->on_cpu && *(volatile int *)&task->on_cpu))
		head->parts |= HAS_RUN;
	if (head->flags != task->flags || head->image != (task->self_exec_id + 1 ? task->self_exec_id + 1 : 1))
		head->parts |= HAS_CHANGED;
	size = head->size;
	if (size > MOST_STACK_BYTES)
		size = MOST_STACK_BYTES;
	size += sizeof(struct task_stack) + sizeof buffer->registers + sizeof buffer->kernel;
	/* When the ring is full user space empties it, and this thread is read again. */
	return ring_output(&map_STACKS, buffer, size, 0) ? 1 : 0;
}

char LICENSE[] SECTION("license") = "GPL";
