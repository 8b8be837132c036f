/* Loads and unloads two libraries in turn and works in each. Usage: loading SECONDS */
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static volatile double sum;

int main(int argc, char **argv)
{
	static char buffer[1 << 20];
	time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 1);

	while (time(NULL) < end) {
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
