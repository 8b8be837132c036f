/* What the programs send to user space; setup/wire.py makes bpf/wire.py of it.
 *
 * Two rings. Samples have one size, so that a reader takes thousands with one numpy view. Whatever
 * a sample refers to (its stack, its thread) is announced in the other ring before the sample is
 * submitted: a reader that empties the sample ring first and then the event ring always finds the
 * announcement.
 */
#ifndef HPCD_RECORDS_H
#define HPCD_RECORDS_H

#define MAX_EVENTS 8 /* perf events of one recording: SAMPLE() and HIT() make programs for as many */

struct sample {
	u64 time;   /* CLOCK_MONOTONIC ns */
	u64 value;  /* of an event: its weight; of SWITCHED_IN: when woken, or 0; of OUT_SLEEPING: its futex; of
		     * RAN_INSTEAD: ns */
	u32 thread; /* number given to the thread when first seen, never reused */
	u32 stack;  /* slot of the stack cache and its generation; of SWITCHED_IN and RAN_INSTEAD: the thread that woke
		     * it, or ran, or 0, or another one, see OTHER_WAKER */
	u16 cache;  /* which stack cache: CPU << 1 | 1 for the scheduler's tracepoints; of SWITCHED_IN: enum waker, and
		     * perhaps OTHER_WAKER; of RAN_INSTEAD: enum interferer, the same way */
	u16 event;  /* number of a perf event, or enum switch_event */
	u32 flags;  /* enum report_flag */
};

enum report_flag {
	REPORTS_LOST = 1, /* switches of the thread were lost since its report before this */
};

/* A thread leaves its CPU, for a reason, or comes back to one. */
enum switch_event {
	SWITCHED_IN = 16,
	OUT_RUNNABLE = 17, /* it had to make room for another */
	OUT_SLEEPING = 18, /* of its own will: in a system call */
	OUT_IO = 19,
	OUT_UNINTERRUPTIBLE = 20,
	OUT_FAULT = 21,    /* uninterruptible, in a page fault */
	OUT_STOPPED = 22,  /* by a signal or a debugger */
	WOKEN = 23,        /* by another, whose call path this is; it is not on a CPU yet */
	RAN_INSTEAD = 24,  /* a process that ran while it waited for the CPU to which it came: follows SWITCHED_IN, at
			    * the same time */
};

/* The futex that a thread sleeps on, whose address is a multiple of four; 0: it sleeps on none. FUTEX_IS_LOCK: it waits
 * as for a lock; FUTEX_IS_GIL: which is an interpreter's. */
#define FUTEX_IS_LOCK 1
#define FUTEX_IS_GIL 2

/* Kinds of wakers. The thread that an interrupt came upon is not the waker. */
enum waker {
	WAKER_NOT_SEEN = 0,
	WAKER_THREAD = 1,    /* recorded if it has a number */
	WAKER_KERNEL_THREAD = 2,
	WAKER_TIMER = 3,
	WAKER_SOFTIRQ = 4,
	WAKER_INTERRUPT = 5, /* of a device, or of another CPU */
	WAKER_UNKNOWN = 6,   /* a thread or an interrupt: this kernel does not say */
};

/* Added to enum waker of a report that says who else woke the thread than one that is recorded: of threads the key of
 * struct outsider, of WAKER_SOFTIRQ the number of the softirq, of WAKER_INTERRUPT that of the device's interrupt. */
#define OTHER_WAKER 64

/* Why a thread that could run did not. */
enum interferer {
	INTERFERER_NOT_SEEN = 0,
	INTERFERER_THREAD = 1,        /* as WAKER_THREAD: it ran */
	INTERFERER_KERNEL_THREAD = 2, /* as WAKER_KERNEL_THREAD: it ran */
	INTERFERER_IDLE = 3,          /* nothing ran: the CPU had not begun to run the thread yet */
	INTERFERER_LIMIT = 4,         /* a limit of its control group, whatever ran meanwhile */
};

/* A process that is not recorded and woke threads that are, or ran while they waited for a CPU, or a kernel thread. Its
 * key is a hash of name and process. */
struct outsider {
	char comm[16]; /* of its main thread */
	u32 user;      /* effective, as of the first time */
	u32 process;   /* tgid */
};

enum event_kind {
	EVENT_STACK = 1,   /* struct walk from .time on: frames innermost first, kernel then user */
	EVENT_THREAD = 2,
	EVENT_EXIT = 3,
	EVENT_FORK = 4,
	EVENT_EXEC = 5,
	EVENT_REFRESH = 6, /* a sampled address lies in no known mapping */
	EVENT_MOVED = 7,   /* a process that is no target entered a control group */
	EVENT_COPIED = 8,  /* as EVENT_STACK, what was found of a path whose stack was copied: the
			    * copy was sent in a ring of its own, before this */
	EVENT_FREE = 9,    /* a thread's CPU time is final; .time is when it last ran */
	EVENT_OBJECT = 10, /* struct object_event: the object of a number in calls' values */
	EVENT_PROGRAM = 11, /* struct program_event: sent before a target's EVENT_EXEC, where there is room */
	EVENT_FUNCTION = 12, /* struct function_event: a function of Python, before the first path through it */
};

struct thread_event {
	u64 time; /* CLOCK_MONOTONIC ns */
	u32 kind, tgid; /* enum event_kind; the process */
	u32 tid; /* the thread, in the initial namespace */
	u32 thread; /* its number; fork: 1 when the child is in the kernel's table of processes; exec: 0
		     * unless the thread was hidden until then */
	u64 start;   /* task's start_time, monotonic ns */
	u64 runtime; /* se.sum_exec_runtime, ns: as of the last tick or switch; exec of a hidden
		      * thread: as of then */
	u32 other;   /* fork: the parent's tgid; thread: 1 when just born; exit: 1 when the
		      * whole process is gone; exec by another thread than the main one: the
		      * main one's number, whose tid it has by now; free: enum report_flag */
	u32 image;   /* see image_of() */
	char comm[16]; /* the thread's name, ending in 0 */
};

