/* The walk of a stack that was copied, at user space's request. */
#ifndef HPCD_PATHS_SAVED_WALKS_H
#define HPCD_PATHS_SAVED_WALKS_H

#include "paths/call_path.h"
#include "paths/walks.h"

DEFINE_MAP(SAVED, ARRAY, u32, struct saved);
DEFINE_MAP(SAVED_PROGRAMS, PROG_ARRAY, u32, u32);

/* Of copied stacks: few are walked, so that they are loaded fast counts for more. */
#define SAVED_WALK_FRAMES 4

static __always_inline long read_saved(void *dst, u32 size, u64 src)
{
	u32 zero = 0;
	struct saved *saved = map_lookup(MAP(SAVED), &zero);

	if (!saved || saved->size < size)
		return -14;
	u64 offset = src - saved->start;
	if (offset > saved->size - size)
		return -14;
	offset &= COPY_BYTES - 1;
	return read_kernel(dst, size, (u64)(saved->bytes + offset));
}

static __always_inline void put_word(struct walk *w, u64 word)
{
	u64 n = place_of_frame(w);

	if (n < MAX_FRAMES)
		w->frame[n] = word;
}

/* The walk of the copied stack in SAVED, begun where user space requests that. */
static __always_inline struct walk *saved_walk(struct saved *saved)
{
	struct walk *w = &saved->walk;

	if (saved->begin) {
		saved->begin = 0;
		saved->done = 0;
		w->regs = saved->regs;
		w->space = saved->space;
		empty_path(w);
		begin_walk(w, 1);
		w->code_begin = saved->code_begin;
		w->code_bytes = saved->code_bytes;
		if (saved->python.words)
			w->anchor = saved->python.word[0];
	}
	if (saved->word) {
		put_word(w, saved->word);
		put_word(w, saved->position);
		saved->word = 0;
	}
	return w;
}

static __always_inline void finish_saved(struct saved *saved, struct walk *w)
{
	saved->ending = w->ending;
	saved->frames = w->frames;
	saved->depth = w->depth;
	saved->done = 1;
}

/* User space runs it (BPF_PROG_TEST_RUN), again until it is done. */
SECTION("raw_tp/")
int walk_saved(struct bpf_raw_tracepoint_args *ctx)
{
	u32 zero = 0;
	struct saved *saved = map_lookup(MAP(SAVED), &zero);

	if (!saved)
		return 0;
	struct walk *w = saved_walk(saved);
	NOUNROLL
	for (int i = 0; i < SAVED_WALK_FRAMES; i++) {
		if (unwind_step(w, 1, 0)) {
			finish_saved(saved, w);
			return 0;
		}
	}
	tail_call(ctx, MAP(SAVED_PROGRAMS), 0);
	return 0;
}

#ifdef HPCD_OBJECT
static __attribute__((noinline)) long step_of_copy(u32 number, struct steps *steps)
{
	struct walk *w = steps->walk;
	u32 zero = 0;
	struct saved *saved = map_lookup(MAP(SAVED), &zero);

	if (!saved)
		return 1;
	if (w->python_left) {
		put_python_words(w, &saved->python);
		return 0;
	}
	w->from = w->sp;
	if (in_jvm(w))
		return stop(w, END_JVM_FRAME);
	if (unwind_step(w, 1, 0))
		return 1;
	if (w->anchor)
		begin_activation(w, &saved->python);
	return 0;
}

SECTION("raw_tp/")
int loop_saved(struct bpf_raw_tracepoint_args *ctx)
{
	u32 zero = 0;
	struct saved *saved = map_lookup(MAP(SAVED), &zero);

	if (!saved)
		return 0;
	struct steps steps = {saved_walk(saved), 0};
	steps.walk->ending = END_DEPTH_LIMIT;
	run_loop(MAX_DEPTH + 1, step_of_copy, &steps, 0);
	if (saved->python.words)
		place_counted(steps.walk, &saved->python);
	finish_saved(saved, steps.walk);
	return 0;
}
#endif

#endif
