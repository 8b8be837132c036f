/* Ends a program at the first system call that fails. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call) \
	do { \
		if ((call) < 0) { \
			perror(#call); \
			exit(1); \
		} \
	} while (0)
