/* Rank 2 is late, rank 1 waits for it and rank 0 for rank 1: a delay over two hops. With "even" none
   is. Each rank prints the seconds that it waited for a message. */
#include "planted.h"

__attribute__((noinline)) static void computes_late(double seconds) { COMPUTE(seconds); }
__attribute__((noinline)) static void computes_in_time(double seconds) { COMPUTE(seconds); }

int main(int argc, char **argv)
{
	double waited = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int even = argc > 1 && !strcmp(argv[1], "even"), token = 0;
	for (int step = 0; step < 20; step++) {
		if (rank == size - 1 && !even)
			computes_late(0.06);
		else
			computes_in_time(even ? 0.03 : 0.005);
		if (even)
			continue;
		double began = CLOCK(CLOCK_MONOTONIC);
		if (rank < size - 1)
			MPI_Recv(&token, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		waited += CLOCK(CLOCK_MONOTONIC) - began;
		if (rank > 0)
			MPI_Send(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD);
	}
	MPI_Finalize();
	printf("%.6f\n", waited);
	return 0;
}
