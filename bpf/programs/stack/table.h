/* Table memory: where the unwinder finds mappings, page directories and rows.
 *
 * One growing address space of 32-bit words. Word address w is word (w & 1023) of block
 * (w >> 10 & 1023) of segment (w >> 20): a segment is one inner array map of 1024 blocks of 4 KiB,
 * made on demand, so there is no fixed cap on rows and 4 MiB is the unit of growth.
 *
 * A process' address space is a run of whole blocks of 128 mappings each, sorted by start.
 *
 * A module's rows are grouped by KiB page of its text. Its directory has one word per page: the
 * word address of the page's group. A group never straddles a block, so the search inside it
 * needs no further map look-up; at the mean of 16 rows a page it is one cache line. A row is
 * (rule << 16 | pc within the page). The first row of a group holds from the start of the page,
 * so its pc is not needed and gives the number of rows instead. Pages that one rule covers wholly
 * share one group. Cost: 4.5 bytes a row for libLLVM, directory included.
 */
#ifndef HPCD_STACK_TABLE_H
#define HPCD_STACK_TABLE_H

#define BLOCK_WORDS 1024
#define BLOCK_SHIFT 10
#define SEGMENT_SHIFT 20
#define SEGMENT_BLOCKS 1024
#define MAX_SEGMENTS 1024 /* 4 GiB of tables: an outer map of 8 KiB */
#define PAGE_BITS 10
#define MAPPINGS_PER_BLOCK 128
#define MAX_SPACE_BLOCKS 32 /* 4096 executable mappings a process */
#define MODULE_MASK 0x3fffff
#define MAPPING_FRAME_POINTER (1u << 31) /* no table: a JIT region */

struct block {
	u32 word[BLOCK_WORDS]; /* mappings, a directory or rows */
};

struct mapping {
	u64 start; /* first address in the process */
	u64 bias;     /* address - bias = ELF virtual address */
	u32 pages;    /* length in units of 4096 bytes */
	u32 base;     /* ELF virtual address >> 12 at which the directory begins */
	u32 dir;      /* word address of the page directory, 0: none yet */
	u32 module;   /* module id, and flags */
};

struct mapping_block {
	struct mapping mapping[MAPPINGS_PER_BLOCK]; /* by start */
};

/* An address space as a process entry names it. */
struct space {
	u32 address; /* of its first block */
	u32 count;   /* of mappings */
};

#endif
