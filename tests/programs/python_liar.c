/* Has the symbols of CPython 3.11 and structures that lie, by argument; for a second of CPU time. With OFFSETS it calls
 * itself 3.13, and its table of offsets lies. */
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef OFFSETS
unsigned long _PyRuntime[512] = {0x7970677562656478ul, 0x030d00f0, 0, [3 ... 511] = 1ul << 40};
const unsigned Py_Version = 0x030d00f0;
#else
unsigned long _PyRuntime[512];
const unsigned Py_Version = 0x030b00f0;
#endif
char PyCode_Type[512];

/* In words of 8 bytes, by the layout of 3.11. */
static unsigned long interpreter[16], state[32], code[32], text[1024], table[64];
static unsigned long frame[16];

static void make_text(unsigned long length, unsigned kind, int ascii)
{
	text[2] = length;
	*(unsigned *)&text[4] = kind << 2 | 1 << 5 | ascii << 6;
}

static void *unmap(void *page)
{
	for (;;) {
		munmap(page, 4096);
		mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		memcpy(page, frame, sizeof frame);
	}
	return 0;
}

static __attribute__((noinline)) void spin(void)
{
	struct timespec now;

	do {
		for (volatile int turn = 0; turn < 100000; turn++)
			;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while (now.tv_sec < 1);
}

/* Has a CFrame on its stack, as an activation of the evaluation loop. */
void _PyEval_EvalFrameDefault(const char *lie)
{
	volatile unsigned long cframe[3] = {0, (unsigned long)frame, 0};
	pthread_t thread;

	state[7] = (unsigned long)cframe;
	if (!strcmp(lie, "circle"))
		frame[6] = (unsigned long)frame, frame[8] = 0; /* none is an entry */
	if (!strcmp(lie, "circle of entries"))
		frame[6] = (unsigned long)frame, cframe[2] = (unsigned long)cframe;
	if (!strcmp(lie, "kernel"))
		frame[4] = 0xffffffff81000000, frame[6] = 0xffffffff82000000;
	if (!strcmp(lie, "length"))
		make_text(1ul << 60, 1, 1), table[2] = 1ul << 60;
	if (!strcmp(lie, "encoding"))
		make_text(3, 4, 0);
	if (!strcmp(lie, "unmapped")) {
		void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(page, frame, sizeof frame);
		cframe[1] = (unsigned long)page;
		pthread_create(&thread, 0, unmap, page);
	}
	spin();
}

int main(int argc, char **argv)
{
#ifndef OFFSETS
	_PyRuntime[5] = (unsigned long)interpreter;
#endif
	interpreter[2] = (unsigned long)state;
	state[19] = pthread_self();
	code[1] = (unsigned long)PyCode_Type;
	for (int word = 14; word <= 16; word++)
		code[word] = (unsigned long)text;
	code[17] = (unsigned long)table;
	memset((char *)text + 48, 'x', sizeof text - 48);
	make_text(6, 1, 1);
	table[2] = 64;
	frame[4] = (unsigned long)code;
	frame[7] = (unsigned long)code + 184;
	((char *)frame)[68] = 1; /* is_entry */
	_PyEval_EvalFrameDefault(argc > 1 ? argv[1] : "");
	return 0;
}