/* A process that has begun a program, and its arguments, as of its exec. */
#define PROGRAM_TEXT 32768

struct program_event {
	u64 time; /* CLOCK_MONOTONIC ns */
	u32 kind, tgid; /* EVENT_PROGRAM; the process */
	u64 start;  /* as in struct thread_event */
	u64 group;  /* number of its control group, of the unified hierarchy; 0: not known */
	u32 parent; /* tgid */
	u32 user;   /* effective */
	u32 arguments, environment; /* how many bytes these have */
	char text[PROGRAM_TEXT]; /* arguments, then environment, as far as there is room */
};

/* A function of Python, as its code object has it. */
#define MOST_SENT_TEXT 511   /* of file and name, bytes */
#define MOST_SENT_TABLE 4095 /* of the line table */
#define FUNCTION_TEXT (2 * MOST_SENT_TEXT + MOST_SENT_TABLE + 3)

struct function_event {
	u64 time; /* when the path was taken, CLOCK_MONOTONIC ns */
	u32 kind, tgid; /* EVENT_FUNCTION; the process */
	u64 code; /* address of the code object */
	u32 identity; /* as in a path */
	s32 first_line; /* of the source */
	u16 version; /* as in struct python */
	u16 file, name, table; /* their bytes */
	u16 file_width, name_width; /* bytes of a character of theirs */
	u32 whole_table; /* bytes of the line table; the first of these are sent */
	char text[FUNCTION_TEXT]; /* file, name and line table */
};

/* One execution of a recorded function: a system call, or a function that is probed. It is sent when
 * it has returned, in a ring of its own; what it refers to is announced before, like a sample's. */
#define CALL_VALUES 6

struct call {
	u64 time;     /* when it began */
	u64 duration; /* ns */
	u32 thread, stack; /* as in struct sample; stack 0: its path is not known */
	u16 cache; /* as in struct sample */
	u16 function; /* number of the recorded function */
	u32 weight;   /* the number of calls that it represents: more than 1 where some are passed over */
	u64 value[CALL_VALUES]; /* what they are the function's declaration says */
};

/* A file that is seen for the first time. Of a socket, both ends are part of what it is: one that is
 * connected elsewhere is another object. */
#define NAME_BYTES 4096
#define ADDRESS_BYTES 112 /* struct sockaddr_un is the longest: 110 */

enum object_flag {
	OBJECT_DELETED = 1, /* its name was gone by then */
	OBJECT_CUT = 2,     /* its path was too long, or too deep */
};

struct object_event {
	u64 time; /* CLOCK_MONOTONIC ns */
	u32 kind, tgid; /* EVENT_OBJECT; the process */
	u32 object; /* its number */
	u32 mode;   /* st_mode */
	u64 inode; /* number of the inode in its file system */
	u32 device; /* of the kernel: major << 20 | minor */
	u32 mount;  /* number in /proc/PID/mountinfo; 0: not known */
	u32 node;   /* of a device file: which device, as above */
	u32 magic;  /* statfs' f_type */
	u16 family, type; /* of a socket */
	u16 protocol; /* of a socket: IPPROTO_* */
	u16 flags;  /* enum object_flag, or'ed */
	u16 local_port, peer_port; /* of an Internet socket; 0: none */
	u32 names;  /* bytes used of name[] */
	u8 local[16], peer[16]; /* addresses; of a Unix socket: the inodes of both ends */
	char file_system[16];   /* type of the file system */
	char address[ADDRESS_BYTES]; /* Unix: the path of either end */
	char name[NAME_BYTES];  /* the path's parts, innermost first, each with a 0 behind it */
};

enum drop {
	DROP_SAMPLE_RING = 0, /* sample ring full */
	DROP_EVENT_RING = 1,  /* event ring full: a stack, or what a thread or process did */
	DROP_THREAD_TABLE = 2,
	DROP_EXITING = 3,     /* fired in a thread that was not registered when it began to end */
	DROP_USER_SHARE = 4,  /* its user had taken more than a share of the sample ring, which filled */
};
#define DROPS 8 /* room for more */

struct counters {
	u64 taken; /* firings that were sampled, if not lost */
	u64 recorded; /* samples sent */
	u64 kernel_mode; /* firings taken in kernel mode */
	u64 switches; /* a thread left its CPU or came back */
	u64 thinned;  /* firings in targets passed over to keep the rate */
	u64 late;     /* firings in targets passed over: the virtual CPU had not been running */
	u64 walking;  /* the same: they were due while a long walk went on */
	u64 copied;   /* stacks copied, to be walked later */
	u64 not_copied; /* that might have been: too many */
	u64 python_deep; /* walks of threads with more Python frames than there is room for */
	u64 python_broken; /* whose list of Python frames could not be followed to its end */
	u64 fired;    /* firings of the first event, in whatever ran */
	u64 calls;    /* recorded */
	u64 calls_passed_over; /* to keep the cost down; others represent them */
	u64 calls_lost; /* their ring was full, or no memory of the CPU's was free for their walk */
	u64 calls_beyond_share; /* not sent: their user had taken more than a share of their ring, which filled */
	u64 objects_lost; /* not announced: calls have 0 in their place */
	u64 dropped[DROPS]; /* reports not sent, by enum drop */
};

#endif
