/* what_if KIND [FUNCTION SHARE]: threads that wait for one another; with SHARE, FUNCTION takes that much less CPU time.
 * Prints the seconds from the begin of the work to its end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#include "work.h"

static volatile int is_done;
static sem_t full[2];
static int ends[2][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;

/* serial: two of three parts are on the path: the thread that is waited for stays until off_path is done. */
WORKS(first, 250)
WORKS(second, 250)
WORKS(second_stays, 0.1)
WORKS(off_path, 100)

static void *runs_second(void *unused)
{
	second();
	while (!is_done)
		second_stays();
	return 0;
}

static void serial(void)
{
	pthread_t thread;

	first();
	pthread_create(&thread, 0, runs_second, 0);
	off_path();
	is_done = 1;
	pthread_join(thread, 0);
}

/* ping_pong: two threads take turns, in runs shorter than the time between samples. */
WORKS(packs, 0.15)
WORKS(sends, 0.25)
WORKS(answers, 0.3)

static void *answering(void *unused)
{
	for (int i = 0; i < 800; i++) {
		sem_wait(&full[0]);
		answers();
		sem_post(&full[1]);
	}
	return 0;
}

static void ping_pong(void)
{
	pthread_t thread;

	pthread_create(&thread, 0, answering, 0);
	for (int i = 0; i < 800; i++) {
		packs();
		sends();
		sem_post(&full[0]);
		sem_wait(&full[1]);
	}
	pthread_join(thread, 0);
}

/* pipeline: three stages, the second is the slowest. Twice as fast, all still have a CPU on a machine of two. */
WORKS(produces, 0.5)
WORKS(transforms, 1.6)
WORKS(consumes, 0.2)

static void *transforming(void *unused)
{
	char item;

	while (read(ends[0][0], &item, 1) == 1) {
		transforms();
		if (write(ends[1][1], &item, 1) != 1)
			abort();
	}
	close(ends[1][1]);
	return 0;
}

static void *consuming(void *unused)
{
	char item;

	while (read(ends[1][0], &item, 1) == 1)
		consumes();
	return 0;
}

static void pipeline(void)
{
	pthread_t threads[2];

	if (pipe(ends[0]) || pipe(ends[1]))
		abort();
	pthread_create(&threads[0], 0, transforming, 0);
	pthread_create(&threads[1], 0, consuming, 0);
	for (int i = 0; i < 400; i++) {
		produces();
		if (write(ends[0][1], "", 1) != 1)
			abort();
	}
	close(ends[0][1]);
	pthread_join(threads[0], 0);
	pthread_join(threads[1], 0);
}

/* lock: two threads that hold a lock most of their time. */
WORKS(holds_lock, 1.5)
WORKS(without_lock, 0.5)

static void *locking(void *unused)
{
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&mutex);
		holds_lock();
		pthread_mutex_unlock(&mutex);
		without_lock();
	}
	return 0;
}

static void lock(void)
{
	pthread_t thread;

	pthread_create(&thread, 0, locking, 0);
	locking(0);
	pthread_join(thread, 0);
}

/* meeting: two threads meet in each step, one has more to do. */
WORKS(slow_part, 2)
WORKS(fast_part, 1.5)

static void *fast(void *unused)
{
	for (int i = 0; i < 300; i++) {
		fast_part();
		pthread_barrier_wait(&barrier);
	}
	return 0;
}

static void meeting(void)
{
	pthread_t thread;

	pthread_barrier_init(&barrier, 0, 2);
	pthread_create(&thread, 0, fast, 0);
	for (int i = 0; i < 300; i++) {
		slow_part();
		pthread_barrier_wait(&barrier);
	}
	pthread_join(thread, 0);
}

int main(int argc, char **argv)
{
	static const struct kind kinds[] = {{"serial", serial}, {"ping_pong", ping_pong}, {"pipeline", pipeline},
					    {"lock", lock}, {"meeting", meeting}, {0}};
	double begin = now(CLOCK_MONOTONIC);

	run_kind(kinds, argc, argv);
	printf("%.6f\n", now(CLOCK_MONOTONIC) - begin);
	return 0;
}
