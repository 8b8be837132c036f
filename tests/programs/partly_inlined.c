/* Calls scale() 1,000 times by a pointer and 9,000 times where its code is a part of the caller, and always_inlined()
 * as often at two places; prints how many calls of scale there were. */
#include <stdio.h>

static volatile long calls;

static double scale(double x)
{
	calls++;
	return x * 1.5 + calls;
}

static inline __attribute__((always_inline)) double always_inlined(double x)
{
	return x * 0.5 + calls;
}

static double (*volatile by_pointer)(double) = scale;

int main(void)
{
	double x = 1;

	for (int i = 0; i < 1000; i++)
		x = always_inlined(by_pointer(x));
	for (int i = 0; i < 9000; i++)
		x = always_inlined(scale(x));
	printf("%ld %d\n", calls, x > 0);
	return 0;
}
