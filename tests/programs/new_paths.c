/* Threads that block again and again, each time on a call path that was never taken before.
 *
 * new_paths THREADS DEPTH NANOSECONDS: each thread goes DEPTH calls down, by one of two functions at each step, and sleeps
 * there, or of 0 ns reads a byte; until it is killed. Says "ready" when the threads run.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static int depth, nanoseconds, zero;

static void left(int left_over, unsigned long way);
static void right(int left_over, unsigned long way);

static void descend(int left_over, unsigned long way)
{
	if (left_over == 0) {
		struct timespec time = {0, nanoseconds};
		char byte;
		if (nanoseconds)
			nanosleep(&time, 0);
		else if (read(zero, &byte, 1) != 1)
			exit(1);
		return;
	}
	/* A linear congruential generator: its highest bits are spread best. */
	way = way * 6364136223846793005UL + 1442695040888963407UL;
	(way >> 63 ? left : right)(left_over - 1, way);
}

static __attribute__((noinline)) void left(int left_over, unsigned long way)
{
	descend(left_over, way);
	__asm__ volatile("");
}

static __attribute__((noinline)) void right(int left_over, unsigned long way)
{
	descend(left_over, way);
	__asm__ volatile("nop");
}

static void *block(void *seed)
{
	prctl(PR_SET_TIMERSLACK, 1);
	for (unsigned long way = (unsigned long)seed << 32;; way++)
		descend(depth, way);
}

int main(int count, char **arguments)
{
	pthread_t thread;

	if (count != 4)
		return 2;
	depth = atoi(arguments[2]);
	nanoseconds = atoi(arguments[3]);
	zero = open("/dev/zero", O_RDONLY);
	for (long i = 1; i <= atoi(arguments[1]); i++)
		if (pthread_create(&thread, 0, block, (void *)i))
			return 1;
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
