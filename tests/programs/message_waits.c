/* message_waits KIND [FUNCTION SHARE | last]: ranks that wait for one another; with SHARE, FUNCTION takes that much less
 * CPU time; with `last`, the rank that has most to do begins it when all others are about to wait, so that it comes last
 * whoever has the CPUs. Rank 0 prints the seconds from the begin of the work to its end. */
#include <fcntl.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "work.h"

static int rank, size, token, answer;
static volatile int *came; /* steps in which each rank has come to where it waits; 0: no rank is to be last */

static void share_steps(void)
{
	char name[64];
	pid_t first = getpid();

	MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
	snprintf(name, sizeof name, "/message_waits-%d", first);
	int file = shm_open(name, O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, size * sizeof *came))
		MPI_Abort(MPI_COMM_WORLD, 1);
	came = mmap(0, size * sizeof *came, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		shm_unlink(name);
}

static void comes(void)
{
	if (came)
		came[rank]++;
}

static void until_others_come(int step)
{
	for (int other = 0; came && other < size; other++)
		while (other != rank && came[other] <= step)
			sched_yield();
}

static void receive(int from)
{
	MPI_Recv(&token, 1, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void send(int to)
{
	MPI_Send(&token, 1, MPI_INT, to, 0, MPI_COMM_WORLD);
}

/* ping_pong: two ranks take turns, the second with more to do. */
WORKS(asks, 5)
WORKS(answers, 20)

static void ping_pong(void)
{
	for (int i = 0; i < 20; i++) {
		if (rank == 0) {
			asks();
			send(1);
			receive(1);
		} else if (rank == 1) {
			receive(0);
			answers();
			send(0);
		}
	}
}

/* probed: the same by messages that are probed for first. */
static void receive_probed(int from, int taken)
{
	MPI_Message message;

	if (taken) {
		MPI_Mprobe(from, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
		MPI_Mrecv(&token, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
	} else {
		MPI_Probe(from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		receive(from);
	}
}

static void probed(void)
{
	for (int i = 0; i < 20; i++) {
		if (rank == 0) {
			asks();
			send(1);
			receive_probed(1, i % 2);
		} else if (rank == 1) {
			receive_probed(0, i % 2);
			answers();
			send(0);
		}
	}
}

/* ring: a token goes round; the last rank keeps it longest. */
WORKS(passes, 5)
WORKS(keeps, 25)

static void ring(void)
{
	for (int i = 0; i < 10; i++) {
		if (rank || i)
			receive((rank + size - 1) % size);
		rank == size - 1 ? keeps() : passes();
		send((rank + 1) % size);
	}
	if (rank == 0)
		receive(size - 1);
}

/* meeting, sums: all ranks meet in each step, the last has more to do; by a barrier, by a sum of all. */
WORKS(slow_part, 20)
WORKS(fast_part, 5)

static void steps(int sum)
{
	for (int i = 0; i < 20; i++) {
		if (rank == size - 1) {
			until_others_come(i);
			slow_part();
		} else {
			fast_part();
			comes();
		}
		if (sum)
			MPI_Allreduce(&token, &answer, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		else
			MPI_Barrier(MPI_COMM_WORLD);
	}
}

static void meeting(void) { steps(0); }
static void sums(void) { steps(1); }

/* chain: rank 0 waits for rank 1, which waits for rank 2 and so on: the last one alone is late. */
WORKS(late, 20)
WORKS(early, 2)

static void chain(void)
{
	for (int i = 0; i < 20; i++) {
		if (rank == size - 1) {
			until_others_come(i);
			late();
		} else {
			early();
			comes();
		}
		if (rank < size - 1)
			receive(rank + 1);
		if (rank)
			send(rank - 1);
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* halo: neighbours exchange without blocking; the last rank is slow. */
WORKS(slow_inner, 20)
WORKS(inner, 5)

static void halo(void)
{
	int before = (rank + size - 1) % size, after = (rank + 1) % size, got[2];

	for (int i = 0; i < 20; i++) {
		MPI_Request requests[4];

		MPI_Irecv(&got[0], 1, MPI_INT, before, 1, MPI_COMM_WORLD, &requests[0]);
		MPI_Irecv(&got[1], 1, MPI_INT, after, 2, MPI_COMM_WORLD, &requests[1]);
		if (rank == size - 1) {
			until_others_come(i);
			slow_inner();
		} else {
			inner();
		}
		MPI_Isend(&token, 1, MPI_INT, after, 1, MPI_COMM_WORLD, &requests[2]);
		MPI_Isend(&token, 1, MPI_INT, before, 2, MPI_COMM_WORLD, &requests[3]);
		comes();
		MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
	}
}

/* balance: in each step another rank has more to do, so that all have the same in the end. */
WORKS(turn_part, 20)
WORKS(other_part, 5)

static void balance(void)
{
	for (int i = 0; i < 20; i++) {
		i % size == rank ? turn_part() : other_part();
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

/* even: two ranks of meeting, or of balance, with the mean of their work. */
WORKS(mean_part, 12.5)

static void even(void)
{
	for (int i = 0; i < 20; i++) {
		mean_part();
		MPI_Barrier(MPI_COMM_WORLD);
	}
}

int main(int argc, char **argv)
{
	static const struct kind kinds[] = {{"ping_pong", ping_pong}, {"probed", probed}, {"ring", ring},
					    {"meeting", meeting}, {"sums", sums}, {"chain", chain}, {"halo", halo}, {"balance", balance},
					    {"even", even}, {0}};

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (argc == 3)
		share_steps();
	MPI_Barrier(MPI_COMM_WORLD);
	double begin = now(CLOCK_MONOTONIC);
	run_kind(kinds, argc, argv);
	MPI_Barrier(MPI_COMM_WORLD);
	double seconds = now(CLOCK_MONOTONIC) - begin;
	MPI_Finalize();
	if (rank == 0)
		printf("%.6f\n", seconds);
	return 0;
}
