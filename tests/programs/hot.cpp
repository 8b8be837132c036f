// One hot loop, in a function inlined into another's loop. Usage: hot [ROUNDS]
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Field {
	std::vector<double> cells;

	double relax(double omega)
	{
		double change = 0;
		for (size_t i = 1; i + 1 < cells.size(); i++) {  // hot loop
			double step = omega * (cells[i - 1] - 2 * cells[i] + cells[i + 1]);
			cells[i] += step;                        // hot line
			change += step * step;
		}
		return change;
	}
};

__attribute__((noinline)) double solve(Field &field, int rounds)
{
	double change = 0;
	for (int round = 0; round < rounds; round++)             // outer loop
		change += field.relax(0.4);                      // inlined here
	return change;
}

int main(int argc, char **argv)
{
	Field field{std::vector<double>(4096)};
	field.cells[2048] = 1;
	printf("%g\n", solve(field, argc > 1 ? atoi(argv[1]) : 30000));
}
