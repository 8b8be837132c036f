/* The chain of a thread's Python frames, read from its memory.
 *
 * Each activation of CPython's evaluation loop keeps an object in its frame on the C stack, and the chain of Python
 * frames leads through these objects (docs/design/014-python-frames.md). The target's memory may hold anything: the
 * addresses of the objects must increase along the chain, and the number of frames is bounded.
 *
 * A thread's state has the thread pointer as its thread_id, whether the thread holds the GIL or not.
 *
 * The includer defines READ_TARGET(taking, dst, size, src), 0 on success, and run_loop(), bpf_loop().
 */
#ifndef HPCD_PYTHON_CHAIN_H
#define HPCD_PYTHON_CHAIN_H

#include "compiler.h"
#include "runtimes/python_values.h"

#define PYTHON_PARTS (2 * PYTHON_THREAD_STATES) /* in which the states of a thread are read, at most */

/* For what bpf_loop() calls: all else is in memory of the walk's, since the frames of functions share 512 bytes. */
struct python_taking {
	struct python *python;
	struct python_chain *chain;
	u64 state; /* address of the thread's state, once it is known */
	u32 states; /* that may still be looked at in the search for it */
	struct task_struct *task; /* whose memory is read, by programs that do not run on it */
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
		if (READ_TARGET(taking, word, 8, chain->state + python->thread_id))
			return 1;
		chain->unbound |= !*word;
		if (*word == chain->pointer) {
			/* The main interpreter's is the last, and is kept in any case. */
			chain->found[chain->found[0] ? chain->found[1] ? 2 : 1 : 0] = chain->state;
			if (!chain->several)
				return 1;
		}
		return READ_TARGET(taking, &chain->state, 8, chain->state + python->next_thread) != 0;
	}
	if (READ_TARGET(taking, word, 8, chain->interpreter + python->next_interpreter) || !*word)
		return 1;
	chain->interpreter = *word;
	return READ_TARGET(taking, &chain->state, 8, *word + python->threads) != 0;
}

/* Adds an interpreter's first state, and the thread of that, to chain->listed. */
static __attribute__((noinline)) long look_at_interpreter(u32 number, struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;

	if (!python || !chain || !chain->interpreter)
		return 1;
	u64 *word = chain->bytes;
	if (READ_TARGET(taking, &word[0], 8, chain->interpreter + python->threads) ||
	    READ_TARGET(taking, &word[1], 8, word[0] + python->thread_id))
		word[1] = 0; /* it has no states */
	for (int i = 0; i < 2; i++)
		chain->listed = __builtin_bswap64((chain->listed ^ word[i]) * PYTHON_HASH_FACTOR);
	return READ_TARGET(taking, &chain->interpreter, 8, chain->interpreter + python->next_interpreter) != 0;
}

/* Whether a state that was the thread's still is. */
static __always_inline int is_python_state(struct python_taking *taking, u64 state)
{
	u64 *word = taking->chain->bytes;

	return !READ_TARGET(taking, word, 8, state + taking->python->thread_id) && *word == taking->chain->pointer;
}

/* Whether the thread's known states are all that it has, by chain->listed where there are several interpreters. */
static __always_inline int know_python_states(struct python_taking *taking, u64 *known, u64 known_listed)
{
	struct python_chain *chain = taking->chain;

	if (!chain->several)
		return known[0] && !known[1] && is_python_state(taking, known[0]);
	if (chain->listed != known_listed)
		return 0;
	NOUNROLL
	for (int i = 0; i < PYTHON_THREAD_STATES; i++)
		if (known[i] && !is_python_state(taking, known[i]))
			return 0;
	return 1;
}

/* The first state of the thread with chain->pointer; 0: it has none. `known` are those it had the last time, and are set;
 * `known_listed` is what told of the list of all then. */
