// Calls a function of a shared library over and over: called_often CALLS ROUNDS prints the time of a
// call in the fastest round, ns. Compiled with -DLIBRARY it is the library.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#ifdef LIBRARY
int called_often(int number)
{
	__asm__ volatile("" ::: "memory");
	return number + 1;
}
#else
int called_often(int number);

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return 1e9 * time.tv_sec + time.tv_nsec;
}

int main(int count, char **arguments)
{
	int calls = atoi(arguments[1]), rounds = atoi(arguments[2]);
	double fastest = 1e30;

	for (int round = 0; round < rounds; round++) {
		double begin = now();
		for (int call = 0; call < calls; call++)
			called_often(call);
		double taken = (now() - begin) / calls;
		if (taken < fastest)
			fastest = taken;
	}
	printf("%.1f\n", fastest);
	return count < 0;
}
#endif
