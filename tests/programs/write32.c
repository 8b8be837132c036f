/* Writes 100 bytes ten times to its standard output, by the system calls of 32-bit programs. */
static int call3(int number, int a, const void *b, int c)
{
	int result;

	__asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
	return result;
}

void _start(void)
{
	static char bytes[100];

	for (int i = 0; i < 10; i++)
		call3(4, 1, bytes, sizeof bytes);
	call3(1, 0, 0, 0);
}
