/* regions ROUNDS: OpenMP regions of known work, waits and locks, for two threads.
 *
 * Prints as JSON what it measured by the monotonic clock: for each procedure that has a region its
 * elapsed time, and the time of both threads at work, waiting for each other and for locks; and the
 * time outside of regions. All work is an amount of CPU time. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 2, CHUNKS = 400, TASKS = 8 };
#define MS 1000000L

static struct {
	long elapsed, work, waiting, locks;
} uneven, barrier, critical, dynamic, tasks;

static long now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static long wall(void)
{
	return now(CLOCK_MONOTONIC);
}

__attribute__((noinline)) static void spin(long ns)
{
	long end = now(CLOCK_THREAD_CPUTIME_ID) + ns;
	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void add(long *sum, long more)
{
	__atomic_fetch_add(sum, more, __ATOMIC_RELAXED);
}

/* Adds the time from each end of work to the last of them. */
static void add_waits(long *sum, const long *end)
{
	for (int i = 0; i < THREADS; i++)
		*sum += (end[0] > end[1] ? end[0] : end[1]) - end[i];
}

/* One thread has three times the work of the other. */
__attribute__((noinline)) static void region_uneven(void)
{
	long begin = wall(), end[THREADS];
#pragma omp parallel num_threads(THREADS)
	{
		int me = omp_get_thread_num();
		long mine = wall();
		spin(me ? 10 * MS : 30 * MS);
		end[me] = wall();
		add(&uneven.work, end[me] - mine);
	}
	uneven.elapsed += wall() - begin;
	add_waits(&uneven.waiting, end);
}

/* The same before a barrier, after which both work as long. */
__attribute__((noinline)) static void region_barrier(void)
{
	long begin = wall(), end[THREADS];
#pragma omp parallel num_threads(THREADS)
	{
		int me = omp_get_thread_num();
		long mine = wall(), reached;
		spin(me ? 30 * MS : 10 * MS);
		reached = wall();
#pragma omp barrier
		add(&barrier.waiting, wall() - reached);
		add(&barrier.work, reached - mine);
		mine = wall();
		spin(10 * MS);
		end[me] = wall();
		add(&barrier.work, end[me] - mine);
	}
	barrier.elapsed += wall() - begin;
	add_waits(&barrier.waiting, end);
}

/* Work that only one thread at a time may do. */
__attribute__((noinline)) static void region_critical(void)
{
	long begin = wall(), end[THREADS];
#pragma omp parallel num_threads(THREADS)
	{
		int me = omp_get_thread_num();
		long mine = wall(), waited = 0;
		for (int i = 0; i < 10; i++) {
			long asked = wall();
#pragma omp critical
			{
				waited += wall() - asked;
				spin(2 * MS);
			}
		}
		end[me] = wall();
		add(&critical.locks, waited);
		add(&critical.work, end[me] - mine - waited);
	}
	critical.elapsed += wall() - begin;
	add_waits(&critical.waiting, end);
}

/* Iterations that are handed out one by one. */
__attribute__((noinline)) static void region_dynamic(void)
{
	long begin = wall();
#pragma omp parallel for schedule(dynamic, 1) num_threads(THREADS)
	for (int i = 0; i < CHUNKS; i++) {
		long mine = wall();
		spin(MS / 10);
		add(&dynamic.work, wall() - mine);
	}
	dynamic.elapsed += wall() - begin;
}

/* Tasks that one thread makes, and both work on. */
__attribute__((noinline)) static void region_tasks(void)
{
	long begin = wall();
#pragma omp parallel num_threads(THREADS)
#pragma omp single nowait
	for (int i = 0; i < TASKS; i++)
#pragma omp task
	{
		long mine = wall();
		spin(5 * MS);
		add(&tasks.work, wall() - mine);
	}
	tasks.elapsed += wall() - begin;
}

int main(int argc, char **argv)
{
	long serial = 0;
	for (int round = argc > 1 ? atoi(argv[1]) : 10; round; round--) {
		region_uneven();
		region_barrier();
		region_critical();
		region_dynamic();
		region_tasks();
		long begin = wall();
		spin(20 * MS);
		serial += wall() - begin;
	}
#define SHOW(name) \
	printf("\"region_" #name "\": {\"elapsed_s\": %.9f, \"work_s\": %.9f, \"imbalance_s\": %.9f, " \
	       "\"lock_s\": %.9f}, ", name.elapsed / 1e9, name.work / 1e9, name.waiting / 1e9, \
	       name.locks / 1e9)
	printf("{");
	SHOW(uneven);
	SHOW(barrier);
	SHOW(critical);
	SHOW(dynamic);
	SHOW(tasks);
	printf("\"serial_s\": %.9f}\n", serial / 1e9);
	return 0;
}
