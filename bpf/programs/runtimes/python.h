/* Python frames in call paths.
 *
 * Each activation of CPython's evaluation loop keeps an object in its frame on the C stack, and the chain of Python
 * frames leads through these objects (docs/design/014-python-frames.md). So a native frame evaluates Python exactly if
 * the next object lies in its [stack pointer, CFA). The chain is read first, by take_python(), with the objects'
 * addresses; step() puts the frames of an activation behind the native frame that evaluates them.
 *
 * The program runs on the thread itself, between two instructions, and only the thread changes its chain: the chain is
 * that of one moment. The target's memory may hold anything: addresses are read by read_user(), the addresses of the
 * objects must increase along the chain, and the number of frames is bounded.
 *
 * A thread's state has the thread pointer as its thread_id, whether the thread holds the GIL or not. The list of all
 * states is searched once for a thread, and the state is checked at each use.
 */
#ifndef HPCD_PYTHON_H
#define HPCD_PYTHON_H

#include "runtimes/python_maps.h"
#include "threads/threads.h"
#include "unwinding.h"

/* For what bpf_loop() calls: all else is in memory of the walk's, since the frames of functions share 512 bytes. */
struct python_taking {
	struct python *python;
	struct python_chain *chain;
	u64 state; /* address of the thread's state, once it is known */
};

static __attribute__((noinline)) long look_at_state(u32 number, struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;
	u64 *word;

	if (!python || !chain)
		return 1;
	word = chain->bytes;
	if (chain->state) {
		if (read_user(word, 8, chain->state + python->thread_id))
			return 1;
		if (*word == chain->pointer) {
			chain->found = chain->state;
			return 1;
		}
		return read_user(&chain->state, 8, chain->state + python->next_thread) != 0;
	}
	if (read_user(word, 8, chain->interpreter + python->next_interpreter) || !*word)
		return 1;
	chain->interpreter = *word;
	return read_user(&chain->state, 8, *word + python->threads) != 0;
}

/* The current thread's state; 0: it has none. */
static __always_inline u64 python_state(struct python_taking *taking, struct thread *thread)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;
	u64 *word = chain->bytes;

	if (thread_pointer(&chain->pointer) || !chain->pointer)
		return 0;
	if (thread->python && !read_user(word, 8, thread->python + python->thread_id) &&
	    *word == chain->pointer)
		return thread->python;
	thread->python = 0;
	if (read_user(&chain->interpreter, 8, python->interpreters) || !chain->interpreter ||
	    read_user(&chain->state, 8, chain->interpreter + python->threads))
		return 0;
	/* New states are put first: an unchanged first state means that no state was added since the last search. */
	u64 first = chain->state;
	chain->found = 0;
	run_loop(first == thread->python_first ? 1 : MOST_PYTHON_STATES, look_at_state, taking, 0);
	thread->python_first = first;
	thread->python = chain->found;
	return chain->found;
}

static __always_inline u64 python_field(struct python_chain *chain, u32 offset)
{
	return chain->bytes[offset >> 3 & (PYTHON_FRAME_WORDS - 1)];
}

static __always_inline u64 python_owner(struct python *python, struct python_chain *chain)
{
	return python_field(chain, python->owner) >> 8 * (python->owner & 7) & 0xff;
}

/* Adds the words of the frame whose bytes were read. */
static __always_inline void add_python_frame(struct python *python, struct python_chain *chain)
{
	u64 code = python_field(chain, python->code) & ~(u64)python->tags & PYTHON_ADDRESS_MASK;
	u64 at = python_field(chain, python->instruction);

	if (python->instructions)
		at = (at - code - python->instructions) >> 1;
	else
		at = (u32)at;
	if (at >> PYTHON_POSITION_BITS) /* before the first */
		at = 0;
	chain->word[chain->words & (PYTHON_WORDS - 1)] = FRAME_PYTHON | code;
	chain->word[(chain->words + 1) & (PYTHON_WORDS - 1)] = FRAME_PYTHON | FRAME_PYTHON_POSITION | at;
	__builtin_memset(chain->identity, 0, sizeof chain->identity);
	u32 size = python->identity_bytes;
	if (size <= sizeof chain->identity)
		read_user(chain->identity, size, code + python->identity);
	u64 hash = hash_mix(READ_AGAIN(chain->identity[0]), READ_AGAIN(chain->identity[1]));
	hash = hash_mix(hash, READ_AGAIN(chain->identity[2]));
	hash = hash_mix(hash, READ_AGAIN(chain->identity[3]));
	chain->word[(chain->words + 1) & (PYTHON_WORDS - 1)] |= (u64)(u32)hash << PYTHON_POSITION_BITS;
	chain->words += 2;
}

