/* The kernels that Python calls, and the structures they are given: read by the C compiler and by cffi
 * (hpcd/kernels/library.py), which skips lines that begin with #. What a kernel does is said where it is
 * defined. Sizes count elements; arrays do not overlap. */
#ifndef HPCD_KERNELS_H
#define HPCD_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* --- records of a measurement: record_chunks.c, record_columns.c --- */

/* Columns of n records. */
struct record_columns {
	uint32_t *line;
	uint64_t *time;
	uint32_t *node;
	uint16_t *event;
	uint64_t *value;
	int64_t n;
};

bool decode_column32(const uint8_t *planes, int64_t width, const uint32_t *words, int64_t most, uint32_t *values,
		     int64_t n);
bool decode_column64(const uint8_t *planes, int64_t width, const uint64_t *words, int64_t most, uint64_t *values,
		     int64_t n);
int64_t count_odd(const uint32_t *kind, int64_t n);
int decode_times(const int64_t *start, int64_t lines, uint64_t base, uint64_t unit, const uint32_t *kind,
		 const uint64_t *odd, uint64_t *time, uint16_t *event, uint64_t *value);

int64_t order_bytes(int64_t n);
void order_lines(const uint32_t *line, const uint64_t *time, int64_t n, int64_t *order, uint8_t *memory);
bool are_in_order(const uint32_t *line, const uint64_t *time, int64_t n);
void sort_records(const struct record_columns *records, uint8_t *memory, const struct record_columns *sorted);
int64_t column_bytes(int64_t n);
int64_t encode_column32(const uint32_t *values, int64_t n, uint8_t *out);
int64_t encode_column64(const uint64_t *values, int64_t n, uint8_t *out);
int64_t encode_ranked(const uint32_t *values, int64_t n, uint8_t *memory, uint8_t *out);
int64_t encode_bytes(int64_t n);
int64_t encode_records(const struct record_columns *records, const uint8_t *lasts, uint8_t *memory, uint8_t *out);

/* --- blocks of a part: block_records.c, block_check.c, trace_blocks.c --- */

/* n encoded blocks: block i begins in data, of size bytes, at begin[i], before end[i], where its frame ends; begin
 * is -1 of one that nothing is stored of. */
struct stored_blocks {
	const uint8_t *data;
	int64_t size;
	const int64_t *begin, *end, *count;
	const uint16_t *width;
	int64_t n;
};

int64_t decode_places(const struct stored_blocks *blocks, const uint32_t *least, uint32_t *step, uint32_t *node,
		      uint8_t *state);
void sum_steps32(uint32_t *step, int64_t blocks);
void sum_steps64(const uint32_t *step, int64_t blocks, uint64_t *since);
bool decode_codes(const struct stored_blocks *blocks, const uint32_t *ticks, const uint64_t *long_ticks,
		  uint16_t *event, uint64_t *value);
bool check_places(const struct stored_blocks *blocks, const uint32_t *least, int64_t nodes, int64_t *length,
		  uint8_t *bad);
int64_t check_codes(const struct stored_blocks *codes, const uint8_t *interval, int64_t events, uint8_t *bad);

/* n entries of trace lines, and where their blocks begin. */
struct block_entries {
	const int64_t *cuts;
	int64_t blocks;
	const int64_t *time;
	const uint32_t *node;
	const uint8_t *state; /* NULL: all are SAMPLED */
	const uint16_t *event;
	const uint64_t *value;
	int64_t n;
};

bool encode_places(const struct block_entries *entries, uint8_t *data, int64_t *begin, uint32_t *least, uint16_t *wide,
		   uint16_t *wide_node, uint16_t *has_states);
bool encode_codes(const struct block_entries *entries, uint8_t *data, int64_t *begin, uint16_t *wide,
		  uint16_t *wide_other);

/* --- entries of trace lines: line_entries.c, resumed_paths.c, overviews.c --- */

