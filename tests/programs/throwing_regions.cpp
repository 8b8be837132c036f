// Parallel regions in which exceptions are thrown and caught, and tasks deep within tasks: prints
// sums that are the same in every run.
#include <cstdio>
#include <stdexcept>

static long caught(int count)
{
	long sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(guided) num_threads(2)
	for (int i = 0; i < count; i++) {
		try {
			if (i % 100 == 7)
				throw std::runtime_error("planted");
			sum += i;
		} catch (const std::exception &) {
			sum -= 1;
		}
	}
	return sum;
}

static void deep(int depth, long *reached)
{
	if (!depth)
		return;
#pragma omp task
	{
#pragma omp atomic
		++*reached;
		deep(depth - 1, reached);
	}
#pragma omp taskwait
}

int main()
{
	long sum = 0, reached = 0;
	for (int i = 0; i < 20; i++)
		sum += caught(10000);
#pragma omp parallel num_threads(2)
#pragma omp single
	deep(200, &reached);
	std::printf("%ld %ld\n", sum, reached);
	return 0;
}
