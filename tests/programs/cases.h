/* What programs with a planted cause have in common: their clocks, their work, and a main() that
   runs the case that the first argument names, with a second one in place of the unit of work, in
   seconds, and prints the seconds, or bytes, of threads' time that the cause took.

   Work is CPU time of the thread, never time by the clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <omp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define THREADS 4

static double unit = 1;
static volatile double sink;
static _Atomic long planted_ns;

/* A macro, so that no helper is a procedure of its own. */
#define CLOCK(clock) \
	({ struct timespec t_; clock_gettime(clock, &t_); t_.tv_sec + t_.tv_nsec * 1e-9; })

static void plant(double seconds) { planted_ns += (long)(seconds * 1e9); }

#define ELAPSED() CLOCK(CLOCK_MONOTONIC)
#define CPU() CLOCK(CLOCK_THREAD_CPUTIME_ID)
/* This number of seconds of the thread's own CPU time, in the procedure itself. */
#define COMPUTE(seconds) \
	do { \
		double end_ = CPU() + (seconds); \
		while (CPU() < end_) \
			for (int i_ = 0; i_ < 20000; i_++) \
				sink += i_; \
	} while (0)
/* What a statement takes by a clock is planted. */
#define PLANTED(clock, statement) \
	do { \
		double begin_ = clock(); \
		statement; \
		plant(clock() - begin_); \
	} while (0)

static void in_threads(int count, void *(*run)(void *))
{
	pthread_t thread[64];
	for (long n = 0; n < count; n++)
		pthread_create(&thread[n], 0, run, (void *)n);
	for (int n = 0; n < count; n++)
		pthread_join(thread[n], 0);
}

#define CASE(name) {#name, name}
#define PROGRAM(...) \
	int main(int argc, char **argv) \
	{ \
		static const struct { const char *name; void (*run)(void); } cases[] = {__VA_ARGS__}; \
		if (argc > 2) \
			unit = atof(argv[2]); \
		for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) \
			if (argc > 1 && !strcmp(argv[1], cases[i].name)) \
				cases[i].run(); \
		printf("%.6f\n", planted_ns / 1e9); \
	}
