/* The walk of a user's stack: unwind steps in one program or in several that call one another. */
#ifndef HPCD_PATHS_WALKS_H
#define HPCD_PATHS_WALKS_H

#include "paths/copies.h"
#include "unwinding.h"
#ifdef HPCD_OBJECT
#include "runtimes/jvm.h"
#include "runtimes/python.h"
#endif

DEFINE_MAP(KNOWN, ARRAY, u32, struct known_rules);
/* By kind of program: [0] continues the walk, [1] defers it. */
DEFINE_MAP(PROGRAMS, PROG_ARRAY, u32, u32);
DEFINE_MAP(SWITCH_PROGRAMS, PROG_ARRAY, u32, u32);
DEFINE_MAP(HIT_PROGRAMS, PROG_ARRAY, u32, u32);

/* 33 tail calls of 32 frames are 1,056; 32 frames verify in about 0.3 M of the 1 M instructions the
 * verifier allows. */
#ifndef WALK_FRAMES
#define WALK_FRAMES 32
#endif

/* The path of what is not ready is deferred: programs[1] copies the stack instead. */
static __always_inline void end_walk(void *ctx, struct walk *w, unsigned long programs)
{
	if (ended_early(w))
		tail_call(ctx, programs, 1);
	finish(w);
}

static __always_inline struct known_rules *known_rules(struct walk *w)
{
	u32 index = w->cache;

	return map_lookup(MAP(KNOWN), &index);
}

static __always_inline int walk(void *ctx, u32 context, unsigned long programs)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	u32 done = 0;

	if (!w)
		return 0;
	struct known_rules *rules = known_rules(w);
	if (!rules)
		return 0;
	NOUNROLL
	for (int i = 0; i < WALK_FRAMES; i++) {
		done = unwind_step(w, 0, rules);
		if (done)
			break;
	}
	if (!done) {
		tail_call(ctx, programs, 0);
		w->ending = END_DEPTH_LIMIT;
	}
	end_walk(ctx, w, programs);
	return 0;
}

#ifdef HPCD_OBJECT
/* bpf_loop() runs one step as often as is needed and has it verified once: bcc's programs cannot, as
 * each is compiled without the functions it calls. */
struct steps {
	struct walk *walk;
	struct known_rules *rules;
};

static __attribute__((noinline)) long step(u32 number, struct steps *steps)
{
	struct walk *w = steps->walk;

	if (w->python_left) {
		struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &w->context);
		if (!chain)
			return 1;
		put_python_words(w, chain);
		return 0;
	}
	w->from = w->sp;
	if (unwind_step(w, 0, steps->rules))
		return 1;
	w = steps->walk;
	if (w->anchor) {
		struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &w->context);
		if (chain)
			begin_activation(w, chain);
	}
	return 0;
}

/* Where functions that are called have less room for their frames, step() alone is used. */
static __attribute__((noinline)) long several_steps(u32 number, struct steps *steps)
{
	struct walk *w = steps->walk;

	if (!w->python_left) {
		if (in_jvm(w))
			return step_jvm(w->context) != 0;
		if (follow_known(w, steps->rules) == KNOWN_STEPS || in_jvm(w))
			return 0;
	}
	return step(number, steps);
}

static __always_inline int loop(void *ctx, u32 context, unsigned long programs)
{
	struct steps steps = {map_lookup(MAP(SCRATCH), &context), 0};

	if (!steps.walk)
		return 0;
	steps.rules = known_rules(steps.walk);
	if (!steps.rules)
		return 0;
	take_python(context);
	begin_jvm(steps.walk);
	steps.walk->ending = END_DEPTH_LIMIT;
	run_loop(MAX_DEPTH + 1, several_steps, &steps, 0);
	if (steps.walk->chained)
		place_counted(steps.walk, map_lookup(MAP(PYTHON_CHAINS), &context));
	end_walk(ctx, steps.walk, programs);
	return 0;
}

OF_EACH_KIND(loop, loop)
#endif

OF_EACH_KIND(walk, walk)

#endif
