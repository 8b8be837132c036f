/* Threads and processes whose stacks do not begin at main. Usage: children KIND SECONDS, where KIND is
 * clone (a process on a stack of its own), clonevm (one that shares memory), vfork (the child
 * computes while its parent waits), sigstack (a signal's handler on a stack of its own), context
 * (coroutines of makecontext). */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK (1 << 20)

static volatile unsigned long sum;
static ucontext_t back;
static char *stack;

/* Seconds of CPU time, with that of children that have been waited for. */
static double now(void)
{
	struct rusage own, theirs;
	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &theirs);
	return own.ru_utime.tv_sec + own.ru_stime.tv_sec + theirs.ru_utime.tv_sec + theirs.ru_stime.tv_sec +
	       1e-6 * (own.ru_utime.tv_usec + own.ru_stime.tv_usec + theirs.ru_utime.tv_usec +
		       theirs.ru_stime.tv_usec);
}

__attribute__((noinline)) static void burn(int n)
{
	for (int i = 0; i < n; i++)
		sum = sum * 31 + i;
}

__attribute__((noinline)) static int child(void *n)
{
	burn((int)(long)n);
	return sum == 42;
}

__attribute__((noinline)) static void handler(int signal)
{
	burn(3000000 + signal);
	sum++;
}

__attribute__((noinline)) static void coroutine(int n)
{
	for (int i = 0; i < n; i++)
		burn(20000);
	sum++;
}

static void run_context(void)
{
	ucontext_t fresh;
	getcontext(&fresh);
	fresh.uc_stack.ss_sp = stack;
	fresh.uc_stack.ss_size = STACK;
	fresh.uc_link = &back;
	makecontext(&fresh, (void (*)(void))coroutine, 1, 50);
	swapcontext(&back, &fresh);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	double end = now() + atof(argv[2]);
	const char *kind = argv[1];
	stack = malloc(STACK);
	if (!strcmp(kind, "sigstack")) {
		stack_t other = {.ss_sp = stack, .ss_size = STACK};
		struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
		sigaltstack(&other, 0);
		sigaction(SIGUSR1, &action, 0);
	}
	while (now() < end) {
		int status, pid = 0;
		if (!strcmp(kind, "clone")) {
			pid = clone(child, stack + STACK, SIGCHLD, (void *)20000000L);
		} else if (!strcmp(kind, "clonevm")) {
			pid = clone(child, stack + STACK, SIGCHLD | CLONE_VM, (void *)20000000L);
		} else if (!strcmp(kind, "vfork")) {
			pid = vfork();
			if (!pid) {
				burn(3000000);
				_exit(0);
			}
		} else if (!strcmp(kind, "sigstack")) {
			raise(SIGUSR1);
		} else {
			run_context();
		}
		if (pid)
			waitpid(pid, &status, 0);
	}
	return 0;
}
