/* Programs of one size and one layout, with different code: -DTURNS=NUMBER.
 *
 * same_size SECONDS [FOLDER] first maps all files of FOLDER as code, says that it is ready, and spends so many seconds
 * of CPU time in spin() once its input ends. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) long spin(double seconds)
{
	struct timespec t = {0, 0};
	volatile long turns = 0;

	while (t.tv_sec + t.tv_nsec * 1e-9 < seconds) {
		for (int i = 0; i < TURNS; i++)
			turns++;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	}
	return turns;
}

int main(int argc, char **argv)
{
	DIR *folder = argc > 2 && !chdir(argv[2]) ? opendir(".") : 0;
	struct dirent *entry;

	while (folder && (entry = readdir(folder))) {
		int file = open(entry->d_name, O_RDONLY);
		mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
		close(file);
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return spin(atof(argv[1])) == 42;
}
