/* naps COUNT MS: sleeps COUNT times MS ms in nap(), computes a little in between, and prints the
 * seconds slept and lived. One line first when it is ready; it begins when its input is closed. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + 1e-9 * t.tv_nsec;
}

__attribute__((noinline)) static double nap(int ms)
{
	double start = now();
	usleep(1000 * ms);
	return now() - start;
}

int main(int argc, char **argv)
{
	int count = atoi(argv[1]), ms = atoi(argv[2]);
	double slept = 0;
	volatile double sink = 0;
	char byte;

	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	double start = now();
	for (int i = 0; i < count; i++) {
		slept += nap(ms);
		for (int k = 0; k < 2000000; k++)
			sink += k;
	}
	printf("%.6f %.6f\n", slept, now() - start);
	return argc < 3;
}