/* State of a thread from an entry on: analysis/trace/states.py:State has the same. */
enum state {
	SAMPLED, /* it runs, seen by a sample */
	BLOCKED, /* it waits until the next entry */
	READY,	 /* it waits for a CPU until the next entry */
	RESUMED, /* it runs again after a wait */
};

/* Records of trace lines: line i is row rows[i] and has the stretches from first[i] on, which begin and end in the
 * columns as begin and end say. */
struct line_records {
	const int64_t *rows;
	int64_t lines;
	const int64_t *first, *begin, *end;
	const uint64_t *time;
	const uint32_t *node;
	const uint16_t *event;
	const uint64_t *value;
};

/* The part's number of each of its nodes; of each of the 65,536 events its length (ns per unit of a value), the state
 * of its records and its slot; of each slot, a power of two of them, its event; table is of two numbers for each node
 * and slot. */
struct numbering {
	const uint32_t *number;
	int64_t nodes;
	const double *length;
	const uint8_t *state_of;
	const int32_t *slot_of;
	const uint16_t *event_of;
	int64_t slots;
	uint64_t *table;
};

/* Lines so far: the number of entries of each, and ticks of its first and last one. */
struct lines_so_far {
	int64_t *counts, *earliest, *latest;
};

/* Entries, where blocks of them begin, and sums by row, node and event; sum_key is for their keys (node times slots
 * plus slot). */
struct laid_out {
	int64_t *start, *times;
	uint32_t *nodes;
	uint8_t *states;
	uint16_t *events;
	uint64_t *values;
	int64_t *cuts, *sum_key;
	uint32_t *sum_row, *sum_node;
	uint16_t *sum_event;
	uint64_t *sum_records, *sum_value;
};

int64_t count_entries(const uint16_t *event, const uint64_t *value, int64_t n, const double *length);
bool expand_records(const int64_t *start, int64_t lines, const uint64_t *time, const uint32_t *node,
		    const uint16_t *event, const uint64_t *value, const uint32_t *resumed,
		    const struct numbering *numbering, const struct laid_out *out);
int64_t examine_records(const struct line_records *records, const struct lines_so_far *so_far, int32_t *slot_of,
			uint16_t *event_of, int32_t *used);
bool lay_out_records(const struct line_records *records, const uint32_t *resumed, const struct numbering *numbering,
		     const struct lines_so_far *so_far, const struct laid_out *out, int64_t *sizes);

/* Samples of a stretch of a line's records by the user frames of the waits before and behind them: node and time of one
 * sample, valid where mark is the number of the stretch. A power of two of places. */
struct seen_samples {
	int64_t places;
	uint32_t *from, *to, *node;
	uint64_t *time;
	int64_t *mark;
};

/* The tree that records are of: user is the innermost node of the user's code on the path of each node. */
struct resumption {
	const uint32_t *user;
	int64_t nodes;
	const double *length;
	const uint8_t *state_of;
	int64_t stretches_before; /* numbers of stretches that marks may have */
};

bool find_resumed_paths(const int64_t *begin, const int64_t *end, int64_t stretches,
			const struct record_columns *records, const struct resumption *tree,
			const struct seen_samples *seen, uint64_t *before, uint32_t *resumed, uint64_t *running);

/* What is known of the overviews of lines: the shift of the step of each (below 0 of one without records), its
 * records, its entries, the next entry, times and words of its first and last records. A word is a node times four and
 * the state. */
struct overviews {
	int64_t *shift, *seen, *entries, *following;
	int64_t *first_time, *last_time;
	uint32_t *first_word, *last_word;
};

int64_t overview_pieces(const int64_t *line, int64_t lines, const int64_t *start, const int64_t *time,
			const uint32_t *node, const uint8_t *state, const struct overviews *known, int64_t *pieces);
void overview_entries(int64_t lines, const int64_t *start, const int64_t *time, const uint32_t *node,
		      const uint8_t *state, const struct overviews *known, const int64_t *pieces, uint32_t *values);

/* Moments of an overview from the index begin on, in steps of step ticks; n of them, of which those from low on are
 * filled in. What no piece reaches is the first word, or the last. */
