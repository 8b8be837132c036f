/* Programs of known traffic and known waits. `messages NAME`: one of the functions at the end.
   Those that plant waits print, on rank 0, how many seconds ranks waited: by when the library that is
   loaded before MPI says that each call began (tests/support/mpi_truth.py), else by their own clocks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <time.h>

enum { ROUNDS = 20, DELAY_NS = 20 * 1000 * 1000, MOST = 1 << 18 };

static int rank, size;
static char out[MOST], in[MOST];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* When the latest MPI call began: \p before, if nothing recorded it. A process that loses its CPU
   between its reading of the clock and the call is as late in both. */
static double call_began(double before)
{
	static long long (*recorded)(void);
	static int looked;
	if (!looked++)
		recorded = (long long (*)(void))dlsym(RTLD_DEFAULT, "latest_call_began");
	return recorded ? recorded() / 1e9 : before;
}

static void delay(void)
{
	struct timespec time = {0, DELAY_NS};
	nanosleep(&time, NULL);
}

static void ring(void)
{
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	for (int round = 0; round < ROUNDS; round++) {
		if (rank == 0) {
			MPI_Ssend(out, 100 + round, MPI_INT, right, round, MPI_COMM_WORLD);
			MPI_Recv(in, MOST / 4, MPI_INT, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else {
			MPI_Recv(in, MOST / 4, MPI_INT, left, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Send(out, 100 + round, MPI_INT, right, round, MPI_COMM_WORLD);
		}
	}
}

static void all_to_all(void)
{
	MPI_Request requests[128];
	int count = 0;
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Alltoall(out, 8, MPI_DOUBLE, in, 8, MPI_DOUBLE, MPI_COMM_WORLD);
		count = 0;
		for (int peer = 0; peer < size; peer++) {
			MPI_Irecv(in + 4096 * peer, 4096, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &requests[count++]);
			MPI_Isend(out, 1 + rank * size + peer, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
				  &requests[count++]);
		}
		MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
	}
}

static void halo(void)
{
	int dims[2] = {0, 0}, periods[2] = {1, 0}, low, high, first, coordinate[2];
	MPI_Comm grid, row;
	MPI_Datatype column;
	MPI_Dims_create(size, 2, dims);
	MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
	MPI_Comm_rank(grid, &first);
	MPI_Cart_coords(grid, first, 2, coordinate);
	MPI_Type_vector(16, 2, 32, MPI_DOUBLE, &column);
	MPI_Type_commit(&column);
	for (int round = 0; round < ROUNDS; round++)
		for (int axis = 0; axis < 2; axis++) {
			MPI_Cart_shift(grid, axis, 1, &low, &high);
			MPI_Sendrecv(out, 1, axis ? column : MPI_DOUBLE, high, axis, in, 1,
				     axis ? column : MPI_DOUBLE, low, axis, grid, MPI_STATUS_IGNORE);
			MPI_Sendrecv_replace(out, 10, MPI_FLOAT, low, 7, high, 7, grid, MPI_STATUS_IGNORE);
		}
	MPI_Neighbor_alltoall(out, 3, MPI_INT, in, 3, MPI_INT, grid);
	int remain[2] = {0, 1};
	MPI_Cart_sub(grid, remain, &row);
	MPI_Comm_size(row, &first);
	for (int peer = 0; peer < first; peer++)
		MPI_Sendrecv(out, 5, MPI_LONG, peer, 3, in, 5, MPI_LONG, MPI_ANY_SOURCE, 3, row,
			     MPI_STATUS_IGNORE);
	MPI_Comm_free(&row);
	MPI_Type_free(&column);
}

static void subcommunicators(void)
{
	MPI_Comm half, copy, reversed, few, again;
	MPI_Group world, chosen;
	int own, count, ranks[2] = {size - 1, 0};
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	MPI_Comm_dup(half, &copy);
	MPI_Comm_split(MPI_COMM_WORLD, rank == 1 ? MPI_UNDEFINED : 4, -rank, &reversed);
	MPI_Comm_group(MPI_COMM_WORLD, &world);
	MPI_Group_incl(world, 2, ranks, &chosen);
	MPI_Comm_create(MPI_COMM_WORLD, chosen, &few);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Comm_rank(copy, &own);
		MPI_Comm_size(copy, &count);
		MPI_Sendrecv(out, 11, MPI_CHAR, (own + 1) % count, 0, in, 11, MPI_CHAR,
			     (own + count - 1) % count, 0, copy, MPI_STATUS_IGNORE);
		MPI_Allreduce(out, in, 4, MPI_INT, MPI_SUM, half);
		if (reversed != MPI_COMM_NULL) {
			MPI_Comm_rank(reversed, &own);
			MPI_Comm_size(reversed, &count);
			MPI_Bcast(out, 13, MPI_CHAR, count - 1, reversed);
			if (own == 0 && count > 1)
				MPI_Send(out, 17, MPI_CHAR, count - 1, 2, reversed);
			if (own == count - 1 && count > 1)
				MPI_Recv(in, 17, MPI_CHAR, 0, 2, reversed, MPI_STATUS_IGNORE);
		}
		if (few != MPI_COMM_NULL) {
			MPI_Comm_rank(few, &own);
			MPI_Sendrecv(out, 19 + own, MPI_CHAR, 1 - own, 0, in, 100, MPI_CHAR, 1 - own, 0, few,
				     MPI_STATUS_IGNORE);
		}
		/* The handle of a freed communicator is used again. */
		MPI_Comm_split(half, round % 2 ? rank : 0, 0, &again);
		MPI_Comm_rank(again, &own);
		MPI_Comm_size(again, &count);
		MPI_Sendrecv(out, 23, MPI_CHAR, count - 1 - own, 0, in, 23, MPI_CHAR, count - 1 - own, 0,
			     again, MPI_STATUS_IGNORE);
		MPI_Comm_free(&again);
	}
}

/* Even and odd ranks, the odd ones in reverse order, and what is made of both groups together. */
static void two_groups(void)
{
	int odd = rank % 2, own, others, everybody;
	MPI_Comm half, between, copy, merged, merged_back, quarters, again;
	MPI_Status status;
	MPI_Comm_split(MPI_COMM_WORLD, odd, odd ? -rank : rank, &half);
	/* The leader of the odd ranks is its last one, rank 1. */
	MPI_Comm_size(half, &own);
	MPI_Intercomm_create(half, odd ? own - 1 : 0, MPI_COMM_WORLD, odd ? 0 : 1, 11, &between);
	MPI_Comm_rank(between, &own);
	MPI_Comm_remote_size(between, &others);
	for (int round = 0; round < ROUNDS; round++)
		for (int peer = 0; peer < others; peer++)
			MPI_Sendrecv(out, 10 + round + odd, MPI_CHAR, peer, 4, in, 100, MPI_CHAR, peer, 4,
				     between, MPI_STATUS_IGNORE);
	if (odd)
		MPI_Send(out, 5, MPI_INT, 0, 8, between);
	else if (own == 0)
		for (int peer = 0; peer < others; peer++)
			MPI_Recv(in, 5, MPI_INT, MPI_ANY_SOURCE, 8, between, &status);
	MPI_Barrier(between);
	MPI_Allreduce(out, in, 2, MPI_INT, MPI_SUM, between);
	MPI_Bcast(out, 3, MPI_INT, odd ? 0 : own == 0 ? MPI_ROOT : MPI_PROC_NULL, between);
	MPI_Comm_dup(between, &copy);
	if (own < others)
		MPI_Sendrecv(out, 6, MPI_CHAR, own, 1, in, 6, MPI_CHAR, own, MPI_ANY_TAG, copy, &status);
	MPI_Intercomm_merge(between, !odd, &merged); /* the odd ones first */
	MPI_Intercomm_merge(copy, 1, &merged_back);
	for (int which = 0; which < 2; which++) {
		again = which ? merged_back : merged;
		MPI_Comm_rank(again, &own);
		MPI_Comm_size(again, &everybody);
		MPI_Sendrecv(out, 7, MPI_CHAR, (own + 1) % everybody, 0, in, 7, MPI_CHAR,
			     (own + everybody - 1) % everybody, 0, again, MPI_STATUS_IGNORE);
	}
	/* Of either group the ranks of one colour; where a group has none there is nothing. */
	MPI_Comm_split(between, rank / 2 % 2, rank, &quarters);
	if (quarters != MPI_COMM_NULL) {
		MPI_Comm_rank(quarters, &own);
		MPI_Comm_remote_size(quarters, &others);
		if (!odd && own == 0)
			MPI_Send(out, 9, MPI_CHAR, others - 1, 2, quarters);
		if (odd) {
			MPI_Comm_size(quarters, &everybody);
			if (own == everybody - 1)
				MPI_Recv(in, 9, MPI_CHAR, 0, 2, quarters, MPI_STATUS_IGNORE);
		}
		MPI_Comm_free(&quarters);
	}
	MPI_Comm_free(&between);
	/* The same groups again, one within the other's place. */
	MPI_Comm_size(half, &own);
	MPI_Intercomm_create(half, odd ? own - 1 : 0, merged, odd ? (size / 2) : size / 2 - 1, 11, &again);
	MPI_Comm_rank(again, &own);
	if (own == 0)
		MPI_Sendrecv(out, 3, MPI_CHAR, 0, 0, in, 3, MPI_CHAR, 0, 0, again, MPI_STATUS_IGNORE);
	MPI_Comm_free(&again);
}

static void wildcards(void)
{
	MPI_Status status;
	MPI_Request request, requests[80];
	int index, flag;
	for (int round = 0; round < ROUNDS; round++) {
		if (rank) {
			MPI_Send(out, rank * 10, MPI_BYTE, 0, rank, MPI_COMM_WORLD);
			MPI_Send(out, rank, MPI_BYTE, 0, 50, MPI_COMM_WORLD);
			MPI_Send(out, 2 * rank, MPI_BYTE, 0, 60, MPI_COMM_WORLD);
			MPI_Isend(out, 3 * rank, MPI_BYTE, 0, 70, MPI_COMM_WORLD, &request);
			do
				MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
			while (!flag);
			continue;
		}
		for (int peer = 1; peer < size; peer++)
			MPI_Recv(in, 1000, MPI_BYTE, MPI_ANY_SOURCE, peer, MPI_COMM_WORLD, &status);
		for (int peer = 1; peer < size; peer++)
			MPI_Recv(in, 1000, MPI_BYTE, MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (int peer = 1; peer < size; peer++)
			MPI_Irecv(in, 1000, MPI_BYTE, MPI_ANY_SOURCE, 60, MPI_COMM_WORLD, &requests[peer - 1]);
		for (int peer = 1; peer < size; peer++)
			MPI_Waitany(size - 1, requests, &index, &status);
		for (int peer = 1; peer < size; peer++) {
			MPI_Irecv(in, 1000, MPI_BYTE, MPI_ANY_SOURCE, 70, MPI_COMM_WORLD, &request);
			MPI_Wait(&request, &status);
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	/* More requests at once than are recorded one by one. */
	for (int at = 0; at < 80; at++) {
		if (rank == 1)
			MPI_Isend(out, at, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[at]);
		if (rank == 0)
			MPI_Irecv(in, 100, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[at]);
	}
	if (rank < 2)
		MPI_Waitall(80, requests, MPI_STATUSES_IGNORE);
}

/* Messages that are probed before they are received, by each call that probes. */
static void probed(void)
{
	MPI_Status status;
	MPI_Message message, second;
	MPI_Request request;
	int flag;
	for (int round = 0; round < ROUNDS; round++) {
		if (rank) {
			for (int tag = 0; tag < 5; tag++)
				MPI_Send(out, rank * 10 + tag, MPI_BYTE, 0, tag, MPI_COMM_WORLD);
			MPI_Send(out, rank * 10 + 5, MPI_BYTE, 0, 4, MPI_COMM_WORLD);
			continue;
		}
		for (int peer = 1; peer < size; peer++) {
			MPI_Probe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &status);
			MPI_Recv(in, 1000, MPI_BYTE, status.MPI_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			MPI_Mprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &message, &status);
			MPI_Mrecv(in, 1000, MPI_BYTE, &message, MPI_STATUS_IGNORE);
			do {
				MPI_Improbe(peer, 2, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
				sched_yield();
			} while (!flag);
			MPI_Imrecv(in, 1000, MPI_BYTE, &message, &request);
			MPI_Wait(&request, &status);
			do {
				MPI_Iprobe(peer, 3, MPI_COMM_WORLD, &flag, &status);
				sched_yield();
			} while (!flag);
			MPI_Recv(in, 1000, MPI_BYTE, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			/* The later message is received first. */
			MPI_Mprobe(peer, 4, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
			MPI_Mprobe(peer, 4, MPI_COMM_WORLD, &second, MPI_STATUS_IGNORE);
			MPI_Mrecv(in, 1000, MPI_BYTE, &second, &status);
			MPI_Mrecv(in, 1000, MPI_BYTE, &message, &status);
		}
	}
}

static void persistent(void)
{
	MPI_Request requests[2];
	int right = (rank + 1) % size, left = (rank + size - 1) % size;
	MPI_Send_init(out, 33, MPI_SHORT, right, 5, MPI_COMM_WORLD, &requests[0]);
	MPI_Recv_init(in, 33, MPI_SHORT, left, 5, MPI_COMM_WORLD, &requests[1]);
	for (int round = 0; round < ROUNDS; round++) {
		if (round % 2)
			MPI_Startall(2, requests);
		else {
			MPI_Start(&requests[1]);
			MPI_Start(&requests[0]);
		}
		if (round % 3)
			MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		else {
			MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
			MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
		}
	}
	MPI_Request_free(&requests[0]);
	MPI_Request_free(&requests[1]);
}

static void one_sided(void)
{
	MPI_Win window;
	MPI_Win_create(in, MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
	MPI_Win_fence(0, window);
	MPI_Put(out, 100 + rank, MPI_BYTE, (rank + 1) % size, 0, 100 + rank, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	MPI_Get(out, 7, MPI_INT, (rank + 1) % size, 64, 7, MPI_INT, window);
	MPI_Win_fence(0, window);
	MPI_Win_free(&window);
}

/* Collectives with a count for each rank, in the world and in halves of it. */
static void vectors(void)
{
	int scounts[128], rcounts[128], displs[128] = {0}, own, count;
	MPI_Comm half;
	for (int peer = 0; peer < size; peer++) {
		scounts[peer] = 1 + rank * size + peer;
		rcounts[peer] = 1 + peer * size + rank;
	}
	for (int round = 0; round < ROUNDS; round++)
		MPI_Alltoallv(out, scounts, displs, MPI_INT, in, rcounts, displs, MPI_INT, MPI_COMM_WORLD);
	for (int peer = 0; peer < size; peer++)
		rcounts[peer] = peer + 1;
	MPI_Allgatherv(out, rank + 1, MPI_DOUBLE, in, rcounts, displs, MPI_DOUBLE, MPI_COMM_WORLD);
	MPI_Gatherv(out, rank + 1, MPI_SHORT, in, rcounts, displs, MPI_SHORT, size - 1, MPI_COMM_WORLD);
	MPI_Scatterv(out, rcounts, displs, MPI_CHAR, in, rank + 1, MPI_CHAR, 0, MPI_COMM_WORLD);
	MPI_Reduce_scatter(out, in, rcounts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	MPI_Comm_rank(half, &own);
	MPI_Comm_size(half, &count);
	for (int peer = 0; peer < count; peer++) {
		scounts[peer] = peer; /* nothing for the first */
		rcounts[peer] = own;
	}
	MPI_Alltoallv(out, scounts, displs, MPI_CHAR, in, rcounts, displs, MPI_CHAR, half);
	MPI_Comm_free(&half);
}

/* Messages that are asked for again and again; rank 0 prints how often that found nothing. Then
   vectors(). */
static void polling(void)
{
	int right = (rank + 1) % size, left = (rank + size - 1) % size, flag, index, ended, places[2];
	long calls[2] = {0}, all[2];
	MPI_Request requests[2];
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Irecv(in, 64, MPI_BYTE, left, round, MPI_COMM_WORLD, &requests[0]);
		if (rank == round % size)
			delay();
		MPI_Isend(out, 8 + round, MPI_BYTE, right, round, MPI_COMM_WORLD, &requests[1]);
		for (int left_over = 2; left_over > 0;) {
			if (round % 4 == 0) {
				MPI_Test(&requests[left_over - 1], &flag, MPI_STATUS_IGNORE);
				left_over -= flag != 0;
			} else if (round % 4 == 1) {
				MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
				left_over -= flag ? 2 : 0;
			} else if (round % 4 == 2) {
				MPI_Testany(2, requests, &index, &flag, MPI_STATUS_IGNORE);
				left_over -= flag != 0;
			} else {
				MPI_Testsome(2, requests, &ended, places, MPI_STATUSES_IGNORE);
				flag = ended;
				left_over -= ended;
			}
			calls[flag != 0]++;
			if (!flag)
				sched_yield();
		}
		MPI_Send(out, round, MPI_BYTE, right, 99, MPI_COMM_WORLD);
		do {
			MPI_Iprobe(left, 99, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
			calls[flag != 0]++;
			if (!flag)
				sched_yield();
		} while (!flag);
		MPI_Recv(in, 64, MPI_BYTE, left, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Reduce(calls, all, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("{\"unsuccessful\": %ld, \"successful\": %ld}\n", all[0], all[1]);
		fflush(stdout);
	}
	vectors();
}

/* Seconds that ranks waited, by when each began: each round's and their sum are printed on rank 0. */
static void say(const double *began, int waiter, int delayer)
{
	double all[2 * ROUNDS], seconds = 0;
	memcpy(all, began, sizeof(double) * ROUNDS);
	if (rank == delayer && waiter != delayer)
		MPI_Send(began, ROUNDS, MPI_DOUBLE, waiter, 99, MPI_COMM_WORLD);
	if (rank == waiter) {
		MPI_Recv(all + ROUNDS, ROUNDS, MPI_DOUBLE, delayer, 99, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		printf("{\"waiter\": %d, \"waits\": [", waiter);
		for (int round = 0; round < ROUNDS; round++) {
			double wait = all[ROUNDS + round] - all[round];
			seconds += wait > 0 ? wait : 0;
			printf("%s%.9f", round ? ", " : "", wait > 0 ? wait : 0);
		}
		printf("], \"seconds\": %.9f}\n", seconds);
		fflush(stdout);
	}
}

static void late_sender(void)
{
	double began[ROUNDS] = {0};
	MPI_Request request;
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1) {
			delay();
			began[round] = now();
			MPI_Send(out, 10, MPI_INT, 0, 0, MPI_COMM_WORLD);
		} else if (rank == 0 && round % 2) {
			began[round] = now();
			MPI_Recv(in, 10, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		} else if (rank == 0) {
			MPI_Irecv(in, 10, MPI_INT, 1, 0, MPI_COMM_WORLD, &request);
			began[round] = now();
			MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
		}
		began[round] = call_began(began[round]);
	}
	say(began, 0, 1);
}

static void late_probed(void)
{
	double began[ROUNDS] = {0};
	MPI_Message message;
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			delay();
		began[round] = now();
		if (rank == 1)
			MPI_Send(out, 10, MPI_INT, 0, 0, MPI_COMM_WORLD);
		else if (rank == 0 && round % 2)
			MPI_Probe(1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else if (rank == 0)
			MPI_Mprobe(1, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
		began[round] = call_began(began[round]);
		if (rank == 0 && round % 2)
			MPI_Recv(in, 10, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		else if (rank == 0)
			MPI_Mrecv(in, 10, MPI_INT, &message, MPI_STATUS_IGNORE);
	}
	say(began, 0, 1);
}

/* A message that is found at once, but received late: the sender waits for the latter. */
static void late_matched(void)
{
	double began[ROUNDS] = {0};
	MPI_Message message;
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1) {
			MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
			delay();
		}
		began[round] = now();
		if (rank == 0)
			MPI_Send(out, MOST, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
		else if (rank == 1)
			MPI_Mrecv(in, MOST, MPI_CHAR, &message, MPI_STATUS_IGNORE);
		began[round] = call_began(began[round]);
	}
	say(began, 0, 1);
}

static void late_receiver(void)
{
	double began[ROUNDS] = {0};
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			began[round] = now();
			MPI_Send(out, MOST, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
		} else if (rank == 1) {
			delay();
			began[round] = now();
			MPI_Recv(in, MOST, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		began[round] = call_began(began[round]);
	}
	say(began, 0, 1);
}

static void collective(int kind)
{
	double began[ROUNDS] = {0};
	MPI_Comm own, between;
	if (kind == 3) { /* rank 0 is one group, rank 1 the other */
		MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
		MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - rank, 5, &between);
	}
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			delay();
		began[round] = now();
		if (kind == 3)
			MPI_Bcast(out, 100, MPI_INT, rank ? MPI_ROOT : 0, between);
		else if (kind == 0)
			MPI_Bcast(out, 100, MPI_INT, 1, MPI_COMM_WORLD);
		else if (kind == 1)
			MPI_Allreduce(out, in, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		else
			MPI_Reduce(out, in, 100, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
		began[round] = call_began(began[round]);
	}
	for (int waiter = 0; waiter < (kind == 2 ? 1 : size); waiter++)
		if (waiter != 1)
			say(began, waiter, 1);
}

static void late_broadcast(void) { collective(0); }
static void wait_at_nxn(void) { collective(1); }
static void early_reduce(void) { collective(2); }
static void late_group(void) { collective(3); }

static void hold(const char *file)
{
	const char *path = getenv(file);
	while (path && access(path, F_OK))
		usleep(10000);
}

/* For who attaches while rank 0 waits: rank 1 sends, or enters the collective operation, when file HELD
   is there. Later waits are planted; that one's begin is not told. Ends when file HELD_END is there. */
static void awaited(int collective)
{
	double began[ROUNDS] = {0};
	for (int round = 0; round < ROUNDS; round++) {
		if (rank == 1)
			round ? delay() : hold("HELD");
		else if (!rank && !round)
			puts("ready"), fflush(stdout);
		if (round)
			began[round] = now();
		if (collective)
			MPI_Allreduce(out, in, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		else if (rank == 1)
			MPI_Send(out, 10, MPI_INT, 0, 0, MPI_COMM_WORLD);
		else if (!rank)
			MPI_Recv(in, 10, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	say(began, 0, 1);
	hold("HELD_END");
}

static void awaited_sender(void) { awaited(0); }
static void awaited_collective(void) { awaited(1); }

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} programs[] = {
		{"ring", ring}, {"all_to_all", all_to_all}, {"halo", halo},
		{"subcommunicators", subcommunicators}, {"two_groups", two_groups}, {"wildcards", wildcards},
		{"probed", probed}, {"persistent", persistent}, {"vectors", vectors}, {"polling", polling}, {"one_sided", one_sided}, {"late_sender", late_sender},
		{"late_probed", late_probed}, {"late_matched", late_matched},
		{"late_receiver", late_receiver}, {"late_broadcast", late_broadcast},
		{"wait_at_nxn", wait_at_nxn}, {"early_reduce", early_reduce},
		{"late_group", late_group}, {"awaited_sender", awaited_sender},
		{"awaited_collective", awaited_collective},
	};
	MPI_Init(&count, &arguments);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	/* For who attaches to what runs: all ranks are there, and go on when the file is. */
	const char *gate = getenv("GATE");
	if (gate) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank)
			puts("ready"), fflush(stdout);
		while (access(gate, F_OK))
			usleep(10000);
	}
	for (int argument = 1; argument < count; argument++) {
		/* What one receives from any rank is not another's. */
		if (argument > 1)
			MPI_Barrier(MPI_COMM_WORLD);
		for (int at = 0; at < (int)(sizeof(programs) / sizeof(*programs)); at++)
			if (!strcmp(arguments[argument], programs[at].name))
				programs[at].run();
	}
	/* What is said of a process that ends within milliseconds may not be read in time: its rank. */
	if (getenv("LINGER"))
		usleep(700000);
	MPI_Finalize();
	return 0;
}
