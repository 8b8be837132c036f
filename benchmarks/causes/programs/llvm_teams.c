/* Teams of LLVM's OpenMP: as those of causes.c and teams.c of GCC's, and a healthy one. */
#include "cases.h"

#define BARRIER() \
	do { \
		double began_ = ELAPSED(); \
		_Pragma("omp barrier") \
		plant(ELAPSED() - began_); \
	} while (0)

NOINLINE static void relaxes_unevenly(int n) { COMPUTE(unit * (n ? 0.02 : 0.1)); }

static void llvm_imbalance(void)
{
#pragma omp parallel num_threads(2)
	for (int i = 0; i < 12; i++) {
		relaxes_unevenly(omp_get_thread_num());
		BARRIER();
	}
}

NOINLINE static void updates_the_counts(void)
{
	double began = ELAPSED();
#pragma omp critical
	{
		plant(ELAPSED() - began);
		COMPUTE(unit * 0.01);
	}
}

static void llvm_critical(void)
{
#pragma omp parallel num_threads(2)
	{
		for (int i = 0; i < 60; i++)
			updates_the_counts();
		BARRIER();
	}
}

NOINLINE static void adds_very_few(void)
{
#pragma omp parallel num_threads(2)
	sink += 1;
}

static void llvm_tiny_regions(void)
{
	double end = ELAPSED() + unit;
	PLANTED(ELAPSED, while (ELAPSED() < end) adds_very_few());
}

NOINLINE static void sorts_alone(void) { COMPUTE(unit * 0.09); }
NOINLINE static void sweeps_together(void) { COMPUTE(unit * 0.02); }

static void llvm_serial_part(void)
{
	for (int i = 0; i < 10; i++) {
		PLANTED(ELAPSED, sorts_alone());
#pragma omp parallel num_threads(2)
		sweeps_together();
	}
}

NOINLINE static void appends_in_order(void) { COMPUTE(unit * 0.008); }
NOINLINE static void parses(void) { COMPUTE(unit * 0.001); }

static void llvm_ordered(void)
{
#pragma omp parallel for ordered schedule(static, 1) num_threads(2)
	for (int i = 0; i < 120; i++) {
		parses();
		double began = ELAPSED();
#pragma omp ordered
		{
			plant(ELAPSED() - began);
			appends_in_order();
		}
	}
}

static void healthy_llvm(void)
{
#pragma omp parallel num_threads(2)
	for (int i = 0; i < 4; i++) {
		COMPUTE(unit * 0.2);
#pragma omp barrier
	}
}

PROGRAM(
	CASE(llvm_imbalance), CASE(llvm_critical), CASE(llvm_tiny_regions), CASE(llvm_serial_part),
	CASE(llvm_ordered), CASE(healthy_llvm))
