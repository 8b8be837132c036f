/* Replicated initialisation: every rank sets up the whole problem, not its part.

   A unit takes 0.8 s of CPU time to solve and 0.1 s to set up. */
#include "planted.h"

__attribute__((noinline)) static void initialise(void)
{
	COMPUTE(0.1 * units);
}

__attribute__((noinline)) static void solve(void)
{
	COMPUTE(0.8 * units / size);
}

int main(int argc, char **argv)
{
	BEGIN(argc, argv);
	PLANTED(initialise());
	solve();
	END();
	return 0;
}