struct thinned {
	int64_t step, begin, low;
	uint32_t first_word, last_word;
	int64_t n;
};

bool thin_entries16(const int64_t *pieces, int64_t count, const uint16_t *entries, int64_t total,
		    const struct thinned *thinned, uint16_t *words);
bool thin_entries32(const int64_t *pieces, int64_t count, const uint32_t *entries, int64_t total,
		    const struct thinned *thinned, uint32_t *words);
int64_t rank_words(const uint16_t *words, int64_t n, uint16_t *place_of, uint32_t *distinct, uint8_t *places);

/* --- sums: record_sums.c, cell_order.c, context_extremes.c --- */

/* n sums of records. */
struct sums {
	uint32_t *line, *node;
	uint16_t *event;
	uint64_t *records, *value;
	int64_t n;
};

/* Memory that summing needs: a table of two numbers for each node and slot, all 0 before and after, and the keys of
 * one line, twice. */
struct sum_room {
	uint64_t *table;
	int64_t nodes, slots;
	int64_t *keys;
	int64_t most;
};

int64_t sum_lines(const int64_t *start, int64_t lines, const uint32_t *node, const uint16_t *event,
		  const uint64_t *value, const int64_t *slot_of, const struct sum_room *room, int64_t *first,
		  int64_t *keys, uint64_t *records, uint64_t *sums);
int64_t unite_sums(const struct sums *sums, int64_t lines, const int64_t *slot_of, const uint16_t *event_of,
		   const struct sum_room *room, int64_t *first, int64_t *following, int64_t *order,
		   const struct sums *united);

/* Sums by slot of their event, node and line, as their frames have them: steps from one line of a context to the
 * next, the first from 0; records less one; values less records. Of each context its node and the number of its
 * sums; of each slot where its sums and its contexts begin, and where the last one's end. */
struct context_sums {
	uint32_t *line;
	uint64_t *records, *value;
	uint32_t *node, *count;
	int64_t *sums, *contexts;
};

bool order_by_context(const struct sums *sums, const int64_t *slot_of, int64_t slots, int64_t nodes, int64_t *place,
		      uint32_t *last, const struct context_sums *out);
bool order_by_line(const uint32_t *line, const uint32_t *node, int64_t n, int64_t lines, int64_t nodes,
		   int64_t *by_node, int64_t *place, int64_t *first, int64_t *order);
bool total_sums(const uint32_t *place, const uint16_t *event, const uint64_t *records, const uint64_t *value, int64_t n,
		const int64_t *slot_of, int64_t events, int64_t slots, int64_t count, double *totals);

/* Exclusive values of lines: those of line i are from begin[i] to end[i] of n amounts, which count as much as the
 * scale of their event says. */
struct line_values {
	const int64_t *begin, *end;
	int64_t lines;
	const uint32_t *node;
	const uint16_t *event;
	const uint64_t *amount;
	int64_t n;
	const double *scale;
	int64_t events;
};

/* Of each node: the number of lines on which its value is not 0, the sum of squared distances to the mean, the least
 * and the most, the lines of these, and the number of lines before the first of 0. */
struct extremes {
	int64_t *count;
	double *squares, *least, *most;
	int64_t *least_line, *most_line, *whole;
};

int64_t extremes_bytes(int64_t nodes);
bool inclusive_extremes(const uint32_t *parent, int64_t nodes, const struct line_values *values, const double *mean,
			uint8_t *room, int64_t *touched, const struct extremes *out);

/* --- trees: trees.c --- */

int64_t unite_trees(const uint32_t *parent, const uint64_t *frame, const int64_t *start, int64_t trees, uint64_t seed,
		    uint32_t *table, int64_t size, uint32_t *parents, uint64_t *frames, uint32_t *ids);
void translate_frames(const uint64_t *frame, int64_t n, const uint32_t *module_map, int64_t modules,
		      uint64_t *translated);

/* --- pictures: line_pictures.c, short_waits.c, pixel_runs.c --- */

