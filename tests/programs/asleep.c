/* Threads that sleep in known places, each below a function of its own:
 *
 *   asleep places       futex (condition), poll, read of a pipe, join, nanosleep
 *   asleep vfork        a vfork parent, which no debugger can stop
 *   asleep deadlock     two threads, each with the mutex the other waits for; a third behind them
 *   asleep chain N      N threads, each waits for the mutex of the one before; the first sleeps
 *   asleep many N       N threads that sleep in a condition
 *   asleep coming N     threads that begin and end all the time, N at once
 *   asleep execs        a process that executes itself again and again
 *   asleep large        a thread whose frames lie 300 kB apart
 *   asleep lies         a thread whose stack is made of words that are no return addresses
 *   asleep fault FILE   a thread that reads the first page of FILE through a mapping, when told to
 *   asleep write FILE   a thread that writes to FILE, when told to
 *
 * Says "ready" when all of them are (about to be) asleep, and ends with its input. Those that are
 * told to, by a byte of input, say "ready" before and after.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define HERE __asm__ volatile("" ::: "memory") /* no tail call out of the frame */

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t both;
static int pipe_of_nobody[2];

static NOINLINE void waits_for_condition(void)
{
	pthread_mutex_lock(&guard);
	for (;;)
		pthread_cond_wait(&never, &guard);
}

static NOINLINE void waits_in_poll(void)
{
	struct pollfd entry = {pipe_of_nobody[0], POLLIN, 0};
	poll(&entry, 1, -1);
	HERE;
}

static NOINLINE void waits_in_read(void)
{
	char byte;
	if (read(pipe_of_nobody[0], &byte, 1) < 0)
		abort();
	HERE;
}

static NOINLINE void waits_in_sleep(void)
{
	struct timespec length = {3600, 0};
	nanosleep(&length, 0);
	HERE;
}

static NOINLINE void waits_for_child(void)
{
	if (vfork() == 0) {
		/* The parent sleeps until this ends. */
		struct timespec length = {3600, 0};
		prctl(PR_SET_PDEATHSIG, 9);
		syscall(SYS_nanosleep, &length, 0);
		_exit(0);
	}
	HERE;
}

static volatile char *page;
static int file;

static NOINLINE void waits_for_page(void)
{
	(void)*page;
	HERE;
}

static NOINLINE void waits_in_write(void)
{
	if (write(file, "x", 1) < 0)
		abort();
	HERE;
}

static void *in_fault(void *unused) { waits_for_page(); return unused; }
static void *in_write(void *unused) { waits_in_write(); return unused; }

static void *in_condition(void *unused) { waits_for_condition(); return unused; }
static void *in_poll(void *unused) { waits_in_poll(); return unused; }
static void *in_read(void *unused) { waits_in_read(); return unused; }
static void *in_sleep(void *unused) { waits_in_sleep(); return unused; }
static void *in_vfork(void *unused) { waits_for_child(); return unused; }

static pthread_t start(const char *name, void *(*function)(void *), void *argument)
{
	pthread_t thread;
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 64 << 10);
	if (pthread_create(&thread, &attributes, function, argument))
		abort();
	if (name)
		pthread_setname_np(thread, name);
	return thread;
}

static NOINLINE void waits_for_thread(pthread_t thread)
{
	pthread_join(thread, 0);
	HERE;
}

static void *in_join(void *thread) { waits_for_thread(*(pthread_t *)thread); return thread; }

static void places(void)
{
	static pthread_t sleeper;

	start("condition", in_condition, 0);
	start("poll", in_poll, 0);
	start("read", in_read, 0);
	sleeper = start("sleep", in_sleep, 0);
	start("join", in_join, &sleeper);
}

static NOINLINE void takes_second(void)
{
	pthread_mutex_lock(&second);
	HERE;
}

static NOINLINE void takes_first(void)
{
	pthread_mutex_lock(&first);
	HERE;
}

static void *holds_first(void *unused)
{
	pthread_mutex_lock(&first);
	pthread_barrier_wait(&both);
	takes_second();
	return unused;
}

