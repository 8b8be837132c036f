/* exchanges COUNTER PAIRS: pairs of threads that pass a byte to and fro by pipes and do nothing else, so that each leaves its
 * CPU at every exchange; each pair counts its exchanges in 8 bytes of the file COUNTER. Ends when it is killed. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct end {
	int from, to;
	volatile long *count;
};

static void *play(void *argument)
{
	struct end *end = argument;
	char ball;
	while (read(end->from, &ball, 1) == 1 && write(end->to, &ball, 1) == 1)
		if (end->count)
			++*end->count;
	return NULL;
}

int main(int argc, char **argv)
{
	int pairs = argc > 2 ? atoi(argv[2]) : 1, file = open(argv[1], O_RDWR | O_CREAT, 0600);
	long size = pairs * sizeof(long);
	if (file < 0 || ftruncate(file, size))
		return 1;
	long *counts = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (counts == MAP_FAILED)
		return 1;
	for (int pair = 0; pair < pairs; pair++) {
		struct end *ends = calloc(2, sizeof *ends);
		pthread_t thread;
		int there[2], back[2];
		if (!ends || pipe(there) || pipe(back) || write(back[1], "", 1) != 1)
			return 1;
		ends[0] = (struct end){back[0], there[1], &counts[pair]};
		ends[1] = (struct end){there[0], back[1], NULL};
		for (int place = 0; place < 2; place++)
			if (pthread_create(&thread, NULL, play, &ends[place]))
				return 1;
	}
	pause();
	return 0;
}
