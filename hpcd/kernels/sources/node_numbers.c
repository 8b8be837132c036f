/* Numbers of nodes in short parts. */
#include "key_order.h"

#define PLACE_BITS 20

/* The part's number of each of n nodes: those of most records first, of equally many as they come. The nodes
 * of part i are those from start[i] to start[i + 1]; counts are of each node and 0. seen are the nodes of each
 * part by number, from bounds[i] to bounds[i + 1]; keys and spare have room for n, as seen has. False where a
 * node does not exist, or a part has more of them with records than have a place. */
bool number_nodes(const int64_t *node, int64_t n, const int64_t *start, int64_t parts, uint32_t *counts, int64_t *keys,
		  int64_t *spare, int64_t *seen, int64_t *bounds, uint32_t *number)
{
	int64_t found = 0;
	for (int64_t at = 0; at < n; at++) {
		if (node[at] < start[0] || node[at] >= start[parts])
			return false;
		counts[node[at]]++;
	}
	bounds[0] = 0;
	for (int64_t part = 0; part < parts; part++) {
		int64_t first = found;
		for (int64_t at = start[part]; at < start[part + 1]; at++) {
			if (!counts[at])
				continue;
			spare[found - first] = at;
			keys[found - first] = (n - counts[at]) << PLACE_BITS | (found - first);
			found++;
		}
		if (found - first > 1 << PLACE_BITS)
			return false;
		for (int64_t place = 0; place < found - first; place++)
			seen[first + place] = spare[place];
		put_in_order(keys, spare, found - first);
		for (int64_t place = 0; place < found - first; place++)
			keys[place] = seen[first + (keys[place] & ((1 << PLACE_BITS) - 1))];
		for (int64_t place = 0; place < found - first; place++) {
			seen[first + place] = keys[place];
			/* Now of what number it is. */
			counts[keys[place]] = (uint32_t)place;
		}
		bounds[part + 1] = found;
	}
	for (int64_t at = 0; at < n; at++)
		number[at] = counts[node[at]];
	return true;
}

/* The nodes that are neither among those seen nor have children: fills in which and returns their number, -1
 * where a node does not exist. unmarked is of each node, all 1. */
int64_t bare_nodes(const uint32_t *parent, int64_t nodes, const uint32_t *seen, int64_t n, uint8_t *unmarked,
		   uint32_t *bare)
{
	int64_t found = 0;
	for (int64_t at = 0; at < n; at++) {
		if (seen[at] >= nodes)
			return -1;
		unmarked[seen[at]] = 0;
	}
	for (int64_t at = 0; at < nodes; at++) {
		if (parent[at] >= nodes)
			return -1;
		unmarked[parent[at]] = 0;
	}
	for (int64_t at = 0; at < nodes; at++)
		if (unmarked[at])
			bare[found++] = (uint32_t)at;
	return found;
}
