/* short_regions SECONDS: parallel regions of some 100 us, with gcc -fopenmp: threads wait tens of thousands of times. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

static volatile double sink[64 * 16];

__attribute__((noinline)) static double add_up(long n)
{
	double sum = 0;
	for (long i = 0; i < n; i++)
		sum += i * 0.5;
	return sum;
}

int main(int argc, char **argv)
{
	double end = omp_get_wtime() + atof(argv[argc - 1]);
	while (omp_get_wtime() < end) {
#pragma omp parallel
		sink[16 * omp_get_thread_num()] = add_up(40000L * (1 + omp_get_thread_num()));
	}
	return 0;
}
