/* Pictures of trace lines: the call path that each pixel shows, and the state of its thread there. A pixel is a node of
 * the database, with the state in its two highest bits.
 *
 * First it is chosen for every row what is drawn: of its overview, or its records. Then room is found for the
 * frames that are compressed, in a ring of contents; these are decompressed elsewhere; then rows are
 * drawn. Everything that a file says is looked at when it is used: the kind of a row of which something is not as
 * it must be says what. A row that shows more blocks than are held at once is drawn in pieces: each owns the pixels
 * up to the border between its last record and the first one behind it. */
#include "block_planes.h"

#define FRAME_ENTRIES 8192
#define TICK 1000
#define NEVER ((int64_t)1 << 62)
#define MOST_CONTENT (1 << 18)
/* Frames of an overview that a row shows at most. */
#define MOST_FRAMES 64
/* Blocks of a piece: their contents are a fraction of what is decompressed together. */
#define PIECE_BLOCKS 1024
#define EVEN_NS 10000.0

static inline int64_t floor_of(int64_t number, int64_t by)
{
	int64_t whole = number / by;
	return whole - (number % by < 0);
}

static inline int64_t plus(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t minus(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a - (uint64_t)b);
}

static inline int64_t nanoseconds(int64_t ticks, int64_t shift)
{
	return (int64_t)((uint64_t)ticks * TICK + (uint64_t)shift);
}

/* The moment closest to a time. */
static inline int64_t moment_at(int64_t time, int64_t shift, int64_t step)
{
	return floor_of(plus((int64_t)(2 * (uint64_t)minus(time, shift)), step), 2 * step);
}