static void *holds_second(void *unused)
{
	pthread_mutex_lock(&second);
	pthread_barrier_wait(&both);
	takes_first();
	return unused;
}

static void *comes_third(void *unused)
{
	takes_first();
	return unused;
}

static pthread_mutex_t *locks;
static sem_t held;

static void *link_of_chain(void *number)
{
	long index = (long)number;

	pthread_mutex_lock(&locks[index]);
	sem_post(&held);
	if (index == 0)
		waits_in_sleep();
	else
		pthread_mutex_lock(&locks[index - 1]);
	HERE;
	return 0;
}

static void *ends_soon(void *unused)
{
	struct timespec length = {0, 200000};
	nanosleep(&length, 0);
	return unused;
}

static void *keeps_coming(void *unused)
{
	for (;;)
		pthread_join(start(0, ends_soon, 0), 0);
	return unused;
}

/* Frames that lie megabytes apart. */
static NOINLINE void has_large_frames(int depth)
{
	char large[300000];

	memset(large, depth, sizeof large);
	if (depth == 0)
		waits_in_sleep();
	else
		has_large_frames(depth - 1);
	__asm__ volatile("" ::"r"(large) : "memory");
}

static void *in_large_frames(void *unused)
{
	has_large_frames(4);
	return unused;
}

static u_int64_t lies[512];

/* In a system call, with the stack pointer in the middle of lies[]. */
static void *stands_on_lies(void *unused)
{
	struct timespec length = {3600, 0};

	for (int at = 0; at < 512; at++)
		lies[at] = 0x41414141 + at * 0x1000003ULL;
#ifdef __x86_64__
	__asm__ volatile("mov %%rsp, %%r12; mov %0, %%rsp; syscall; mov %%r12, %%rsp"
			 :
			 : "r"(lies + 256), "a"(SYS_nanosleep), "D"(&length), "S"(0)
			 : "rcx", "r11", "r12", "memory");
#else
	nanosleep(&length, 0);
#endif
	return unused;
}

static NOINLINE void executes_itself(char **arguments)
{
	struct timespec length = {0, 300000};

	nanosleep(&length, 0);
	execv("/proc/self/exe", arguments);
	HERE;
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "places";
	long number = count > 2 ? atol(arguments[2]) : 3;

	if (pipe(pipe_of_nobody))
		return 1;
	if (!strcmp(what, "places"))
		places();
	else if (!strcmp(what, "deadlock")) {
		pthread_barrier_init(&both, 0, 3);
		start("ada", holds_first, 0);
		start("bob", holds_second, 0);
		pthread_barrier_wait(&both);
		start("cleo", comes_third, 0);
	} else if (!strcmp(what, "chain")) {
		locks = calloc(number, sizeof *locks);
		for (long index = 0; index < number; index++)
			pthread_mutex_init(&locks[index], 0);
		for (long index = 0; index < number; index++) {
			start("link", link_of_chain, (void *)index);
			sem_wait(&held);
		}
	} else if (!strcmp(what, "execs")) {
		static char *again[] = {"asleep", "execs", "again", 0};

		if (count == 2) { /* the first of them tells that it is there */
			puts("ready");
			fflush(stdout);
		}
		executes_itself(again);
	} else if (!strcmp(what, "vfork"))
		start("vfork", in_vfork, 0);
	else if (!strcmp(what, "large")) {
		pthread_t thread;
		if (pthread_create(&thread, 0, in_large_frames, 0)) /* with a stack of the usual size */
			abort();
	} else if (!strcmp(what, "lies"))
		start("liar", stands_on_lies, 0);
	else if (!strcmp(what, "fault") || !strcmp(what, "write")) {
		int fault = !strcmp(what, "fault");

		file = open(arguments[2], fault ? O_RDONLY : O_WRONLY);
		if (file < 0)
			abort();
		if (fault)
			page = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0);
		puts("ready");
		fflush(stdout);
		getchar();
		start(what, fault ? in_fault : in_write, 0);
	}
	else
		for (long index = 0; index < number; index++)
			start("worker", !strcmp(what, "many") ? in_condition : keeps_coming, 0);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	/* A vfork parent's child outlives nothing: it is killed with its parent. */
	_exit(0);
}