/* Ends the activation whose frames have been read; its object is at this address. Not 0: the chain is damaged. */
static __always_inline long end_activation(struct python_chain *chain, u64 anchor)
{
	u64 frames = chain->words - chain->head - 2;

	if (!frames)
		return 0;
	if (anchor <= chain->last || anchor >= USER_END)
		return 1;
	chain->last = anchor;
	chain->word[chain->head & (PYTHON_WORDS - 1)] = anchor;
	chain->word[(chain->head + 1) & (PYTHON_WORDS - 1)] = frames;
	chain->head = chain->words;
	chain->words += 2;
	chain->more = chain->words > PYTHON_WORDS - 4;
	return chain->more;
}

static __attribute__((noinline)) long take_python_frame(u32 number, struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;

	if (!python || !chain || !chain->frame)
		return 1;
	u32 bytes = python->frame_bytes;
	if (bytes > sizeof chain->bytes || read_user(chain->bytes, bytes, chain->frame))
		return 1;
	if (python->anchor == PYTHON_ENTRY_FRAME && python_owner(python, chain) >= PYTHON_OWNED_BY_C) {
		if (end_activation(chain, chain->frame))
			return 1;
	} else {
		if (chain->words > PYTHON_WORDS - 4)
			chain->more = 1;
		else
			add_python_frame(python, chain);
		if (python->anchor == PYTHON_EACH_FRAME ||
		    (python->anchor == PYTHON_ENTRY_FLAG && python_owner(python, chain))) {
			if (end_activation(chain, chain->cframe) ||
			    read_user(&chain->cframe, 8, chain->cframe + python->cframe_previous))
				return 1;
		}
	}
	chain->frame = python_field(chain, python->previous);
	return 0;
}

/* Counts frames and CFrames, from `state` and `interpreter` on; the last CFrame is no activation's. */
static __attribute__((noinline)) long count_python_frame(u32 number, struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;

	if (!python || !chain || (!chain->state && !chain->interpreter))
		return 1;
	if (chain->state) {
		chain->more++;
		if (read_user(&chain->state, 8, chain->state + python->previous))
			return 1;
	}
	if (chain->interpreter - taking->state < PYTHON_STATE_BYTES) {
		chain->interpreter = 0; /* a part of the state: nothing has ever set what it leads to */
	} else if (chain->interpreter) {
		if (read_user(&chain->interpreter, 8, chain->interpreter + python->cframe_previous))
			return 1;
		if (chain->interpreter)
			chain->more--;
	}
	return 0;
}

/* Where each activation has one frame: while the loop is entered or left, the frame or the CFrame of the innermost
 * one is not there (any more). Counted from the outermost the others belong together. Not 0: they do not. */
static __always_inline long match_python_frames(struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;

	chain->more = 0;
	chain->state = chain->frame;
	chain->interpreter = chain->cframe;
	run_loop(PYTHON_WORDS, count_python_frame, taking, 0);
	if (chain->state || chain->interpreter)
		return 1;
	if (chain->more == 1)
		return read_user(&chain->frame, 8, chain->frame + python->previous);
	if (chain->more == -1)
		return read_user(&chain->cframe, 8, chain->cframe + python->cframe_previous);
	return chain->more != 0;
}

/* The futex of a thread that waits for the GIL becomes one lock, whichever word of the condition it sleeps on. */
static __always_inline void mark_gil(struct walk *w, struct python *python, u64 state, u64 *word)
{
	u64 gil = python->gil;

	if (w->event != OUT_SLEEPING || !w->value)
		return;
	if (!gil) {
		if (read_user(word, 8, state + python->thread_interpreter) ||
		    read_user(word, 8, *word + python->interpreter_gil))
			return;
		gil = *word;
	}
	gil += GIL_CONDITION;
	if (w->value - gil < GIL_CONDITION_BYTES)
		w->value = gil | FUTEX_IS_LOCK | FUTEX_IS_GIL;
}