/* How many of n numbers, ascending, are not above limit. */
static int64_t not_above(const int64_t *numbers, int64_t n, int64_t limit)
{
	int64_t low = 0;
	while (n > 0) {
		int64_t half = n / 2;
		if (numbers[low + half] <= limit) {
			low += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return low;
}

static void choose_entries(const struct part *part, const struct row *row, const int64_t *level,
			   bool framed, const struct pixels *pixels, struct shown *shown)
{
	int64_t step = level[0], moment = level[1], count = level[2], offset = level[3];
	const int64_t sizes[] = {part->size16, part->size32, part->size8};
	shown->kind = DAMAGED_OVERVIEW;
	shown->width = part->wide[row->line];
	if (step < 1 || step > ((int64_t)1 << 50) || shown->width < 0 || shown->width > 2 || offset < 0)
		return;
	step *= TICK;
	int64_t first = moment_at(pixels->times[row->begin], part->shift, step);
	int64_t last = moment_at(pixels->times[row->end - 1], part->shift, step);
	first = at_most(at_least(minus(first, moment), 0), count - 1);
	last = at_most(at_least(minus(last, moment), 0), count - 1);
	shown->step = step;
	if (!framed) {
		if (offset > sizes[shown->width] - count)
			return;
		shown->kind = STORED;
		shown->moment = plus(moment, first);
		shown->first = offset + first;
		shown->entries = shown->count = last + 1 - first;
		return;
	}
	int64_t begin = first / FRAME_ENTRIES;
	shown->first = offset + begin;
	shown->count = last / FRAME_ENTRIES + 1 - begin;
	shown->moment = plus(moment, begin * FRAME_ENTRIES);
	shown->entries = at_most(count - begin * FRAME_ENTRIES, shown->count * FRAME_ENTRIES);
	if (shown->count < 1 || shown->count > MOST_FRAMES || offset > part->frames ||
	    shown->first > part->frames - shown->count)
		return;
	shown->kind = FRAMED;
}

static void choose_blocks(const struct part *part, const struct row *row,
			  const struct pixels *pixels, struct shown *shown)
{
	int64_t low = part->block[row->line], high = part->block[row->line + 1];
	if (low < 0 || high > part->blocks || low >= high)
		return;
	int64_t begin = floor_of(minus(pixels->times[row->begin], part->shift), TICK);
	int64_t end = floor_of(minus(pixels->times[row->end - 1], part->shift), TICK);
	const int64_t *base = part->base + low;
	int64_t first = at_least(not_above(base, high - low, begin) - 1, 0);
	int64_t last = at_least(not_above(base, high - low, end), first + 1);
	shown->first = low + first;
	shown->count = at_most(last - first, PIECE_BLOCKS);
	shown->left = last - first - shown->count;
	shown->kind = RECORDS;
}

/* Chooses what is drawn of each row. */
void choose_rows(const struct part *parts, const struct row *rows, int64_t n, const struct pixels *pixels,
		 struct shown *shown)
{
	double longest = pixels->spacing / TICK;
	for (int64_t number = 0; number < n; number++) {
		const struct row *row = rows + number;
		const struct part *part = parts + row->part;
		struct shown *mine = shown + number;
		*mine = (struct shown){.kind = DAMAGED_RECORDS};
		if (row->line < 0 || row->line >= part->lines || row->begin < 0 ||
		    row->begin >= row->end || row->end > pixels->columns)
			continue;
		const int64_t *found = NULL;
		bool framed = false;
		for (int64_t level = 0; level < part->levels; level++) {
			const int64_t *one = part->level + 4 * (level * part->lines + row->line);
			if ((double)one[0] > longest || one[2] < 1)
				break;
			found = one;
			framed = level < part->framed;
		}
		if (found)
			choose_entries(part, row, found, framed, pixels, mine);
		else
			choose_blocks(part, row, pixels, mine);
	}
}

/* Bytes that entries of a width take. */
static inline int64_t entry_bytes(int64_t width)
{
	return width == 0 ? 2 : width == 1 ? 4 : 1;
}

static int64_t frame_of(const struct part *part, const struct shown *shown, int64_t number)
{
	return shown->kind == RECORDS ? part->frame[shown->first + number] : shown->first + number;
}

/* Bytes the content of a frame has, from its first bytes (RFC 8878, 3.1.1.1); -1 if they do not say. */
static int64_t content_size(const uint8_t *frame, int64_t size)
{
	if (size < 6 || frame[0] != 0x28 || frame[1] != 0xb5 || frame[2] != 0x2f || frame[3] != 0xfd)
		return -1;
	int64_t what = frame[4], flag = what >> 6, single = what >> 5 & 1;
	int64_t bytes = flag ? (int64_t)1 << flag : single, dictionary = what & 3;
	int64_t from = 5 + !single + (dictionary == 3 ? 4 : dictionary);
	if (!bytes || from + bytes > size || bytes > 4)
		return -1;
	int64_t number = 0;
	for (int64_t at = 0; at < bytes; at++)
		number |= (int64_t)frame[from + at] << 8 * at;
	return number + (bytes == 2 ? 256 : 0);
}

/* Whether what a frame of a part was to hold is still in the ring after more bytes. */
static inline bool is_held(const struct ring *ring, int64_t held, int64_t more)
{
	return held && ring->head + more - (held - 1) <= ring->size;
}

/* Finds room in the ring for frames that rows need and that are not in it: as many rows as need at most so
 * many bytes, which room is left for, and frames, up to one that is drawn in pieces. Returns the number of frames;
 * next is the first row that is not among them. A row that needs more by itself is damaged. */
int64_t find_room(const struct part *parts, const struct row *rows, struct shown *shown, int64_t n, struct ring *ring,
		  int64_t most, struct frame *frames, int64_t most_frames, int64_t *next)
{
	int64_t found = 0, number = *next, begin = ring->head;
	for (; number < n; number++) {
		const struct part *part = parts + rows[number].part;
		struct shown *mine = shown + number;
		if (mine->kind != RECORDS && mine->kind != FRAMED)
			continue;
		int64_t before = found, left = begin + most - ring->head;
		int64_t head = ring->head, last = -1;
		bool sound = true, fits = true;
		for (int64_t at = 0; at < mine->count && sound && fits; at++) {
			int64_t frame = frame_of(part, mine, at);
			if (frame == last)
				continue;
			last = frame;
			sound = frame >= 0 && frame < part->frames;
			if (!sound || is_held(ring, part->held[frame], left))
				continue;
			int64_t offset = part->offset[frame], size = part->size[frame];
			int64_t content = part->content[frame];
			sound = content > 0 && content <= MOST_CONTENT && size > 0 && offset >= 0 &&
				offset <= part->body_size - size;
			if (!sound)
				continue;
			int64_t to = ring->head % ring->size;
			to = to + content > ring->size ? ring->head - to + ring->size : ring->head;
			fits = to + content <= begin + most && found < most_frames;
			if (!fits)
				continue;
			frames[found++] = (struct frame){rows[number].part, offset, size,
							 to % ring->size, content};
			part->held[frame] = to + 1;
			ring->head = to + content;
			left = begin + most - ring->head;
		}
		if (sound && fits && !mine->left)
			continue;
		if (sound && fits) {
			number++;
			break;
		}
		/* What room was found for is not decompressed: as if it never was. */
		for (int64_t at = 0; at < mine->count; at++) {
			int64_t frame = frame_of(part, mine, at);
			if (frame >= 0 && frame < part->frames && part->held[frame] > head)
				part->held[frame] = 0;
		}
		ring->head = head;
		found = before;
		if (sound && head > begin)
			break;
		mine->kind = mine->kind == RECORDS ? DAMAGED_RECORDS : DAMAGED_OVERVIEW;
	}
	*next = number;
	return found;
}

/* Copies frames one behind the other; whether all have the content that is expected. */
bool gather_frames(const struct part *parts, const struct frame *frames, int64_t n, uint8_t *to)
{
	for (int64_t number = 0; number < n; number++) {
		const struct frame *frame = frames + number;
		const uint8_t *from = parts[frame->part].body + frame->offset;
		if (content_size(from, frame->size) != frame->content)
			return false;
		__builtin_memcpy(to, from, frame->size);
		to += frame->size;
	}
	return true;
}

/* The content of a frame that has bytes from at on, or NULL. */
static const uint8_t *content(const struct part *part, const struct ring *ring, int64_t frame,
			      int64_t at, int64_t bytes)
{
	if (frame < 0 || frame >= part->frames || !is_held(ring, part->held[frame], 0))
		return NULL;
	int64_t place = (part->held[frame] - 1) % ring->size;
	if (at + bytes > part->content[frame] || place + at + bytes > ring->size)
		return NULL;
	return ring->at + place + at;
}

/* Contents of frames lie anywhere. */
typedef uint16_t __attribute__((aligned(1))) loose16;
typedef uint32_t __attribute__((aligned(1))) loose32;

/* Fills in the pixel of an entry's word, or of the word whose place among a line's words the entry is if that has any;
 * whether there is such a one. */
static inline bool show_word(uint32_t word, const uint32_t *words, int64_t count,
			     const uint32_t *table, int64_t table_size, uint32_t *shown)
{
	if (count) {
		if (word >= count)
			return false;
		word = words[word];
	}
	if (word >> 2 >= table_size || (word & 3) == RESUMED)
		return false;
	*shown = pixel_of(table[word >> 2], word & 3);
	return true;
}

#define SHOW_ENTRIES(NAME, TYPE)                                                                   \
	static bool NAME(const uint8_t *const *frame, const int64_t *at, int64_t first,            \
			 int64_t entries, int64_t columns, const uint32_t *words, int64_t count,   \
			 const uint32_t *table, int64_t table_size, uint32_t *shown)               \
	{                                                                                          \
		for (int64_t column = 0; column < columns; column++) {                             \
			int64_t entry = at_most(at_least(minus(at[column], first), 0), entries - 1); \
			const TYPE *mine = (const TYPE *)frame[entry / FRAME_ENTRIES];             \
			uint32_t word = mine[entry % FRAME_ENTRIES];                               \
			if (!show_word(word, words, count, table, table_size, shown + column))     \
				return false;                                                      \
		}                                                                                  \
		return true;                                                                       \
	}
SHOW_ENTRIES(show8, uint8_t)
SHOW_ENTRIES(show16, loose16)
SHOW_ENTRIES(show32, loose32)

#define SHOW_STORED(NAME, TYPE)                                                                    \
	static bool NAME(const TYPE *stored, const int64_t *at, int64_t first, int64_t entries,    \
			 int64_t columns, const uint32_t *words, int64_t count,                    \
			 const uint32_t *table, int64_t table_size, uint32_t *shown)               \
	{                                                                                          \
		for (int64_t column = 0; column < columns; column++) {                             \
			uint32_t word =                                                            \
				stored[at_most(at_least(minus(at[column], first), 0), entries - 1)]; \
			if (!show_word(word, words, count, table, table_size, shown + column))     \
				return false;                                                      \
		}                                                                                  \
		return true;                                                                       \
	}
SHOW_STORED(show_stored8, uint8_t)
SHOW_STORED(show_stored16, uint16_t)
SHOW_STORED(show_stored32, uint32_t)

/* The closest moment of every pixel; times are evenly spaced, but for rounding. */
static void moments(const int64_t *times, int64_t columns, int64_t shift, int64_t step, int64_t *at)
{
	double each = 1.0 / (double)(2 * step);
	for (int64_t column = 0; column < columns; column++) {
		int64_t number = plus((int64_t)(2 * (uint64_t)minus(times[column], shift)), step);
		/* Within one of it, as a division of 64 bits is, in a tenth of its time. */
		double place = (double)number * each;
		if (!(place > -1e15 && place < 1e15)) {
			at[column] = floor_of(number, 2 * step);
			continue;
		}
		int64_t whole = (int64_t)place;
		int64_t rest = number - whole * 2 * step;
		whole += (rest >= 2 * step) - (rest < 0);
		rest = number - whole * 2 * step;
		at[column] = whole + (rest >= 2 * step) - (rest < 0);
	}
}

static bool draw_entries(const struct part *part, const struct row *row, const struct shown *shown,
			 const struct ring *ring, const int64_t *at, uint32_t *nodes)
{
	const void *const stored[] = {part->entries16, part->entries32, part->entries8};
	int64_t low = part->first_word[row->line], high = part->first_word[row->line + 1], width = shown->width;
	if (low < 0 || high < low || high > part->word_count)
		return false;
	const uint32_t *words = part->words + low;
	int64_t columns = row->end - row->begin, size = entry_bytes(width);
	at += row->begin;
	nodes += row->begin;
	if (shown->kind == STORED) {
		const uint8_t *from = (const uint8_t *)stored[width] + shown->first * size;
		if (width == 0)
			return show_stored16((const uint16_t *)from, at, shown->moment, shown->entries,
					     columns, words, high - low, part->table,
					     part->table_size, nodes);
		if (width == 1)
			return show_stored32((const uint32_t *)from, at, shown->moment, shown->entries,
					     columns, words, high - low, part->table,
					     part->table_size, nodes);
		return show_stored8(from, at, shown->moment, shown->entries, columns, words,
				    high - low, part->table, part->table_size, nodes);
	}
	const uint8_t *frames[MOST_FRAMES];
	for (int64_t number = 0; number < shown->count; number++) {
		int64_t bytes = at_most(shown->entries - number * FRAME_ENTRIES, FRAME_ENTRIES) * size;
		int64_t frame = shown->first + number;
		frames[number] = content(part, ring, frame, 0, bytes);
		if (!frames[number] || part->content[frame] != bytes)
			return false;
	}
	return (width == 0 ? show16 : width == 1 ? show32 : show8)(
		frames, at, shown->moment, shown->entries, columns, words, high - low, part->table,
		part->table_size, nodes);
}

/* A block of a row: its planes of times and of nodes, and its states (NULL: all are SAMPLED). */
struct block {
	const uint8_t *times, *nodes, *states;
	int64_t time_planes, node_planes, count, base;
	uint32_t least;
};

static bool block_at(const struct part *part, const struct ring *ring, int64_t number,
		     struct block *block)
{
	int64_t width = part->width[number], count = part->records[number], at = part->at[number];
	int64_t times = time_planes(width), nodes = node_planes(width);
	int64_t states = state_bytes(width, count);
	if (times < 1 || times > MOST_PLANES || nodes < 1 || nodes > MOST_PLANES || count < 1 || count > BLOCK_RECORDS)
		return false;
	const uint8_t *planes = content(part, ring, part->frame[number], at, count * (times + nodes) + states);
	*block = (struct block){planes, planes + count * times, states ? planes + count * (times + nodes) : NULL,
				times, nodes, count, nanoseconds(part->base[number], part->shift), part->least[number]};
	return planes;
}

static inline uint8_t state_at(const struct block *block, int64_t at)
{
	return block->states ? block_state(block->states, at) : SAMPLED;
}

/* Fills in the pixel of a record of a block; whether its node exists. */
static inline bool show_record(const struct part *part, const struct block *block, int64_t at, uint32_t *shown)
{
	uint32_t node = block_node(block->nodes, block->node_planes, block->count, at);
	if (node >= part->table_size)
		return false;
	*shown = pixel_of(part->table[node], state_at(block, at));
	return true;
}

/* The first record behind the blocks of a row: its time, its state and its pixel. Without one, a wait that begins at
 * NEVER, so that the row's last record lasts to the end. */
struct follower {
	bool there;
	uint8_t state;
	int64_t time;
	uint32_t pixel;
};

static enum kind follower_of(const struct part *part, const struct row *row, const struct shown *shown,
			     struct follower *behind)
{
	int64_t high = shown->first + shown->count;
	*behind = (struct follower){high < part->block[row->line + 1], BLOCKED, NEVER, 0};
	if (!behind->there)
		return DRAWN;
	if (high >= part->blocks)
		return DAMAGED_RECORDS;
	uint32_t word = part->word[high];
	if (word >> 2 >= part->table_size)
		return NO_SUCH_NODE;
	behind->time = nanoseconds(part->base[high], part->shift);
	behind->state = word & 3;
	behind->pixel = pixel_of(part->table[word >> 2], behind->state);
	return DRAWN;
}

/* Draws what a row's last record leaves; times that step back leave pixels that nothing is drawn in. */
static enum kind draw_follower(const struct follower *behind, int64_t reached, int64_t end,
			  uint32_t *nodes)
{
	for (int64_t column = reached; column < end; column++)
		nodes[column] = behind->pixel;
	return behind->there || reached == end ? DRAWN : OUT_OF_ORDER;
}

/* The border of two records in pixels (twice_border). No arithmetic where it is known: borders stay in order. */
static inline float border_place(float place, uint8_t state, float next, uint8_t next_state)
{
	float known = state == RESUMED && next_state == SAMPLED ? place : next;
	return state | next_state ? known : (place + next) * 0.5f;
}

/* Rows whose pixels have many records each: each record's index is written at its first pixel, and a later record with
 * the same first pixel overwrites it. owner has room for a column more than there are. Fills in the first pixel that no
 * record owns. */
static enum kind draw_many(const struct part *part, const struct row *row, const struct shown *shown,
			   const struct ring *ring, const struct pixels *pixels, int32_t *owner,
			   uint32_t *nodes, int64_t *first_free)
{
	uint32_t step[BLOCK_RECORDS];
	float place[BLOCK_RECORDS + 1];
	uint8_t state[BLOCK_RECORDS + 1];
	int32_t upto[BLOCK_RECORDS + 1];
	struct follower behind;
	struct block block;
	enum kind fault = follower_of(part, row, shown, &behind);
	if (fault != DRAWN)
		return fault;
	int64_t start = pixels->times[0], begin = row->begin, end = row->end;
	float scale = (float)(TICK / pixels->spacing), most = (float)pixels->columns;
	int32_t reached = (int32_t)begin, low = (int32_t)begin, high = (int32_t)end;
	int32_t *mine = owner + begin, falls = 0, number = 0;
	for (int64_t column = begin; column <= end; column++)
		owner[column] = 0;
	/* place[0] is the last record's of the block before: what it owns ends between it and the next. */
	int64_t kept = 0;
	int32_t pending = 0;
	for (int64_t at = 0; at < shown->count; at++) {
		if (!block_at(part, ring, shown->first + at, &block))
			return DAMAGED_RECORDS;
		block_steps(block.times, block.time_planes, block.least, block.count, step);
		float offset = (float)((double)minus(block.base, start) / pixels->spacing);
		uint64_t since = 0;
		float *next = place + kept;
		int64_t count = block.count;
		for (int64_t record = 0; record < count; record++) {
			since += step[record];
			next[record] = (float)since;
		}
		for (int64_t record = 0; record < count; record++)
			next[record] = next[record] * scale + offset;
		for (int64_t record = 0; record < count; record++)
			state[kept + record] = state_at(&block, record);
		count += kept - 1;
		for (int64_t record = 0; record < count; record++) {
			float border = border_place(place[record], state[record], place[record + 1],
						    state[record + 1]) + 1.0f;
			border = border > 0.0f ? border : 0.0f;
			border = border < most ? border : most;
			int32_t column = (int32_t)border;
			column = column > low ? column : low;
			upto[record] = column < high ? column : high;
		}
		number = (int32_t)(at << 10);
		if (kept) {
			falls |= upto[0] < reached;
			reached = upto[0];
			mine[reached - low] = number;
			pending = 1;
		}
		for (int64_t record = pending; record < count; record++) {
			falls |= upto[record] < reached;
			reached = upto[record];
			mine[reached - low] = number + (int32_t)(record - pending) + 1;
		}
		place[0] = place[count];
		state[0] = state[count];
		kept = 1;
	}
	float final = (float)((double)minus(behind.time, start) / pixels->spacing);
	float last = border_place(place[0], state[0], final, behind.state) + 1.0f;
	last = last > 0.0f ? last : 0.0f;
	last = last < most ? last : most;
	int32_t column = (int32_t)last;
	column = column > low ? column : low;
	column = column < high ? column : high;
	falls |= column < reached;
	reached = column;
	*first_free = reached;
	if (falls)
		return OUT_OF_ORDER;
	int64_t at = -1;
	int32_t current = 0, before = -1;
	uint32_t pixel = 0;
	for (int32_t place_of = low; place_of < reached; place_of++) {
		current = owner[place_of] > current ? owner[place_of] : current;
		if (current != before) {
			if (current >> 10 != at) {
				at = current >> 10;
				if (!block_at(part, ring, shown->first + at, &block))
					return DAMAGED_RECORDS;
			}
			if (!show_record(part, &block, current & (BLOCK_RECORDS - 1), &pixel))
				return NO_SUCH_NODE;
			before = current;
		}
		nodes[place_of] = pixel;
	}
	return draw_follower(&behind, reached, end, nodes);
}

/* The number of pixels that are not later than a moment (ns): computed a thousandth of a pixel too low, then put
 * right by looking; found by search where times are too unevenly spaced for that. */
static inline int64_t columns_until(const struct pixels *pixels, int64_t middle)
{
	if (pixels->spacing < EVEN_NS)
		return not_above(pixels->times, pixels->columns, middle);
	double place = (double)minus(middle, pixels->times[0]) * (1.0 / pixels->spacing) + 0.999;
	double most = (double)pixels->columns;
	place = place > 0.0 ? place : 0.0;
	int64_t column = (int64_t)(place < most ? place : most);
	return column + (column < pixels->columns && pixels->times[column] <= middle);
}

/* Rows of few blocks, whose records are looked at one by one around the pixels: at most MOST_FEW. */
#define MOST_FEW 16

static enum kind draw_few(const struct part *part, const struct row *row, const struct shown *shown,
			  const struct ring *ring, const struct pixels *pixels, int64_t *time,
			  uint32_t *nodes)
{
	struct block blocks[MOST_FEW];
	uint32_t step[BLOCK_RECORDS];
	uint8_t state[MOST_FEW * BLOCK_RECORDS];
	int64_t first[MOST_FEW + 1];
	struct follower behind;
	enum kind fault = follower_of(part, row, shown, &behind);
	if (fault != DRAWN)
		return fault;
	int64_t n = 0;
	for (int64_t at = 0; at < shown->count; at++) {
		struct block *block = blocks + at;
		if (!block_at(part, ring, shown->first + at, block))
			return DAMAGED_RECORDS;
		block_steps(block->times, block->time_planes, block->least, block->count, step);
		first[at] = n;
		uint64_t since = 0;
		for (int64_t record = 0; record < block->count; record++) {
			since += step[record];
			state[n] = state_at(block, record);
			time[n++] = nanoseconds((int64_t)since, block->base);
		}
	}
	first[shown->count] = n;
	int64_t low = at_least(not_above(time, n, pixels->times[row->begin]) - 1, 0);
	int64_t high = not_above(time, n, pixels->times[row->end - 1]);
	/* With the first record after the last pixel, where there is one. */
	int64_t last = at_least(at_most(high, n - 1), low), at = 0, reached = row->begin;
	for (int64_t record = low; record <= last; record++) {
		bool is_last = record == last;
		int64_t next = !is_last ? time[record + 1] : high < n ? NEVER : behind.time;
		uint8_t next_state = !is_last ? state[record + 1] : behind.state;
		int64_t border = next == NEVER ? NEVER : twice_border(time[record], state[record], next, next_state) >> 1;
		int64_t column = columns_until(pixels, border);
		column = at_most(at_least(column, row->begin), row->end);
		if (column < reached)
			return OUT_OF_ORDER;
		if (column == reached)
			continue;
		while (record >= first[at + 1])
			at++;
		uint32_t pixel;
		if (!show_record(part, blocks + at, record - first[at], &pixel))
			return NO_SUCH_NODE;
		for (; reached < column; reached++)
			nodes[reached] = pixel;
	}
	return draw_follower(&behind, reached, row->end, nodes);
}

/* A thread ran before its first wait, at a call path that is not known: the root. */
static void draw_begin(const struct part *part, const struct row *row, const struct pixels *pixels, uint32_t *nodes)
{
	int64_t block = part->block[row->line];
	if (block < 0 || block >= part->blocks || block >= part->block[row->line + 1] || part->table_size < 1)
		return;
	uint8_t state = part->word[block] & 3;
	int64_t time = nanoseconds(part->base[block], part->shift);
	if (!is_wait(state))
		return;
	for (int64_t column = row->begin; column < row->end && pixels->times[column] < time; column++)
		nodes[column] = 0;
}

/* Draws a row, or a piece of it; fills in the first pixel that no record of the piece owns. */
static enum kind draw_row(const struct part *part, const struct row *row, const struct shown *shown,
			  const struct ring *ring, const struct pixels *pixels, int64_t *time, int64_t *at,
			  uint32_t *nodes, int64_t *first_free)
{
	if (shown->kind != RECORDS)
		return draw_entries(part, row, shown, ring, at, nodes) ? DRAWN : DAMAGED_OVERVIEW;
	*first_free = row->end;
	if (shown->count > MOST_FEW || (shown->count - 1) * BLOCK_RECORDS > pixels->columns)
		return draw_many(part, row, shown, ring, pixels, (int32_t *)at, nodes, first_free);
	return draw_few(part, row, shown, ring, pixels, time, nodes);
}

/* The number of words of room that drawing the columns takes. */
int64_t draw_words(int64_t columns)
{
	return MOST_FEW * BLOCK_RECORDS + columns + 2;
}

/* Draws rows from to before end; their kinds become DRAWN, or what is wrong with them. A row of which pieces are left
 * is to be drawn again. room has draw_words. */
void draw_rows(const struct part *parts, struct row *rows, struct shown *shown, int64_t from, int64_t end,
	       const struct ring *ring, const struct pixels *pixels, int64_t *room, uint32_t *nodes)
{
	int64_t *at = room + MOST_FEW * BLOCK_RECORDS, shift = 0, step = 0;
	for (; from < end; from++) {
		struct row *row = rows + from;
		const struct part *part = parts + row->part;
		struct shown *mine = shown + from;
		if (mine->kind > FRAMED)
			continue;
		if (mine->kind == RECORDS) {
			step = 0;
		} else if (mine->step != step || part->shift != shift) {
			step = mine->step;
			shift = part->shift;
			moments(pixels->times, pixels->columns, shift, step, at);
		}
		int64_t first_free = row->end;
		enum kind kind = draw_row(part, row, mine, ring, pixels, room, at,
					  nodes + row->place * pixels->columns, &first_free);
		if (kind == DRAWN)
			draw_begin(part, row, pixels, nodes + row->place * pixels->columns);
		if (kind != DRAWN || !mine->left || first_free == row->end) {
			mine->kind = kind;
			continue;
		}
		row->begin = first_free;
		mine->first += mine->count;
		mine->count = at_most(mine->left, PIECE_BLOCKS);
		mine->left -= mine->count;
	}
}
