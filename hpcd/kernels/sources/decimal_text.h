/* Whole numbers as decimal text. */
#ifndef HPCD_DECIMAL_TEXT_H
#define HPCD_DECIMAL_TEXT_H

#include "common.h"

/* Writes a number's digits; behind the last. */
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

/* The same of a number with a sign. */
static inline uint8_t *put_number(uint8_t *text, int64_t value)
{
	if (value >= 0)
		return put_digits(text, (uint64_t)value);
	*text++ = '-';
	return put_digits(text, -(uint64_t)value);
}

#endif
