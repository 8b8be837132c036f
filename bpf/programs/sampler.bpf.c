/* The sampler's programs, one object. With HPCD_CALLS it has the programs that record calls, too.
 *
 * events/   a perf event fires, a thread leaves a CPU or comes to one: what runs then
 * paths/    the call path of the present thread: the kernel's frames, the walk of its stack, the stack cache
 * stack/    the unwind step and the tables it reads
 * threads/  which threads and processes are recorded, from their birth to their end
 * calls/    system calls, requests and probed functions
 *
 * sample_N() looks up the thread, takes the kernel's part of the path and hands over to loop(), which
 * unwinds the user's, or where the kernel is older than 5.17 to walk(): that unwinds WALK_FRAMES
 * frames a call and calls itself again until the path ends or the kernel's limit of 33 tail calls
 * is reached.
 *
 * Each CPU has one event of its own that fires whatever runs there. So when it fires does not depend
 * on when threads are born, and a thread, however short it lives, is sampled in proportion to its CPU
 * time. What a firing in a thread that is no target costs is two look-ups.
 */
#ifndef HPCD_OBJECT
#include <uapi/linux/ptrace.h>
#include <uapi/linux/bpf_perf_event.h>
#endif

#include "events/samples.h"
#include "events/switches.h"
#include "events/wakers.h"
#include "paths/saved_walks.h"
#include "threads/lifecycle.h"

/* In an object of its own, of which most recordings need nothing: what is not loaded takes time too. */
#ifdef HPCD_CALLS
#include "calls/memory.h"
#include "calls/probes.h"
#include "calls/requests.h"
#include "calls/system_calls.h"
#endif
