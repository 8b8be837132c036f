/* Entries of lines' overviews: what OverviewBuilder in hpcd/analysis/trace/overview.py does by numpy. */
#include "loops.h"

/* What is known of lines so far: the shift of each one's step (below 0 of one without records), its
 * records, entries and the next entry, times and nodes of its first and last records. */
struct overviews {
	int64_t *shift, *seen, *made, *following;
	int64_t *first_time, *last_time;
	uint32_t *first_node, *last_node;
};

/* Begins lines, and widens steps that would give too many entries: fills in a piece (line, shift, index
 * of the first entry, number of entries) for each of lines; how many entries there will be. */
EXPORTED int64_t overview_pieces(const int64_t *line, int64_t lines, const int64_t *start,
				 const int64_t *time, const uint32_t *node, const struct overviews *known,
				 int64_t (*pieces)[4])
{
	int64_t total = 0;
	for (int64_t place = 0; place < lines; place++) {
		int64_t row = line[place], begin = start[place], end = start[place + 1];
		if (known->shift[row] < 0) {
			int64_t gap = (time[end - 1] - time[begin]) / (end - begin), shift = 0;
			while (shift < 62 && (int64_t)1 << shift < gap)
				shift++;
			known->shift[row] = shift;
			known->following[row] = time[begin] >> shift;
			known->first_time[row] = known->last_time[row] = time[begin];
			known->first_node[row] = known->last_node[row] = node[begin];
		}
		int64_t before = end - begin > 1 ? time[end - 2] : known->last_time[row];
		known->seen[row] += end - begin;
		int64_t most = 2 * known->seen[row] + 64;
		while (known->shift[row] < 62 &&
		       known->made[row] + (time[end - 1] >> known->shift[row]) - known->following[row] > most) {
			known->shift[row]++;
			known->made[row] /= 2;
			known->following[row] = (known->following[row] + 1) >> 1;
		}
		int64_t upto = ((before + time[end - 1]) >> (known->shift[row] + 1)) + 1;
		int64_t number = at_least(upto - known->following[row], 0);
		pieces[place][0] = row;
		pieces[place][1] = known->shift[row];
		pieces[place][2] = known->following[row];
		pieces[place][3] = number;
		total += number;
	}
	return total;
}

/* Fills in the nodes of the entries of pieces: each record has the moments up to the middle between it
 * and the next. */
EXPORTED void overview_entries(int64_t lines, const int64_t *start, const int64_t *time,
			       const uint32_t *node, const struct overviews *known,
			       const int64_t (*pieces)[4], uint32_t *values)
{
	for (int64_t place = 0; place < lines; place++) {
		int64_t row = pieces[place][0], shift = pieces[place][1] + 1;
		int64_t next = pieces[place][2], stop = next + pieces[place][3];
		int64_t before = known->last_time[row];
		uint32_t owner = known->last_node[row];
		for (int64_t at = start[place]; at < start[place + 1]; at++) {
			/* Not beyond the piece, whatever order times are in. */
			int64_t upto = at_most(((before + time[at]) >> shift) + 1, stop);
			for (; next < upto; next++)
				*values++ = owner;
			before = time[at];
			owner = node[at];
		}
		for (; next < stop; next++)
			*values++ = owner;
		known->following[row] = stop;
		known->made[row] += pieces[place][3];
		known->last_time[row] = before;
		known->last_node[row] = owner;
	}
}
