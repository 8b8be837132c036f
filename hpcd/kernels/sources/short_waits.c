/* Short waits in pictures (analysis/trace/short_waits.py). */
#include "common.h"

/* A number from 0 to 1 for a time. Numbers of evenly spaced times are evenly spread (Fibonacci hashing: Knuth, The Art
 * of Computer Programming, volume 3, section 6.4). */
static inline float share_of(int64_t time)
{
	return (float)((uint64_t)time * 0x9E3779B97F4A7C15u >> 40) / (float)(1 << 24);
}

/* Replaces pixels of threads that run by short waits, as many as the waits' share of the time is. Rows must be drawn.
 * Returns false for waits outside of the table, or a node that does not exist. */
bool show_short_waits(const struct short_waits *waits, const struct row *rows, int64_t n, const struct pixels *pixels,
		      uint32_t *shown)
{
	for (int64_t number = 0; number < n; number++) {
		const struct row *row = rows + number;
		if (row->line < 0 || row->line >= waits->lines || row->begin < 0 || row->end > pixels->columns)
			return false;
		int64_t at = waits->first[row->line], high = waits->first[row->line + 1];
		if (at < 0 || high < at || high > waits->n)
			return false;
		uint32_t *mine = shown + row->place * pixels->columns;
		for (int64_t column = row->begin; column < row->end && at < high; column++) {
			int64_t time = pixels->times[column];
			/* Any moment of a microsecond will do. */
			int64_t tick = (int64_t)((uint64_t)time - (uint64_t)waits->shift) / TIME_UNIT;
			while (at < high && waits->until[at] < tick)
				at++;
			if (mine[column] >> STATE_SHIFT != SAMPLED)
				continue;
			float left = share_of(time);
			for (int64_t wait = at; wait < high && waits->since[wait] <= tick; wait++) {
				left -= waits->share[wait];
				if (left >= 0)
					continue;
				uint32_t word = waits->word[wait];
				if (word >> 2 >= waits->table_size || (word & 3) == RESUMED)
					return false;
				mine[column] = pixel_of(waits->table[word >> 2], word & 3);
				break;
			}
		}
	}
	return true;
}
