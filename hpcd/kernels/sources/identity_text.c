/* Identities and symbols in JSON, as writers of this version put them: what hpcd/measurement/identity_rows.py
 * and reader.py do by json. Whatever is written in another way, if only by a space, is left to these. */
#include "common.h"

#define MOST_DIGITS 18

enum field { NUMBER, NUMBER_OR_NONE, TEXT, WORDS };

/* What is known of a column. */
enum fact { LEAST, MOST, NONES, ALIKE, FACTS };

struct text {
	const uint8_t *data;
	int64_t at, size;
};

static bool take(struct text *text, const uint8_t *wanted, int64_t length)
{
	if (text->size - text->at < length)
		return false;
	for (int64_t letter = 0; letter < length; letter++)
		if (text->data[text->at + letter] != wanted[letter])
			return false;
	text->at += length;
	return true;
}

static bool take_letter(struct text *text, uint8_t wanted)
{
	return take(text, &wanted, 1);
}

static bool take_number(struct text *text, int64_t *value)
{
	bool below = take_letter(text, '-');
	int64_t first = text->at, number = 0;
	while (text->at < text->size && text->data[text->at] >= '0' && text->data[text->at] <= '9') {
		if (text->at - first == MOST_DIGITS)
			return false;
		number = number * 10 + (text->data[text->at++] - '0');
	}
	/* No digits at all; 07 and -0 are no numbers, or are written in another way. */
	if (text->at == first || (text->data[first] == '0' && (below || text->at - first > 1)))
		return false;
	*value = below ? -number : number;
	return true;
}

/* A string without escapes, of ASCII; where what is in it begins and ends. */
static bool take_string(struct text *text, int64_t *begin, int64_t *end)
{
	if (!take_letter(text, '"'))
		return false;
	*begin = text->at;
	while (text->at < text->size) {
		uint8_t letter = text->data[text->at++];
		if (letter == '"') {
			*end = text->at - 1;
			return true;
		}
		if (letter < 0x20 || letter >= 0x80 || letter == '\\')
			return false;
	}
	return false;
}

/* A list of such; where it begins and ends. */
static bool take_words(struct text *text, int64_t *begin, int64_t *end)
{
	int64_t a, b;
	*begin = text->at;
	if (!take_letter(text, '['))
		return false;
	if (!take_letter(text, ']')) {
		do
			if (!take_string(text, &a, &b))
				return false;
		while (take_letter(text, ','));
		if (!take_letter(text, ']'))
			return false;
	}
	*end = text->at;
	return true;
}

static bool take_value(struct text *text, int64_t kind, int64_t *begin, int64_t *end)
{
	switch (kind) {
	case NUMBER_OR_NONE:
		*end = take(text, (const uint8_t *)"null", 4);
		*begin = 0;
		return *end || take_number(text, begin);
	case NUMBER:
		*end = 0;
		return take_number(text, begin);
	case TEXT:
		return take_string(text, begin, end);
	case WORDS:
		return take_words(text, begin, end);
	}
	return false;
}

static bool alike(const struct text *text, int64_t kind, int64_t begin, int64_t end, int64_t other,
		  int64_t other_end)
{
	if (kind == NUMBER || kind == NUMBER_OR_NONE)
		return begin == other && end == other_end;
	if (end - begin != other_end - other)
		return false;
	for (int64_t letter = 0; letter < end - begin; letter++)
		if (text->data[begin + letter] != text->data[other + letter])
			return false;
	return true;
}

/* Rows of a list of objects, each with the same fields: before the value of field i stands what is in names
 * from bound[i] to bound[i + 1]; the first is a number from 0 on that ascends.
 *
 * begin and end are of each field, most rows: numbers, and whether they are none; of texts where they begin
 * and end. facts are FACTS of each field, of numbers the least and the most. How many rows there are; -1 where
 * something is written in another way, or they are more than most. */
int64_t identity_rows(const uint8_t *data, int64_t size, const uint8_t *names, const int64_t *bound,
		      const int64_t *kinds, int64_t fields, int64_t most, int64_t *begin, int64_t *end, int64_t *facts)
{
	struct text text = {data, 0, size};
	int64_t row = 0;
	if (!take_letter(&text, '['))
		return -1;
	if (!take_letter(&text, ']')) {
		do {
			if (row == most)
				return -1;
			for (int64_t field = 0; field < fields; field++) {
				int64_t *a = begin + field * most, *b = end + field * most;
				int64_t *known = facts + field * FACTS;
				if (!take(&text, names + bound[field], bound[field + 1] - bound[field]) ||
				    !take_value(&text, kinds[field], &a[row], &b[row]))
					return -1;
				if (row == 0) {
					known[LEAST] = known[MOST] = a[0];
					known[NONES] = 0;
					known[ALIKE] = true;
				}
				if (kinds[field] == NUMBER_OR_NONE)
					known[NONES] += b[row];
				known[LEAST] = at_most(known[LEAST], a[row]);
				known[MOST] = at_least(known[MOST], a[row]);
				if (known[ALIKE])
					known[ALIKE] = alike(&text, kinds[field], a[row], b[row], a[0], b[0]);
			}
			if (begin[row] < 0 || (row && begin[row] <= begin[row - 1]))
				return -1;
			row++;
			if (!take_letter(&text, '}'))
				return -1;
		} while (take_letter(&text, ','));
		if (!take_letter(&text, ']'))
			return -1;
	}
	return text.at == size ? row : -1;
}

/* The modules that an object of symbols by module has any of, each a list of [start, size, name]; how many,
 * -1 where something is written in another way, a module is there twice, or they are more than most. */
int64_t symbol_modules(const uint8_t *data, int64_t size, int64_t most, int64_t *modules, int64_t *symbols)
{
	struct text text = {data, 0, size};
	int64_t number = 0, a, b;
	if (!take_letter(&text, '{'))
		return -1;
	if (!take_letter(&text, '}')) {
		do {
			if (number == most || !take_letter(&text, '"') || !take_number(&text, &modules[number]) ||
			    !take(&text, (const uint8_t *)"\":[", 3))
				return -1;
			for (int64_t other = 0; other < number; other++)
				if (modules[other] == modules[number])
					return -1;
			symbols[number] = 0;
			if (!take_letter(&text, ']')) {
				do {
					if (!take_letter(&text, '[') || !take_number(&text, &a) ||
					    !take_letter(&text, ',') || !take_number(&text, &a) ||
					    !take_letter(&text, ',') || !take_string(&text, &a, &b) ||
					    !take_letter(&text, ']'))
						return -1;
					symbols[number]++;
				} while (take_letter(&text, ','));
				if (!take_letter(&text, ']'))
					return -1;
			}
			number++;
		} while (take_letter(&text, ','));
		if (!take_letter(&text, '}'))
			return -1;
	}
	return text.at == size ? number : -1;
}
