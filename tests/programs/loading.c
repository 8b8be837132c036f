/* Loads and unloads two libraries in turn and works in each, for so many seconds of CPU time. Usage: loading
 * SECONDS */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static volatile double sum;

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
	static char buffer[1 << 20];
	double end = argc > 1 ? atof(argv[1]) : 1;

	while (seconds() < end) {
		void *library = dlopen("libm.so.6", RTLD_NOW);
		double (*gamma)(double) = (double (*)(double))dlsym(library, "lgamma");
		for (int i = 0; i < 3000000; i++)
			sum += gamma(i + .5);
		dlclose(library);
		library = dlopen("libz.so.1", RTLD_NOW);
		unsigned long (*adler)(unsigned long, const void *, unsigned) =
			(unsigned long (*)(unsigned long, const void *, unsigned))dlsym(library, "adler32");
		for (int i = 0; i < 300; i++)
			sum += adler(1, buffer, sizeof buffer);
		dlclose(library);
	}
	return 0;
}
