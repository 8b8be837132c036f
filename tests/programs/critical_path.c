/* critical_path: a run whose critical path is known. Prints what the path has in each function, in seconds of its own
 * clocks: of CPU time in on_path_worker, on_path_main; by the clock in on_path_sleep. off_path works beside them, and
 * on_path_worker goes on until off_path is done, so that nobody waits for it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define NOT_INLINED __attribute__((noinline, noclone))

static volatile double sink;
static volatile int is_done;
static double worker_used;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + 1e-9 * time.tv_nsec;
}

static inline __attribute__((always_inline)) double work(double seconds, volatile int *until)
{
	double begin = now(CLOCK_THREAD_CPUTIME_ID);

	while (now(CLOCK_THREAD_CPUTIME_ID) < begin + seconds || !*until)
		for (int i = 0; i < 20000; i++)
			sink += i;
	return now(CLOCK_THREAD_CPUTIME_ID) - begin;
}

NOT_INLINED double on_path_worker(void)
{
	double used = work(0.4, &is_done);

	asm volatile("");
	return used;
}

NOT_INLINED double off_path(void)
{
	int always = 1;
	double used = work(0.1, &always);

	is_done = 1;
	return used;
}

NOT_INLINED double on_path_main(void)
{
	int always = 1;
	double used = work(0.3, &always);

	asm volatile("");
	return used;
}

NOT_INLINED double on_path_sleep(void)
{
	double begin = now(CLOCK_MONOTONIC);

	usleep(200000);
	return now(CLOCK_MONOTONIC) - begin;
}

static void *worker(void *unused)
{
	worker_used = on_path_worker();
	return 0;
}

static void *other(void *unused)
{
	off_path();
	return 0;
}

int main(void)
{
	pthread_t first, second;
	double slept, used;

	pthread_create(&first, 0, worker, 0);
	pthread_create(&second, 0, other, 0);
	pthread_join(first, 0);
	slept = on_path_sleep();
	used = on_path_main();
	pthread_join(second, 0);
	printf("on_path_worker %.6f on_path_sleep %.6f on_path_main %.6f\n", worker_used, slept, used);
	return 0;
}
