/* A solver whose loops are inlined: nested ROUNDS scales a vector so often for each product. */
#include <cstdio>
#include <cstdlib>
#include <vector>

static inline double product(const std::vector<double> &a, const std::vector<double> &b)
{
	double sum = 0;
	for (size_t i = 0; i < a.size(); i++)
		sum += a[i] * b[i];
	return sum;
}

static inline void scale(std::vector<double> &a, double factor)
{
	for (size_t i = 0; i < a.size(); i++)
		a[i] = a[i] * factor + 1e-9;
}

__attribute__((noinline)) static double solve(std::vector<double> &a, std::vector<double> &b, int rounds)
{
	double sum = 0;
	for (int step = 0; step < 3000; step++) {
		sum += product(a, b);
		for (int round = 0; round < rounds; round++)
			scale(a, 0.999);
	}
	return sum;
}

int main(int, char **argv)
{
	std::vector<double> a(100000, 1), b(100000, 2);
	printf("%g\n", solve(a, b, atoi(argv[1])));
}
