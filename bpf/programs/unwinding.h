/* The unwind step as the kernel's programs have it: how it reaches tables and memory. */
#ifndef HPCD_UNWINDING_H
#define HPCD_UNWINDING_H

#include "helpers.h"
#include "stack/table.h"
#include "stack/rules.h"

/* Segments of table memory by number, in each its blocks. */
DEFINE_MAP(MEMORY, ARRAY_OF_MAPS, u32, u32);
DEFINE_MAP(RULES, ARRAY, u32, struct rule);

/* Memory of a walk, of each CPU: one for each context in which a program may preempt another. A perf event may
 * interrupt the scheduler's tracepoint. Those of calls follow (calls/calls.h). */
#define CONTEXT_SAMPLE 0
#define CONTEXT_SWITCH 1

#define BLOCK_AT(address) block_at(address)
#define RULE_AT(index) rule_at(index)
#define READ_USER(copied, dst, size, src) \
	((copied) ? read_saved(dst, size, src) : read_user(dst, size, src))
#define THREAD_POINTER(dst) thread_pointer(dst)

#ifdef HPCD_CALLS
#define RESTORE_RETURN_ADDRESS(w)                                             \
	do {                                                                  \
		if (PROBING && (w)->trampoline && (w)->ip == (w)->trampoline) \
			restore_return_address(w);                            \
	} while (0)
#endif

static __always_inline struct block *block_at(u32 address)
{
	u32 segment = address >> SEGMENT_SHIFT;
	unsigned long inner = (unsigned long)map_lookup(MAP(MEMORY), &segment);
	if (!inner)
		return 0;
	u32 block = (address >> BLOCK_SHIFT) & (SEGMENT_BLOCKS - 1);
	return map_lookup(inner, &block);
}

static __always_inline struct rule *rule_at(u32 index)
{
	return map_lookup(MAP(RULES), &index);
}

/* Of the current thread. A program that sets it by an instruction of its own has it here from its next
 * switch on. */
static __always_inline int thread_pointer(u64 *value)
{
#ifdef HPCD_AARCH64
	return -1;
#else
	return READ_FIELD(*value, this_task()->thread.fsbase);
#endif
}

static __always_inline long read_saved(void *dst, u32 size, u64 src);
struct walk;
static __always_inline void restore_return_address(struct walk *w);

#include "stack/unwind.h"
#include "records.h"
#include "values.h"

DEFINE_MAP(SCRATCH, PERCPU_ARRAY, u32, struct walk);

#endif
