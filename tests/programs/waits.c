/* waits ROUNDS MS FILE: waits in every way a program can, and says for how long.
 *
 * Each round computes for MS milliseconds of CPU time, sleeps, waits for a mutex another thread
 * holds, for a pipe another thread writes to, for MS milliseconds each, and reads FILE past the
 * page cache for as long. Prints "ready", begins when its standard input is closed, and then prints
 * a JSON line for each function: seconds by the clock, on a CPU, runnable (waiting for a CPU, from
 * the kernel's own account of the thread) and blocked, which is the rest; and in how many waits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { COMPUTE, SLEEP, MUTEX, PIPE, FILE_READ, KINDS };
enum { BLOCK = 1 << 16, FILE_BYTES = 16 << 20 };

static const char *names[KINDS] = {"in_compute", "in_sleep", "in_mutex", "in_pipe", "in_file"};
static double ms;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t hold, held, start_writing;
static int ends[2], file, schedstat;
static char *block;

static double now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void nap(void)
{
	struct timespec t = {ms / 1000, (long)(ms * 1e6) % 1000000000};
	nanosleep(&t, NULL);
}

/* Seconds this thread has waited for a CPU. */
static double runnable(void)
{
	char text[128] = "";
	unsigned long long on_cpu = 0, delay = 0;
	if (pread(schedstat, text, sizeof text - 1, 0) > 0)
		sscanf(text, "%llu %llu", &on_cpu, &delay);
	return delay * 1e-9;
}

/* How often this thread has given up its CPU. */
static long waits(void)
{
	struct rusage used;
	getrusage(RUSAGE_THREAD, &used);
	return used.ru_nvcsw;
}

struct reading {
	double wall, cpu, runnable;
	long waits;
};

/* All clocks of one moment: once more where the thread waited for a CPU meanwhile. */
static struct reading read_clocks(void)
{
	struct reading one;
	do {
		one.waits = waits();
		one.runnable = runnable();
		one.wall = now(CLOCK_MONOTONIC);
		one.cpu = now(CLOCK_THREAD_CPUTIME_ID);
	} while (runnable() != one.runnable);
	return one;
}

static _Noreturn void *hold_mutex(void *unused)
{
	(void)unused;
	for (;;) {
		sem_wait(&hold);
		pthread_mutex_lock(&mutex);
		sem_post(&held);
		nap();
		pthread_mutex_unlock(&mutex);
	}
}

static _Noreturn void *write_pipe(void *unused)
{
	(void)unused;
	for (;;) {
		sem_wait(&start_writing);
		nap();
		if (write(ends[1], "x", 1) != 1)
			abort();
	}
}

__attribute__((noinline)) static void in_compute(void)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + ms / 1000;
	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 2000; i++)
			;
}

__attribute__((noinline)) static void in_sleep(void)
{
	nap();
	__asm__ volatile("");
}

__attribute__((noinline)) static void in_mutex(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	__asm__ volatile("");
}

__attribute__((noinline)) static void in_pipe(void)
{
	char byte;
	if (read(ends[0], &byte, 1) != 1)
		abort();
	__asm__ volatile("");
}

__attribute__((noinline)) static void in_file(void)
{
	static off_t at;
	double end = now(CLOCK_MONOTONIC) + ms / 1000;
	while (now(CLOCK_MONOTONIC) < end) {
		if (pread(file, block, BLOCK, at) != BLOCK)
			abort();
		at = (at + 7 * BLOCK) % FILE_BYTES;
	}
}

/* Has the other thread begin; waiting for that is no wait of the functions below. */
static void prepare(int kind)
{
	if (kind == MUTEX) {
		sem_post(&hold);
		sem_wait(&held);
	} else if (kind == PIPE) {
		sem_post(&start_writing);
	}
}

static void run(int kind)
{
	/* Not a table of functions: each is to stand in the call path by its name. */
	switch (kind) {
	case COMPUTE: in_compute(); break;
	case SLEEP: in_sleep(); break;
	case MUTEX: in_mutex(); break;
	case PIPE: in_pipe(); break;
	default: in_file(); break;
	}
}

int main(int argc, char **argv)
{
	double wall[KINDS] = {0}, cpu[KINDS] = {0}, waited[KINDS] = {0};
	long count[KINDS] = {0};
	pthread_t holder, writer;
	char byte;

	if (argc < 4) {
		fputs("usage: waits ROUNDS MS FILE\n", stderr);
		return 2;
	}
	ms = atof(argv[2]);
	if (posix_memalign((void **)&block, 4096, BLOCK) || pipe(ends))
		return 1;
	memset(block, 'x', BLOCK);
	file = open(argv[3], O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < FILE_BYTES / BLOCK; i++)
		if (write(file, block, BLOCK) != BLOCK)
			return 1;
	fsync(file);
	close(file);
	file = open(argv[3], O_RDONLY | O_DIRECT);
	schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	if (file < 0 || schedstat < 0) {
		perror(argv[3]);
		return 1;
	}
	sem_init(&hold, 0, 0), sem_init(&held, 0, 0), sem_init(&start_writing, 0, 0);
	pthread_create(&holder, NULL, hold_mutex, NULL);
	pthread_create(&writer, NULL, write_pipe, NULL);
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	for (int i = 0; i < atoi(argv[1]); i++)
		for (int kind = 0; kind < KINDS; kind++) {
			prepare(kind);
			struct reading before = read_clocks();
			run(kind);
			struct reading after = read_clocks();
			wall[kind] += after.wall - before.wall;
			cpu[kind] += after.cpu - before.cpu;
			waited[kind] += after.runnable - before.runnable;
			count[kind] += after.waits - before.waits;
		}
	for (int kind = 0; kind < KINDS; kind++)
		printf("{\"function\": \"%s\", \"wall_s\": %.6f, \"cpu_s\": %.6f, \"runnable_s\": %.6f, "
		       "\"blocked_s\": %.6f, \"waits\": %ld}\n",
		       names[kind], wall[kind], cpu[kind], waited[kind],
		       wall[kind] - cpu[kind] - waited[kind], count[kind]);
	fflush(stdout);
	return 0;
}
