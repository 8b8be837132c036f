/* Inclusive values of contexts over lines: what hpcd/analysis/merge/context_statistics.py does by numpy. */
#include "loops.h"

/* Of each node: on how many lines its value is not 0, the sum of squared distances to the mean, the least
 * and the most, where, and how many lines there are before the first of 0. */
struct extremes {
	int64_t *count;
	double *squares, *least, *most;
	int64_t *least_line, *most_line, *whole;
};

/* Inclusive values of so many lines, from exclusive ones: those of line i are from begin[i] to end[i] of n,
 * amounts that count as much as the scale of their event says, of so many events. Parents precede children; total, reached, missing and touched are of each node, the first three 0.
 * False where a node does not exist, or a parent does not precede its child. */
EXPORTED bool inclusive_extremes(const uint32_t *parent, int64_t nodes, const int64_t *begin,
				 const int64_t *end, int64_t lines, const uint32_t *node,
				 const uint16_t *event, const uint64_t *amount, int64_t n,
				 const double *scale, int64_t events, const double *mean, double *total, uint8_t *reached, int64_t *missing,
				 int64_t *touched, const struct extremes *out)
{
	for (int64_t at = 1; at < nodes; at++)
		if (parent[at] >= at)
			return false;
	for (int64_t line = 0; line < lines; line++) {
		int64_t number = 0;
		if (begin[line] < 0 || end[line] > n)
			return false;
		for (int64_t cell = begin[line]; cell < end[line]; cell++) {
			int64_t at = node[cell];
			if (at >= nodes || event[cell] >= events)
				return false;
			double value = (double)amount[cell] * scale[event[cell]];
			if (value == 0)
				continue;
			total[at] += value;
			while (!reached[at]) {
				reached[at] = 1;
				touched[number++] = at;
				if (at == 0)
					break;
				at = parent[at];
				missing[at]++;
			}
		}
		/* Each node once, after all its children (of which so many are missing; -1 of one that is
		 * done): a path may be long, and most of it is shared. */
		for (int64_t place = 0; place < number; place++) {
			int64_t at = touched[place];
			while (at != 0 && missing[at] == 0) {
				int64_t above = parent[at];
				missing[at] = -1;
				total[above] += total[at];
				missing[above]--;
				at = above;
			}
		}
		for (int64_t place = 0; place < number; place++) {
			int64_t at = touched[place];
			double whole = total[at], distance = whole - mean[at];
			total[at] = 0;
			reached[at] = 0;
			missing[at] = 0;
			if (whole == 0)
				continue;
			if (out->count[at] == line)
				out->whole[at] = line + 1;
			out->count[at]++;
			out->squares[at] += distance * distance;
			if (whole < out->least[at]) {
				out->least[at] = whole;
				out->least_line[at] = line;
			}
			if (whole > out->most[at]) {
				out->most[at] = whole;
				out->most_line[at] = line;
			}
		}
	}
	return true;
}
