/* openmp SECONDS: parallel loops as scientific programs have them, with gcc -fopenmp.
 *
 * Each step smooths a field, whose rows cost more the further down they lie (static schedule: the
 * threads meet late at the barrier), sorts pieces of it (dynamic schedule), and adds up under a lock. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <math.h>

enum { ROWS = 256, COLUMNS = 256, PIECE = 512 };

static double field[ROWS][COLUMNS], next_field[ROWS][COLUMNS];
static double pieces[ROWS][PIECE];
static double total;

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

__attribute__((noinline)) static double stencil(int i, int j)
{
	return 0.25 * (field[i - 1][j] + field[i + 1][j] + field[i][j - 1] + field[i][j + 1]);
}

__attribute__((noinline)) static void smooth(void)
{
#pragma omp parallel for schedule(static)
	for (int i = 1; i < ROWS - 1; i++)
		for (int sweep = 0; sweep < 1 + i / 32; sweep++)
			for (int j = 1; j < COLUMNS - 1; j++)
				next_field[i][j] = stencil(i, j) + sin(field[i][j]) * 1e-6;
#pragma omp parallel for
	for (int i = 1; i < ROWS - 1; i++)
		for (int j = 1; j < COLUMNS - 1; j++)
			field[i][j] = next_field[i][j];
}

__attribute__((noinline)) static void sort_pieces(void)
{
#pragma omp parallel for schedule(dynamic, 4)
	for (int i = 0; i < ROWS; i++) {
		for (int j = 0; j < PIECE; j++)
			pieces[i][j] = fmod(field[i][j % COLUMNS] * (j * 7919 % 1013), 1.0);
		qsort(pieces[i], PIECE, sizeof(double), by_value);
	}
}

__attribute__((noinline)) static void add_up(void)
{
#pragma omp parallel for schedule(guided)
	for (int i = 0; i < ROWS; i++) {
		double sum = 0;
		for (int j = 0; j < COLUMNS; j++)
			sum += sqrt(fabs(field[i][j]));
#pragma omp critical
		total += sum;
	}
}

int main(int argc, char **argv)
{
	double end = omp_get_wtime() + (argc > 1 ? atof(argv[1]) : 1);
	for (int i = 0; i < ROWS; i++)
		for (int j = 0; j < COLUMNS; j++)
			field[i][j] = (i * 31 + j * 17) % 101;
	while (omp_get_wtime() < end) {
		smooth();
		sort_pieces();
		add_up();
	}
	printf("%g\n", total);
	return 0;
}