/* Reads the thread's Python frames into the chain of this walk's context. */
__attribute__((noinline)) int take_python(u32 context)
{
	struct walk *w = map_lookup(MAP(SCRATCH), &context);
	struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &context);
	if (!w || !chain)
		return 0;
	u32 tgid = w->tgid, tid = (u32)bpf_get_current_pid_tgid();
	struct python_taking taking = {map_lookup(MAP(PYTHONS), &tgid), chain, 0};
	struct python *python = taking.python;
	struct thread *thread = map_lookup(MAP(THREADS), &tid);
	if (!python || !thread)
		return 0;
	u64 state = python_state(&taking, thread);
	if (!state)
		return 0;
	taking.state = state;
	mark_gil(w, python, state, chain->bytes);
	chain->cframe = 0;
	chain->last = w->sp - 1;
	chain->head = 0;
	chain->words = 2;
	u64 at = state + python->thread_frame;
	if (python->thread_cframe) {
		if (read_user(&chain->cframe, 8, state + python->thread_cframe))
			return 0;
		if (w->ip >= python->unset_begin && w->ip < python->unset_end && !w->caller &&
		    read_user(&chain->cframe, 8, chain->cframe + python->cframe_previous))
			return 0;
		if (python->anchor != PYTHON_EACH_FRAME)
			at = chain->cframe + python->cframe_frame;
	}
	if (read_user(&chain->frame, 8, at))
		return 0;
	if (python->anchor == PYTHON_EACH_FRAME && match_python_frames(&taking))
		return 0;
	if (python->anchor == PYTHON_COUNTED)
		chain->words = 4;
	chain->more = 0;
	run_loop(MOST_PYTHON_FRAMES, take_python_frame, &taking, 0);
	struct counters *count = counters();
	if (chain->frame && count) {
		if (chain->more)
			count->python_deep++;
		else
			count->python_broken++;
	}
	if (python->anchor == PYTHON_COUNTED && !chain->frame && !chain->more) {
		chain->word[0] = PYTHON_NO_ADDRESS;
		chain->word[1] = chain->words - 4;
		chain->word[2] = python->unset_begin;
		chain->word[3] = python->unset_end;
		chain->head = chain->words;
	}
	/* Frames of an activation whose object was not reached have no place on the stack. */
	if (chain->head) {
		chain->words = chain->head;
		w->anchor = chain->word[0];
		w->chained = 1;
		w->hash = hash_mix(w->hash, (u64)tgid << 32 | w->space_number);
	}
	return 0;
}

/* User space reads the functions of a new path while the process lives: it is woken for one, at most every 10 ms. */
#define PYTHON_WAKE_NS 10000000
#define WORDS_A_STEP 16

static __always_inline u64 python_urgency(struct walk *w)
{
	struct python_chain *chain = w->chained ? map_lookup(MAP(PYTHON_CHAINS), &w->context) : 0;

	if (!chain || w->time < chain->woken + PYTHON_WAKE_NS)
		return 0;
	chain->woken = w->time;
	return FORCE_WAKEUP;
}

static __always_inline void put_python_word(struct walk *w, struct python_chain *chain)
{
	u64 word = chain->word[w->python_at & (PYTHON_WORDS - 1)];
	u64 n = place_of_frame(w);

	w->python_at++;
	if (n < MAX_FRAMES) {
		w->frame[n] = word;
		w->hash = hash_mix(w->hash, word);
	}
	if (!--w->python_left) {
		w->anchor = 0;
		if (w->python_at < chain->words)
			w->anchor = chain->word[w->python_at & (PYTHON_WORDS - 1)];
	}
}

/* Puts the next words of an activation's frames into the path: several, as each turn of bpf_loop() costs more. */
static __always_inline void put_python_words(struct walk *w, struct python_chain *chain)
{
	NOUNROLL
	for (int i = 0; i < WORDS_A_STEP && READ_AGAIN(w->python_left); i++)
		put_python_word(w, chain);
}

