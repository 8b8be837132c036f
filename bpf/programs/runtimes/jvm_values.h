/* The HotSpot of a process, written by user space, and what is read of a frame's code. */
#ifndef HPCD_JVM_VALUES_H
#define HPCD_JVM_VALUES_H

#define JVM_HEAPS 4 /* of code: HotSpot has up to three */
#define JVM_BLOB_WORDS 64 /* read of a CodeBlob, at most */

/* A frame is two words in a path, as of Python (python_values.h): this with the address of the Method, if it is
 * interpreted, or of the CodeBlob; and with POSITION the number that identifies what is there (the ConstMethod's
 * address >> 3, the nmethod's compile_id, or 0) and the index of the bytecode, or of the byte of code. */
#define FRAME_JVM (1ULL << 60)
#define FRAME_JVM_INTERPRETED (1ULL << 59)

/* The HotSpot of a process: where its code is, and where its structures have what, in bytes. */
struct jvm {
	u64 code_begin, code_bytes; /* the range that has all heaps of code */
	/* Of each heap; those not used have no bytes. The segment map has a byte for each segment: how far back its block
	 * may begin. */
	u64 heap_begin[JVM_HEAPS], heap_bytes[JVM_HEAPS], segment_map[JVM_HEAPS];
	u32 segment_shift, block_header; /* of a segment; in a block, before its CodeBlob */
	u32 blob_bytes;   /* what is read of a CodeBlob */
	u32 name, frame_size, frame_complete, code; /* in a CodeBlob */
	u32 compile_id, deopt_handler, original_pc; /* in an nmethod */
	u32 constants, code_size, bytecodes; /* in a Method; in a ConstMethod: the bytecodes' number, and themselves */
	u32 relative;     /* 1: code and deopt_handler are s32, from the CodeBlob on; 0: they are addresses */
};

/* Memory of the walk at a frame of Java. */
struct jvm_frame {
	u64 blob[JVM_BLOB_WORDS]; /* of the CodeBlob */
	u64 woken;    /* when user space was last woken for a new path with such frames */
	u64 blob_at;  /* its address */
	u64 name;     /* the first letters of its name */
	u64 word, position; /* of the path */
	u64 sp, bp, ip; /* of the caller */
	u64 constants; /* address of the ConstMethod */
	u64 hops;     /* in segment maps, of this walk */
	u16 size;     /* of its bytecodes */
	u8 back;      /* of the segment map */
	u8 in_stub;   /* whether the thread is in a stub that the code before has called */
	u8 pad[4]; /* 0 */
	u8 code[16];  /* from the byte before ip on */
	u64 words[16]; /* of the stack, from its pointer on, of a thread in a stub */
	u64 call[2];   /* the instructions before a return address */
	u64 slots[10]; /* of an interpreter's frame: from the bytecode's address to the return address */
};

#endif
