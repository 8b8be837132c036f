/* The library that churn loads and lets go of: a function that takes some time. */
__attribute__((noinline)) static int spin(int count)
{
	volatile int sum = 0;
	for (int i = 0; i < count; i++)
		sum += i;
	return sum;
}

void work(int count)
{
	volatile int result = spin(count);
	(void)result;
}
