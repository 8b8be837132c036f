/* For each line of input forks a child that gives itself a title as setproctitle(3) does, says its pid, and goes on until
   this one ends with its input. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
	char *begin = words[0], *end = words[count - 1] + strlen(words[count - 1]) + 1, line[16];
	int alive[2];

	if (pipe(alive))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (fork())
			continue;
		close(alive[1]);
		memset(begin, 0, end - begin);
		strncpy(begin, "titled: worker", end - begin - 1);
		printf("%d\n", getpid());
		fflush(stdout);
		return read(alive[0], line, 1) != 0;
	}
	return 0;
}
