/* Ranks of MPI that wait for one another, for a file and in turns. */
#include "cases.h"
#include <mpi.h>

static int rank, size;

static void begins(void)
{
	MPI_Init(0, 0);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Barrier(MPI_COMM_WORLD);
}

NOINLINE static void advances(void) { COMPUTE(unit * 0.004); }
NOINLINE static void reads_the_next_step(void) { usleep(unit * 15000); }

/* The first rank reads, for which it sleeps, what it then sends to all. */
static void reader_rank(void)
{
	begins();
	for (int i = 0, step; i < 60; i++) {
		if (!rank)
			reads_the_next_step();
		double began = ELAPSED();
		MPI_Bcast(&step, 1, MPI_INT, 0, MPI_COMM_WORLD);
		if (rank)
			plant(ELAPSED() - began);
		advances();
	}
	MPI_Finalize();
}

NOINLINE static void saves_its_part(int file)
{
	for (int i = 0; i < 60; i++) {
		pwrite(file, "part", 4, 0);
		fsync(file);
	}
}

/* The last rank waits for its disk, the others for it in MPI_Allreduce(). */
static void saving_rank(void)
{
	char name[] = "/var/tmp/causes-XXXXXX";
	int file = mkstemp(name);
	begins();
	for (int i = 0; i < 60; i++) {
		double own = i, sum;
		advances();
		if (rank == size - 1)
			saves_its_part(file);
		double began = ELAPSED();
		MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		if (rank != size - 1)
			plant(ELAPSED() - began);
	}
	MPI_Finalize();
	unlink(name);
}

NOINLINE static void computes_its_cells(void) { COMPUTE(unit * 0.01 * (1 + 3 * rank)); }

/* Ranks have ever more cells. */
static void uneven_cells(void)
{
	begins();
	for (int i = 0; i < 20; i++) {
		computes_its_cells();
		PLANTED(ELAPSED, MPI_Barrier(MPI_COMM_WORLD));
	}
	MPI_Finalize();
}

NOINLINE static void goes_on_from(int step) { COMPUTE(unit * 0.01); sink += step; }

/* Each rank needs what the one before it has computed: one works at a time. */
static void chain_of_ranks(void)
{
	begins();
	int before = (rank + size - 1) % size, next = (rank + 1) % size, step = 0;
	for (int i = 0; i < 30; i++) {
		if (rank || i)
			PLANTED(ELAPSED, MPI_Recv(&step, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
		goes_on_from(step);
		if (next || i < 29)
			MPI_Send(&i, 1, MPI_INT, next, 0, MPI_COMM_WORLD);
	}
	MPI_Finalize();
}

PROGRAM(CASE(reader_rank), CASE(saving_rank), CASE(uneven_cells), CASE(chain_of_ranks))