/* A part in this process's memory. */
struct part {
	const uint8_t *body;
	int64_t body_size;
	/* Step, first, count and offset of the levels of each line, level by level. */
	const int64_t *level;
	int64_t levels, lines, framed;
	const int64_t *wide;
	/* Overviews of 16, 32 and 8 bits. */
	const uint16_t *entries16;
	int64_t size16;
	const uint32_t *entries32;
	int64_t size32;
	const uint8_t *entries8;
	int64_t size8;
	const int64_t *first_word; /* where the dictionary of each line begins in words */
	const uint32_t *words;
	int64_t word_count;
	const int64_t *block;
	int64_t blocks;
	const int64_t *base;
	const uint32_t *word; /* of each block's first record: its node times four, and its state */
	const uint32_t *frame, *at, *least;
	const uint16_t *width, *records;
	int64_t frames;
	const int64_t *offset;
	const uint32_t *size, *content;
	/* 1 more than the place in the ring of the content of each frame; 0 if it never was there. */
	int64_t *held;
	/* The database's number of each node, and what is added to times. */
	const uint32_t *table;
	int64_t table_size, shift;
};

/* A line drawn in row place, from column begin to before end. */
struct row {
	int64_t part, place, line, begin, end;
};

/* What is drawn of a row: count blocks or frames from first on, of which left more blocks are to be drawn later, or
 * entries as they are stored, of the moments from moment on, step ns apart. */
struct shown {
	int64_t kind, step, moment, entries, first, count, width, left;
};

/* Times (ns) of columns, spacing ns apart. */
struct pixels {
	const int64_t *times;
	int64_t columns;
	double spacing;
};

/* Contents of frames, written round and round: those of the last size bytes are there. */
struct ring {
	uint8_t *at;
	int64_t size, head;
};

/* A frame to decompress, and the place in the ring for its content. */
struct frame {
	int64_t part, offset, size, to, content;
};

void choose_rows(const struct part *parts, const struct row *rows, int64_t n, const struct pixels *pixels,
		 struct shown *shown);
int64_t find_room(const struct part *parts, const struct row *rows, struct shown *shown, int64_t n, struct ring *ring,
		  int64_t most, struct frame *frames, int64_t most_frames, int64_t *next);
bool gather_frames(const struct part *parts, const struct frame *frames, int64_t n, uint8_t *to);
int64_t draw_words(int64_t columns);
void draw_rows(const struct part *parts, struct row *rows, struct shown *shown, int64_t from, int64_t end,
	       const struct ring *ring, const struct pixels *pixels, int64_t *room, uint32_t *nodes);
/* Waits without records of their own, n of them: line i has the waits from first[i] to first[i + 1], in order of time.
 * From the tick since to until, a share of the time outside of recorded waits belongs to a word: the wait's node times
 * four, and its state. */
struct short_waits {
	const int64_t *first;
	int64_t lines;
	const int64_t *since, *until;
	const uint32_t *word;
	const float *share;
	int64_t n;
	/* The database's number of each node, and the shift of times. */
	const uint32_t *table;
	int64_t table_size, shift;
};

bool show_short_waits(const struct short_waits *waits, const struct row *rows, int64_t n, const struct pixels *pixels,
		      uint32_t *shown);
int64_t count_runs(const uint32_t *nodes, int64_t rows, int64_t columns);
void pixel_runs(const uint32_t *nodes, int64_t rows, int64_t columns, uint32_t *node, uint16_t *end);

/* --- recording: call_paths.c, thread_reports.c --- */

/* Kernel addresses and their module frames, with linear probing: a power of two of slots, 0 a free one. */
struct frame_table {
	const uint64_t *addresses, *frames;
	int64_t slots;
};

/* Call paths of stacks. Frames are the outermost first, one path after another, with the marker of an ending
 * that is not whole. Each array of words has room for as many as all stacks have, headers included. */
