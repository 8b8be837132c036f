/* Slices as text of Chrome's events: what interchange/slice_text.py does by Python. */
#include "decimal_text.h"

/* Texts: their letters, one after another, and where each begins and the last ends. */
struct texts {
	const uint8_t *letters;
	const int64_t *starts;
};

static inline uint8_t *put_text(uint8_t *restrict text, const struct texts *texts, int64_t number)
{
	const uint8_t *letters = texts->letters + texts->starts[number];
	int64_t length = texts->starts[number + 1] - texts->starts[number];
	for (int64_t letter = 0; letter < length; letter++)
		text[letter] = letters[letter];
	return text + length;
}

/* Puts slices first to stop, of n, into text; how many bytes they take.
 *
 * name and pieces (costs, of each metric, 0 for none) are numbers of texts for each slice. The first
 * phrases stand before the name, between begin and length, for a wait, around costs, at the end, and
 * before the cost of each metric. Costs have a comma behind them. */
EXPORTED int64_t slice_events(uint8_t *text, int64_t first, int64_t stop, int64_t n,
			      const struct texts *names, const struct texts *phrases,
			      const struct texts *costs, const int64_t *name, const int64_t *begin,
			      const int64_t *length, const uint8_t *wait, const int64_t *pieces,
			      int64_t metrics)
{
	uint8_t *to = text;
	for (int64_t row = first; row < stop; row++) {
		to = put_text(to, phrases, 0);
		to = put_text(to, names, name[row]);
		to = put_number(to, begin[row]);
		to = put_text(to, phrases, 1);
		to = put_number(to, length[row]);
		if (wait[row])
			to = put_text(to, phrases, 2);
		bool has_costs = false;
		for (int64_t metric = 0; metric < metrics; metric++) {
			int64_t piece = pieces[metric * n + row];
			if (!piece)
				continue;
			if (!has_costs)
				to = put_text(to, phrases, 3);
			has_costs = true;
			to = put_text(to, phrases, 6 + metric);
			to = put_text(to, costs, piece);
		}
		if (has_costs)
			to = put_text(to - 1, phrases, 4); /* in place of the last comma */
		to = put_text(to, phrases, 5);
	}
	return to - text;
}
