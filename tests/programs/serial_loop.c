/* A serial loop over ranks: each writes its part of the output while all others wait at a barrier.

   A unit takes 1 s to solve and 0.4 s to write, so writing takes 0.4 s a unit by the clock, on
   every rank. Both sleep: they stand for a disk, and for CPUs this machine may not have. */
#include "planted.h"

__attribute__((noinline)) static void solve(void)
{
	SLEEP(units / size);
	__asm__ volatile("");
}

__attribute__((noinline)) static void write_output(void)
{
	for (int turn = 0; turn < size; turn++) {
		if (turn == rank)
			SLEEP(0.4 * units / size);
		MEET();
	}
}

int main(int argc, char **argv)
{
	BEGIN(argc, argv);
	solve();
	PLANTED(write_output());
	END();
	return 0;
}
