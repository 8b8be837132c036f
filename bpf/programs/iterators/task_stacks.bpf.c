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
#include "helpers.h"
#include "iterators/task_stacks.h"

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

static long (*get_task_stack)(struct task_struct *task, void *buffer, u32 size, u64 flags) = (void *)141;
static struct task_struct *(*current_task)(void) = (void *)158;
static long (*copy_from_user_task)(void *dst, u32 size, u64 src, struct task_struct *task,
				   u64 flags) = (void *)191;

#define READ_TARGET(taking, dst, size, src) copy_from_user_task(dst, size, src, (taking)->task, 0)
#include "runtimes/python_chain.h"

/* Maps by user space: which processes, and how; where threads are sent. */
DEFINE_MAP(WANTED, HASH, u32, struct wanted_process);
DEFINE_RING(STACKS);
DEFINE_MAP(BUFFER, ARRAY, u32, struct task_stack_buffer);

/* By how much the scheduler's clock for tasks, which leaves interrupts and what a hypervisor took
 * away out, is behind its clock where this one ran last. Not known without CONFIG_FAIR_GROUP_SCHED. */
static __always_inline u64 clock_lag(struct task_struct *task)
{
	struct rq *queue = 0;

	if (HAS_FIELD(task_struct, se.cfs_rq) && HAS_FIELD(cfs_rq, rq) && task->se.cfs_rq)
		queue = task->se.cfs_rq->rq;
	return queue ? queue->clock - queue->clock_task : 0;
}

/* The stack from below its pointer up to where memory ends, but at most COPY_BYTES of it. */
static __always_inline u32 copy_stack(struct task_stack_buffer *buffer, struct task_struct *task)
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

/* States looked at for the threads of one process: some threads have none, and all are looked at for each of these. */
#define STATES_OF_PROCESS 65536

/* Reads the Python frames of a thread that stands still; returns the words of the chain. New states are put first, and
 * threads come in the order in which they began: the next thread's state is likely the previous one of the list. */
static __always_inline u64 take_python(struct task_stack_buffer *buffer, struct python *python,
				       struct task_struct *task)
{
	struct python_chain *chain = &buffer->python;
	u64 known[PYTHON_THREAD_STATES] = {}, listed = 0;

	if (buffer->python_tgid != buffer->head.tgid) {
		buffer->python_tgid = buffer->head.tgid;
		buffer->python_state = 0;
		buffer->python_states = STATES_OF_PROCESS;
	}
	struct python_taking taking = {python, chain, 0, buffer->python_states, task};
#ifndef HPCD_AARCH64
	chain->pointer = task->thread.fsbase;
#endif
	if (buffer->python_state)
		READ_TARGET(&taking, &known[0], 8, buffer->python_state + python->next_thread - 8);
	taking.state = python_state(&taking, known, &listed);
	buffer->python_states = taking.states;
	if (!taking.state)
		return 0;
	buffer->python_state = taking.state;
	begin_python_chain(chain, buffer->registers[STACK_POINTER], buffer->registers[INSTRUCTION]);
	NOUNROLL
	for (int part = 0; part < PYTHON_PARTS && choose_python_state(chain, known); part++)
		read_python_frames(&taking);
	return chain->words;
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
	struct wanted_process *process = map_lookup(MAP(WANTED), &tgid);
	struct task_stack_buffer *buffer = map_lookup(MAP(BUFFER), &zero);
	if (!process || !buffer)
		return 0;
	struct task_stack *head = &buffer->head;
	reader = current_task();
	head->time = bpf_ktime_get_ns();
	head->reader_arrival = reader ? reader->sched_info.last_arrival : 0;
	head->start = task->start_time;
	head->arrival = task->sched_info.last_arrival;
	head->departure = task->se.exec_start + clock_lag(task);
	head->tgid = tgid;
	head->tid = task->pid;
	head->parent = task->real_parent ? task->real_parent->tgid : 0;
	head->flags = task->flags;
	head->image = task->self_exec_id + 1 ? task->self_exec_id + 1 : 1;
	read_kernel(head->comm, sizeof head->comm, (u64)task->comm);
	head->parts = 0;
	head->kernel_frames = 0;
	head->size = 0;
	head->stack_start = 0;
	head->python_words = 0;
	head->switches = *(volatile unsigned long *)&task->nvcsw + *(volatile unsigned long *)&task->nivcsw;
	head->on_cpu = *(volatile int *)&task->on_cpu;
	head->state = *(volatile unsigned int *)&task->__state | (u32)task->exit_state;
	if (!head->on_cpu && process->wanted >= WANT_KERNEL) {
		long bytes = get_task_stack(task, buffer->kernel, sizeof buffer->kernel, 0);
		head->kernel_frames = bytes > 0 ? (u32)bytes / 8 : 0;
		if (task->mm && !(head->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER | PF_EXITING)) &&
		    !read_kernel(buffer->registers, sizeof buffer->registers, task_registers((u64)task)) &&
		    WAS_IN_USER_MODE(buffer->registers)) {
			head->parts |= HAS_REGISTERS;
			head->stack_start = buffer->registers[STACK_POINTER] - STACK_COPY_BELOW;
			if (process->wanted >= WANT_USER) {
				head->size = copy_stack(buffer, task);
				if (process->python.interpreters)
					head->python_words = take_python(buffer, &process->python, task);
			}
		}
	}
	/* A thread that ran meanwhile has left the CPU once more, or is on one. */
	u64 switches = *(volatile unsigned long *)&task->nvcsw + *(volatile unsigned long *)&task->nivcsw;
	if (switches != head->switches || (!head->on_cpu && *(volatile int *)&task->on_cpu))
		head->parts |= HAS_RUN;
	if (head->flags != task->flags || head->image != (task->self_exec_id + 1 ? task->self_exec_id + 1 : 1))
		head->parts |= HAS_CHANGED;
	size = head->size;
	if (size > MOST_STACK_BYTES)
		size = MOST_STACK_BYTES;
	u64 words = head->python_words;
	if (words > PYTHON_WORDS)
		words = 0;
	if (words)
		read_kernel(buffer->bytes + size, 8 * words, (u64)buffer->python.word);
	size += 8 * words + sizeof(struct task_stack) + sizeof buffer->registers + sizeof buffer->kernel;
	/* When the ring is full user space empties it, and this thread is read again. */
	return ring_output(MAP(STACKS), buffer, size, 0) ? 1 : 0;
}