static __always_inline u64 python_state(struct python_taking *taking, u64 *known, u64 *known_listed)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;
	u64 *word = chain->bytes, times = taking->states;

	if (!chain->pointer || READ_TARGET(taking, &chain->interpreter, 8, python->interpreters) ||
	    !chain->interpreter || READ_TARGET(taking, word, 8, chain->interpreter + python->next_interpreter))
		return 0;
	chain->several = *word && python->anchor != PYTHON_COUNTED;
	if (chain->several) {
		chain->listed = 1;
		run_loop(MOST_PYTHON_INTERPRETERS, look_at_interpreter, taking, 0);
		if (READ_TARGET(taking, &chain->interpreter, 8, python->interpreters))
			return 0;
	}
	if (know_python_states(taking, known, *known_listed))
		return known[0];
	if (READ_TARGET(taking, &chain->state, 8, chain->interpreter + python->threads))
		return 0;
	/* New states are put first: an unchanged first state means that no state was added since the last search. */
	if (!chain->several) {
		chain->listed = chain->state;
		if (chain->listed == *known_listed)
			times = 1;
	}
	chain->unbound = 0;
	for (int i = 0; i < PYTHON_THREAD_STATES; i++)
		chain->found[i] = 0;
	taking->states -= run_loop(times, look_at_state, taking, 0);
	*known_listed = chain->unbound ? 0 : chain->listed;
	for (int i = 0; i < PYTHON_THREAD_STATES; i++)
		known[i] = chain->found[i];
	return known[0];
}

static __always_inline u64 python_field(struct python_chain *chain, u32 offset)
{
	return chain->bytes[offset >> 3 & (PYTHON_FRAME_WORDS - 1)];
}

static __always_inline u64 python_owner(struct python *python, struct python_chain *chain)
{
	return python_field(chain, python->owner) >> 8 * (python->owner & 7) & 0xff;
}

/* Of what identifies a code object. Not secret: a target that makes two of its own alike only confuses its own names. */
static __always_inline u32 python_identity(u64 *word)
{
	u64 hash = 0;

	for (int i = 0; i < PYTHON_IDENTITY_WORDS; i++)
		hash = __builtin_bswap64((hash ^ word[i]) * PYTHON_HASH_FACTOR);
	return hash;
}

/* Adds the words of the frame whose bytes were read. */
static __always_inline void add_python_frame(struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;
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
		READ_TARGET(taking, chain->identity, size, code + python->identity);
	chain->word[(chain->words + 1) & (PYTHON_WORDS - 1)] |= (u64)python_identity(chain->identity)
								<< PYTHON_POSITION_BITS;
	chain->words += 2;
}

/* Ends the activation whose frames have been read; its object is at this address. Not 0: the chain is damaged. */
static __always_inline long end_activation(struct python_chain *chain, u64 anchor)
{
	u64 frames = chain->words - chain->head - 2;

	if (!frames)
		return 0;
	if (anchor <= chain->last || anchor > PYTHON_ADDRESS_MASK)
		return 1;
	chain->last = anchor;
	chain->word[chain->head & (PYTHON_WORDS - 1)] = anchor;
	chain->word[(chain->head + 1) & (PYTHON_WORDS - 1)] = frames;
	chain->head = chain->words;
	chain->words += 2;
	chain->more = chain->words > PYTHON_WORDS - 4;
	return chain->more | chain->probing;
}

