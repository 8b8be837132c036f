/* Ranks that meet in MPI_Allreduce, but for one, which writes for ever: `deviating RANK`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define HERE __asm__ volatile("" ::: "memory")

static NOINLINE void io_write(void)
{
	sleep(3600);
	HERE;
}

static NOINLINE void solve(void)
{
	double mine = 1, all;

	MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	HERE;
}

int main(int count, char **arguments)
{
	int rank, deviates = count > 1 ? atoi(arguments[1]) : -1;

	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	solve();
	puts("ready");
	fflush(stdout);
	if (rank == deviates)
		io_write();
	solve();
	MPI_Finalize();
	return 0;
}
