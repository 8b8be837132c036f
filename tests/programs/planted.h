/* What the programs with one planted bottleneck share.

   Each takes "weak" or "strong" and prints, on each rank, a JSON line with what it really took: the
   seconds by the clock and of CPU time from its start to its end, and those of the planted part of
   it, which where others use the CPUs are more than it asks for. Work is counted in units of the
   problem: with weak scaling there are as many as ranks, with strong scaling always two. All is
   macros, so that no helper of theirs is a context of its own.

   Ranks wait politely (test, sleep, test again), so that more ranks than CPUs do not disturb those
   that compute. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static int rank, size;
static double units, planted_time, planted_cpu_time;

#define CLOCK(clock) \
	({ struct timespec t_; clock_gettime(clock, &t_); t_.tv_sec + t_.tv_nsec * 1e-9; })

/* So many seconds of the thread's own CPU time. */
#define COMPUTE(seconds) \
	do { \
		double end_ = CLOCK(CLOCK_THREAD_CPUTIME_ID) + (seconds); \
		while (CLOCK(CLOCK_THREAD_CPUTIME_ID) < end_) \
			for (volatile int i_ = 0; i_ < 20000; i_++) \
				; \
	} while (0)

/* So many seconds by the clock, a little at a time: a wait's call path is taken once, as it begins, and
   may be unknown while a recorder is still reading what the program has loaded. */
#define SLEEP(seconds) \
	do { \
		double end_ = CLOCK(CLOCK_MONOTONIC) + (seconds); \
		while (CLOCK(CLOCK_MONOTONIC) < end_) \
			usleep(5000); \
	} while (0)

/* The call of the planted procedure. */
#define PLANTED(call) \
	do { \
		planted_time -= CLOCK(CLOCK_MONOTONIC); \
		planted_cpu_time -= CLOCK(CLOCK_THREAD_CPUTIME_ID); \
		call; \
		planted_time += CLOCK(CLOCK_MONOTONIC); \
		planted_cpu_time += CLOCK(CLOCK_THREAD_CPUTIME_ID); \
	} while (0)

#define AWAIT(request) \
	do { \
		int done_ = 0; \
		while (MPI_Test(&(request), &done_, MPI_STATUS_IGNORE), !done_) \
			usleep(500); \
	} while (0)

#define MEET() \
	do { \
		MPI_Request all_; \
		MPI_Ibarrier(MPI_COMM_WORLD, &all_); \
		AWAIT(all_); \
	} while (0)

#define BEGIN(argc, argv) \
	double began_ = CLOCK(CLOCK_MONOTONIC); \
	MPI_Init(&argc, &argv); \
	MPI_Comm_rank(MPI_COMM_WORLD, &rank); \
	MPI_Comm_size(MPI_COMM_WORLD, &size); \
	units = argc > 1 && !strcmp(argv[1], "weak") ? size : 2; \
	MEET()

#define END() \
	do { \
		struct rusage use_; \
		MEET(); \
		MPI_Finalize(); \
		getrusage(RUSAGE_SELF, &use_); \
		printf("{\"rank\": %d, \"time\": %.4f, \"cpu_time\": %.4f, \"planted_time\": %.4f, " \
		       "\"planted_cpu_time\": %.4f}\n", \
		       rank, CLOCK(CLOCK_MONOTONIC) - began_, \
		       use_.ru_utime.tv_sec + use_.ru_stime.tv_sec + \
		               (use_.ru_utime.tv_usec + use_.ru_stime.tv_usec) * 1e-6, \
		       planted_time, planted_cpu_time); \
	} while (0)
