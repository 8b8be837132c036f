/* Columns of numbers as rows of decimal text. */
#include "common.h"

#define MOST_PLACES 18

/* Writes a number's digits and returns the end of them. */
static inline uint8_t *put_digits(uint8_t *text, uint64_t value)
{
	int64_t digits = 1;
	for (uint64_t rest = value / 10; rest; rest /= 10)
		digits++;
	for (int64_t place = digits - 1; place >= 0; place--) {
		text[place] = (uint8_t)('0' + value % 10);
		value /= 10;
	}
	return text + digits;
}

static uint8_t *put_decimal(uint8_t *text, int64_t value, int64_t places)
{
	uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value, scale = 1;
	if (value < 0)
		*text++ = '-';
	for (int64_t place = 0; place < places; place++)
		scale *= 10;
	text = put_digits(text, size / scale);
	uint64_t rest = size % scale;
	if (!rest)
		return text;
	*text++ = '.';
	for (; rest % 10 == 0; rest /= 10)
		places--;
	for (int64_t place = places - 1; place >= 0; place--) {
		text[place] = (uint8_t)('0' + rest % 10);
		rest /= 10;
	}
	return text + places;
}

/* Writes n rows of the columns values into text, each column divided by 10 ** places, with commas between the
 * numbers and end after each row. Returns the number of bytes written; text has room for 24 for each number. */
int64_t decimal_rows(uint8_t *text, const int64_t *values, int64_t columns, int64_t n, const int64_t *places,
		     const uint8_t *end, int64_t length)
{
	uint8_t *to = text;
	for (int64_t row = 0; row < n; row++) {
		for (int64_t column = 0; column < columns; column++) {
			if (column)
				*to++ = ',';
			to = put_decimal(to, values[column * n + row],
					 at_most(at_least(places[column], 0), MOST_PLACES));
		}
		for (int64_t letter = 0; letter < length; letter++)
			*to++ = end[letter];
	}
	return to - text;
}
