/* The union of calling context trees. */
#include "common.h"

/* The union of trees that begin at start, in the order in which its nodes appear: fills in parents,
 * frames, and the node of the union of each of theirs; returns the number of its nodes, 0 where a parent does not
 * precede its child.
 *
 * table is of size entries, a power of two and more than there are nodes, all 0. seed is an odd number
 * that no user can foresee, so that no tree is made to be slow. */
int64_t unite_trees(const uint32_t *parent, const uint64_t *frame, const int64_t *start, int64_t trees, uint64_t seed,
		    uint32_t *table, int64_t size, uint32_t *parents, uint64_t *frames, uint32_t *ids)
{
	/* Nodes by parent and frame, with open addressing; 0 is a free place, for the root is no node's
	 * child. */
	uint64_t mask = (uint64_t)size - 1;
	uint32_t used = 1;
	parents[0] = 0;
	frames[0] = 0;
	for (int64_t tree = 0; tree < trees; tree++) {
		int64_t first = start[tree];
		if (start[tree + 1] > first)
			ids[first] = 0;
		for (int64_t at = first + 1; at < start[tree + 1]; at++) {
			if (parent[at] >= at - first)
				return 0;
			uint32_t above = ids[first + parent[at]];
			uint64_t key = (frame[at] ^ above * (uint64_t)0x9E3779B97F4A7C15) * seed;
			key = (key ^ key >> 32) * seed;
			uint64_t place = (key ^ key >> 29) & mask;
			for (;;) {
				uint32_t found = table[place];
				if (found == 0) {
					table[place] = used;
					parents[used] = above;
					frames[used] = frame[at];
					ids[at] = used++;
					break;
				}
				if (parents[found] == above && frames[found] == frame[at]) {
					ids[at] = found;
					break;
				}
				place = (place + 1) & mask;
			}
		}
	}
	return used;
}

#define MODULE_SHIFT 40
#define SPECIAL ((uint64_t)1 << 62)

/* Frames with the modules that module_map has for theirs (analysis/merge/unite/canonical_modules.py). A frame of a module that is none becomes a raw address. */
void translate_frames(const uint64_t *frame, int64_t n, const uint32_t *module_map, int64_t modules,
		      uint64_t *translated)
{
	for (int64_t at = 0; at < n; at++) {
		uint64_t module = frame[at] >> MODULE_SHIFT;
		uint64_t offset = frame[at] & (((uint64_t)1 << MODULE_SHIFT) - 1);
		uint64_t other = module < (uint64_t)modules ? module_map[module] : 0;
		if (frame[at] >= SPECIAL || frame[at] == 0)
			translated[at] = frame[at];
		else
			translated[at] = (other ? other << MODULE_SHIFT : SPECIAL) | offset;
	}
}
