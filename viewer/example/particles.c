/* Particles in a box, a slab of which belongs to each rank: rank 2 has most of them, and all others wait
   for it. The recording that `hpcd view --example` opens is of this program; setup/example.sh makes it. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 12, HALO = 4096, FEW = 700, MANY = 5 * FEW, NEIGHBOURS = 200 };

static double position[MANY], velocity[MANY], halo[2][HALO];

static inline double force(double distance)
{
	double screened = exp(-distance);
	return screened / (distance * distance + 0.01);
}

__attribute__((noinline)) static void move_particles(int count)
{
	for (int i = 0; i < count; i++) {
		double sum = 0;
		for (int j = 0; j < NEIGHBOURS; j++)
			sum += force(fabs(position[i] - position[i + j < count ? i + j : i + j - count]));
		velocity[i] += 1e-6 * sum;
	}
	for (int i = 0; i < count; i++)
		position[i] = fmod(position[i] + velocity[i], 1);
}

__attribute__((noinline)) static void exchange_halo(int rank, int size)
{
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	MPI_Sendrecv(halo[0], HALO, MPI_DOUBLE, right, 0, halo[1], HALO, MPI_DOUBLE, left, 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	MPI_Sendrecv(halo[1], HALO, MPI_DOUBLE, left, 1, halo[0], HALO, MPI_DOUBLE, right, 1, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
}

__attribute__((noinline)) static double total_energy(int count)
{
	double own = 0, all = 0;
	for (int i = 0; i < count; i++)
		own += velocity[i] * velocity[i];
	MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return all;
}

__attribute__((noinline)) static void write_checkpoint(int rank, int count)
{
	char name[64];
	snprintf(name, sizeof name, "checkpoint-%d.dat", rank);
	FILE *file = fopen(name, "w");
	for (int i = 0; file && i < count; i++)
		fprintf(file, "%.9f %.9f\n", position[i], velocity[i]);
	if (file)
		fclose(file);
}

int main(int argc, char **argv)
{
	int rank, size;
	double energy = 0;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int repeat = argc > 1 ? atoi(argv[1]) : 10, count = rank == 2 ? MANY : FEW;
	for (int i = 0; i < count; i++)
		position[i] = drand48();
	if (rank == 0) { /* begins when its input ends: hpcd is attached by then */
		puts("ready");
		fflush(stdout);
		while (getchar() != EOF)
			;
	}
	MPI_Barrier(MPI_COMM_WORLD);
	for (int step = 0; step < STEPS; step++) {
		for (int i = 0; i < repeat; i++)
			move_particles(count);
		exchange_halo(rank, size);
		energy = total_energy(count);
		if (step % 6 == 5)
			write_checkpoint(rank, count);
	}
	if (rank == 0)
		printf("energy %g\n", energy);
	MPI_Finalize();
	return 0;
}
