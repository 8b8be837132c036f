/* The kernel's unwind step, compiled for user space: walks saved stacks. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

#include "stack/rules.h"
#include "stack/table.h"

static struct block *blocks;
static u32 block_count;
static struct rule *rules;
static u32 rule_count;
static const u8 *stack;
static u64 stack_start, stack_size;

static struct block *block_at(u32 address)
{
	u32 block = address >> BLOCK_SHIFT;
	return block < block_count ? &blocks[block] : 0;
}

static int read_stack(void *to, u64 size, u64 from)
{
	if (from < stack_start || from - stack_start > stack_size ||
	    stack_size - (from - stack_start) < size)
		return -14;
	memcpy(to, stack + (from - stack_start), size);
	return 0;
}

#define BLOCK_AT(address) block_at(address)
#define RULE_AT(index) ((u32)(index) < rule_count ? &rules[index] : 0)
#define READ_USER(copied, to, size, from) ((void)(copied), read_stack(to, size, from))

#define HASH_FIRST 0x9E3779B97F4A7C15ULL
#define HASH_SECOND 0xC2B2AE3D27D4EB4FULL

#include "stack/unwind.h"

static void begin(struct walk *w, const u64 *registers, struct space space, u32 number)
{
	memset(w, 0, sizeof *w);
	memcpy(&w->regs, registers, sizeof w->regs);
	w->words_at = NO_STACK;
	w->ip = w->regs.ip;
	w->sp = w->regs.sp;
	w->bp = REGISTER_FP(&w->regs);
#ifdef HPCD_AARCH64
	w->link = w->regs.x[30];
#endif
	w->space = space;
	w->space_number = number;
}

/* Walks with the rules that are known; whether it finds what the walk without them has found. */
static int same_by_known(struct walk *w, const struct walk *without, struct known_rules *known)
{
	while (follow_known(w, known) == KNOWN_STEPS || !unwind_step(w, 0, known))
		;
	return w->ending == without->ending && w->frames == without->frames && w->hash == without->hash &&
	       w->sp == without->sp && w->depth == without->depth &&
	       !memcmp(w->frame, without->frame, w->frames * sizeof(u64));
}

/* Walks one stack; returns the number of frames, innermost first in frames[]. Walks it again with what is
 * known of the space of this number from walks before, and with what is then known, and ends the
 * process where either differs. */
u32 replay(void *words, u32 word_blocks, void *rule_rows, u32 rule_rows_count, u32 space_address,
	   u32 space_count, u32 space_number, const u64 *registers, u64 start, const u8 *bytes,
	   u64 size, u64 *frames, u32 *ending)
{
	static struct walk w, again;
	static struct known_rules known;
	struct space space = {space_address, space_count};

	blocks = words;
	block_count = word_blocks;
	rules = rule_rows;
	rule_count = rule_rows_count;
	stack = bytes;
	stack_start = start;
	stack_size = size;
	begin(&w, registers, space, 0);
	while (!unwind_step(&w, 1, 0))
		;
	for (int i = 0; i < 2; i++) {
		begin(&again, registers, space, space_number);
		if (!same_by_known(&again, &w, &known))
			abort();
	}
	*ending = w.ending;
	memcpy(frames, w.frame, w.frames * sizeof(u64));
	return w.frames;
}
