/* What all sources of the library share. Nothing is included but what a freestanding compiler has, so
 * that any clang compiles them for any processor; memcpy and memset are found where Python has them. */
#ifndef HPCD_COMMON_H
#define HPCD_COMMON_H

#include "kernels.h"

#include <stddef.h>

/* hpcd/measurement/codec.py:TIME_UNIT_NS. A constant, as dividing by others takes ten times as long. */
#define TIME_UNIT 1000

static inline int64_t at_most(int64_t value, int64_t most)
{
	return value < most ? value : most;
}

static inline int64_t at_least(int64_t value, int64_t least)
{
	return value > least ? value : least;
}

/* The first of [low, high) whose end is later than a time. */
static inline int64_t first_later(const int64_t *end, int64_t low, int64_t high, int64_t time)
{
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (end[middle] > time)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

#define LONGEST_NS ((double)((uint64_t)1 << 60))

/* The ns that a record lasts for a length, which a file may claim to be anything; 0 of a record without one. */
static inline uint64_t lasting(double length)
{
	length = length < LONGEST_NS ? length : LONGEST_NS;
	return (uint64_t)(int64_t)(length > 0 ? length : 0);
}

/* Twice the time at which an entry of a line ends and the next begins. Between two samples it is the middle: a moment
 * belongs to the closest (Tallent et al., ICS 2011, section 5.2). Times of waits are known: one ends where the next
 * entry is, and a thread runs until one begins. What a thread resumed is where the next sample saw it, if any did
 * before it waits again.
 *
 *     time    10 BLOCKED   20 RESUMED   26 SAMPLED   32 SAMPLED   40 BLOCKED
 *     border             20           20           29           40          */
static inline int64_t twice_border(int64_t time, uint8_t state, int64_t next, uint8_t next_state)
{
	if (!(state | next_state))
		return (int64_t)((uint64_t)time + (uint64_t)next);
	return (int64_t)(2 * (uint64_t)(state == RESUMED && next_state == SAMPLED ? time : next));
}

/* Whether a recorded line ended a wait: by a wake-up or by a message. */
static inline bool is_by_line(const struct wait_graph *graph, int64_t wait)
{
	uint32_t kind = graph->kind[wait];
	return (kind == WAKER_THREAD || kind == CAUSE_MESSAGE) && graph->waker[wait] >= 0;
}

static inline bool is_wait(uint8_t state)
{
	return state == BLOCKED || state == READY;
}

/* The word that pictures and overviews have for an entry's word: a thread that resumed runs. */
static inline uint32_t shown_word(uint32_t word)
{
	return (word & 3) == RESUMED ? word & ~(uint32_t)3 : word;
}

/* A pixel has its state in the two highest bits (analysis/trace/states.py). */
#define STATE_SHIFT 30

/* The pixel of a thread in a state at a node of the database. */
static inline uint32_t pixel_of(uint32_t node, uint32_t state)
{
	return node | shown_word(state) << STATE_SHIFT;
}

#endif
