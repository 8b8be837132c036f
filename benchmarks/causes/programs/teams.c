/* Teams of OpenMP that wait in other ways than those of causes.c, and a healthy one. */
#include "cases.h"

NOINLINE static void computes_a_row(int n) { COMPUTE(unit * 0.0012 * n); }

/* Rows are ever longer, and each thread has as many, one after another. */
static void triangle(void)
{
#pragma omp parallel num_threads(2)
	for (int step = 0; step < 4; step++) {
#pragma omp for schedule(static) nowait
		for (int i = 0; i < 24; i++)
			computes_a_row(i);
		double began = ELAPSED();
#pragma omp barrier
		plant(ELAPSED() - began);
	}
}

NOINLINE static void asks_for_parameters(void) { usleep(unit * 20000); }
NOINLINE static void solves(void) { COMPUTE(unit * 0.005); }

/* One asks, with no work, for what all need. */
static void single_asks(void)
{
#pragma omp parallel num_threads(3)
	for (int step = 0; step < 40; step++) {
		solves();
		double began = ELAPSED();
		int alone = 0;
#pragma omp single
		{
			asks_for_parameters();
			alone = 1;
		}
		if (!alone)
			plant(ELAPSED() - began);
	}
}

NOINLINE static void writes_in_order(void) { COMPUTE(unit * 0.008); }
NOINLINE static void prepares(void) { COMPUTE(unit * 0.001); }

static void ordered_part(void)
{
#pragma omp parallel for ordered schedule(static, 1) num_threads(2)
	for (int i = 0; i < 120; i++) {
		prepares();
		double began = ELAPSED();
#pragma omp ordered
		{
			plant(ELAPSED() - began);
			writes_in_order();
		}
	}
}

static omp_lock_t table;

NOINLINE static void updates_the_histogram(void)
{
	PLANTED(ELAPSED, omp_set_lock(&table));
	COMPUTE(unit * 0.01);
	omp_unset_lock(&table);
}

static void lock_of_openmp(void)
{
	omp_init_lock(&table);
#pragma omp parallel num_threads(3)
	{
		for (int i = 0; i < 40; i++)
			updates_the_histogram();
		/* A thread that gets the lock more often than the others waits for them here. */
		double began = ELAPSED();
#pragma omp barrier
		plant(ELAPSED() - began);
	}
}

NOINLINE static void makes_a_task(void) { COMPUTE(unit * 0.015); }
NOINLINE static void does_a_task(void) { COMPUTE(unit * 0.003); }

/* One makes tasks more slowly than another does them. */
static void slow_tasks(void)
{
#pragma omp parallel num_threads(2)
#pragma omp single
	for (int i = 0; i < 80; i++) {
		makes_a_task();
#pragma omp task
		does_a_task();
	}
}

static int state_file;

NOINLINE static void writes_the_checkpoint(void)
{
	for (int i = 0; i < 40; i++) {
		pwrite(state_file, "state", 5, 0);
		fsync(state_file);
	}
}

/* The first thread writes while the others wait. */
static void checkpoint_alone(void)
{
	char name[] = "/var/tmp/causes-XXXXXX";
	state_file = mkstemp(name);
#pragma omp parallel num_threads(2)
	for (int step = 0; step < 60; step++) {
		COMPUTE(unit * 0.003);
#pragma omp master
		writes_the_checkpoint();
		double began = ELAPSED();
#pragma omp barrier
		if (omp_get_thread_num())
			plant(ELAPSED() - began);
	}
	unlink(name);
}

static void healthy_tasks(void)
{
#pragma omp parallel num_threads(2)
#pragma omp single
	for (int i = 0; i < 200; i++)
#pragma omp task
		COMPUTE(unit * 0.006);
}

PROGRAM(
	CASE(triangle), CASE(single_asks), CASE(ordered_part), CASE(lock_of_openmp), CASE(slow_tasks),
	CASE(checkpoint_alone), CASE(healthy_tasks))
