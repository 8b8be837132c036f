/* A program whose call paths are known: every call below is listed in EDGES of the test that runs
 * it. Compiled with -O2 -fomit-frame-pointer. Usage: paths SECONDS THREADS [SIGNAL_US]
 *
 * Each thread works for SECONDS of its own CPU time, so that there is as much of it to sample on a
 * machine that is busy.
 *
 * A signal interrupts it every 2 ms; with SIGNAL_US every thread by itself every so many. */
#define _GNU_SOURCE
#include <alloca.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define FRAME __attribute__((noinline, noclone))
#define KEEP(value) __asm__ volatile("" : "+r"(value))
#define TOUCH(memory) __asm__ volatile("" : : "r"(memory) : "memory")

static double end;
static int random_fd;
static int handler_turns = 100;
static long signal_us;

static double seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

FRAME unsigned long leaf(unsigned long n)
{
	for (int i = 0; i < 2000; i++)
		n = n * 6364136223846793005UL + 1442695040888963407UL;
	return n;
}

/* plain frames of different sizes */
#define CHAIN(name, next, size)                     \
	FRAME unsigned long name(unsigned long n)   \
	{                                           \
		char buffer[size];                  \
		memset(buffer, (int)n, size);       \
		TOUCH(buffer);                      \
		unsigned long r = next(n + 1);      \
		KEEP(r);                            \
		return r + buffer[n % size];        \
	}
CHAIN(chain4, leaf, 16)
CHAIN(chain3, chain4, 200)
CHAIN(chain2, chain3, 5000)
CHAIN(chain1, chain2, 64)

FRAME unsigned long recursion(int depth, unsigned long n)
{
	char buffer[40];
	memset(buffer, depth, sizeof buffer);
	TOUCH(buffer);
	unsigned long r = depth ? recursion(depth - 1, n + 1) : leaf(n);
	KEEP(r);
	return r + buffer[depth % 40];
}

/* the frame's size is known at run time only: the CFA hangs on rbp */
FRAME unsigned long with_alloca(unsigned long n)
{
	char *buffer = alloca(n % 4096 + 64);
	memset(buffer, 1, n % 4096 + 64);
	TOUCH(buffer);
	unsigned long r = chain4(n);
	KEEP(r);
	return r + buffer[n % 64];
}

/* a realigned stack: the CFA is found through a saved pointer (DRAP) */
FRAME unsigned long with_alignment(unsigned long n, long a, long b, long c, long d, long e, long f)
{
	char buffer[256] __attribute__((aligned(128)));
	char *more = alloca(n % 512 + 16);
	memset(buffer, (int)(a + b + c + d + e + f), sizeof buffer);
	memset(more, 2, n % 512 + 16);
	TOUCH(buffer);
	TOUCH(more);
	unsigned long r = chain4(n);
	KEEP(r);
	return r + buffer[n % 256] + more[n % 16];
}

FRAME int compare(const void *a, const void *b)
{
	unsigned long r = leaf(*(const int *)a);
	KEEP(r);
	return *(const int *)a - *(const int *)b;
}

/* through libc and back */
FRAME void sorting(void)
{
	int numbers[32];
	for (int i = 0; i < 32; i++)
		numbers[i] = i * 37 % 32;
	qsort(numbers, 32, sizeof numbers[0], compare);
	TOUCH(numbers);
}

/* into the kernel */
FRAME void reading(void)
{
	static __thread char buffer[1 << 15];
	for (int i = 0; i < 4; i++)
		if (read(random_fd, buffer, sizeof buffer) < 0)
			abort();
	TOUCH(buffer);
}

/* a signal handler interrupts anything above */
FRAME void handler(int number)
{
	unsigned long r = number;
	for (int i = 0; i < handler_turns; i++)
		r += leaf(r);
	KEEP(r);
}

FRAME void work(void)
{
	while (seconds(CLOCK_THREAD_CPUTIME_ID) < end) {
		unsigned long r = chain1(1) + with_alloca(3 + (long)(seconds(CLOCK_MONOTONIC) * 1e6) % 4000);
		/* Often enough for signals to come in between. */
		for (int i = 0; i < 10; i++)
			r += recursion(50, i);
		r += with_alignment(5, 1, 2, 3, 4, 5, 6);
		KEEP(r);
		sorting();
		reading();
	}
	TOUCH(&end);
}

static void signal_this_thread(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
	struct itimerspec often = {{0, signal_us * 1000}, {0, signal_us * 1000}};
	timer_t timer;

	event._sigev_un._tid = gettid();
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &often, NULL))
		abort();
}

FRAME void *thread(void *unused)
{
	if (signal_us)
		signal_this_thread();
	work();
	TOUCH(unused);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[64];
	int count = argc > 2 ? atoi(argv[2]) : 0;
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct itimerval timer = {{0, 2000}, {0, 2000}};

	end = argc > 1 ? atof(argv[1]) : 1;
	random_fd = open("/dev/urandom", O_RDONLY);
	sigaction(SIGPROF, &action, NULL);
	if (argc > 3) {
		signal_us = atol(argv[3]);
		handler_turns = 1;
		signal_this_thread();
	} else {
		setitimer(ITIMER_PROF, &timer, NULL);
	}
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, thread, NULL);
	work();
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
