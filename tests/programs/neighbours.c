/* An exchange with every other rank: what it costs grows with their number.

   A unit takes 0.8 s of CPU time to solve; each message 0.1 s to pack. */
#include "planted.h"

__attribute__((noinline)) static void solve(void)
{
	COMPUTE(0.8 * units / size);
}

__attribute__((noinline)) static void exchange(void)
{
	static char out[1000], in[1000];
	for (int distance = 1; distance < size; distance++) {
		MPI_Request request[2];
		COMPUTE(0.1);
		MPI_Irecv(in, sizeof in, MPI_CHAR, (rank + size - distance) % size, distance,
		          MPI_COMM_WORLD, &request[0]);
		MPI_Isend(out, sizeof out, MPI_CHAR, (rank + distance) % size, distance,
		          MPI_COMM_WORLD, &request[1]);
		AWAIT(request[0]);
		AWAIT(request[1]);
	}
}

int main(int argc, char **argv)
{
	BEGIN(argc, argv);
	solve();
	PLANTED(exchange());
	END();
	return 0;
}
