/* A rank that waits in MPI_Recv for what nobody sends. `receives spins` asks for it over and over,
   as MPI libraries do; `receives asleep` sleeps where the library gives up its CPU. */
#define _GNU_SOURCE
#include <mpi.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sleeps;

int sched_yield(void)
{
	int result = sleeps ? poll(0, 0, -1) : (int)syscall(SYS_sched_yield);

	__asm__ volatile("" ::: "memory"); /* no tail call */
	return result;
}

static __attribute__((noinline, noclone)) void waits_to_receive(void)
{
	int word;

	MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	__asm__ volatile("" ::: "memory");
}

int main(int count, char **arguments)
{
	MPI_Init(&count, &arguments);
	sleeps = count > 1 && !strcmp(arguments[1], "asleep");
	puts("ready");
	fflush(stdout);
	waits_to_receive();
	MPI_Finalize();
	return 0;
}
