/* Two threads that let each other run, each time with another stack: of recursion, alloca, functions that
 * end in calls, longjmp, exceptions, fibers, a signal's own stack, threads that follow each other on one
 * stack, code made at run time at the same addresses again and again.
 * Usage: changing TURNS SEED; says "ready" and waits for its input to end. */
#include <alloca.h>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define FRAME __attribute__((noinline, noclone))
#define KEEP(value) __asm__ volatile("" : "+r"(value) : : "memory")

typedef unsigned long word;

static const int FIBERS = 4;
static const size_t STACK = 65536;
static const size_t CODE = 65536;

struct State {
	word seed;
	jmp_buf back;
	ucontext_t main, fiber[FIBERS];
	char *fiber_stack[FIBERS], *code;
	bool busy[FIBERS];
};
static thread_local State *state;
static word turns, first_seed;

static word draw(word below)
{
	state->seed = state->seed * 6364136223846793005UL + 1442695040888963407UL;
	return (state->seed >> 33) % below;
}

FRAME word let_others_run(word n)
{
	sched_yield();
	return n * 3 + 1;
}

FRAME word ends_in_a_call(word n) { return n & 1 ? let_others_run(n >> 1) : ends_in_a_call(n + 1); }

FRAME word recursion(word depth, word (*last)(word))
{
	volatile char buffer[24];
	buffer[0] = (char)depth;
	word r = depth ? recursion(depth - 1, last) : last(depth);
	KEEP(r);
	return r + buffer[0];
}

FRAME word with_alloca(word n)
{
	char *buffer = (char *)alloca(n % 2000 + 16);
	memset(buffer, 1, n % 2000 + 16);
	KEEP(buffer);
	word r = recursion(n % 5, let_others_run);
	KEEP(r);
	return r + buffer[n % 16];
}

FRAME word jumps(word n)
{
	let_others_run(n);
	longjmp(state->back, 1);
}

FRAME word throws(word n)
{
	let_others_run(n);
	throw n;
}

static void on_signal(int) { recursion(draw(20), ends_in_a_call); }

FRAME word raises(word n)
{
	raise(SIGUSR1);
	return let_others_run(n);
}

static void fiber_body(int number)
{
	for (;;) {
		recursion(draw(40), let_others_run);
		state->busy[number] = false;
		swapcontext(&state->fiber[number], &state->main);
	}
}

FRAME word switches(word n)
{
	int number = (int)draw(FIBERS);
	if (!state->busy[number]) {
		state->busy[number] = true;
		swapcontext(&state->main, &state->fiber[number]);
	}
	return let_others_run(n);
}

#ifdef __aarch64__
/* stp x29, x30, [sp, #-16]!; mov x29, sp; sub sp, sp, #SPACE; movz, movk, movk x16, #FUNCTION; blr x16;
 * mov sp, x29; ldp x29, x30, [sp], #16; ret */
static void write_code(unsigned char *at, word pad, word function, unsigned space)
{
	const unsigned code[] = {
		0xa9bf7bfd, 0x910003fd, 0xd10003ff | space << 10,
		0xd2800010 | (unsigned)(function & 0xffff) << 5,
		0xf2a00010 | (unsigned)(function >> 16 & 0xffff) << 5,
		0xf2c00010 | (unsigned)(function >> 32 & 0xffff) << 5,
		0xd63f0200, 0x910003bf, 0xa8c17bfd, 0xd65f03c0,
	};
	const unsigned nop = 0xd503201f;
	unsigned char *begin = at;
	for (; pad; pad--, at += 4)
		memcpy(at, &nop, 4);
	memcpy(at, code, sizeof code);
	__builtin___clear_cache((char *)begin, (char *)at + sizeof code);
}
#else
/* push %rbp; mov %rsp, %rbp; sub $SPACE, %rsp; movabs $FUNCTION, %rax; call *%rax; leave; ret */
static void write_code(unsigned char *at, word pad, word function, unsigned space)
{
	for (; pad; pad--)
		*at++ = 0x90;
	memcpy(at, "\x55\x48\x89\xe5\x48\x81\xec", 7);
	memcpy(at + 7, &space, 4);
	memcpy(at + 11, "\x48\xb8", 2);
	memcpy(at + 13, &function, 8);
	memcpy(at + 21, "\xff\xd0\xc9\xc3", 4);
}
#endif

FRAME word made(word n)
{
	unsigned char *begin = (unsigned char *)state->code + (draw(CODE - 4096) & ~3UL);
	word (*function)(word) = draw(2) ? let_others_run : ends_in_a_call;
	unsigned space = 16 * (unsigned)draw(64);
	write_code(begin, draw(64), (word)function, space);
	word r = ((word(*)(word))begin)(n);
	KEEP(r);
	return r;
}

static void *short_thread(void *seed)
{
	State own = {};
	own.seed = (word)seed;
	state = &own;
	recursion(draw(30), draw(2) ? with_alloca : let_others_run);
	return nullptr;
}

FRAME word starts(word n)
{
	pthread_t thread;
	if (!pthread_create(&thread, nullptr, short_thread, (void *)draw(1 << 30)))
		pthread_join(thread, nullptr);
	return n;
}

FRAME void turn(word n)
{
	switch (draw(10)) {
	case 0: recursion(draw(200), let_others_run); break;
	case 1: recursion(draw(30), ends_in_a_call); break;
	case 2: with_alloca(draw(1 << 20)); break;
	case 3:
		if (!setjmp(state->back))
			recursion(draw(50), jumps);
		break;
	case 4:
		try {
			recursion(draw(50), throws);
		} catch (word thrown) {
			let_others_run(thrown);
		}
		break;
	case 5: recursion(draw(20), raises); break;
	case 6: recursion(draw(20), switches); break;
	case 7: recursion(draw(20), made); break;
	case 8:
		if (n % 16 == 0)
			starts(n);
		break;
	default: /* as before */ recursion(60, let_others_run);
	}
}

static void *work(void *number)
{
	static __attribute__((aligned(64))) char signal_stack[2][STACK];
	State own = {};
	state = &own;
	own.seed = 2 * first_seed + (word)number;
	stack_t other = {};
	other.ss_sp = signal_stack[(word)number];
	other.ss_size = STACK;
	sigaltstack(&other, nullptr);
	own.code = (char *)mmap(nullptr, CODE, PROT_READ | PROT_WRITE | PROT_EXEC,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < FIBERS; i++) {
		own.fiber_stack[i] = (char *)malloc(STACK);
		getcontext(&own.fiber[i]);
		own.fiber[i].uc_stack.ss_sp = own.fiber_stack[i];
		own.fiber[i].uc_stack.ss_size = STACK;
		makecontext(&own.fiber[i], (void (*)())fiber_body, 1, i);
	}
	static pthread_barrier_t *both = [] {
		auto barrier = new pthread_barrier_t;
		pthread_barrier_init(barrier, nullptr, 2);
		return barrier;
	}();
	if (pthread_barrier_wait(both) == PTHREAD_BARRIER_SERIAL_THREAD) {
		puts("ready");
		fflush(stdout);
		getchar();
	}
	pthread_barrier_wait(both);
	for (word n = 0; n < turns; n++)
		turn(n);
	return nullptr;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	turns = strtoul(argv[1], nullptr, 10);
	first_seed = strtoul(argv[2], nullptr, 10);
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	struct sigaction action = {};
	action.sa_handler = on_signal;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, nullptr);
	pthread_t other;
	if (pthread_create(&other, nullptr, work, (void *)1))
		return 1;
	work(nullptr);
	pthread_join(other, nullptr);
	return 0;
}