static __attribute__((noinline)) long take_python_frame(u32 number, struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;

	if (!python || !chain || !chain->frame)
		return 1;
	u32 bytes = python->frame_bytes;
	if (bytes > sizeof chain->bytes || READ_TARGET(taking, chain->bytes, bytes, chain->frame))
		return 1;
	if (python->anchor == PYTHON_ENTRY_FRAME && python_owner(python, chain) >= PYTHON_OWNED_BY_C) {
		if (end_activation(chain, chain->frame))
			return 1;
	} else {
		if (chain->words > PYTHON_WORDS - 4)
			chain->more = 1;
		else
			add_python_frame(taking);
		if (python->anchor == PYTHON_EACH_FRAME ||
		    (python->anchor == PYTHON_ENTRY_FLAG && python_owner(python, chain))) {
			if (end_activation(chain, chain->cframe) ||
			    READ_TARGET(taking, &chain->cframe, 8, chain->cframe + python->cframe_previous))
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
		if (READ_TARGET(taking, &chain->state, 8, chain->state + python->previous))
			return 1;
	}
	if (chain->interpreter - taking->state < PYTHON_STATE_BYTES) {
		chain->interpreter = 0; /* a part of the state: nothing has ever set what it leads to */
	} else if (chain->interpreter) {
		if (READ_TARGET(taking, &chain->interpreter, 8, chain->interpreter + python->cframe_previous))
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
		return READ_TARGET(taking, &chain->frame, 8, chain->frame + python->previous);
	if (chain->more == -1)
		return READ_TARGET(taking, &chain->cframe, 8, chain->cframe + python->cframe_previous);
	return chain->more != 0;
}

/* Adds the Python frames of the state chain->state to the chain, if they can be read. Instructions of the evaluation loop
 * that chain->innermost may be at are of this state. */
static __always_inline void read_python_frames(struct python_taking *taking)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;

	if (!chain->state)
		return;
	taking->state = chain->state;
	chain->cframe = 0;
	chain->words = chain->head + 2;
	u64 at = chain->state + python->thread_frame;
	if (python->thread_cframe) {
		if (READ_TARGET(taking, &chain->cframe, 8, chain->state + python->thread_cframe))
			goto unread;
		if (chain->innermost >= python->unset_begin && chain->innermost < python->unset_end &&
		    READ_TARGET(taking, &chain->cframe, 8, chain->cframe + python->cframe_previous))
			goto unread;
		if (python->anchor != PYTHON_EACH_FRAME)
			at = chain->cframe + python->cframe_frame;
	}
	if (READ_TARGET(taking, &chain->frame, 8, at))
		goto unread;
	if (python->anchor == PYTHON_EACH_FRAME && match_python_frames(taking))
		goto unread;
	if (python->anchor == PYTHON_COUNTED)
		chain->words = 4;
	chain->more = 0;
	run_loop(MOST_PYTHON_FRAMES, take_python_frame, taking, 0);
	if (python->anchor == PYTHON_COUNTED && !chain->frame && !chain->more) {
		chain->word[0] = PYTHON_NO_ADDRESS;
		chain->word[1] = chain->words - 4;
		chain->word[2] = python->unset_begin;
		chain->word[3] = python->unset_end;
		chain->head = chain->words;
	}
	/* Frames of an activation whose object was not reached have no place on the stack. */
	chain->words = chain->head;
	return;
unread:
	chain->frame = 0;
	chain->words = chain->head;
}

/* The next state to read, by where its innermost activation lies; 0: there is none left. */
static __always_inline u64 next_python_state(struct python_chain *chain, u64 *states)
{
	u64 next = 0;

	for (u64 i = 1; i < PYTHON_THREAD_STATES; i++)
		if (chain->first[i] < chain->first[next])
			next = i;
	KEEP(next);
	if (next >= PYTHON_THREAD_STATES || chain->first[next] == ~0ULL)
		return 0;
	chain->first[next] = ~0ULL;
	return states[next];
}

static __always_inline void reset_python_chain(struct python_chain *chain)
{
	chain->head = 0;
	chain->words = 0;
	chain->last = chain->sp - 1;
	chain->frame = 0;
}

/* Begins to read the Python frames of a thread with this stack pointer. `innermost` is the address of its instruction, 0
 * if that has left the evaluation loop by now. */
static __always_inline void begin_python_chain(struct python_chain *chain, u64 sp, u64 innermost)
{
	chain->sp = sp;
	chain->innermost = innermost;
	chain->parts = 0;
	chain->probing = 0;
	reset_python_chain(chain);
}

/* Chooses which of a thread's states to read next, as chain->state; returns 0 if all have been read. What one interpreter
 * executes another has called: of several states the innermost activation of each is read first, and then all of each, in
 * the order of these on the stack. */
static __always_inline u64 choose_python_state(struct python_chain *chain, u64 *states)
{
	u64 part = chain->parts;

	chain->parts++;
	if (!chain->several || !states[1]) {
		chain->state = part ? 0 : states[0];
		return chain->state;
	}
	if (part && part <= PYTHON_THREAD_STATES)
		chain->first[part - 1] = chain->words ? chain->word[0] : ~0ULL;
	chain->probing = part < PYTHON_THREAD_STATES;
	if (part <= PYTHON_THREAD_STATES)
		reset_python_chain(chain);
	else
		chain->innermost = 0;
	chain->state = part < PYTHON_THREAD_STATES ? states[part] : next_python_state(chain, states);
	return chain->state || chain->probing;
}

#endif
