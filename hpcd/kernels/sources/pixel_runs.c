/* Runs of pixels (analysis/trace/pixel_samples.py). */
#include "common.h"

/* The number of runs of all rows. */
int64_t count_runs(const uint32_t *nodes, int64_t rows, int64_t columns)
{
	int64_t runs = rows;
	for (int64_t row = 0; row < rows; row++, nodes += columns) {
		uint32_t more = 0;
		for (int64_t at = 1; at < columns; at++)
			more += nodes[at] != nodes[at - 1];
		runs += more;
	}
	return runs;
}

#define TOGETHER 16

/* What each shows, and the column behind it. There is room for one more than there are. */
void pixel_runs(const uint32_t *nodes, int64_t rows, int64_t columns, uint32_t *node, uint16_t *end)
{
	for (int64_t row = 0; row < rows; row++, nodes += columns) {
		for (int64_t at = 1; at < columns;) {
			int64_t stop = at_most(at + TOGETHER, columns);
			uint32_t differ = 0;
			if (stop == at + TOGETHER)
				for (int64_t next = 0; next < TOGETHER; next++)
					differ |= nodes[at + next] ^ nodes[at + next - 1];
			else
				differ = 1;
			if (!differ) {
				at = stop;
				continue;
			}
			for (; at < stop; at++) {
				/* No processor foresees where runs end: what is written too much is
				 * overwritten. */
				*node = nodes[at - 1];
				*end = (uint16_t)at;
				bool ends = nodes[at] != nodes[at - 1];
				node += ends;
				end += ends;
			}
		}
		*node++ = nodes[columns - 1];
		*end++ = (uint16_t)columns;
	}
}
