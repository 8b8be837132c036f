/* Values of a call of a probed function, worked out as its declaration says. */
#ifndef HPCD_CALLS_VALUE_PROGRAMS_H
#define HPCD_CALLS_VALUE_PROGRAMS_H

#include "calls/calls.h"
#include "calls/probe_values.h"

DEFINE_MAP(PROBED, ARRAY, u32, struct probed_function);
DEFINE_MAP(PROBE_COUNTS, PERCPU_ARRAY, u32, struct probe_count);

static __always_inline void count_up(u64 *counter)
{
	__sync_fetch_and_add(counter, 1); /* the program may be preempted */
}

static __always_inline u64 cut(u64 value, const struct value_step *step)
{
	u32 size = step->size;

	if (size == 0 || size > 7)
		return value;
	u32 shift = 64 - 8 * size;
	value <<= shift;
	return step->is_signed ? (u64)((s64)value >> shift) : value >> shift;
}

/* Steps first..end of a program, from `value` on. */
static __always_inline u64 run_steps(const struct value_program *program, u32 first, u32 end,
				     u64 value, struct probe_count *count)
{
	NOUNROLL
	for (u32 i = 0; i < PROBE_STEPS; i++) {
		const struct value_step *step = &program->step[i];
		if (i < first || i >= end)
			continue;
		value += (s64)step->offset;
		if (step->load) {
			u64 word = 0;
			u32 size = step->size & 15;
			if (size > 8)
				size = 8;
			if (read_user(&word, size, value)) {
				if (program->marks)
					return UNREADABLE;
				count_up(&count->unreadable);
				return 0;
			}
			value = word;
		}
		value = cut(value, step);
	}
	return value;
}

static __always_inline u64 register_at(struct walk *w, u32 source)
{
	const u64 *word = (const u64 *)&w->regs;

	source &= NO_SOURCE;
	if (source >= sizeof w->regs / 8)
		return 0;
	return word[source];
}

/* Works out the values of function number `index` into words[] of the walk of a slot: what is known at
 * the entry, or with `returned` the rest. What cannot be read is counted for function `counted`. Not
 * static: verified once. */
__attribute__((noinline)) int take_values(u32 slot, u32 index, u32 counted, u32 returned)
{
	u32 context = FIRST_CALL_CONTEXT + slot;
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct probed_function *function = map_lookup(MAP(PROBED), &index);
	struct probe_count *count = map_lookup(MAP(PROBE_COUNTS), &counted);

	if (!w || !function || !count)
		return 0;
	NOUNROLL
	for (u32 i = 0; i < PROBE_VALUES; i++) {
		struct value_program *program = &function->value[i];
		u64 value = returned ? w->words[i] : 0;
		if (i < function->values && (returned || !program->at_return)) {
			u32 first = returned ? program->late : 0;
			u32 end = returned ? program->steps : program->late;
			if (!returned || program->at_return)
				value = register_at(w, program->source);
			value = run_steps(program, first, end, value, count);
		}
		w->words[i] = value;
	}
	return 0;
}

/* The second record of a function's calls, if there is one. */
static __always_inline struct probed_function *second_record(struct probed_function *function)
{
	u32 index = function->second - 1;

	return function->second ? map_lookup(MAP(PROBED), &index) : 0;
}

#endif
