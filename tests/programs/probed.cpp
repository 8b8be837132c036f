// Functions to be probed, called in every way there is: probed MODE, which prints what is true of it.
// The return values of the functions are known; so are their arguments and what these point at.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

struct box {
	long pad[3];
	unsigned long size;
};

#define PROBED extern "C" __attribute__((noinline, noclone))
#define KEPT asm volatile("" ::: "memory") // no tail call, not left out

PROBED int work(int number, box *where)
{
	KEPT;
	where->size += number;
	return -number;
}

PROBED int outer(int number, box *where)
{
	int sum = work(number, where) + work(number + 1, where);
	KEPT;
	return sum;
}

PROBED long seventh(int, int, int, int, int, int, short a, unsigned char b)
{
	KEPT;
	return a * 1000L + b;
}

PROBED int recurse(int depth)
{
	KEPT;
	int below = depth ? recurse(depth - 1) : 0;
	KEPT;
	return below + 1;
}

PROBED int thrower(int number)
{
	KEPT;
	if (number & 1)
		throw number;
	return number;
}

PROBED int middle(int number)
{
	int result = thrower(number);
	KEPT;
	return result;
}

static jmp_buf there;

PROBED void jumper(int depth)
{
	KEPT;
	if (!depth)
		longjmp(there, 1);
	jumper(depth - 1);
	KEPT;
}

PROBED void dies()
{
	KEPT;
	pthread_exit(nullptr);
}

PROBED void pauses(int milliseconds)
{
	timespec duration = {0, milliseconds * 1000000L};
	nanosleep(&duration, nullptr);
	KEPT;
}

static void *thread(void *)
{
	dies();
	return nullptr;
}

static void children(int count, int calls)
{
	box inside = {};
	for (int child = 0; child < count; child++) {
		if (!fork()) {
			for (int call = 0; call < calls; call++)
				work(call, &inside);
			_exit(0);
		}
		wait(nullptr);
	}
}

// Its first instruction moves the stack pointer.
#ifdef __aarch64__
asm(".text\n.type moves_stack, %function\nmoves_stack: .cfi_startproc\n"
    "sub sp, sp, #0x100\n.cfi_def_cfa_offset 0x100\nnop\n"
    "add sp, sp, #0x100\n.cfi_def_cfa_offset 0\nret\n"
    ".cfi_endproc\n.size moves_stack, . - moves_stack\n");
#else
asm(".text\n.type moves_stack, @function\nmoves_stack: .cfi_startproc\n"
    "sub $0x108, %rsp\n.cfi_def_cfa_offset 0x110\nnop\n"
    "add $0x108, %rsp\n.cfi_def_cfa_offset 8\nret\n"
    ".cfi_endproc\n.size moves_stack, . - moves_stack\n");
#endif
extern "C" void moves_stack();

int main(int, char **arguments)
{
	box inside = {{}, 100};
	const char *mode = arguments[1];
	int caught = 0;

	if (!strcmp(mode, "values")) {
		for (int number = 0; number < 50; number++)
			outer(number, &inside);
		seventh(1, 2, 3, 4, 5, 6, -7, 200);
	} else if (!strcmp(mode, "recursion")) {
		recurse(10000);
	} else if (!strcmp(mode, "exceptions")) {
		for (int number = 0; number < 40; number++)
			try {
				middle(number);
			} catch (int) {
				caught++;
			}
		printf("%d\n", caught);
	} else if (!strcmp(mode, "jumps")) {
		for (int turn = 0; turn < 20; turn++)
			if (!setjmp(there))
				jumper(4);
		work(1, &inside);
	} else if (!strcmp(mode, "threads")) {
		for (int turn = 0; turn < 10; turn++) {
			pthread_t id;
			pthread_create(&id, nullptr, thread, nullptr);
			pthread_join(id, nullptr);
		}
	} else if (!strcmp(mode, "children")) {
		children(5, 30);
	} else if (!strcmp(mode, "often")) {
		for (int turn = 0; turn < 100000; turn++)
			work(turn, &inside);
	} else if (!strcmp(mode, "moves stack")) {
		for (int turn = 0; turn < 100000; turn++)
			moves_stack();
	} else if (!strcmp(mode, "pauses")) {
		for (int turn = 0; turn < 20; turn++)
			pauses(5);
	} else if (!strcmp(mode, "serve")) { // for ever, until its input ends
		char letter;
		while (read(0, &letter, 1) == 1) {
			if (letter == 'x')
				try {
					middle(1);
				} catch (int) {
				}
			else
				work(letter, &inside);
			write(1, &letter, 1);
		}
	}
	return 0;
}
