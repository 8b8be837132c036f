/* A program in phases: set-up, twenty time steps, output. A step assembles for 20 ms of CPU time and
   solves for 50; solving takes 100 in step 12, and step 16 writes a checkpoint for 30. The ranks meet
   after each step. */
#include "planted.h"

__attribute__((noinline)) static void set_up(void)
{
	COMPUTE(0.2);
}

__attribute__((noinline)) static void assemble(void)
{
	COMPUTE(0.02);
}

__attribute__((noinline)) static void solve(double seconds)
{
	COMPUTE(seconds);
}

__attribute__((noinline)) static void checkpoint(void)
{
	COMPUTE(0.03);
}

__attribute__((noinline)) static void output(void)
{
	COMPUTE(0.1);
}

int main(int argc, char **argv)
{
	BEGIN(argc, argv);
	set_up();
	for (int step = 1; step <= 20; step++) {
		assemble();
		solve(step == 12 ? 0.1 : 0.05);
		if (step == 16)
			checkpoint();
		MEET();
	}
	output();
	END();
	return 0;
}
