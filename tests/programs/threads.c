/* Four threads at a time, each 20 ms of CPU, one after another. Usage: threads SECONDS */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sum;

static double seconds(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *burn(void *unused)
{
	double end = seconds(CLOCK_THREAD_CPUTIME_ID) + 0.02;
	do
		for (int i = 0; i < 100000; i++)
			sum += i;
	while (seconds(CLOCK_THREAD_CPUTIME_ID) < end);
	return unused;
}

int main(int argc, char **argv)
{
	double end = seconds(CLOCK_MONOTONIC) + (argc > 1 ? atof(argv[1]) : 1);
	while (seconds(CLOCK_MONOTONIC) < end) {
		pthread_t threads[4];
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, burn, NULL);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
	return 0;
}
