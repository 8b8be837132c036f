/* Entries of lines' overviews (analysis/trace/overview.py). */
#include "common.h"

/* The word of an entry: its node times four, and its state; all are SAMPLED where there are no states. */
static inline uint32_t word_of(const uint32_t *node, const uint8_t *state, int64_t at)
{
	return node[at] << 2 | (state ? state[at] : SAMPLED);
}

/* Begins lines, and widens steps that would give too many entries: fills in a piece (line, shift, index
 * of the first entry, number of entries) for each of lines; returns the number of their entries. */
int64_t overview_pieces(const int64_t *line, int64_t lines, const int64_t *start, const int64_t *time,
			const uint32_t *node, const uint8_t *state, const struct overviews *known, int64_t *all_pieces)
{
	int64_t (*pieces)[4] = (int64_t (*)[4])all_pieces;
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
			known->first_word[row] = known->last_word[row] = word_of(node, state, begin);
		}
		int64_t before = end - begin > 1 ? time[end - 2] : known->last_time[row];
		uint32_t word = end - begin > 1 ? word_of(node, state, end - 2) : known->last_word[row];
		known->seen[row] += end - begin;
		int64_t most = 2 * known->seen[row] + 64;
		while (known->shift[row] < 62 &&
		       known->entries[row] + (time[end - 1] >> known->shift[row]) - known->following[row] > most) {
			known->shift[row]++;
			known->entries[row] /= 2;
			known->following[row] = (known->following[row] + 1) >> 1;
		}
		int64_t border = twice_border(before, word & 3, time[end - 1], word_of(node, state, end - 1) & 3);
		int64_t upto = (border >> (known->shift[row] + 1)) + 1;
		int64_t number = at_least(upto - known->following[row], 0);
		pieces[place][0] = row;
		pieces[place][1] = known->shift[row];
		pieces[place][2] = known->following[row];
		pieces[place][3] = number;
		total += number;
	}
	return total;
}

/* Fills in the words of the entries of pieces, and of two more: each record has the moments up to its border with the
 * next. */
void overview_entries(int64_t lines, const int64_t *start, const int64_t *time, const uint32_t *node,
		      const uint8_t *state, const struct overviews *known, const int64_t *all_pieces, uint32_t *values)
{
	const int64_t (*pieces)[4] = (const int64_t (*)[4])all_pieces;
	for (int64_t place = 0; place < lines; place++) {
		int64_t row = pieces[place][0], shift = pieces[place][1] + 1;
		int64_t next = pieces[place][2], stop = next + pieces[place][3];
		int64_t before = known->last_time[row];
		uint32_t owner = known->last_word[row];
		for (int64_t at = start[place]; at < start[place + 1]; at++) {
			uint32_t word = word_of(node, state, at), shown = shown_word(owner);
			/* Not beyond the piece, whatever order times are in. */
			int64_t upto = at_most((twice_border(before, owner & 3, time[at], word & 3) >> shift) + 1, stop);
			int64_t number = at_least(upto - next, 0);
			/* Mostly there are up to two, but no processor foresees how many. */
			values[0] = values[1] = shown;
			for (int64_t more = 2; more < number; more++)
				values[more] = shown;
			values += number;
			next += number;
			before = time[at];
			owner = word;
		}
		for (; next < stop; next++)
			*values++ = shown_word(owner);
		known->following[row] = stop;
		known->entries[row] += pieces[place][3];
		known->last_time[row] = before;
		known->last_word[row] = owner;
	}
}

/* Puts some of the entries of a stretch, at equal steps, which are in pieces (line, shift of the step, index of
 * the first, their number, and where they are), into nodes. False where a piece is not within the entries. */
#define THIN(NAME, TYPE)                                                                           \
	bool NAME(const int64_t *all_pieces, int64_t count, const TYPE *entries, int64_t total,    \
		  const struct thinned *thinned, TYPE *words)                                      \
	{                                                                                          \
		const int64_t (*pieces)[5] = (const int64_t (*)[5])all_pieces;                     \
		int64_t step = thinned->step, begin = thinned->begin, n = thinned->n;              \
		int64_t low = at_least(thinned->low, 0);                                           \
		bool whole = false;                                                                \
		for (int64_t at = low; at < n; at++)                                               \
			words[at] = (TYPE)shown_word(thinned->last_word);                          \
		for (int64_t piece = 0; piece < count; piece++) {                                  \
			int64_t shift = pieces[piece][1], first = pieces[piece][2];                \
			int64_t size = pieces[piece][3], where = pieces[piece][4];                 \
			if (shift < 0 || shift > 62 || first < 0 || size < 0 || where < 0 ||       \
			    size > total || where > total - size || !(step >> shift))              \
				return false;                                                      \
			int64_t factor = step >> shift;                                            \
			int64_t place = (first + factor - 1) / factor;                             \
			int64_t skip = place * factor - first;                                     \
			place -= begin;                                                            \
			if (place < low) {                                                         \
				skip += (low - place) * factor;                                    \
				place = low;                                                       \
			}                                                                          \
			if (!whole)                                                                \
				for (int64_t at = low; at < at_most(place, n); at++)               \
					words[at] = (TYPE)shown_word(thinned->first_word);         \
			whole = true;                                                              \
			for (; skip < size && place < n; skip += factor)                           \
				words[place++] = entries[where + skip];                            \
		}                                                                                  \
		return true;                                                                       \
	}
THIN(thin_entries16, uint16_t)
THIN(thin_entries32, uint32_t)

/* The distinct words, ascending, and the place of each of n words among them; returns their number, -1 where
 * there are more than 256. place_of has room for every word there can be, and is 0. */
int64_t rank_words(const uint16_t *words, int64_t n, uint16_t *place_of, uint32_t *distinct, uint8_t *places)
{
	int64_t number = 0;
	for (int64_t at = 0; at < n; at++)
		if (!place_of[words[at]]) {
			if (number == 256)
				return -1;
			place_of[words[at]] = 1;
			distinct[number++] = words[at];
		}
	for (int64_t at = 1; at < number; at++) {
		uint32_t word = distinct[at];
		int64_t to = at;
		for (; to > 0 && distinct[to - 1] > word; to--)
			distinct[to] = distinct[to - 1];
		distinct[to] = word;
	}
	for (int64_t at = 0; at < number; at++)
		place_of[distinct[at]] = (uint16_t)at;
	for (int64_t at = 0; at < n; at++)
		places[at] = (uint8_t)place_of[words[at]];
	return number;
}
