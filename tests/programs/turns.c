/* turns SECONDS: works for 0.4 ms and sleeps for 0.4 ms, in turns: most stretches of work have no sample. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

__attribute__((noinline)) static void work(double seconds)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;
	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

__attribute__((noinline)) static void rest(void)
{
	usleep(400);
}

int main(int argc, char **argv)
{
	double end = now(CLOCK_MONOTONIC) + atof(argv[argc - 1]);
	while (now(CLOCK_MONOTONIC) < end) {
		work(400e-6);
		rest();
	}
	return 0;
}