struct paths {
	uint16_t *cache;
	uint32_t *stack;
	int64_t *length; /* frames of each path */
	uint64_t *frames;
	uint64_t *missing; /* kernel addresses that are not in the table, as often as they occur */
	int64_t *raw_at, *raw_of; /* positions of user addresses outside of all modules, and their stacks */
	int64_t missing_count, raw_count;
};

/* The growing calling context tree of a recording: daemon/capture/paths/cct_builder.py:CCTBuilder has its arrays. */
struct tree {
	uint64_t *keys, *frames, *samples; /* of each node */
	uint32_t *parents, *ended_in;
	uint8_t *endings;
	int64_t room;  /* nodes that the columns have room for */
	int64_t count; /* nodes, the root included */
	uint32_t *index; /* nodes by key, with linear probing: a power of two of slots, 0 a free one */
	int64_t slots; /* at least twice the room */
	uint64_t secret;
};

/* bpf/programs/records.h:struct sample */
struct report {
	uint64_t time, value;
	uint32_t thread, stack;
	uint16_t cache, event;
	uint32_t pad;
};

/* What one sample of each event counts. */
struct periods {
	const uint64_t *count;
	int64_t events;
};

/* Times of threads: daemon/capture/threads/thread_times.py:ThreadTimes has its arrays. */
struct times {
	const int64_t *slot_of; /* of each line, -1: none */
	int64_t lines;
	int64_t *time;
	uint16_t *kind;
	uint32_t *node;
	const uint16_t *group;
	int64_t slots;
	int64_t *sums; /* three of each group */
	int64_t groups;
	const uint16_t *until_woken, *once_runnable; /* waits by how the CPU was left, counted from first */
	int64_t threshold, first, runnable, short_blocked, short_runnable;
};

struct outcome {
	int64_t records;
	int64_t shorts;	 /* short waits */
	int64_t samples;
	int64_t odd;	 /* samples that count other than one period of their event */
	int64_t first;	 /* samples of the first event */
	int64_t strange; /* reports of nodes that are not in the tree */
};

int64_t gather_paths(const uint8_t *stacks, const int64_t *sizes, int64_t n, const uint64_t *spans, int64_t span_count,
		     const struct frame_table *known, struct paths *paths);
void index_nodes(const struct tree *tree);
int64_t insert_paths(const uint64_t *path, const int64_t *lengths, int64_t n, struct tree *tree, uint32_t *leaf);
int64_t look_up(const struct report *reports, int64_t n, const uint32_t *held, int64_t caches, int64_t slot_bits,
		const uint32_t *threads, int64_t slots, uint32_t *node, uint32_t *line, int64_t *missing,
		int64_t *unknown);
bool take_samples(const struct report *reports, int64_t n, const uint32_t *node, const uint32_t *line,
		  const struct tree *tree, const struct periods *periods, const struct record_columns *out,
		  struct outcome *outcome);
void note_newest(const uint32_t *line, const uint64_t *time, int64_t n, uint64_t *newest, int64_t lines);
int64_t report_bytes(int64_t n);
bool record_reports(const struct report *reports, int64_t n, const uint32_t *node, const uint32_t *line,
		    const struct times *times, const struct tree *tree, const struct periods *periods, uint8_t *memory,
		    const struct record_columns *out, struct outcome *outcome);
void cut_lines(const uint32_t *line, const int64_t *until, int64_t n, const struct times *times,
	       const struct record_columns *out, struct outcome *outcome);
int64_t sum_bytes(int64_t n);
int64_t sum_short(const struct record_columns *from, uint8_t *memory, const struct record_columns *to);

/* --- exports: decimal_rows.c, sample_calls.c --- */

int64_t decimal_rows(uint8_t *text, const int64_t *values, int64_t columns, int64_t n, const int64_t *places,
		     const uint8_t *end, int64_t length);
int write_samples(uintptr_t add, uintptr_t sample, uintptr_t writer, uintptr_t attributes, const int64_t *samples,
		  int64_t n, uint32_t undefined);

#pragma GCC visibility pop

#endif