/* A step has led from w->from to the caller: begins the activation whose object lies between. A signal's step leads to
 * the stack that was interrupted, which may be another. */
static __always_inline void begin_activation(struct walk *w, struct python_chain *chain)
{
	if (w->anchor < w->from || w->anchor >= w->sp || w->interrupted == w->depth + 1)
		return;
	w->python_left = chain->word[(w->python_at + 1) & (PYTHON_WORDS - 1)];
	w->python_at += 2;
}

/* Where there are no objects on the stack: how many frames of the path are the loop's, and, in a second pass from the
 * outermost on, the Python frame of each put behind it. */
struct python_counting {
	struct walk *walk;
	struct python_chain *chain;
	u64 loops;
	u64 from, to; /* behind the next frame of the path, where it was and where it is to be */
	u64 left;     /* of the chain's words */
};

static __always_inline int is_python_loop(struct python_chain *chain, u64 frame)
{
	return frame >= chain->word[2] && frame < chain->word[3];
}

static __attribute__((noinline)) long count_python_loop(u32 number, struct python_counting *counting)
{
	struct walk *w = counting->walk;
	u64 n = counting->from + number;

	if (!w || !counting->chain || n >= w->frames || n >= MAX_FRAMES)
		return 1;
	counting->loops += is_python_loop(counting->chain, w->frame[n]);
	return 0;
}

static __attribute__((noinline)) long place_python_loop(u32 number, struct python_counting *counting)
{
	struct walk *w = counting->walk;
	struct python_chain *chain = counting->chain;

	if (!w || !chain)
		return 1;
	u64 from = counting->from - 1, to = counting->to - 1;
	if (from >= MAX_FRAMES || to >= MAX_FRAMES || from < w->kernel_frames || to < from)
		return 1;
	u64 frame = w->frame[from];
	if (counting->left && is_python_loop(chain, frame) && to >= 2) {
		u64 at = counting->left + 2;
		for (int i = 1; i >= 0; i--, to--) {
			u64 word = chain->word[(at + i) & (PYTHON_WORDS - 1)];
			w->frame[to] = word;
			w->hash = hash_mix(w->hash, word);
		}
		counting->left -= 2;
	}
	KEEP(to); /* the verifier of 6.1 does not know that it is no less than 0 */
	if (to >= MAX_FRAMES)
		return 1;
	w->frame[to] = frame;
	counting->from = from;
	counting->to = to;
	return 0;
}

/* Puts the Python frames of a whole path into it, of which the walk has put none. While the loop is entered or left the
 * innermost one has no frame. */
NOT_INLINED void place_counted(struct walk *w, struct python_chain *chain)
{
	if (!chain || chain->word[0] != PYTHON_NO_ADDRESS || w->ending != END_COMPLETE ||
	    w->depth > INNERMOST_FRAMES)
		return;
	struct python_counting counting = {w, chain, 0, w->kernel_frames, 0, READ_AGAIN(chain->word[1])};
	u64 frames = w->frames;
	run_loop(MAX_FRAMES, count_python_loop, &counting, 0);
	u64 more = counting.loops - (counting.left >> 1);
	if (more > 1 || frames + counting.left > MAX_FRAMES)
		return;
	counting.from = frames;
	counting.to = frames + counting.left;
	w->frames = counting.to;
	w->depth += counting.left;
	run_loop(MAX_FRAMES, place_python_loop, &counting, 0);
}

/* Puts the chain, as far as there is room, behind the frames of a path that user space is to finish; returns its
 * words. */
static __always_inline u64 append_chain(struct walk *w, u64 frames)
{
	struct python_chain *chain = map_lookup(MAP(PYTHON_CHAINS), &w->context);

	if (!chain || !w->chained || frames > MAX_FRAMES - SENT_PYTHON_WORDS)
		return 0;
	u64 words = READ_AGAIN(chain->words);
	if (words > SENT_PYTHON_WORDS)
		return 0;
	return read_kernel(w->frame + frames, 8 * words, (u64)chain->word) ? 0 : words;
}

#endif
