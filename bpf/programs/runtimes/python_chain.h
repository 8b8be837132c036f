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

#include "runtimes/python_values.h"

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
		if (*word == chain->pointer) {
			chain->found = chain->state;
			return 1;
		}
		return READ_TARGET(taking, &chain->state, 8, chain->state + python->next_thread) != 0;
	}
	if (READ_TARGET(taking, word, 8, chain->interpreter + python->next_interpreter) || !*word)
		return 1;
	chain->interpreter = *word;
	return READ_TARGET(taking, &chain->state, 8, *word + python->threads) != 0;
}

/* The state of the thread with chain->pointer; 0: it has none. `known` is the one it had the last time, and is set;
 * `known_first` the first of all states then. */
static __always_inline u64 python_state(struct python_taking *taking, u64 *known, u64 *known_first)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;
	u64 *word = chain->bytes;

	if (!chain->pointer)
		return 0;
	if (*known && !READ_TARGET(taking, word, 8, *known + python->thread_id) && *word == chain->pointer)
		return *known;
	*known = 0;
	if (READ_TARGET(taking, &chain->interpreter, 8, python->interpreters) || !chain->interpreter ||
	    READ_TARGET(taking, &chain->state, 8, chain->interpreter + python->threads))
		return 0;
	/* New states are put first: an unchanged first state means that no state was added since the last search. */
	u64 first = chain->state;
	chain->found = 0;
	taking->states -= run_loop(first == *known_first ? 1 : taking->states, look_at_state, taking, 0);
	*known_first = first;
	*known = chain->found;
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
	return chain->more;
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

/* Reads the Python frames of a thread with this stack pointer into taking->chain; 0: nothing could be read. `innermost` is
 * the address of its instruction, 0 if that has left the evaluation loop by now. */
static __always_inline int read_python_chain(struct python_taking *taking, u64 sp, u64 innermost)
{
	struct python *python = taking->python;
	struct python_chain *chain = taking->chain;

	chain->cframe = 0;
	chain->last = sp - 1;
	chain->head = 0;
	chain->words = 2;
	u64 at = taking->state + python->thread_frame;
	if (python->thread_cframe) {
		if (READ_TARGET(taking, &chain->cframe, 8, taking->state + python->thread_cframe))
			return 0;
		if (innermost >= python->unset_begin && innermost < python->unset_end &&
		    READ_TARGET(taking, &chain->cframe, 8, chain->cframe + python->cframe_previous))
			return 0;
		if (python->anchor != PYTHON_EACH_FRAME)
			at = chain->cframe + python->cframe_frame;
	}
	if (READ_TARGET(taking, &chain->frame, 8, at))
		return 0;
	if (python->anchor == PYTHON_EACH_FRAME && match_python_frames(taking))
		return 0;
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
	return 1;
}

#endif
