/* Four ranks, or as many as there are, that share work unevenly and meet at a barrier.

   imbalance STEPS MS: in each step rank r computes for MS * (r + 1) milliseconds of its own CPU
   time, then all enter a barrier, where rank r waits for the slowest. Rank 0 prints "ready"; all
   begin when its standard input ends. Prints what is true of each rank: a JSON line with its
   seconds of CPU time for work, of work and of waiting by the clock. */
#define _GNU_SOURCE
#include <mpi.h>
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

__attribute__((noinline)) void compute(double seconds)
{
	double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds;
	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 2000; i++)
			;
}

__attribute__((noinline)) void meet(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
	__asm__ volatile("");
}

int main(int argc, char **argv)
{
	int rank, size, steps = argc > 1 ? atoi(argv[1]) : 100;
	double ms = argc > 2 ? atof(argv[2]) : 5, work = 0, barrier = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (rank == 0) {
		char byte;
		puts("ready");
		fflush(stdout);
		while (read(0, &byte, 1) > 0)
			;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < steps; i++) {
		double start = now(CLOCK_MONOTONIC);
		compute(ms * (rank + 1) / 1000);
		double middle = now(CLOCK_MONOTONIC);
		meet();
		work += middle - start;
		barrier += now(CLOCK_MONOTONIC) - middle;
	}
	printf("{\"rank\": %d, \"pid\": %d, \"cpu_s\": %.4f, \"work_s\": %.4f, \"barrier_s\": %.4f}\n", rank, (int)getpid(),
	       steps * ms * (rank + 1) / 1000, work, barrier);
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
