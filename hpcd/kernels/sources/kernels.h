/* The kernels that Python calls, and the structures they are given: read by the C compiler and by cffi
 * (hpcd/kernels/library.py), which skips lines that begin with #. What a kernel does is said where it is
 * defined. Sizes count elements; arrays do not overlap. */
#ifndef HPCD_KERNELS_H
#define HPCD_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "states.h"
#include "wire.h"

#pragma GCC visibility push(default)

/* --- records of a measurement: record_chunks.c, record_columns.c --- */

/* Columns of records. */
struct record_columns {
	uint32_t *line;  /* trace line of each */
	uint64_t *time;  /* ns */
	uint32_t *node;  /* of the tree */
	uint16_t *event; /* number of the event */
	uint64_t *value; /* amount of the event */
	int64_t n;       /* number of records */
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

/* Encoded blocks. */
struct stored_blocks {
	const uint8_t *data;   /* where the blocks are */
	int64_t size;          /* bytes of data */
	const int64_t *begin;  /* of each block in data; -1: nothing is stored of it */
	const int64_t *end;    /* of the frame that each block is in */
	const int64_t *count;  /* records of each block */
	const uint16_t *width; /* planes of each block, as bits: time_planes() and the like */
	int64_t n;             /* number of blocks */
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

/* Entries of trace lines, and where their blocks begin. */
struct block_entries {
	const int64_t *cuts;   /* first entry of each block, and the end of the last */
	int64_t blocks;        /* number of blocks */
	const int64_t *time;   /* ticks */
	const uint32_t *node;  /* of the part's tree */
	const uint8_t *state;  /* enum state; NULL: all are SAMPLED */
	const uint16_t *event; /* number of the event */
	const uint64_t *value; /* amount of the event */
	int64_t n;             /* number of entries */
};

bool encode_places(const struct block_entries *entries, uint8_t *data, int64_t *begin, uint32_t *least, uint16_t *wide,
		   uint16_t *wide_node, uint16_t *has_states);
bool encode_codes(const struct block_entries *entries, uint8_t *data, int64_t *begin, uint16_t *wide,
		  uint16_t *wide_other);

/* --- entries of trace lines: line_entries.c, resumed_paths.c, overviews.c --- */

/* Records of trace lines. Line i has the stretches from first[i] to first[i + 1]. */
struct line_records {
	const int64_t *rows;   /* row of each line in the part */
	int64_t lines;         /* number of lines */
	const int64_t *first;  /* stretch of each line, and the end of the last */
	const int64_t *begin;  /* first record of each stretch */
	const int64_t *end;    /* record behind each stretch */
	const uint64_t *time;  /* ns of each record */
	const uint32_t *node;  /* of each record */
	const uint16_t *event; /* of each record */
	const uint64_t *value; /* of each record */
};

/* Numbers that a part gives to nodes and events. */
struct numbering {
	const uint32_t *number;   /* the part's number of each node */
	int64_t nodes;            /* number of nodes */
	const double *length;     /* ns per unit of a value, of each of the 65,536 events */
	const uint8_t *state_of;  /* enum state of the records of each event */
	const int32_t *slot_of;   /* slot of each event; -1: none yet */
	const uint16_t *event_of; /* event of each slot */
	int64_t slots;            /* number of slots, a power of two */
	uint64_t *table;          /* records and value of each node and slot; 0 before and after */
};

/* The state of lines before the records that come now. */
struct lines_so_far {
	int64_t *counts;   /* entries of each line */
	int64_t *earliest; /* ticks of the first entry of each line */
	int64_t *latest;   /* ticks of the last entry of each line */
};

/* Entries of lines, their blocks, and sums by row, node and event. */
struct laid_out {
	int64_t *start;        /* first entry of each line, and the end of the last */
	int64_t *times;        /* ticks of each entry */
	uint32_t *nodes;       /* of each entry */
	uint8_t *states;       /* enum state of each entry */
	uint16_t *events;      /* of each entry */
	uint64_t *values;      /* of each entry */
	int64_t *cuts;         /* first entry of each block, and the end of the last */
	int64_t *sum_key;      /* memory for keys of sums: node times slots plus slot */
	uint32_t *sum_row;     /* row of each sum */
	uint32_t *sum_node;    /* node of each sum */
	uint16_t *sum_event;   /* event of each sum */
	uint64_t *sum_records; /* records of each sum */
	uint64_t *sum_value;   /* values of each sum, added up */
};

int64_t count_entries(const uint16_t *event, const uint64_t *value, int64_t n, const double *length);
bool expand_records(const int64_t *start, int64_t lines, const uint64_t *time, const uint32_t *node,
		    const uint16_t *event, const uint64_t *value, const uint32_t *resumed,
		    const struct numbering *numbering, const struct laid_out *out);
int64_t examine_records(const struct line_records *records, const struct lines_so_far *so_far, int32_t *slot_of,
			uint16_t *event_of, int32_t *used);
bool lay_out_records(const struct line_records *records, const uint32_t *resumed, const struct numbering *numbering,
		     const struct lines_so_far *so_far, const struct laid_out *out, int64_t *sizes);

/* Samples of a stretch of a line's records, by the user frames of the waits before and behind them: a hash table. */
struct seen_samples {
	int64_t places; /* size of the table, a power of two */
	uint32_t *from; /* user frame of the wait before */
	uint32_t *to;   /* user frame of the wait behind */
	uint32_t *node; /* of one sample between them */
	uint64_t *time; /* ns of that sample */
	int64_t *mark;  /* number of the stretch for which the place is valid */
};

/* The tree that records are of. */
struct resumption {
	const uint32_t *user;     /* innermost node of the user's code on the path of each node */
	int64_t nodes;            /* number of nodes */
	const double *length;     /* ns per unit of a value, of each event */
	const uint8_t *state_of;  /* enum state of the records of each event */
	int64_t stretches_before; /* numbers of stretches that marks may have */
};

bool find_resumed_paths(const int64_t *begin, const int64_t *end, int64_t stretches,
			const struct record_columns *records, const struct resumption *tree,
			const struct seen_samples *seen, uint64_t *before, uint32_t *resumed, uint64_t *running);

/* Overviews of lines so far. A word is a node times four and the state. */
struct overviews {
	int64_t *shift;       /* of the step of each line; below 0: no records yet */
	int64_t *seen;        /* records of each line */
	int64_t *entries;     /* written of each line */
	int64_t *following;   /* index of the next entry of each line */
	int64_t *first_time;  /* ticks of the first record */
	int64_t *last_time;   /* ticks of the last record */
	uint32_t *first_word; /* of the first record */
	uint32_t *last_word;  /* of the last record */
};

int64_t overview_pieces(const int64_t *line, int64_t lines, const int64_t *start, const int64_t *time,
			const uint32_t *node, const uint8_t *state, const struct overviews *known, int64_t *pieces);
void overview_entries(int64_t lines, const int64_t *start, const int64_t *time, const uint32_t *node,
		      const uint8_t *state, const struct overviews *known, const int64_t *pieces, uint32_t *values);

/* Moments of an overview with another step. */
struct thinned {
	int64_t step;        /* ticks from one moment to the next */
	int64_t begin;       /* index of the first moment */
	int64_t low;         /* the first moment that is filled in */
	uint32_t first_word; /* of moments before all pieces */
	uint32_t last_word;  /* of moments behind all pieces */
	int64_t n;           /* number of moments */
};

bool thin_entries16(const int64_t *pieces, int64_t count, const uint16_t *entries, int64_t total,
		    const struct thinned *thinned, uint16_t *words);
bool thin_entries32(const int64_t *pieces, int64_t count, const uint32_t *entries, int64_t total,
		    const struct thinned *thinned, uint32_t *words);
int64_t rank_words(const uint16_t *words, int64_t n, uint16_t *place_of, uint32_t *distinct, uint8_t *places);

/* --- sums: record_sums.c, cell_order.c, context_extremes.c --- */

/* Sums of records. */
struct sums {
	uint32_t *line;    /* of each sum */
	uint32_t *node;    /* of each sum */
	uint16_t *event;   /* of each sum */
	uint64_t *records; /* number of records */
	uint64_t *value;   /* values of the records, added up */
	int64_t n;         /* number of sums */
};

/* Memory for summing. */
struct sum_room {
	uint64_t *table; /* records and value of each node and slot; 0 before and after */
	int64_t nodes;   /* number of nodes */
	int64_t slots;   /* number of slots */
	int64_t *keys;   /* of one line, twice */
	int64_t most;    /* keys of a line at most */
};

int64_t sum_lines(const int64_t *start, int64_t lines, const uint32_t *node, const uint16_t *event,
		  const uint64_t *value, const int64_t *slot_of, const struct sum_room *room, int64_t *first,
		  int64_t *keys, uint64_t *records, uint64_t *sums);
int64_t unite_sums(const struct sums *sums, int64_t lines, const int64_t *slot_of, const uint16_t *event_of,
		   const struct sum_room *room, int64_t *first, int64_t *following, int64_t *order,
		   const struct sums *united);

/* Sums by the slot of their event, node and line, as stored. */
struct context_sums {
	uint32_t *line;    /* step from the line of the sum before in its context; the first from 0 */
	uint64_t *records; /* number of records less one */
	uint64_t *value;   /* values less records */
	uint32_t *node;    /* of each context */
	uint32_t *count;   /* sums of each context */
	int64_t *sums;     /* first sum of each slot, and the end of the last */
	int64_t *contexts; /* first context of each slot, and the end of the last */
};

bool order_by_context(const struct sums *sums, const int64_t *slot_of, int64_t slots, int64_t nodes, int64_t *place,
		      uint32_t *last, const struct context_sums *out);
bool order_by_line(const uint32_t *line, const uint32_t *node, int64_t n, int64_t lines, int64_t nodes,
		   int64_t *by_node, int64_t *place, int64_t *first, int64_t *order);
bool total_sums(const uint32_t *place, const uint16_t *event, const uint64_t *records, const uint64_t *value, int64_t n,
		const int64_t *slot_of, int64_t events, int64_t slots, int64_t count, double *totals);

/* Exclusive values of lines. */
struct line_values {
	const int64_t *begin;   /* first amount of each line */
	const int64_t *end;     /* amount behind each line */
	int64_t lines;          /* number of lines */
	const uint32_t *node;   /* of each amount */
	const uint16_t *event;  /* of each amount */
	const uint64_t *amount; /* in the event's unit */
	int64_t n;              /* number of amounts */
	const double *scale;    /* factor of the amounts of each event */
	int64_t events;         /* number of events */
};

/* Inclusive values of each node over lines. */
struct extremes {
	int64_t *count;      /* lines on which the value is not 0 */
	double *squares;     /* sum of squared distances to the mean */
	double *least;       /* smallest value */
	double *most;        /* largest value */
	int64_t *least_line; /* line of the smallest value */
	int64_t *most_line;  /* line of the largest value */
	int64_t *whole;      /* lines before the first with value 0 */
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
	const uint8_t *body;       /* compressed frames */
	int64_t body_size;         /* bytes of body */
	const int64_t *level;      /* step, first moment, count and offset of each line, level by level */
	int64_t levels;            /* number of levels */
	int64_t lines;             /* number of lines */
	int64_t framed;            /* levels, the first ones, whose entries are in frames */
	const int64_t *wide;       /* width of the entries of each line: 0, 1 or 2 for 16, 32 or 8 bits */
	const uint16_t *entries16; /* stored entries of 16 bits */
	int64_t size16;            /* number of entries16 */
	const uint32_t *entries32; /* stored entries of 32 bits */
	int64_t size32;            /* number of entries32 */
	const uint8_t *entries8;   /* stored entries of 8 bits */
	int64_t size8;             /* number of entries8 */
	const int64_t *first_word; /* where the dictionary of each line begins in words */
	const uint32_t *words;     /* dictionaries of lines */
	int64_t word_count;        /* number of words */
	const int64_t *block;      /* first block of each line, and the end of the last */
	int64_t blocks;            /* number of blocks */
	const int64_t *base;       /* ticks of the first record of each block */
	const uint32_t *word;      /* of the first record of each block: its node times four, and its state */
	const uint32_t *frame;     /* that each block is in */
	const uint32_t *at;        /* where each block begins in the content of its frame */
	const uint32_t *least;     /* smallest node of each block */
	const uint16_t *width;     /* planes of each block, as bits: time_planes() and the like */
	const uint16_t *records;   /* of each block */
	int64_t frames;            /* number of frames */
	const int64_t *offset;     /* of each frame in body */
	const uint32_t *size;      /* compressed bytes of each frame */
	const uint32_t *content;   /* bytes of each frame's content */
	int64_t *held;             /* 1 more than where each frame's content is in the ring; 0: it never was there */
	const uint32_t *table;     /* the database's number of each node */
	int64_t table_size;        /* number of nodes */
	int64_t shift;             /* ns that are added to times */
};

/* A line that is drawn. */
struct row {
	int64_t part;  /* index among the parts */
	int64_t place; /* row of the picture */
	int64_t line;  /* line of the part */
	int64_t begin; /* first column */
	int64_t end;   /* column behind the last */
};

/* The source that a row is drawn from. */
enum kind {
	RECORDS, /* its records */
	STORED,  /* entries of its overview, as they are stored */
	FRAMED,  /* entries of its overview, in compressed frames */
	DRAWN,	 /* nothing more: it is drawn */
	DAMAGED_OVERVIEW,
	DAMAGED_RECORDS,
	NO_SUCH_NODE, /* a record is of a node that does not exist */
	OUT_OF_ORDER, /* records are not in order of time */
};

/* What is shown of a row: blocks, frames, or entries as they are stored. */
struct shown {
	int64_t kind;    /* enum kind */
	int64_t step;    /* ns from one moment to the next */
	int64_t moment;  /* index of the first moment */
	int64_t entries; /* number of moments */
	int64_t first;   /* first block, frame or entry */
	int64_t count;   /* number of blocks, frames or entries */
	int64_t width;   /* of entries: 0, 1 or 2 for 16, 32 or 8 bits */
	int64_t left;    /* blocks to be drawn later */
};

/* Columns of a picture. */
struct pixels {
	const int64_t *times; /* ns of each column */
	int64_t columns;      /* number of columns */
	double spacing;       /* ns from one column to the next */
};

/* Contents of frames, written round and round: those of the last size bytes are there. */
struct ring {
	uint8_t *at;  /* its memory */
	int64_t size; /* bytes of the memory */
	int64_t head; /* bytes that were ever written */
};

/* A frame to decompress. */
struct frame {
	int64_t part;    /* index among the parts */
	int64_t offset;  /* in the part's body */
	int64_t size;    /* compressed bytes */
	int64_t to;      /* where its content goes in the ring */
	int64_t content; /* bytes of the content */
};

void choose_rows(const struct part *parts, const struct row *rows, int64_t n, const struct pixels *pixels,
		 struct shown *shown);
int64_t find_room(const struct part *parts, const struct row *rows, struct shown *shown, int64_t n, struct ring *ring,
		  int64_t most, struct frame *frames, int64_t most_frames, int64_t *next);
bool gather_frames(const struct part *parts, const struct frame *frames, int64_t n, uint8_t *to);
int64_t draw_words(int64_t columns);
void draw_rows(const struct part *parts, struct row *rows, struct shown *shown, int64_t from, int64_t end,
	       const struct ring *ring, const struct pixels *pixels, int64_t *room, uint32_t *nodes);
/* Waits without records of their own. Line i has the waits from first[i] to first[i + 1], in order of time. */
struct short_waits {
	const int64_t *first;  /* wait of each line, and the end of the last */
	int64_t lines;         /* number of lines */
	const int64_t *since;  /* tick from which the wait's share counts */
	const int64_t *until;  /* tick until which it counts */
	const uint32_t *word;  /* the wait's node times four, and its state */
	const float *share;    /* of the time outside of recorded waits */
	int64_t n;             /* number of waits */
	const uint32_t *table; /* the database's number of each node */
	int64_t table_size;    /* number of nodes */
	int64_t shift;         /* ns that are added to times */
};

bool show_short_waits(const struct short_waits *waits, const struct row *rows, int64_t n, const struct pixels *pixels,
		      uint32_t *shown);
int64_t count_runs(const uint32_t *nodes, int64_t rows, int64_t columns);
void pixel_runs(const uint32_t *nodes, int64_t rows, int64_t columns, uint32_t *node, uint16_t *end);

/* --- recording: call_paths.c, thread_reports.c --- */

/* Module frames of kernel addresses: a hash table with linear probing. */
struct frame_table {
	const uint64_t *addresses; /* of each slot; 0: it is free */
	const uint64_t *frames;    /* of each slot */
	int64_t slots;             /* a power of two */
};

/* Call paths of stacks. Each array of words has room for as many as all stacks have, headers included. */
struct paths {
	uint16_t *cache;       /* stack cache of each path */
	uint32_t *stack;       /* slot and generation of each path */
	int64_t *length;       /* frames of each path */
	uint32_t *pid;         /* process of each path */
	uint64_t *frames;      /* outermost first, one path after another, with the marker of an ending that is not whole */
	uint64_t *missing;     /* kernel addresses that are not in the table, as often as they occur */
	int64_t *raw_at;       /* positions of user addresses outside of all modules */
	int64_t *raw_of;       /* stacks of these addresses */
	int64_t *python_at;    /* positions of the first words of Python frames in frames */
	int64_t *python_of;    /* stacks of these frames */
	uint64_t *python_position; /* their second words */
	int64_t missing_count; /* number of missing addresses */
	int64_t raw_count;     /* number of addresses outside of all modules */
	int64_t python_count;  /* number of Python frames */
};

/* The growing calling context tree of a recording: daemon/capture/paths/cct_builder.py:CCTBuilder has its arrays. */
struct tree {
	uint64_t *keys;     /* hash of each node's path */
	uint64_t *frames;   /* of each node */
	uint64_t *samples;  /* of each node */
	uint32_t *parents;  /* of each node */
	uint32_t *ended_in; /* module of the frame that a truncated path begins with */
	uint8_t *endings;   /* how the path of each node has ended */
	int64_t room;       /* nodes that the columns have room for */
	int64_t count;      /* nodes, the root included */
	uint32_t *index;    /* nodes by key, with linear probing; 0: a free slot */
	int64_t slots;      /* of the index, a power of two, at least twice the room */
	uint64_t secret;    /* of this recording, in keys */
};

/* Periods of events. */
struct periods {
	const uint64_t *count; /* what one sample of each event counts */
	int64_t events;        /* number of events */
};

/* Times of threads: daemon/capture/threads/thread_times.py:ThreadTimes has its arrays. */
struct times {
	const int64_t *slot_of;        /* slot of each line; -1: none */
	int64_t lines;                 /* number of lines */
	int64_t *time;                 /* ns up to which each slot is accounted for */
	int64_t *left;                 /* ns at which each slot's line left its CPU, if it has */
	uint16_t *kind;                /* enum switch_event, or BORN, of each slot's last report */
	uint32_t *node;                /* call path of each slot's wait */
	uint32_t *woken_by;            /* call path of the waker of each slot's line, 0: not known */
	int64_t *waited;               /* ns at which each slot's line came to a CPU after a wait that is not short */
	uint32_t *waited_at;           /* call path of that wait */
	uint8_t *again;                /* whether the present one began in the same place, straight after */
	uint64_t *futex;               /* futex that each slot's line sleeps on, as struct sample has it */
	int64_t *ready;                /* ns since when each slot's line could run, up to whom it is known that others did */
	int64_t *came;                 /* ns at which it then came to a CPU */
	const uint16_t *group;         /* user and job of each slot */
	int64_t slots;                 /* number of slots */
	int64_t *sums;                 /* ns on a CPU, blocked, runnable and not known of each group */
	int64_t groups;                /* number of groups */
	const uint16_t *until_woken;   /* event of a wait before the wake-up, by how the CPU was left, counted from first */
	const uint16_t *once_runnable; /* event of a wait after the wake-up, the same way */
	int64_t threshold;             /* ns from which a wait has a record of its own */
	int64_t first;                 /* number of the first event of waiting */
	int64_t runnable;              /* number of the event of waiting for a CPU */
	int64_t lost;                  /* number of the event of times whose reports were lost */
	int64_t short_blocked;         /* number of the event of short waits */
	int64_t short_runnable;        /* number of the event of short waits for a CPU */
	int64_t lost_node;             /* call path of times whose reports were lost */
};

/* Counts of a batch of reports. */
struct outcome {
	int64_t records; /* of samples and waits */
	int64_t shorts;  /* short waits */
	int64_t samples; /* reports that are samples */
	int64_t odd;     /* samples that count other than one period of their event */
	int64_t first;   /* samples of the first event */
	int64_t strange; /* reports of nodes that are not in the tree */
	int64_t waits;   /* waits that have ended, and are not short */
	int64_t beside;  /* reports of call paths of wakers, and of interferers */
	int64_t interferers; /* stretches of waiting for a CPU that others had */
};

/* Waits that have ended, from when a line left its CPU until it was woken, and by whom: a thread's number (0: no
 * recorded one), and bpf/programs/records.h:enum waker. Or stretches in which a line could run, and its interferer: a
 * thread's number and enum interferer; without path and futex. */
struct wait_columns {
	uint32_t *line;     /* trace line of each wait */
	uint64_t *time;     /* ns at which it left its CPU */
	uint64_t *duration; /* ns until it was woken */
	uint32_t *node;     /* call path it left in */
	uint32_t *waker;    /* number of the recorded thread that woke it, or 0 */
	uint16_t *kind;     /* enum waker */
	uint32_t *path;     /* the waker's call path, 0: not known */
	uint64_t *futex;    /* futex that it slept on, as struct sample has it */
};

int64_t gather_paths(const uint8_t *stacks, const int64_t *sizes, int64_t n, const uint64_t *spans, int64_t span_count,
		     const struct frame_table *known, struct paths *paths);
void index_nodes(const struct tree *tree);
int64_t insert_paths(const uint64_t *path, const int64_t *lengths, int64_t n, const int64_t *user,
		     int64_t *left, uint32_t beyond, struct tree *tree, uint32_t *leaf);
int64_t look_up(const struct sample *reports, int64_t n, const uint32_t *held, int64_t caches, int64_t slot_bits,
		const uint32_t *threads, int64_t slots, uint32_t *node, uint32_t *line, int64_t *missing,
		int64_t *unknown);
bool take_samples(const struct sample *reports, int64_t n, const uint32_t *node, const uint32_t *line,
		  const struct tree *tree, const struct periods *periods, const struct record_columns *out,
		  struct outcome *outcome);
void note_newest(const uint32_t *line, const uint64_t *time, int64_t n, uint64_t *newest, int64_t lines);
int64_t report_bytes(int64_t n);
bool record_reports(const struct sample *reports, int64_t n, const uint32_t *node, const uint32_t *line,
		    const struct times *times, const struct tree *tree, const struct periods *periods, uint8_t *memory,
		    const struct record_columns *out, const struct wait_columns *waits,
		    const struct wait_columns *interferers, struct outcome *outcome);
void cut_lines(const uint32_t *line, const int64_t *until, const uint8_t *lost, int64_t n, const struct times *times,
	       const struct record_columns *out, struct outcome *outcome);
int64_t sum_bytes(int64_t n);
int64_t sum_short(const struct record_columns *from, uint8_t *memory, const struct record_columns *to);

/* --- chains of waits: wait_chains.c --- */

/* Causes of waiting; further causes are enum waker, where WAKER_THREAD is a thread that is not recorded. */
enum cause {
	CAUSE_THREAD = WAKER_UNKNOWN + 1, /* a recorded thread: it woke; along chains, it ran */
	CAUSE_RUNNABLE,			  /* a recorded thread waited for a CPU */
	CAUSE_UNBORN,			  /* a recorded thread had not begun yet */
	CAUSE_MESSAGE,			  /* a recorded thread, which came to a call of MPI that others waited for */
};

/* Waits of each trace line, and what it did between them; both in order of time, without overlaps. */
struct wait_graph {
	const int64_t *wait_first;  /* first wait of each line, and the number of waits */
	const int64_t *begin;       /* ns at which each wait began */
	const int64_t *end;         /* ns at which it ended */
	const int64_t *waker;       /* line that ended it, or -1 */
	const uint32_t *node;       /* context that waited */
	const uint32_t *kind;       /* enum waker, or CAUSE_MESSAGE; bits above 8 tell further what kind it is, and are
				     * passed on */
	const uint32_t *path;       /* context that it was ended in, 0: not known */
	const int64_t *ender;       /* wait whose end was this one's, too: that of the wait itself was in vain */
	const int64_t *lock;        /* number of the lock that it waited for, or -1 */
	const int64_t *lock_first;  /* first of the hand-overs of each lock, and the number of hand-overs */
	const int64_t *handover;    /* waits for each lock that a thread ended, in order of their ends */
	const int64_t *piece_first; /* first piece of each line, and the number of pieces */
	const int64_t *piece_begin; /* ns at which each piece began */
	const int64_t *piece_end;   /* ns at which it ended */
	const uint32_t *piece_node; /* context that the line was in */
	const uint8_t *piece_kind;  /* enum cause, or WAKER_NOT_SEEN */
	int64_t lines;              /* number of lines */
};

/* Sums by four numbers each, in a hash table. */
struct wait_sums {
	uint32_t *key;  /* group, line, node and kind (as in struct wait_graph) of each place */
	int64_t *ns;    /* sum of each place */
	int64_t *count; /* what was summed there; 0: the place is free */
	int64_t places; /* number of places, a power of two */
	int64_t used;   /* places that are taken */
};

bool sum_wait_causes(const struct wait_graph *graph, const uint32_t *group, const struct wait_sums *direct,
		     const struct wait_sums *roots);

/* What lines did, step by step. */
struct path_steps {
	int64_t *begin; /* ns at which each step began */
	int64_t *end;   /* ns at which it ended */
	uint32_t *line; /* line that it is on */
	uint32_t *node; /* context that the line was in; 0: not known */
	uint32_t *kind; /* enum waker or cause; of wakers as in struct wait_graph */
	int64_t room;   /* number of steps that the columns take */
};

int64_t list_wait_parts(const struct wait_graph *graph, uint32_t line, int64_t wait, bool direct,
			const struct path_steps *parts);
int64_t find_critical_path(const struct wait_graph *graph, const int64_t *creator, uint32_t line, int64_t begin,
			   int64_t end, const struct path_steps *steps);

/* --- replay.c --- */

/* A run to replay. An event is the end of a wait that other lines ended, or the creation of a line by another. It needs
 * a meeting: that all lines that post to it have come to where they did. */
struct replay {
	const int64_t *run_first;   /* first run of each line, and the number of runs */
	const int64_t *run_begin;   /* ns at which each time on a CPU began, of a line in order and without overlaps */
	const int64_t *run_end;     /* ns at which it ended */
	const uint32_t *run_group;  /* its group */
	const double *saved;        /* share that each group's runs are shortened by */
	const uint8_t *shortened;   /* whether each line's are */
	const int64_t *start;       /* ns at which each line begins */
	const int64_t *stop;        /* ns at which it has ended */
	const int64_t *post_time;   /* ns at which a line came to a meeting, ascending */
	const uint32_t *post_line;  /* the line */
	const uint32_t *post_to;    /* the meeting */
	const int64_t *event_time;  /* ns at which the wait ended, ascending, not before any post to the meeting */
	const int64_t *event_begin; /* ns at which the wait began */
	const int64_t *event_ready; /* ns at which the line was on a CPU again */
	const uint32_t *event_line; /* line that waited */
	const uint32_t *event_needs; /* the meeting */
	const uint8_t *event_born;  /* whether the line was created */
	int64_t *before;            /* written: last event on the waiting line before each, or -1 */
	uint8_t *woken;             /* written: whether the line had come to its wait before it was ended */
	int64_t meetings;           /* number of meetings */
	int64_t posts;              /* number of posts */
	int64_t events;             /* number of events */
	int64_t lines;              /* number of lines */
};

/* Who came to a meeting last, in a replay. */
struct meeting {
	double replayed; /* ns in the replay */
	int64_t time;    /* ns as measured */
	int64_t event;   /* last event before it on the line, or -1 */
	int64_t line;
};

/* Where a replay is on a line. */
struct place {
	int64_t measured; /* ns */
	int64_t run;      /* first of its runs that ends later */
	int64_t event;    /* last event on it, or -1 */
	double replayed;  /* ns in the replay */
};

void replay_waits(const struct replay *replay, struct place *places, struct meeting *meetings, double *end);
void replayed_path(const struct replay *replay, const struct place *places, const struct meeting *meetings,
		   int64_t line, double *ns);

/* --- exports: decimal_rows.c, sample_calls.c --- */

int64_t decimal_rows(uint8_t *text, const int64_t *values, int64_t columns, int64_t n, const int64_t *places,
		     const uint8_t *end, int64_t length);
int write_samples(uintptr_t add, uintptr_t sample, uintptr_t writer, uintptr_t attributes, const int64_t *samples,
		  int64_t n, uint32_t undefined);

#pragma GCC visibility pop

#endif
