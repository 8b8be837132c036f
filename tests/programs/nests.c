// Known loop nests. A comment names the loop of its line, and after "in" the loop around it; "gone"
// marks what optimisation may remove. Usage: nests [N]
#include <stdio.h>
#include <stdlib.h>

#define N 64
static double a[N][N], b[N][N], c[N][N], v[N * N], w[N * N];
static volatile int stop;

__attribute__((noinline)) void multiply(int n)
{
	for (int i = 0; i < n; i++)                        // loop rows
		for (int j = 0; j < n; j++) {              // loop columns in rows
			double sum = 0;
			for (int k = 0; k < n; k++)        // loop dot in columns
				sum += a[i][k] * b[k][j];
			c[i][j] = sum;
		}
}

__attribute__((noinline)) double vectors(int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++)                        // loop scale
		v[i] = v[i] * 2 + w[i];
	for (int i = 0; i < n; i++)                        // loop add
		w[i] += v[i] * 3;
	for (int i = 0; i < n; i++)                        // loop total
		sum += w[i];
	return sum;
}

__attribute__((noinline)) double unrolled(int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++) {                      // loop cells
		for (int j = 0; j < 3; j++)                // loop three in cells, gone
			sum += v[i + j] * w[j];
		if (sum > 1e300)                           // loop cells
			break;
	}
	return sum;
}

__attribute__((noinline)) int search(const char *text, int (*test)(int))
{
	int found = 0;
	while (*text) {                                    // loop words
		while (*text && !test(*text))              // loop skip in words, gone
			text++;
		do {                                       // loop letters in words
			if (*text == '#')                  // loop letters in words
				return found;
			found += test(*text);
		} while (*text++ && test(*text));          // loop letters in words
	}
	return found;
}

// One of the states jumps back, so a table of jumps is all that closes the loop.
__attribute__((noinline)) int machine(const int *program, int n)
{
	int state = 0, value = n;
	for (;;) {                                         // loop machine
		switch (program[state++]) {                // loop machine
		case 0: value += 3; break;
		case 1: value ^= state; break;
		case 2:
			for (int i = 0; i < n; i++)        // loop inner in machine
				value += v[i] > 0 ? program[i & 7] : rand();
			break;
		case 3: value *= 7; break;
		case 4: state = value & 3; break;
		case 5: value = value / 3 + rand(); break;
		case 6: value -= 11; break;
		case 7: return value;
		default: abort();
		}
	}
}

static inline double norm(const double *x, int n)
{
	double sum = 0;
	for (int i = 0; i < n; i++) {                      // loop norm in rounds
		if (x[i] < 0)
			continue;
		sum += x[i] * x[i];
	}
	return sum;
}

__attribute__((noinline)) double rounds(int n)
{
	double most = 0;
	while (!stop && n-- > 0) {                         // loop rounds
		double each = norm(v, n) + norm(w, n);
		if (each > most)
			most = each;
		v[n & 7] += rand();
	}
	return most;
}

// Entered at two places: no block of it dominates the rest.
__attribute__((noinline)) int tangle(int n)
{
	int sum = 0;
	if (n & 1)
		goto middle;
again:                                                     // loop tangle
	sum += rand();                                     // loop tangle
	if (sum & 1)
		sum *= 3;
middle:
	sum ^= rand();
	if (sum % 7 != n % 7)                              // loop tangle
		goto again;
	return sum;
}

int main(int argc, char **argv)
{
	static const int program[] = {0, 1, 2, 3, 5, 6, 7, 7};
	int n = argc > 1 ? atoi(argv[1]) : 20;
	for (int i = 0; i < N * N; i++)                    // loop fill
		a[0][i] = b[0][i] = w[i] = rand();
	multiply(n);
	printf("%g %g %g\n", vectors(n), unrolled(n), c[n % N][n % N]);
	printf("%d %d\n", search(argv[0], rand), machine(program, n));
	printf("%g %d\n", rounds(n), tangle(n));
}
