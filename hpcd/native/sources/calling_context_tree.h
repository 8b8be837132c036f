/* The growing calling context tree of a recording: hpcd/daemon/capture/cct_builder.py:CCTBuilder has its arrays. */
#ifndef HPCD_CALLING_CONTEXT_TREE_H
#define HPCD_CALLING_CONTEXT_TREE_H

#include "loops.h"

struct tree {
	uint64_t *keys, *frames, *samples; /* of each node */
	uint32_t *parents, *ended_in;
	uint8_t *endings;
	int64_t room;  /* nodes that the columns have room for */
	int64_t count; /* nodes, the root included */
	uint32_t *index; /* nodes by key, with linear probing: a power of two of slots, 0 a free one */
	int64_t slots; /* at least twice the room */
	uint64_t secret;
};

#endif
